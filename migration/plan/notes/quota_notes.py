"""Notes of waves on quotas that hold nothing, and that somebody meets all the same. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from answers.cluster.quota_status import unenforced_limits, unenforced_notes
from findings.text import reference_text
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.device_quotas import find_quota_notes
from migration.cluster.workloads import Workload
from migration.conversion.replaced_lines import differing_amounts
from migration.plan.facts.environment import in_repository
from migration.plan.facts.quota_files import with_rollouts_above_budget
from migration.plan.model.lowered_quotas import LoweredQuota, lowered_quotas
from migration.plan.model.plan import Plan, Wave


def with_device_quota_notes(
    waves: Iterable[Wave],
    cluster: AssessedCluster,
    groups: Mapping[str, Workload],
    early_quotas: Collection[str],
) -> Iterator[Wave]:
    """Yield the waves with notes on rollouts without room, on work that is started later, and on limits that differ or that nobody enforces.

    Args:
        waves: The waves with their workloads.
        cluster: The cluster.
        groups: Workload to its pods and owner.
        early_quotas: The namespaces with quotas that the first wave changes for pods that were opted in before.
    """
    planned = tuple(waves)
    quota_notes = find_quota_notes(cluster.workloads, cluster.state)
    first_notes = _unenforced(cluster, {name for wave in planned for name in wave.opted_in})
    changed = set[str]()
    for number, wave in enumerate(planned):
        namespaces = {*wave.opted_in, *(() if number else early_quotas)} - changed
        changed |= namespaces
        later = (
            f"{reference_text(name)}: {entry.message}: {entry.fix}"
            for entry in quota_notes.later
            for name in entry.objects
            if name.split("/")[1] in wave.namespaces
        )
        differing = (
            text
            for entry in cluster.replaced_lines
            if entry.namespace in namespaces
            for text in differing_amounts(entry, cluster.state.quotas)
        )
        notes = (*wave.notes, *(() if number else first_notes), *later, *differing)
        yield with_rollouts_above_budget(
            msgspec.structs.replace(wave, notes=notes),
            *(cluster.replaced_lines, cluster.workloads, groups),
            full=quota_notes.rollouts,
        )


def _unenforced(cluster: AssessedCluster, namespaces: set[str]) -> tuple[str, ...]:
    """Return notes on the DeviceQuotas of some namespaces that nobody enforces."""
    state = cluster.state
    names = {quota for quota, _ in unenforced_limits(state)}
    quotas = tuple(quota for quota in state.quotas if quota.metadata.name in names)
    notes = unenforced_notes(msgspec.structs.replace(state, quotas=quotas), namespaces)
    return tuple(
        f"{note}; so it holds nothing here, and pods above it are let through" for note in notes
    )


def with_quota_sums(plan: Plan) -> Plan:
    """Return a plan with a note on each quota that allows more than before from a wave on, until a person lowers its lines for keys."""
    lowered = [(wave.wave, quota) for wave in plan.waves for quota in lowered_quotas(plan, wave)]
    changed = set[str]()
    waves = []
    for wave in plan.waves:
        namespaces = {*plan.quota_namespaces(wave)} - changed
        changed |= namespaces
        notes = tuple(
            _sum_note(plan, quota, last) for last, quota in lowered if quota.namespace in namespaces
        )
        waves.append(msgspec.structs.replace(wave, notes=(*wave.notes, *notes)))
    return msgspec.structs.replace(plan, waves=tuple(waves))


def _sum_note(plan: Plan, quota: LoweredQuota, last: int) -> str:
    """Return the note on a quota that is lowered after a wave."""
    effects = ". ".join(plan.quota_effects.get(quota.file, ()))
    is_there = in_repository(plan, "ResourceQuota", quota.namespace, quota.lines.name)
    place = "in the repository" if is_there else "by hand"
    return (
        f"{quota.reference} gets lines for claims, so namespace {quota.namespace} may use more than before: {effects}. After wave "
        f"{last} lower {', '.join(quota.lines.doubled)} {place} to what still counts in it, as README.md says"
    )
