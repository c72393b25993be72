"""The plan of a migration, from the objects of a cluster. Pure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from migration.assessment.assumed import find_target
from migration.assessment.blockers import (
    OLDEST_NVIDIA_DRIVER,
    READ_REGISTER,
    UNREAD_REGISTER,
    WHOLE,
    check_readable,
    check_version,
    nvidia_driver,
    opted_out_native,
)
from migration.assessment.chart_names import without_chart_mappings
from migration.assessment.device_quotas import check_stopped_pods
from migration.assessment.gates import check_shares
from migration.cluster.evidence import cluster_uid, text_map
from migration.cluster.node_devices import NodeDevices, Source, with_renamed
from migration.cluster.reservations import drain_selector
from migration.cluster.workload_budgets import budgets_by_pod
from migration.conversion.quota_conversion import ConvertedQuota
from migration.legacy.gpu_labels import unready_label
from migration.plan.drivers.confirmed import read_releases
from migration.plan.drivers.driver_nodes import read_class_nodes, read_driver_nodes
from migration.plan.drivers.driver_values import read_driver_values
from migration.plan.drivers.vendors import (
    LEAVE_POOL,
    SEPARATE_DRIVERS,
    contested_label,
    driver_label,
    node_notes,
    switch_labels,
    tensor_fusion_nodes,
)
from migration.plan.facts.device_plugins import (
    DevicePlugins,
    with_plugin_label,
)
from migration.plan.facts.environment import with_environment
from migration.plan.facts.kept_away import kept_away
from migration.plan.facts.quota_files import (
    early_rollouts,
    quota_documents,
    quota_effects,
    quota_files,
    quota_lines,
    quotas_of_waves,
    removable_lines,
    with_early_quotas,
    with_line_notes,
    with_unchanged_quotas,
    with_uncounted_quotas,
    with_uncreated_surge,
)
from migration.plan.facts.ready_pods import scheduled_pods
from migration.plan.facts.repository_patches import KUSTOMIZE
from migration.plan.facts.selecting import stranded_pods
from migration.plan.facts.stopped_workloads import find_stopped_workloads, without_started_by_others
from migration.plan.facts.work import read_bare_pods
from migration.plan.model.plan import (
    ClusterIdentity,
    Held,
    Plan,
    PlannedNode,
    PlannedWork,
    Wave,
    is_name,
)
from migration.plan.neighbours.node_autoscalers import guard_annotations, pool_of
from migration.plan.notes.by_hand import with_by_hand
from migration.plan.notes.contended import with_contended
from migration.plan.notes.cron_jobs import with_cron_jobs
from migration.plan.notes.emptied import with_emptied
from migration.plan.notes.evicted import opted_in_workloads, with_evicted
from migration.plan.notes.free_by_kind import node_kinds, with_free_by_kind
from migration.plan.notes.hubs import with_hubs
from migration.plan.notes.opted_out import with_opted_out
from migration.plan.notes.quota_notes import with_device_quota_notes, with_quota_sums
from migration.plan.notes.shared_work import with_shared_work
from migration.plan.notes.smaller_cards import SmallerCardNotes
from migration.plan.notes.strays import with_strays
from migration.plan.notes.stuck_drains import with_stuck_drains
from migration.plan.planning.daemon_sets import daemon_sets_by_node
from migration.plan.planning.held_nodes import held_nodes
from migration.plan.planning.namespaces import (
    invalid_name,
    split_namespaces,
    split_uncreated,
    with_early,
)
from migration.plan.planning.node_uses import nodes_by_use
from migration.plan.planning.prepared import (
    PlanQuestion,
    PreparedCluster,
    planned_changes,
    prepare_cluster,
)
from migration.plan.planning.search import PreparedSearch, search_waves, with_planned_lines
from migration.plan.planning.unrestarted import (
    find_early_opt_ins,
    opted_in_already,
    with_early_opt_ins,
)
from migration.plan.search.device_map import WaveDetails
from migration.plan.search.leaving import read_courses, with_leaving, with_pod_counts
from migration.plan.search.moments import Candidate, PlanProgress, Policy
from migration.plan.search.wave_pods import (
    pod_keys,
    with_kept_keys,
    with_pods,
    with_starting,
    with_work,
    work_by_wave,
)
from migration.plan.stage.stage import PodKey
from translation.cluster.snapshot import vocabularies_in_force


class BuiltPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan with the quotas that are written beside it, by file name, and the details of its waves."""

    plan: Plan
    quotas: Mapping[str, Mapping[str, Any]]
    details: tuple[WaveDetails, ...] = ()


def build_plan(question: PlanQuestion, policy: Policy, progress: PlanProgress) -> BuiltPlan:
    """Return the plan of a cluster's migration.

    Args:
        question: The cluster.
        policy: The sizes of waves.
        progress: Follows the search for waves, and may end it.

    Raises:
        ConfigError: A release was confirmed that the cluster does not have.
    """
    prepared = prepare_cluster(question)
    plugins = DevicePlugins(question.objects)
    releases = read_releases(prepared.objects, question.confirmation)
    operator = releases.gpu_operator
    stage = prepared.stage()
    candidates, blocked = _candidates(prepared, question, operator, plugins)
    live_nodes, chart_names = prepared.live_nodes, prepared.cluster.chart_names
    blocked = held_nodes(candidates, blocked, prepared, question)
    names = {entry.object for entry in blocked}
    work, keys = prepared.work, pod_keys(prepared.groups)
    candidates = [
        with_work(entry, work.get(entry.node.name, ()), keys)
        for entry in candidates
        if f"Node//{entry.node.name}" not in names
    ]
    search = with_planned_lines(
        PreparedSearch(
            prepared=prepared,
            question=question,
            workloads=without_chart_mappings(prepared.cluster.workloads, chart_names),
            candidates=candidates,
            chart_names=chart_names,
        )
    )
    prepared = search.prepared
    namespaces, held_namespaces = split_namespaces(
        prepared.cluster.workloads,
        stage.opted_in,
        (
            *check_shares(prepared.cluster.workloads, question.version),
            *check_stopped_pods(prepared.cluster.workloads, prepared.cluster.state, stage.opted_in),
        ),
        prepared.cluster.unserved_next,
    )
    namespaces, uncreated = split_uncreated(
        namespaces, (*prepared.cluster.claim_shortages, *prepared.cluster.early_shortages)
    )
    blocked += (*held_namespaces, *uncreated)
    obstacles = [
        Held(object="Cluster//", reason=blocker.message, fix=blocker.fix)
        for blocker in (*check_version(question.version), *check_readable(question.unreadable))
    ]
    searched = search_waves(search, namespaces, obstacles, policy, progress)
    waves, unrestarted = searched.waves, prepared.unrestarted
    own_workloads = {entry.key.reference: entry for entry in prepared.cluster.workloads}
    early = find_early_opt_ins(
        *(prepared.cluster.workloads, prepared.groups, stage, unrestarted),
        usable=searched.usable,
        starting=prepared.starting_workloads,
        with_claims=prepared.namespaces_with_claims,
    )
    planned, mappings, taken_back = searched.preparation
    without_wave = [
        *releases.held_steps(),
        *blocked,
        *waves.held,
        *searched.held_namespaces(stage.opted_in, live_nodes),
    ]
    if waves.complete and not obstacles and not waves.waves:
        without_wave += early.held_workloads({entry.object for entry in without_wave})
    driver_labels = {
        driver: "=".join(driver_label(driver))
        for driver in sorted({driver for node in planned for driver in node.devices})
    }
    wide_mappings = (*prepared.cluster.wide_mappings, *taken_back)
    replaced_lines = removable_lines(prepared.cluster.replaced_lines)
    opted_in = tuple(opted_in_already(prepared.cluster.workloads, stage))
    quotas, early_quotas, lines = planned_changes(
        *(question, prepared.cluster, mappings, wide_mappings),
        waves=waves.waves,
        opted_in=opted_in,
    )
    noted = with_line_notes(with_stuck_drains(waves.waves, waves.details, prepared.evidence), lines)
    noted_waves = tuple(
        with_opted_out(
            tuple(with_device_quota_notes(noted, prepared.cluster, prepared.groups, early_quotas)),
            *(waves.details, opted_out_native(question.objects, prepared.cluster.workloads)),
        )
    )
    without_wave = with_early(without_wave, lines.early)
    changed_quotas = quotas_of_waves(quotas, waves.waves, early_quotas)
    smaller_cards = SmallerCardNotes(waves.waves, prepared.cluster, live_nodes)
    plan = Plan(
        kubernetes_version=question.version,
        wave_nodes=policy.wave_nodes,
        keep_free=policy.keep_free,
        spare_nodes=policy.spare_nodes,
        tried_losses=policy.tried_losses,
        time_slicing=WHOLE if question.gives_whole else "",
        complete=waves.complete,
        gpu_operator=operator,
        driver_release=releases.driver,
        proposals=releases.proposals,
        cluster=ClusterIdentity(
            uid=cluster_uid(prepared.objects),
            server=question.server,
            context=question.context,
            taken_at=question.taken_at,
        ),
        format=question.form,
        plugin_label=question.plugin_label,
        drivers=driver_labels,
        driver_nodes=read_driver_nodes(prepared.objects, driver_labels),
        driver_values=read_driver_values(prepared.objects, planned),
        mapped_classes=mappings,
        class_nodes=read_class_nodes(
            prepared.objects, mappings.values(), question.profiles.values()
        ),
        wide_mappings=tuple(
            mapping
            for mapping in wide_mappings
            # The lines of a driver that waves need take its chart's name back with each upgrade.
            if is_name(mapping.device_class)
            and not (mapping in taken_back and mapping.device_class in driver_labels)
        ),
        plugins=kept_away(prepared.objects, operator, planned, plugins),
        waves=tuple(
            smaller_cards.with_notes(
                _complete_wave(
                    *(prepared, wave, details, own_work, waves.waves),
                    quotas=quotas,
                    unrestarted=unrestarted,
                )
            )
            for wave, details, own_work in zip(
                with_early_quotas(
                    with_unchanged_quotas(
                        with_cron_jobs(
                            tuple(
                                with_early_opt_ins(
                                    with_contended(
                                        *(noted_waves, waves.details, prepared.cluster),
                                        searched.usable,
                                        bound_pods=prepared.bound_pods,
                                    ),
                                    early,
                                )
                            ),
                            *(prepared.cluster, prepared.groups, searched.usable),
                            work=work,
                            taken_back=prepared.taken_back,
                            objects=prepared.objects,
                        ),
                        *(opted_in, quotas, changed_quotas),
                    ),
                    early_quotas,
                    by_repository=question.form == KUSTOMIZE,
                ),
                waves.details,
                work_by_wave(waves.waves, waves.details, work, prepared.evidence, prepared.groups),
                strict=True,
            )
        ),
        held=tuple(without_wave),
        quotas=quota_files(changed_quotas),
        quota_effects=quota_effects(changed_quotas),
        quota_lines=quota_lines(changed_quotas),
        replaced_lines=replaced_lines,
        opted_in_before=opted_in_workloads(
            *(unrestarted, stage.selected, own_workloads, prepared.groups)
        ),
        early_quotas=early_quotas,
        early_rollouts=early_rollouts(lines.early),
        unready_nodes=tuple(sorted(prepared.unready_nodes)),
        remaining=prepared.cluster.remaining,
        stopped_workloads=find_stopped_workloads(
            *(prepared.cluster.workloads, prepared.groups, waves.waves, stage.opted_in),
            rooms=waves.rooms,
        ),
        scheduled_pods=scheduled_pods(prepared.groups[name] for name in own_workloads),
    )
    plan = with_hubs(plan, prepared.objects, prepared.groups, own_workloads)
    plan = with_environment(
        _with_deleted_pods(plan, waves.details, prepared, question.namespace),
        *(question.objects, vocabularies_in_force(question.options, question.profiles)),
        nodes_by_use=nodes_by_use(prepared.cluster, live_nodes, prepared.kai_pods.changed),
        plugins=plugins,
    )
    all_details = _with_courses(plan.waves, waves.details, prepared)
    budgets, kinds = budgets_by_pod(prepared.evidence), node_kinds(prepared.cluster)
    counted = tuple(
        with_emptied(
            with_free_by_kind(
                with_evicted(
                    with_pod_counts(wave, details), details, own_workloads, prepared.groups
                ),
                *(details, kinds),
            ),
            *(details, budgets, prepared.groups),
        )
        for wave, details in zip(plan.waves, all_details, strict=True)
    )
    return BuiltPlan(
        plan=with_quota_sums(msgspec.structs.replace(plan, waves=counted)),
        quotas=quota_documents(changed_quotas),
        details=all_details,
    )


def _with_deleted_pods(
    plan: Plan, details: Sequence[WaveDetails], prepared: PreparedCluster, namespace: str
) -> Plan:
    """Return a plan with the pods that a person deletes with its waves."""
    bare_pods = read_bare_pods(prepared.objects, namespace, prepared.work)
    keys = pod_keys(prepared.groups)
    waves = with_by_hand(plan.waves, details, prepared.evidence, bare_pods, keys)
    return msgspec.structs.replace(plan, waves=tuple(waves))


def _with_courses(
    waves: Sequence[Wave], details: Sequence[WaveDetails], prepared: PreparedCluster
) -> tuple[WaveDetails, ...]:
    """Return the details of waves with the course of the pods that leave their nodes."""
    workloads = prepared.cluster.workloads
    members = frozenset(member for workload in workloads for member in workload.members)
    pods = read_courses(
        *(prepared.work, prepared.evidence, prepared.groups),
        bound=prepared.bound_pods & members,
        with_devices=frozenset(workload.key.reference for workload in workloads),
    )
    return tuple(
        with_leaving(entry, wave, pods) for wave, entry in zip(waves, details, strict=True)
    )


def _complete_wave(
    prepared: PreparedCluster,
    wave: Wave,
    details: WaveDetails,
    work: tuple[PlannedWork, ...],
    waves: Sequence[Wave],
    *,
    quotas: Sequence[ConvertedQuota],
    unrestarted: Collection[PodKey],
) -> Wave:
    """Return a wave with its pods and the notes on them."""
    cluster, groups = prepared.cluster, prepared.groups
    wave = without_started_by_others(wave, groups)
    wave = with_uncounted_quotas(wave, quotas, cluster.workloads)
    wave = with_uncreated_surge(wave, cluster.claim_shortages)
    stranded = stranded_pods(wave, waves, wave.unplaced_pods, prepared.objects)
    wave = msgspec.structs.replace(
        wave, stranded_pods=stranded.pods, uncolocated_pods=stranded.uncolocated
    )
    wave = with_pods(
        *(wave, work, prepared.evidence, groups),
        earlier=waves[: wave.wave - 1],
        others=details.others,
    )
    wave = with_shared_work(wave, waves, prepared.work)
    wave = with_starting(wave, details, groups)
    wave = with_kept_keys(wave, cluster.workloads, prepared.ending.keys())
    return with_strays(
        *(wave, details, cluster, groups, prepared.bound_pods),
        taken_back=prepared.taken_back,
        unrestarted=unrestarted,
    )


# --- nodes ----------------------------------------------------------------------------------------


def _candidates(
    prepared: PreparedCluster, question: PlanQuestion, operator: str, plugins: DevicePlugins
) -> tuple[list[Candidate], list[Held]]:
    """Return the nodes of legacy systems, and those of them that cannot be switched."""
    target_of = partial(find_target, profiles=question.profiles, drivers=question.options.profiles)
    labels = {node.metadata.name: node.labels for node in prepared.cluster.state.nodes}
    documents = {
        source.name: source.document
        for source in prepared.objects
        if (source.api_version, source.kind) == ("v1", "Node")
    }
    allocatable = {
        name: text_map(document, "status", "allocatable") for name, document in documents.items()
    }
    daemon_sets = daemon_sets_by_node(prepared.cluster.workloads, prepared.groups)
    shared = tensor_fusion_nodes(prepared.objects)
    selector = drain_selector(question.objects)
    candidates: list[Candidate] = []
    blocked: list[Held] = []
    for node in prepared.cluster.nodes:
        if node.is_unreadable:
            blocked.append(
                Held(object=f"Node//{node.node}", reason=UNREAD_REGISTER, fix=READ_REGISTER)
            )
        if node.source is None or not node.legacy or node.node in prepared.cluster.sliced:
            continue
        own = labels.get(node.node, {})
        reference = f"Node//{node.node}"
        devices = _expected_devices(node, node.source, target_of)
        driver = nvidia_driver(own)
        if not is_name(node.node):
            blocked.append(invalid_name(reference))
        elif not devices:
            text = ", ".join(sorted({device.key for device in node.legacy}))
            reason = f"no profile of a DRA driver serves {text}"
            blocked.append(Held(object=reference, reason=reason, fix="add one with --profiles"))
        elif reason := contested_label(devices):
            blocked.append(Held(object=reference, reason=reason, fix=SEPARATE_DRIVERS))
        elif node.node in shared:
            blocked.append(Held(object=reference, reason=shared[node.node], fix=LEAVE_POOL))
        elif driver is not None and driver < OLDEST_NVIDIA_DRIVER:
            reason = f"NVIDIA's driver is {driver}, and its DRA driver needs {OLDEST_NVIDIA_DRIVER}"
            fix = f"upgrade the GPU driver of this node to {OLDEST_NVIDIA_DRIVER} or newer"
            blocked.append(Held(object=reference, reason=reason, fix=fix))
        else:
            switched = switch_labels(own, node.source, devices, operator)
            document = documents.get(node.node, {})
            keys = with_renamed(
                tuple({device.key for device in node.legacy}), question.options.renamed_keys
            )
            planned = PlannedNode(
                name=node.node,
                source=node.source.value,
                devices=devices,
                resources={
                    key: amount
                    for key, amount in sorted(allocatable.get(node.node, {}).items())
                    if key in keys and amount != "0"
                },
                uuids=tuple(
                    device.uuid
                    for device in node.legacy
                    if node.source in {Source.HAMI, Source.KOORDINATOR} and device.uuid
                ),
                labels=switched,
                former_labels={label: own.get(label) for label in switched},
                pool=pool_of(own),
                annotations=guard_annotations(document, keys),
                gpu_label=unready_label(document, keys),
                daemon_sets=tuple(daemon_sets.get(node.node, ())),
                drain_selector=selector,
            )
            candidates.append(
                Candidate(
                    node=with_plugin_label(planned, own, question.plugin_label, plugins),
                    notes=tuple(node_notes(own, node.source, devices, operator)),
                )
            )
    return candidates, blocked


def _expected_devices(
    node: NodeDevices, source: Source, target_of: Callable[..., Any]
) -> dict[str, int]:
    """Return driver to the number of devices that it has to publish."""
    counts: dict[str, int] = {}
    for device in node.legacy:
        target = target_of(device, source)
        if target is not None:
            driver = target.profile.driver
            counts[driver] = counts.get(driver, 0) + 1
    return dict(sorted(counts.items()))
