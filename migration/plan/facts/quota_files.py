"""The ResourceQuotas of a plan, as files below `quotas/`. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from findings.text import join_names, reference_text
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.capacity import class_names
from migration.assessment.claim_counts import ClaimShortage, surge_pods
from migration.assessment.device_lines import DeviceLines
from migration.assessment.outcomes import AssessedWorkload
from migration.cluster.evidence import mapping_at
from migration.cluster.workloads import Workload
from migration.conversion.quota_amounts import resource_name
from migration.conversion.quota_conversion import ConvertedQuota
from migration.conversion.replaced_lines import ReplacedLines, stored_amount
from migration.plan.model.plan import QuotaLines, Wave, is_name, is_namespace
from quotas.resource_quotas.scopes import devices_of_class
from quotas.resource_quotas.usage import class_devices


def quota_files(quotas: Iterable[ConvertedQuota]) -> dict[str, tuple[str, ...]]:
    """Return namespace to the files with its quotas."""
    files: dict[str, list[str]] = {}
    for namespace, file, _ in _named_quotas(quotas):
        files.setdefault(namespace, []).append(file)
    return {namespace: tuple(sorted(names)) for namespace, names in sorted(files.items())}


def quota_documents(quotas: Iterable[ConvertedQuota]) -> dict[str, Mapping[str, Any]]:
    """Return file to the quota in it."""
    return {file: dict(quota.document or {}) for _, file, quota in _named_quotas(quotas)}


def quota_effects(quotas: Iterable[ConvertedQuota]) -> dict[str, tuple[str, ...]]:
    """Return file to the totals that its lines, with the added lines, allow."""
    return {
        file: tuple(f"{effect.line}: {effect.allows}" for effect in quota.effects)
        for _, file, quota in sorted(_named_quotas(quotas), key=lambda entry: entry[1])
    }


def quota_lines(quotas: Iterable[ConvertedQuota]) -> dict[str, QuotaLines]:
    """Return file to the lines of its quota before and after."""
    lines = {}
    for _, file, quota in sorted(_named_quotas(quotas), key=lambda entry: entry[1]):
        hard = mapping_at(quota.document, "spec", "hard")
        amounts = {line: stored_amount(amount) for line, amount in hard.items()}
        before = {line: amount for line, amount in amounts.items() if line not in quota.added}
        added = {line: stored_amount(amount) for line, amount in quota.added.items()}
        lines[file] = QuotaLines(
            before=before,
            added=added,
            name=str(mapping_at(quota.document, "metadata").get("name", "")),
            doubled=tuple(effect.line for effect in quota.effects if effect.is_more),
        )
    return lines


def removable_lines(replaced_lines: Iterable[ReplacedLines]) -> tuple[ReplacedLines, ...]:
    """Return the lines that a script removes: those of objects with names of the API server."""
    return tuple(
        entry
        for entry in replaced_lines
        if is_namespace(entry.namespace) and all(map(is_name, (entry.name, *entry.device_quotas)))
    )


def early_quota_namespaces(
    opted_in: Iterable[AssessedWorkload],
    quotas: Iterable[ConvertedQuota],
    replaced_lines: Iterable[ReplacedLines],
) -> tuple[str, ...]:
    """Return the namespaces with pods to come that their quotas do not count yet.

    Args:
        opted_in: The workloads with next pods that get claims by a label of today.
        quotas: The cluster's quotas, as the plan leaves them.
        replaced_lines: The lines that a wave removes, since DeviceQuotas count both sides.
    """
    namespaces = {workload.key.namespace for workload in opted_in}
    changed = {*quota_files(quotas), *(entry.namespace for entry in replaced_lines)}
    return tuple(sorted(namespaces & changed))


def quotas_of_waves(
    quotas: Iterable[ConvertedQuota], waves: Sequence[Wave], early: Iterable[str]
) -> tuple[ConvertedQuota, ...]:
    """Return the quotas that a wave changes: those of the namespaces that it opts in, with the first those of early ones.

    A line for claims in any other namespace could be below the use of those that it has already.

    Args:
        quotas: The cluster's quotas, as the plan would leave them.
        waves: The waves.
        early: The namespaces whose quotas the first wave changes.
    """
    namespaces = {name for wave in waves for name in wave.opted_in}.union(early)
    return tuple(quota for quota in quotas if quota.object.split("/", 2)[1] in namespaces)


def with_unchanged_quotas(
    waves: Iterable[Wave],
    opted_in: Iterable[AssessedWorkload],
    quotas: Iterable[ConvertedQuota],
    changed: Iterable[ConvertedQuota],
) -> Iterator[Wave]:
    """Yield the waves, the first with a note on quotas that go on to count no claims of pods that are opted in already.

    Where the webhook would reject these, the first wave changes the quotas.

    Args:
        waves: The waves.
        opted_in: The workloads with next pods that get claims by a label of today.
        quotas: The cluster's quotas, as the plan would leave them.
        changed: Those of them that a wave changes.
    """
    namespaces = {workload.key.namespace for workload in opted_in}
    left = {quota.object for _, _, quota in _named_quotas(quotas)} - {
        quota.object for quota in changed
    }
    names = sorted(reference_text(name) for name in left if name.split("/", 2)[1] in namespaces)
    note = (
        f"{join_names(names)}: no line counts the claims of pods that are opted in already, and no wave changes that, since the "
        "webhook only warns (translation.quota: warn): apply what drawbridge quota convert prints"
    )
    for number, wave in enumerate(waves):
        is_told = names and not number
        yield msgspec.structs.replace(wave, notes=(*wave.notes, note)) if is_told else wave


def with_early_quotas(
    waves: Iterable[Wave], namespaces: Sequence[str], *, by_repository: bool
) -> Iterator[Wave]:
    """Yield the waves, the first with a note on quotas that it changes for pods of namespaces opted in already.

    Args:
        waves: The waves.
        namespaces: The namespaces.
        by_repository: A repository changes the quotas, and the script waits for that.
    """
    for number, wave in enumerate(waves):
        if number or not namespaces:
            yield wave
            continue
        label, verb = ("namespace", "has") if len(namespaces) == 1 else ("namespaces", "have")
        change = (
            "before any drain switch.sh of this wave stops until your repository has changed those that are its own, and changes others"
            if by_repository
            else "switch.sh of this wave changes these quotas before any drain"
        )
        note = (
            f"{label} {join_names(namespaces)} {verb} pods that are opted in already, and quotas that do not count the claims "
            f"of new ones yet (quotaNotCounted): {change}, and no rollback.sh takes that back"
        )
        yield msgspec.structs.replace(wave, notes=(*wave.notes, note))


def with_line_notes(waves: Iterable[Wave], lines: DeviceLines) -> Iterator[Wave]:
    """Yield the waves, the first with notes on lines for devices.

    They are about rollouts of pods opted in before, and about workloads that quotas let start no pods, today and later.
    """
    not_started = [reason for _, reason in sorted(lines.not_started.items())]
    notes = (*early_rollouts(lines.early), *not_started)
    for number, wave in enumerate(waves):
        yield wave if number else msgspec.structs.replace(wave, notes=(*wave.notes, *notes))


def early_rollouts(shortages: Iterable[ClaimShortage]) -> tuple[str, ...]:
    """Return notes on rollouts of pods that were opted in before a plan, and that its preparation leaves no room for.

    Args:
        shortages: The lines that are too low for pods that are opted in already, because of the plan.
    """
    return tuple(
        f"once prepare.sh and the first wave have changed what counts on a line, {_rollouts_text(rollouts, entry)}"
        for entry in shortages
        if not entry.stops_pods
        and (rollouts := [name for name in entry.rollouts if name in entry.workloads])
    )


def _rollouts_text(rollouts: Iterable[str], shortage: ClaimShortage) -> str:
    """Return the reason against a rollout, and the ways on."""
    effect = "would be rejected" if shortage.rejects_pods else "would wait for its claim"
    return (
        f"rollouts of {join_names([*map(reference_text, rollouts)])} start a pod before one ends (maxUnavailable is 0), "
        f"and it {effect}: {shortage.text}: {shortage.fix}, or set maxUnavailable: 1"
    )


def early_left(
    lines: DeviceLines, waves: Iterable[Wave], early: Collection[str]
) -> frozenset[tuple[str, str]]:
    """Return the lines below the need of their namespace, opted in before a plan, and moved by no wave, each with that.

    The next pods of these lines are rejected as they are today; with such a line they would wait for claims.

    Args:
        lines: The lines that are too low as the plan would leave them.
        waves: The waves.
        early: The namespaces whose quotas the first wave would change.
    """
    moved = {name for wave in waves for name in wave.opted_in}
    return frozenset(
        (entry.namespace, entry.line)
        for entry in lines.shortages
        if entry.is_added and entry.stops_pods and entry.namespace in {*early} - moved
    )


def unclaimed_classes(cluster: AssessedCluster, keeping: Collection[str]) -> dict[str, set[str]]:
    """Return namespace to the DeviceClasses of its native pods with lasting keys, without those of claims.

    The line of the key goes on to count these pods.

    Args:
        cluster: The cluster.
        keeping: The workloads whose next pods keep their keys, as `Kind/namespace/name`.
    """
    native: dict[str, set[str]] = {}
    claimed: dict[str, set[str]] = {}
    for (namespace, _), claim in cluster.state.claims.items():
        claimed.setdefault(namespace, set()).update(class_devices([claim]))
    for workload in cluster.workloads:
        classes = native if workload.key.reference in keeping else claimed
        classes.setdefault(workload.key.namespace, set()).update(class_names(workload))
    return {namespace: own - claimed.get(namespace, set()) for namespace, own in native.items()}


def with_lines_of_use(
    quotas: Collection[ConvertedQuota],
    left: Collection[tuple[str, str]],
    opted_in: Iterable[AssessedWorkload],
) -> tuple[ConvertedQuota, ...]:
    """Return quotas without those of namespaces with other new lines of use to nobody.

    Of use is a line of pods with claims by a label of today, unless a line of theirs is left.

    Args:
        quotas: The quotas without the lines that are left.
        left: These lines, each with its namespace.
        opted_in: The workloads with next pods that get claims by a label of today.
    """
    added = {(quota.object.split("/", 2)[1], line) for quota in quotas for line in quota.added}
    of_use = set()
    for workload in opted_in:
        namespace = workload.key.namespace
        own = {(namespace, devices_of_class(name)) for name in class_names(workload)}
        if own & added and not own & set(left):
            of_use.add(namespace)
    unused = {namespace for namespace, _ in left} - of_use
    return tuple(quota for quota in quotas if quota.object.split("/", 2)[1] not in unused)


def with_uncounted_quotas(
    wave: Wave, quotas: Iterable[ConvertedQuota], workloads: Iterable[AssessedWorkload]
) -> Wave:
    """Return a wave with a note on each line that limits its pods until then, and no claims afterwards.

    Args:
        wave: The wave, with its workloads.
        quotas: The cluster's quotas.
        workloads: The cluster's workloads.
    """
    moved = {entry.object for entry in wave.workloads if entry.is_translated}
    keys_of: dict[str, set[str]] = {}
    for workload in workloads:
        if workload.key.reference in moved:
            keys_of.setdefault(workload.key.namespace, set()).update(workload.keys)
    notes = tuple(
        f"{reference_text(quota.object)}: {line} does not count the pods that get claims with this wave, and "
        f"no line for claims can be added: {reason}"
        for quota in quotas
        for line, reason in quota.not_convertible.items()
        if resource_name(line) in keys_of.get(quota.object.split("/", 2)[1], ())
    )
    return msgspec.structs.replace(wave, notes=(*wave.notes, *notes))


def with_rollouts_above_budget(
    wave: Wave,
    replaced_lines: Iterable[ReplacedLines],
    workloads: Iterable[AssessedWorkload],
    groups: Mapping[str, Workload],
    *,
    full: Mapping[str, Collection[str]],
) -> Wave:
    """Return a wave with a note on the rollouts that need budget for one pod more than they have.

    A gated pod is not ready, and the pods that hold the budget stay until it is: neither would end. A line for
    keys and one for claims left twice the room.

    Args:
        wave: The wave, with its workloads.
        replaced_lines: The lines for which DeviceQuotas count both sides.
        workloads: The cluster's workloads.
        groups: Workload to its pods and owner.
        full: Workload to the DeviceQuotas with too little left for one pod more.
    """
    entries = tuple(replaced_lines)
    keys = {workload.key.reference: workload.keys for workload in workloads}
    deployments: dict[tuple[str, ...], list[str]] = {}
    for workload in wave.workloads:
        kind, namespace, _ = workload.object.split("/", 2)
        owner = groups[workload.object].owner if workload.object in groups else None
        if kind != "Deployment" or owner is None:
            continue
        # A pod without the key of a line is not charged for it.
        quotas = {
            quota
            for entry in entries
            if entry.namespace == namespace
            and any(resource_name(line) in keys.get(workload.object, ()) for line in entry.lines)
            for quota in entry.device_quotas
        }.union(full.get(workload.object, ()))
        if quotas and workload.is_restarted and surge_pods(mapping_at(owner.document, "spec")):
            deployments.setdefault(tuple(sorted(quotas)), []).append(
                reference_text(workload.object)
            )
    notes = tuple(
        f"rollouts of {join_names(names)} start a pod before one ends (maxUnavailable is 0), and both count in "
        f"DeviceQuota {', '.join(own_quotas)}: leave room for one more pod, or set maxUnavailable: 1"
        for own_quotas, names in deployments.items()
    )
    return msgspec.structs.replace(wave, notes=(*wave.notes, *notes))


def with_uncreated_surge(wave: Wave, shortages: Iterable[ClaimShortage]) -> Wave:
    """Return a wave with a note on the rollouts that a ResourceQuota leaves no claims for.

    The first one replaces pods without claims. The next one, or that of a second run of the script, would never end.

    Args:
        wave: The wave, with its workloads.
        shortages: The lines of ResourceQuotas that let too few claims be created.
    """
    names = {entry.object for entry in wave.workloads}
    notes = tuple(
        f"{'' if entry.is_native else 'once all have claims, '}{_rollouts_text(rollouts, entry)}"
        for entry in shortages
        if not entry.stops_pods and (rollouts := [name for name in entry.rollouts if name in names])
    )
    return msgspec.structs.replace(wave, notes=(*wave.notes, *notes))


def _named_quotas(
    quotas: Iterable[ConvertedQuota],
) -> Iterator[tuple[str, str, ConvertedQuota]]:
    """Yield namespace, file and quota of those that are extended."""
    for quota in quotas:
        _, namespace, name = quota.object.split("/", 2)
        if quota.document is not None and is_namespace(namespace) and is_name(name):
            yield namespace, f"{namespace}.{name}.yaml", quota
