"""Checks of a cluster as it is now against a wave that is to begin. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from admission.workloads import REJECTED_NOW
from answers.model.objects import decode_objects, of_kind
from findings.text import join_names
from kube.api.core import ResourceQuota
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.capacity import class_names
from migration.assessment.chart_names import chart_mappings
from migration.assessment.device_lines import LinesQuestion, find_device_lines
from migration.assessment.device_quotas import check_stopped_pods
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.evidence import mapping_at
from migration.cluster.limit_ranges import RejectedWorkload
from migration.conversion.quota_amounts import resource_name
from migration.conversion.replaced_lines import without_replaced_lines
from migration.legacy.kai_webhook import staying_with_kai
from migration.plan.checks.before import AGAIN, check_before
from migration.plan.checks.checks import (
    Check,
    ClusterView,
    DrainAnswer,
    WaveAnswer,
    failed_check,
    ok_check,
)
from migration.plan.checks.drains import check_bare_pods
from migration.plan.checks.unplanned import check_unplanned
from migration.plan.facts.opted_in import opted_out_workloads
from migration.plan.model.parts import Part
from migration.plan.model.plan import RESTARTED_KINDS, Held, Plan, PlannedNode, Wave
from migration.plan.planning.mappings import planned_mappings, publishing_drivers
from migration.plan.planning.namespaces import held_by_defects
from migration.plan.planning.prepared import (
    PlanQuestion,
    PreparedCluster,
    planned_quotas,
    prepare_cluster,
)
from migration.plan.planning.unrestarted import opted_in_already
from migration.plan.search.moments import Policy
from migration.plan.search.unmovable import (
    held_without_claims,
    left_without_claims,
    uncreated_workloads,
)
from migration.plan.search.usable_nodes import UsableNodes
from migration.plan.stage.stage import Stage
from quotas.resource_quotas.scopes import Quota, devices_of_class, quota_of
from quotas.resource_quotas.usage import OBJECT_COUNTS
from translation.cluster.snapshot import QuotaPolicy, WideMapping
from translation.preflight.quotas.coverage import is_class_counted

_UNCOUNTED: Final = (
    "next pods of this wave's nodes and namespaces get claims, and would be rejected since no line counts these "
    "(quotaNotCounted)"
)
_REJECTED: Final = "with claims its pods would be rejected: {}"
_CONVERT: Final = "apply what drawbridge quota convert prints for it, or"
_REMOVE: Final = "take {} out, since DeviceQuotas count them, or"
_NO_CLASS: Final = (
    "the next pods of {} need its devices by {}, which no DeviceClass maps, neither today nor in this plan, so they would "
    "find none once it is switched"
)
_ENDING_KINDS: Final = frozenset({"Pod", "Job"})
"""Kinds whose pods end; the Job that starts others is known by itself."""


def check_before_wave(
    plan: Plan, wave: Wave, view: ClusterView, question: PlanQuestion
) -> WaveAnswer:
    """Check that a wave may begin in a cluster as it is now."""
    prepared = _with_lines_of_wave(prepare_cluster(question), question, plan, wave)
    cluster = prepared.cluster
    # It knows of pods with volumes of a zone, too, that one node alone has devices for.
    view = msgspec.structs.replace(view, evidence=prepared.evidence)
    return check_before(
        *(plan, wave, view, lambda wave: _drain_answer(prepared, question, plan, wave)),
        wide_mappings=cluster.wide_mappings,
        shortages=(*cluster.claim_shortages, *cluster.early_shortages),
        in_vain=(
            *_nodes_in_vain(prepared, question, plan, wave),
            *_stopped_by_quotas(cluster, wave),
        ),
        workload_checks=(
            *check_unplanned(plan, wave.nodes, cluster, prepared.groups),
            *_check_limit_ranges(cluster.rejected_next, wave, _workloads_of(prepared, wave)),
            *_check_kai_pods(prepared, wave),
        ),
    )


def _check_limit_ranges(
    rejected: Mapping[str, RejectedWorkload], wave: Wave, own: Collection[str]
) -> Iterator[Check]:
    """Yield a failed check for each workload that a wave takes pods from, and that a LimitRange lets have no new ones.

    Args:
        rejected: The workloads with next pods that a LimitRange rejects.
        wave: The wave.
        own: The workloads with devices that it moves.
    """
    draining = {node.name for node in wave.nodes}
    for reference, entry in rejected.items():
        if reference in own or not draining.isdisjoint(entry.nodes):
            text = f"{entry.fault.text} would reject its new pods, so what is evicted does not come again: {entry.fault.fix}"
            yield failed_check(reference, text)


def _check_kai_pods(prepared: PreparedCluster, wave: Wave) -> Iterator[Check]:
    """Yield a failed check for each share of KAI that a wave moves while other pods of KAI stay in its namespace."""
    stage = prepared.stage()
    moved = {
        workload.key.reference
        for workload in prepared.cluster.workloads
        if stage.has_moved(workload)
        or workload.key.namespace in wave.namespaces
        or workload.key.reference in wave.labelled_workloads
    }
    for share in sorted(moved & prepared.kai_pods.changed):
        names = prepared.kai_pods.staying_beside(share, moved)
        if names and share.split("/")[1] in wave.kai_namespaces:
            reason, fix = staying_with_kai(names)
            yield failed_check(share, f"{reason}: {fix}")


def check_planned_pods(
    plan: Plan, node: PlannedNode, view: ClusterView, question: PlanQuestion
) -> WaveAnswer:
    """Check that a plan has every pod that the drain of one of its nodes would end now."""
    prepared = prepare_cluster(question)
    checks = (
        *check_bare_pods(node, view),
        *check_unplanned(plan, [node], prepared.cluster, prepared.groups),
    )
    all_planned = ok_check(f"Node//{node.name}", "the plan has all of its pods with devices")
    return WaveAnswer(wave=None, checks=checks or (all_planned,))


def _stopped_by_quotas(cluster: AssessedCluster, wave: Wave) -> Iterable[Held]:
    """Return the namespaces of a wave with pods that a DeviceQuota stops with claims, and not with their keys."""
    own = [entry for entry in cluster.workloads if entry.key.namespace in wave.opted_in]
    return held_by_defects(check_stopped_pods(own, cluster.state)).values()


def _with_lines_of_wave(
    prepared: PreparedCluster,
    question: PlanQuestion,
    plan: Plan,
    wave: Wave,
    further: Mapping[str, str] = {},
) -> PreparedCluster:
    """Return a cluster with the lines of ResourceQuotas that are too low with a wave.

    Those for devices are compared as the plan leaves them.

    Pods that were opted in before the plan need them from the first wave on.

    Args:
        further: Resource name to the DeviceClass that maps it, besides those of the plan.
    """
    counts = (entry for entry in prepared.cluster.claim_shortages if entry.line in OBJECT_COUNTS)
    planned = _with_planned_lines(question, plan, wave)
    lines = LinesQuestion(
        objects=question.objects,
        planned=planned,
        namespace=question.namespace,
        mappings={**plan.mapped_classes, **further},
        taken_back={mapping.device_class for mapping in _taken_back(prepared, plan)},
        version=question.version,
        rejects_uncounted=question.options.quota is QuotaPolicy.DENY,
    )
    own = find_device_lines(prepared.cluster, lines)
    cluster = msgspec.structs.replace(
        prepared.cluster,
        claim_shortages=(*counts, *own.shortages),
        early_shortages=own.early if wave.wave == plan.waves[0].wave else (),
        not_started=own.not_started,
    )
    return msgspec.structs.replace(prepared, cluster=cluster)


def _nodes_in_vain(
    prepared: PreparedCluster, question: PlanQuestion, plan: Plan, wave: Wave
) -> Iterator[Held]:
    """Yield the nodes of a wave that next pods may use today, and not once it is switched.

    A plan would hold them now, since claims of these pods are not created, or have a class map their key.
    """
    missing = _missing_mappings(prepared, question, plan)
    if missing:
        prepared = _with_lines_of_wave(prepared, question, plan, wave, missing)
    left = left_without_claims(
        prepared.cluster, uncreated_workloads(prepared.cluster), prepared.starting_workloads
    )
    if not left and not missing:
        return
    planner = prepared.planner(Policy(wave_nodes=len(wave.nodes), keep_free=0))
    usable = planner.usable_later(prepared.stage(), wave.nodes)
    names = [node.name for node in wave.nodes]
    unserved = tuple(held_without_claims(left, names, usable.serving))
    yield from unserved
    lost = _lost_nodes(prepared, _unmapped_workloads(prepared, plan, wave, missing), wave, usable)
    for name, workloads in lost.items():
        if all(entry.object != f"Node//{name}" for entry in unserved):
            references = join_names([workload.key.reference for workload in workloads])
            keys = {key for workload in workloads for key in workload.unmapped.keys() & missing}
            reason = _NO_CLASS.format(references, join_names(sorted(keys)))
            yield Held(object=f"Node//{name}", reason=reason, fix=AGAIN)


def _missing_mappings(
    prepared: PreparedCluster, question: PlanQuestion, plan: Plan
) -> dict[str, str]:
    """Return the mappings of names that a new plan would have, and this one has not: for pods that have come since."""
    planned = {driver for wave in plan.waves for node in wave.nodes for driver in node.devices}
    mappings = planned_mappings(
        *(prepared.cluster.workloads, question.profiles),
        drivers=planned | publishing_drivers(prepared.objects),
        # Those that the plan holds keep their device plugin.
        unmoved={entry.object for entry in plan.held},
        opted_in=(),
    )
    return {key: name for key, name in mappings.items() if key not in plan.mapped_classes}


def _unmapped_workloads(
    prepared: PreparedCluster, plan: Plan, wave: Wave, missing: Mapping[str, str]
) -> list[AssessedWorkload]:
    """Return the native workloads with a name that no class maps, and with next pods that get no claims by a label."""
    held_names = {entry.object for entry in plan.held}
    stage = _stage_with(prepared.stage(), wave)
    opted_out = opted_out_workloads(prepared.groups.values())
    return [
        workload
        for workload in prepared.cluster.workloads
        for reference in [workload.key.reference]
        if not missing.keys().isdisjoint(workload.unmapped)
        and reference not in held_names
        and (reference in opted_out or not stage.has_moved(workload))
    ]


def _lost_nodes(
    prepared: PreparedCluster,
    workloads: Collection[AssessedWorkload],
    wave: Wave,
    usable: UsableNodes,
) -> dict[str, list[AssessedWorkload]]:
    """Return the nodes of a wave that workloads need with their device plugin, each with these.

    That are the nodes of their pods, and all that they may use if no other one stays as it is.
    """
    names, live_nodes = {node.name for node in wave.nodes}, prepared.live_nodes
    switched = prepared.stage().switched.union(names)
    starting = prepared.starting_workloads
    lost: dict[str, list[AssessedWorkload]] = {name: [] for name in sorted(names)}
    for workload in workloads:
        reference, kind = workload.key.reference, workload.key.kind
        has_next = reference in starting or kind in RESTARTED_KINDS - {DAEMON_SET}
        needed: set[str] = set()
        if has_next or kind not in _ENDING_KINDS:
            needed |= names.intersection(live_nodes[reference])
        if has_next and (nodes := usable.serving(workload)) <= switched:
            needed |= nodes & names
        for name in needed:
            lost[name].append(workload)
    return {name: own for name, own in lost.items() if own}


def _stage_with(stage: Stage, wave: Wave) -> Stage:
    """Return a stage with the namespaces and workloads that a wave opts in."""
    return msgspec.structs.replace(
        stage,
        opted_in=stage.opted_in.union(wave.namespaces),
        selected=stage.selected | wave.labelled_workloads,
    )


def _taken_back(prepared: PreparedCluster, plan: Plan) -> tuple[WideMapping, ...]:
    """Return the mappings of classes that a plan takes back."""
    classes = prepared.cluster.state.classes
    return (*plan.wide_mappings, *chart_mappings(classes, plan.mapped_classes, plan.drivers, ()))


def _with_planned_lines(question: PlanQuestion, plan: Plan, wave: Wave) -> tuple[SourceObject, ...]:
    """Return the objects with the quotas that a wave changes as it leaves them."""
    namespaces = plan.quota_namespaces(wave)
    replaced = [entry for entry in plan.replaced_lines if entry.namespace in namespaces]
    return tuple(
        _with_lines(source, lines.added)
        if source.kind == "ResourceQuota"
        and (place := source.namespace or question.namespace) in namespaces
        and (lines := plan.quota_lines.get(f"{place}.{source.name}.yaml")) is not None
        else source
        for source in without_replaced_lines(question.objects, replaced, question.namespace)
    )


def _with_lines(source: SourceObject, lines: Mapping[str, str]) -> SourceObject:
    """Return a quota with further lines; those that it has stay."""
    hard = {**lines, **mapping_at(source.document, "spec", "hard")}
    spec = {**mapping_at(source.document, "spec"), "hard": hard}
    return msgspec.structs.replace(source, document={**source.document, "spec": spec})


def _drain_answer(
    prepared: PreparedCluster, question: PlanQuestion, plan: Plan, wave: Wave
) -> DrainAnswer:
    """Return the outcome for the pods of a wave's nodes and namespaces if it begins now."""
    planner = prepared.planner(Policy(wave_nodes=len(wave.nodes), keep_free=plan.keep_free))
    stage, draining = prepared.stage(), frozenset(node.name for node in wave.nodes)
    labelled = wave.labelled_workloads
    misfit = planner.misfit(stage, wave.nodes, tuple(_parts_of(wave)), plan.scheduled_pods or {})
    return DrainAnswer(
        misfit=misfit.reason if misfit is not None else "",
        awaited=misfit.awaited if misfit is not None else "",
        unplaced_pods=planner.unplaced(stage, draining),
        unserved={
            reference: entry.reason
            for entry in planner.unmovable(stage)
            if (reference := entry.workload.key.reference) in labelled
            or entry.workload.key.namespace in wave.namespaces
        },
        early=_early_workloads(prepared, question, wave),
        rejected={
            **_uncounted_quotas(prepared, question, plan, wave),
            **_rejected_workloads(prepared, wave),
        },
    )


def _parts_of(wave: Wave) -> Iterator[Part]:
    """Yield the namespaces that a wave opts in, and the workloads that it does by themselves."""
    for name in wave.namespaces:
        yield Part(namespace=name)
    for reference in sorted(wave.labelled_workloads):
        yield Part(namespace=reference.split("/")[1], workloads=(reference,))


def _workloads_of(prepared: PreparedCluster, wave: Wave) -> frozenset[str]:
    """Return the workloads with pods on a wave's nodes, and those that it opts in, as `Kind/namespace/name`."""
    draining = {node.name for node in wave.nodes}
    labelled, live_nodes = wave.labelled_workloads, prepared.live_nodes
    return frozenset(
        reference
        for workload in prepared.cluster.workloads
        for reference in [workload.key.reference]
        if workload.key.namespace in wave.namespaces
        or reference in labelled
        or not draining.isdisjoint(live_nodes[reference])
    )


def _rejected_workloads(prepared: PreparedCluster, wave: Wave) -> dict[str, str]:
    """Return the workloads of a wave with next pods that would be rejected.

    A plan has no wave for these, so what rejects them has come since.
    """
    own = _workloads_of(prepared, wave)
    rejected = {}
    for workload in prepared.cluster.workloads:
        reference = workload.key.reference
        if workload.outcome is Outcome.REFUSED and reference in own:
            details = [
                f"{finding.detail.removeprefix(REJECTED_NOW)} ({finding.code.value})"
                for finding in workload.findings
                if finding.is_error
            ]
            reason = _REJECTED.format("; ".join(dict.fromkeys(details)))
            rejected[reference] = f"{reason}: {'; or '.join(filter(None, (workload.fix, AGAIN)))}"
    return rejected


def _uncounted_quotas(
    prepared: PreparedCluster, question: PlanQuestion, plan: Plan, wave: Wave
) -> dict[str, str]:
    """Return the ResourceQuotas that would have the webhook reject the next pods of a wave's nodes and namespaces.

    It asks whether any quota of a namespace counts the devices of a claim.
    """
    if question.options.quota is not QuotaPolicy.DENY:
        return {}
    cluster, own = prepared.cluster, _workloads_of(prepared, wave)
    after = _stage_with(prepared.stage(), wave)
    changed = set(plan.quota_namespaces(wave))
    files = {file for namespace in changed for file in plan.quotas.get(namespace, ())}
    quotas = _quotas_by_namespace(question, plan, files)
    lines_of: dict[str, set[str]] = {}
    keys_of: dict[str, set[str]] = {}
    for workload in opted_in_already(cluster.workloads, after):
        namespace = workload.key.namespace
        if workload.key.reference not in own:
            continue
        lines = {
            devices_of_class(name)
            for name in class_names(workload)
            if not is_class_counted(name, quotas.get(namespace, ()))
        }
        if lines:
            lines_of.setdefault(namespace, set()).update(lines)
            keys_of.setdefault(namespace, set()).update(workload.keys)
    if not lines_of:
        return {}
    messages = {}
    taken_back = (*cluster.wide_mappings, *_taken_back(prepared, plan))
    for quota in planned_quotas(question, cluster, plan.mapped_classes, taken_back):
        _, namespace, _ = quota.object.split("/", 2)
        if not lines_of.get(namespace, set()).isdisjoint(quota.added):
            messages[quota.object] = f"{_UNCOUNTED}: {_CONVERT} {AGAIN}"
    for entry in cluster.replaced_lines:
        keys = keys_of.get(entry.namespace, set())
        is_changed = entry.namespace in changed and any(
            planned.name == entry.name and planned.namespace == entry.namespace
            for planned in plan.replaced_lines
        )
        if not is_changed and not keys.isdisjoint(map(resource_name, entry.lines)):
            replaced = ", ".join(entry.lines)
            reference = f"ResourceQuota/{entry.namespace}/{entry.name}"
            messages[reference] = f"{_UNCOUNTED}: {_REMOVE.format(replaced)} {AGAIN}"
    return messages


def _quotas_by_namespace(
    question: PlanQuestion, plan: Plan, files: Collection[str]
) -> dict[str, list[Quota]]:
    """Return namespace to its ResourceQuotas, those in files with the lines that the plan adds."""
    views, _ = decode_objects(
        question.objects, {("v1", "ResourceQuota"): ResourceQuota}, question.namespace
    )
    quotas: dict[str, list[Quota]] = {}
    for namespace, view in of_kind(views, ResourceQuota):
        quota = quota_of(view)
        file = f"{namespace}.{view.metadata.name}.yaml"
        if file in files and file in plan.quota_lines:
            names = quota.names.union(plan.quota_lines[file].added)
            quota = msgspec.structs.replace(quota, names=names)
        quotas.setdefault(namespace, []).append(quota)
    return quotas


def _early_workloads(
    prepared: PreparedCluster, question: PlanQuestion, wave: Wave
) -> dict[str, str]:
    """Return the workloads with pods that would get claims with a wave, since their driver publishes no GPUs.

    It may opt their namespace in before a node has the driver, or drain their pods where that was done.
    """
    unpublished = prepared.unpublished(question, prepared.cluster.workloads, wave.nodes)
    order = [node.name for node in wave.nodes]
    opted_in, live_nodes = prepared.stage().opted_in, prepared.live_nodes
    early: dict[str, str] = {}
    for namespace, entry in sorted(unpublished.items()):
        if namespace in wave.namespaces and not entry.nodes:
            early |= dict.fromkeys(entry.workloads, f"{entry.reason}: {AGAIN}")
        elif namespace in opted_in:
            early |= dict.fromkeys(entry.drained_early(order, live_nodes), entry.message)
    return early
