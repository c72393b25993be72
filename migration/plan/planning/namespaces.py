"""The namespaces that a plan opts in, and those that it holds because of their workloads. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from findings.finding import Code
from findings.text import join_names
from migration.assessment.blockers import Blocker
from migration.assessment.claim_counts import ClaimShortage, describe_shortages
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.unmoved import unmoved_text
from migration.plan.model.plan import Held, is_name, is_namespace

_CREATED: Final = (
    "once it is opted in, pods that a controller of another project creates again would get claims"
)
_FIXES: Final = 4
"""The most different fixes that the entry of a namespace has."""
_OF_QUOTAS: Final = frozenset(
    {
        Code.DEVICE_QUOTA_FULL.value,
        Code.EXCEEDS_DEVICE_QUOTA.value,
        Code.EXCEEDS_PER_REQUEST_QUOTA.value,
    }
)


def held_by_defects(defects: Iterable[Blocker]) -> dict[str, Held]:
    """Return the namespaces that blockers of shares or DeviceQuotas hold, with a text for each of these.

    Args:
        defects: The blockers that `check_shares` and `check_stopped_pods` yield.
    """
    texts: dict[str, list[tuple[str, str]]] = {}
    for defect in defects:
        names: dict[str, list[str]] = {}
        for reference in defect.objects:
            names.setdefault(reference.split("/")[1], []).append(reference)
        for namespace, own in names.items():
            text = _defect_text(join_names(own), defect)
            texts.setdefault(namespace, []).append((text, defect.fix))
    return {
        namespace: Held(
            object=f"Namespace//{namespace}",
            reason="; ".join(text for text, _ in own),
            fix="; ".join(dict.fromkeys(fix for _, fix in own)),
        )
        for namespace, own in texts.items()
    }


def _defect_text(names: str, defect: Blocker) -> str:
    if defect.code in _OF_QUOTAS:
        return f"pods of {names} would be stopped once it is opted in: {defect.message}"
    return f"{names} would get shares: {defect.message}"


def split_namespaces(
    workloads: Iterable[AssessedWorkload],
    opted_in: frozenset[str],
    defects: Iterable[Blocker],
    unserved_next: Mapping[str, Sequence[str]] = {},
) -> tuple[list[str], list[Held]]:
    """Return the namespaces to be opted in, and those that are held, each with the first reason.

    Args:
        workloads: The cluster's workloads.
        opted_in: Namespaces that take part already.
        defects: The blockers that `check_shares` and `check_stopped_pods` yield.
        unserved_next: The workloads of `find_unserved_next`.
    """
    held_namespaces = held_by_defects(defects)
    names: dict[str, list[AssessedWorkload]] = {}
    for workload in workloads:
        if workload.key.namespace not in opted_in:
            names.setdefault(workload.key.namespace, []).append(workload)
    namespaces, blocked = [], []
    for name, members in sorted(names.items()):
        reference = f"Namespace//{name}"
        refused = [workload for workload in members if workload.outcome is Outcome.REFUSED]
        invalid = [workload for workload in members if not is_name(workload.key.name)]
        if not is_namespace(name):
            blocked.append(invalid_name(reference))
        elif invalid:
            blocked.append(invalid_name(invalid[0].key.reference))
        elif refused:
            texts = [
                f"{workload.key.reference} ({', '.join(workload.codes)})" for workload in refused
            ]
            fix = next((workload.fix for workload in refused if workload.fix), "")
            reason = f"pods would be rejected once it is opted in: {join_names(texts)}"
            blocked.append(Held(object=reference, reason=reason, fix=fix))
        elif created := [entry for entry in members if entry.gets_claims]:
            texts = [entry.key.reference for entry in created]
            reason = f"{_CREATED}: {join_names(texts)}"
            unserved = [entry for entry in created if entry.key.reference in unserved_next]
            fix = _fix_of_created(unserved or created, unserved_next)
            blocked.append(Held(object=reference, reason=reason, fix=fix))
        elif name in held_namespaces:
            blocked.append(held_namespaces[name])
        elif any(entry.result and entry.outcome is not Outcome.NATIVE for entry in members):
            namespaces.append(name)
    return namespaces, blocked


def _fix_of_created(
    created: Iterable[AssessedWorkload], unserved_next: Mapping[str, Sequence[str]]
) -> str:
    """Return the fixes of workloads with pods to be created again; different ones with their workloads."""
    names: dict[str, list[str]] = {}
    for entry in created:
        reference = entry.key.reference
        _, fix = unmoved_text(entry, unserved_next.get(reference, ()))
        names.setdefault(fix, []).append(reference)
    if len(names) == 1:
        return next(iter(names))
    texts = [f"for {join_names(own)}: {fix}" for fix, own in names.items()]
    more = f"; and {len(texts) - _FIXES} more ways" if len(texts) > _FIXES else ""
    return "; ".join(texts[:_FIXES]) + more


def split_uncreated(
    namespaces: Iterable[str], shortages: Iterable[ClaimShortage]
) -> tuple[list[str], list[Held]]:
    """Return the namespaces to be opted in, and those that are held, since ResourceQuotas let too few claims be created.

    Native workloads that lack some are held by themselves.

    Args:
        namespaces: The namespaces that could be opted in.
        shortages: The lines that let too few be created, of all namespaces.
    """
    shortages_of: dict[str, list[ClaimShortage]] = {}
    for shortage in shortages:
        if shortage.stops_pods and not shortage.is_native:
            shortages_of.setdefault(shortage.namespace, []).append(shortage)
    left, blocked = [], []
    for name in namespaces:
        if name in shortages_of:
            reason, fix = describe_shortages(shortages_of[name])
            blocked.append(Held(object=f"Namespace//{name}", reason=reason, fix=fix))
        else:
            left.append(name)
    return left, blocked


def with_early(entries: Iterable[Held], shortages: Iterable[ClaimShortage]) -> list[Held]:
    """Return held objects with the namespaces of early pods that a plan leaves no room for.

    Pods that were opted in before the plan are early. One that is held already has this reason beside its own.

    Args:
        entries: The objects that have a reason already.
        shortages: The lines that are too low, as what the plan prepares has these pods count on them.
    """
    shortages_of: dict[str, list[ClaimShortage]] = {}
    for shortage in shortages:
        if shortage.stops_pods:
            shortages_of.setdefault(f"Namespace//{shortage.namespace}", []).append(shortage)
    changed = [
        _stopping(entry, own) if (own := shortages_of.pop(entry.object, None)) else entry
        for entry in entries
    ]
    return [
        *changed,
        *(
            _stopping(Held(object=name, reason="", fix=""), shortages_of[name])
            for name in sorted(shortages_of)
        ),
    ]


def _stopping(entry: Held, shortages: Iterable[ClaimShortage]) -> Held:
    """Return a held object with lines that have `prepare.sh` stop; its reason may name them already."""
    reason, fix = entry.reason, entry.fix
    untold = [shortage for shortage in shortages if shortage.text not in reason]
    if untold:
        more, more_fix = describe_shortages(untold)
        reason = "; ".join(filter(None, (reason, more)))
        fix = "; ".join(filter(None, (fix, more_fix)))
    return msgspec.structs.replace(entry, reason=reason, fix=fix, stops_preparation=True)


def invalid_name(reference: str) -> Held:
    """Return the entry of an object that no command has."""
    return Held(
        object=reference,
        reason="the name is none that Kubernetes allows, so no command has it",
        fix="correct the snapshot",
    )


def not_whole(reason: str) -> str:
    """Return the reason that a namespace moves in parts alone."""
    return f"it cannot move as a whole: {reason}; any other Deployments and StatefulSets of it move by themselves"


def separate_workloads(nodes: str = "") -> str:
    """Return the fix of a namespace that some workloads keep from a move as a whole.

    Args:
        nodes: The nodes whose switch is the other fix; empty without one.
    """
    switch = f"have {nodes} switched, too, or " if nodes else ""
    return f"{switch}move these workloads to a namespace of their own; then plan again from a new snapshot"
