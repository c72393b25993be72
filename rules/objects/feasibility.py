"""Verdicts of the allocator about claims: infeasible ones, and those that do not fit now.

`rules.context.evidence` turns an infeasibility into a warning where the inventory is no evidence.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.explain.change import Change, ClosestFit, chosen_by
from allocator.explain.closest_fit import closest_fit_now
from allocator.explain.selector import one_line
from allocator.model.outcome import AttemptFailed
from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding, warning
from findings.fitting import (
    Choice,
    Correction,
    DroppedRequest,
    FittingAmount,
    FittingAmounts,
    WiderChoices,
    drop_one,
)
from kube.api.core import Pod
from kube.api.resource import DeviceClaim
from kube.quantity import format_count
from rules.context.claim_entries import (
    ClaimEntry,
    are_selectors_short,
    entries_of_claim,
    entries_of_pod,
    joint_path,
)
from rules.context.context import Context
from rules.context.evidence import build_findings, decide_enforcement
from rules.context.pod_scheduler import scheduler_of_claim, scheduler_of_pod
from rules.context.rule import Category, Rule, Subject, rules_of_claims_and_pods
from rules.feasibility.bounded_search import (
    Feasibility,
    example_nodes,
    feasibility,
    summarize_reasons,
)
from rules.feasibility.idle_cluster import SEARCHES
from rules.feasibility.incomplete_pools import wait_for_pool
from rules.feasibility.infeasibility import (
    Infeasibility,
    find_drivers,
    find_infeasibilities,
    is_small_enough_for_closest_fit,
)

# --- findings -------------------------------------------------------------------------------------


def _validate_claim(
    code: Code, claim: Subject[DeviceClaim], path: FieldPath, context: Context
) -> Iterator[Finding]:
    entries = entries_of_claim(claim, path)
    if code is Code.DOES_NOT_FIT_NOW:
        # Elsewhere than on the bridge the pods decide the scheduler; kube-scheduler rejects the least.
        cluster = _cluster_of(scheduler_of_claim(claim.view, context), context) if entries else None
        return _does_not_fit_now(entries, path, cluster, context)
    return _findings(code, entries, path, claim.namespace, context)


def _validate_pod(
    code: Code, pod: Subject[Pod], path: FieldPath, context: Context
) -> Iterator[Finding]:
    entries = entries_of_pod(pod, path, context)
    whole = path.child("spec", "resourceClaims")
    if code is Code.DOES_NOT_FIT_NOW:
        scheduler = scheduler_of_pod(pod.view, pod.namespace, context) if entries else ""
        return _does_not_fit_now(entries, whole, _cluster_of(scheduler, context), context)
    return _findings(code, entries, whole, pod.namespace, context)


def _cluster_of(scheduler: str, context: Context) -> Cluster | None:
    """Return the cluster as a scheduler sees it."""
    return context.clusters_by_scheduler.get(scheduler, context.current_cluster)


def _findings(
    code: Code, entries: Sequence[ClaimEntry], whole: FieldPath, namespace: str, context: Context
) -> Iterator[Finding]:
    """Yield the findings of claims with one code.

    Args:
        whole: The path for findings about all claims together.
    """
    idle_cluster = context.idle_cluster
    if idle_cluster is None or not entries:
        return
    claims = tuple(entry.claim for entry in entries)
    if not are_selectors_short(claims):
        if code is Code.NOT_EVALUATED:
            message = "feasibility was not evaluated, since the selectors are too long"
            yield warning(code, joint_path(entries, whole), message)
        return
    for infeasibility in find_infeasibilities(idle_cluster, claims):
        if infeasibility.code is code:
            yield from _finding(infeasibility, entries, whole, namespace, context)


def _finding(
    infeasibility: Infeasibility,
    entries: Sequence[ClaimEntry],
    whole: FieldPath,
    namespace: str,
    context: Context,
) -> Iterable[Finding]:
    cause = None
    if infeasibility.claim is None:
        path = joint_path(entries, whole)
    else:
        entry = entries[infeasibility.claim]
        path = entry.path.join(infeasibility.path) if entry.holds_devices else entry.path
        path = _limit_of(infeasibility.path, entry) or path
        if entry.is_reference:
            cause = infeasibility.path
    if infeasibility.code is Code.NOT_EVALUATED:
        return (warning(infeasibility.code, path, infeasibility.message),)
    enforcement = decide_enforcement(
        context,
        namespace,
        drivers=infeasibility.drivers,
        classes=infeasibility.classes,
        doubt=infeasibility.doubt,
    )
    closest_fit = infeasibility.closest_fit
    findings = build_findings(
        infeasibility.code,
        path,
        infeasibility.message,
        enforcement=enforcement,
        reasons=infeasibility.reasons,
        cause=cause,
        fix=closest_fit.fix if closest_fit is not None else _drop(infeasibility.droppable, entries),
    )
    droppable = tuple(
        DroppedRequest(claim=entries[claim].path, index=index)
        for claim, index in infeasibility.droppable
    )
    return tuple(
        replace(
            _with_droppable(_with_amounts(finding, closest_fit, entries), infeasibility, entries),
            droppable=droppable,
        )
        for finding in findings
    )


def _with_droppable(
    finding: Finding, infeasibility: Infeasibility, entries: Sequence[ClaimEntry]
) -> Finding:
    """Add the requests to drop instead of the changes of a fix, and leave the choice to people."""
    closest_fit = infeasibility.closest_fit
    if closest_fit is None or not (infeasibility.droppable or closest_fit.alternative):
        return finding
    names = _names(infeasibility.droppable, entries)
    fix = "".join((finding.fix, *(f", or drop {name}" for name in names)))
    return replace(finding, fix=fix, corrections=())


def _drop(droppable: Sequence[tuple[int, int]], entries: Sequence[ClaimEntry]) -> str:
    """Return the advice to drop one of some requests; empty without any."""
    return drop_one(_names(droppable, entries))


def _names(droppable: Sequence[tuple[int, int]], entries: Sequence[ClaimEntry]) -> list[str]:
    """Return the names of requests, or the limits that they were made from."""
    names_claim = len({claim for claim, _ in droppable}) > 1
    names = []
    for number, index in droppable:
        limit = _limit_of(FieldPath.of("requests", index), entries[number])
        if limit is not None:
            names.append(one_line(str(limit)))
            continue
        claim = entries[number].claim
        name = one_line((claim.spec.devices.requests or ())[index].name)
        place = f" of claim {one_line(claim.metadata.name)}" if names_claim else ""
        names.append(f"request {name}{place}")
    return names


def _limit_of(path: FieldPath, entry: ClaimEntry) -> FieldPath | None:
    """Return the limit that a request at a path in the claim was made from; None without one."""
    match path.steps:
        case ("requests", int() as index, *_) if entry.limits:
            requests = entry.claim.spec.devices.requests or ()
            return entry.limits.get(requests[index].name) if index < len(requests) else None
    return None


def _with_amounts(
    finding: Finding, closest_fit: ClosestFit | None, entries: Sequence[ClaimEntry]
) -> Finding:
    """Return a finding with its closest fit as amounts, and their places in the object."""
    fitting = _fitting_amounts(closest_fit, entries)
    if closest_fit is not None and closest_fit.alternative is not None:
        other_fitting = _fitting_amounts(closest_fit.alternative, entries)
        finding = replace(finding, other_fitting=other_fitting)
    if closest_fit is None or fitting is None:
        return replace(finding, widening=_wider_choices(closest_fit, entries))
    if closest_fit.drops_constraint_instead:
        widening = _wider_choices(closest_fit.alternative, entries)
        return replace(finding, fitting=fitting, widening=widening)
    places = [_place_of_change(change, entries[change.position]) for change in closest_fit.changes]
    corrections = tuple(
        Correction(path=place, amount=amount.amount)
        for place, amount in zip(places, fitting.amounts, strict=True)
        if place is not None
    )
    if len(corrections) < len(places):
        return replace(finding, fitting=fitting)  # Some of the amounts are in other objects.
    finding = replace(finding, fitting=fitting, corrections=corrections)
    limits = [limit for entry in entries for limit in entry.limits.values()]
    if not limits:
        return finding
    fixes = [_format_fix(corrections, fitting.node, alone=len(limits) == 1)]
    other = closest_fit.alternative
    if other is not None and finding.other_fitting is not None:
        others = tuple(
            Correction(path=place, amount=amount.amount)
            for change, amount in zip(other.changes, finding.other_fitting.amounts, strict=True)
            if (place := _place_of_change(change, entries[change.position])) is not None
        )
        fixes += [_format_fix(others, other.node, alone=False)] if others else []
    return replace(finding, fix=", or ".join(fixes))


def _format_fix(corrections: Iterable[Correction], node: str, *, alone: bool) -> str:
    """Return amounts to write as a fix."""
    amounts = ", ".join(_describe(entry, alone=alone) for entry in corrections)
    return f"write {amounts} to fit node {one_line(node)}"


def _place_of_change(change: Change, entry: ClaimEntry) -> FieldPath | None:
    """Return the place in the object of the number that a change lowers; None if it is in another one."""
    match change.field:
        case FieldPath(steps=("requests", int(), "exactly", "count")) if entry.limits:
            return _limit_of(change.field, entry)
        case FieldPath() as field if entry.holds_devices:
            return entry.path.join(field)
    return None


def _describe(correction: Correction, *, alone: bool) -> str:
    """Return an amount with its key, or with its path if there are others: `nvidia.com/gpu: 4`."""
    *_, last = correction.path.steps
    name = last.name if isinstance(last, Key) and alone else str(correction.path)
    return f"{one_line(name)}: {format_count(correction.amount)}"


def _fitting_amounts(
    closest_fit: ClosestFit | None, entries: Sequence[ClaimEntry]
) -> FittingAmounts | None:
    """Return a closest fit as the numbers to request; None if it changes anything else."""
    if closest_fit is None:
        return None
    amounts = tuple(
        FittingAmount(claim=entries[change.position].path, field=change.field, amount=change.amount)
        for change in closest_fit.changes
        if change.field is not None and change.amount is not None
    )
    if not amounts or len(amounts) < len(closest_fit.changes):
        return None
    return FittingAmounts(amounts=amounts, node=closest_fit.node)


def _wider_choices(
    closest_fit: ClosestFit | None, entries: Sequence[ClaimEntry]
) -> WiderChoices | None:
    """Return a closest fit as the choices to widen; None if it changes anything else."""
    if closest_fit is None:
        return None
    choices = tuple(
        Choice(claim=entry.path, field=field, value=change.value)
        for change in closest_fit.changes
        for entry in (entries[change.position],)
        if (field := chosen_by(change, entry.claim)) is not None
    )
    if not choices or len(choices) < len(closest_fit.changes):
        return None
    return WiderChoices(choices=choices, node=closest_fit.node)


def _does_not_fit_now(
    entries: Sequence[ClaimEntry], whole: FieldPath, cluster: Cluster | None, context: Context
) -> Iterator[Finding]:
    """Yield a warning if no node fits the claims beside the present allocations.

    Args:
        whole: The path for findings about all claims together.
        cluster: The view that the claims' scheduler has of the cluster.
    """
    idle_cluster = context.idle_cluster
    claims = tuple(entry.claim for entry in entries)
    if idle_cluster is None or cluster is None or not claims or not are_selectors_short(claims):
        return
    if idle_cluster.feasibility(claims) is not Feasibility.FEASIBLE:
        return
    try:
        pending = cluster.resolve(claims)
        if feasibility(cluster, pending) is not Feasibility.INFEASIBLE:
            return
        reasons = summarize_reasons(cluster, pending)
        incomplete = idle_cluster.incomplete_pool_for(claims)
        if (
            not reasons and incomplete is None
        ):  # No node has devices, since the pools are incomplete.
            gap = idle_cluster.evidence_gap(find_drivers(idle_cluster, claims))
            reasons = (gap,) if gap else ()
        names = [example.node.node for example in example_nodes(cluster, pending)]
    except AttemptFailed:
        return
    closest_fit = None
    if is_small_enough_for_closest_fit(claims):
        closest_fit = closest_fit_now(cluster, claims, nodes=names, searches=SEARCHES)
    message = "no node can satisfy this now"
    if incomplete is not None:
        pool, node = incomplete
        cause = f"{idle_cluster.describe_incomplete_pool(pool)}, driver {pool.driver}"
        message = f"{message}: {wait_for_pool(cause, node)}"
        # To wait is better than to ask for another kind of devices.
        keeps_kinds = closest_fit is not None and closest_fit.keeps_kinds
        closest_fit = closest_fit if keeps_kinds else None
    finding = warning(
        Code.DOES_NOT_FIT_NOW,
        joint_path(entries, whole),
        message,
        closest_fit.fix if closest_fit is not None else "",
    )
    yield _with_amounts(replace(finding, reasons=reasons), closest_fit, entries)


# --- the table ------------------------------------------------------------------------------------

_FIXES: Final = (
    (
        Code.EXCEEDS_LARGEST_DEVICE,
        Category.INFEASIBLE,
        "Request no more than the largest device has.",
    ),
    (
        Code.OUTSIDE_REQUEST_POLICY,
        Category.INFEASIBLE,
        "Request an amount that is within the policy once it is rounded up.",
    ),
    (
        Code.EXCEEDS_LARGEST_NODE,
        Category.INFEASIBLE,
        "Request no more devices than one node has; for more, start several pods.",
    ),
    (
        Code.UNSATISFIABLE_CONSTRAINT,
        Category.INFEASIBLE,
        (
            "Request fewer devices, or align them by an attribute that more devices have in common; where the message "
            "names a DeviceCompatibilityPolicy, do not force devices together that it keeps apart (`drawbridge matrix`)."
        ),
    ),
    (
        Code.INCOMPATIBLE_MODES,
        Category.INFEASIBLE,
        "Request devices of one mode, or in separate pods (`drawbridge matrix`).",
    ),
    (
        Code.JOINTLY_INFEASIBLE,
        Category.INFEASIBLE,
        "Drop one of the kinds of devices that no node has together, or request less in one pod.",
    ),
    (
        Code.NO_USABLE_DEVICE,
        Category.INFEASIBLE,
        "Select other devices; the message says what keeps these from use.",
    ),
    (
        Code.NOT_EVALUATED,
        Category.ADVICE,
        "Run `drawbridge simulate`, whose search has no time limit.",
    ),
    (Code.DOES_NOT_FIT_NOW, Category.NOT_YET, "Wait, free devices, or request what the fix says."),
)


RULES: Final[tuple[Rule[Any], ...]] = tuple(
    rules_of_claims_and_pods(_FIXES, _validate_claim, _validate_pod)
)
