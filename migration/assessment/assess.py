"""The assessment of a cluster as a whole."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from admission.native_mappings import MappableNames
from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from answers.cluster.devices import list_devices, published_devices
from answers.model.cluster_state import build_state
from answers.model.findings import reference
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects, of_kind
from answers.model.translation_snapshot import build_snapshot
from clusterstate.published_gates import CONSUMABLE_CAPACITY
from kube.api.core import Node
from kube.manifests.source import SourceObject
from migration.assessment.assessed_cluster import (
    AssessedCluster,
    Assessment,
    DetailedAssessment,
    nodes_out_of_service,
)
from migration.assessment.assumed import (
    assume_inventory,
    find_target,
    kept_device_keys,
    other_drivers,
    whole_device_keys,
    without_mappings,
    without_nodes,
)
from migration.assessment.blockers import (
    Blocker,
    check_limit_ranges,
    check_parts,
    find_blockers,
    find_smaller_cards,
    opt_out_notes,
    sliced_nodes,
    with_parts,
)
from migration.assessment.capacity import (
    find_unserved_next,
    legacy_keys,
    place_workloads,
    placed_pods,
    release_claims,
    usable_classes,
    without_parts,
    without_staying_pods,
)
from migration.assessment.chart_names import find_name_changes, foreign_mappings, read_chart_names
from migration.assessment.claim_counts import check_claim_counts
from migration.assessment.device_lines import with_quota_lines
from migration.assessment.device_quotas import QuotaStops, find_quota_stops
from migration.assessment.doubled import check_doubled, with_doubled_nics
from migration.assessment.gates import EXTENDED_RESOURCE, check_shares, has_gate
from migration.assessment.outcomes import (
    group_with_devices,
    only_native_namespaces,
    translating_every_pod,
)
from migration.assessment.stopped_outcomes import assess_templates
from migration.assessment.unmoved import (
    check_early,
    check_kept_names,
    check_uncounted,
    check_unmoved,
    find_unselected,
    kai_webhook_texts,
    read_kai_pods,
    staying_nodes,
    staying_notes,
    without_unplaced,
)
from migration.assessment.unready_nodes import unready_notes
from migration.assessment.what_if import MAX_TRACED, find_unserved, trace_first_pods
from migration.cluster.components import present_components
from migration.cluster.drain_stops import find_drain_stops
from migration.cluster.evidence import mapping_at, text_map
from migration.cluster.limit_ranges import find_rejected_workloads
from migration.cluster.node_devices import (
    OFFERING_NONE,
    doubled_nodes,
    koordinator_devices,
    nodes_offering_none,
    read_nodes,
    unknown_device_keys,
    with_renamed,
)
from migration.cluster.priorities import KEEP_FREE, find_rivals
from migration.cluster.workloads import group_workloads
from migration.conversion.quota_conversion import convert_quotas, with_converted_quotas
from migration.conversion.replaced_lines import find_replaced_lines, without_replaced_lines
from migration.legacy.gpu_labels import GPU_LABELS
from migration.legacy.kept_names import find_names_in_use
from migration.legacy.remaining import find_remaining
from rules.context.inventory import Inventory
from translation.cluster.snapshot import TranslationOptions, vocabularies_in_force
from translation.model.intents import Vocabulary
from translation.profiles.profile import Profile
from translation.reading.claim_blind_objects import find_named_keys


def assess(
    objects: Sequence[SourceObject],
    profiles: Mapping[str, Profile],
    options: TranslationOptions,
    *,
    namespace: str,
    version: str = "",
    gates: Mapping[str, bool] = {},
    unreadable: tuple[str, ...] = (),
    converts_quotas: bool = True,
) -> Assessment:
    """Return the assessment of a cluster with the given objects.

    Args:
        profiles: Driver to profile.
        namespace: The namespace for objects that name none.
        gates: The feature gates for `has_gate`.
        converts_quotas: The flag for `assess_cluster`.
    """
    cluster = assess_cluster(
        *(objects, profiles, options),
        namespace=namespace,
        version=version,
        gates=gates,
        converts_quotas=converts_quotas,
    )
    assessment = complete_assessment(
        cluster,
        _build_allocator(cluster),
        _readers(objects, vocabularies_in_force(options, profiles), namespace),
        unreadable=unreadable,
    )
    return _with_surroundings(assessment, objects, options, namespace)


def assess_in_detail(
    objects: Sequence[SourceObject],
    profiles: Mapping[str, Profile],
    options: TranslationOptions,
    *,
    namespace: str,
    version: str = "",
    gates: Mapping[str, bool] = {},
    unreadable: tuple[str, ...] = (),
    converts_quotas: bool = True,
) -> DetailedAssessment:
    """Return the assessment of a cluster with its devices and placements; arguments as of `assess`."""
    cluster = assess_cluster(
        *(objects, profiles, options),
        namespace=namespace,
        version=version,
        gates=gates,
        converts_quotas=converts_quotas,
    )
    allocator = _build_allocator(cluster)
    classes = cluster.state.classes
    traces = trace_first_pods(
        cluster.workloads,
        allocator,
        classes,
        usable_classes(classes, allocator),
        cluster.state.node_resources(placed_pods(cluster.workloads)),
    )
    assessment = complete_assessment(
        cluster,
        allocator,
        _readers(objects, vocabularies_in_force(options, profiles), namespace),
        unreadable=unreadable,
    )
    devices = list_devices(published_devices(allocator), allocator.usage, cluster.state.claims)
    return DetailedAssessment(
        assessment=_with_surroundings(assessment, objects, options, namespace),
        devices=devices,
        traces=traces,
    )


def _with_surroundings(
    assessment: Assessment,
    objects: Sequence[SourceObject],
    options: TranslationOptions,
    namespace: str,
) -> Assessment:
    """Return an assessment with the components of others, the kept keys, budgets against drains, opt-outs, unready nodes, priorities, and shares of KAI."""
    legacy_nodes = [node.node for node in assessment.nodes if node.legacy]
    nodes = (source.document for source in objects if source.kind == "Node")
    labels = (text_map(node, "metadata", "labels").keys() for node in nodes)
    has_gpu_label = any(not own.isdisjoint(GPU_LABELS) for own in labels)
    has_priorities = any(
        source.kind == "PriorityClass" or mapping_at(source.document, "spec").get("priority")
        for source in objects
    )
    kai_pods = read_kai_pods(objects, assessment.workloads, namespace)
    kai_blockers, kai_notes = kai_webhook_texts(kai_pods, assessment.workloads, assessment.blockers)
    return msgspec.structs.replace(
        assessment,
        blockers=(*assessment.blockers, *kai_blockers),
        notes=(
            *assessment.notes,
            *kai_notes,
            *opt_out_notes(objects, assessment.workloads),
            *(
                unready_notes(assessment.nodes, objects, options.renamed_keys)
                if has_gpu_label
                else ()
            ),
            *(_priority_notes(assessment, objects, options) if has_priorities else ()),
        ),
        components=present_components(objects),
        kept=tuple(sorted(options.kept)),
        drain_stops=find_drain_stops(objects, namespace, legacy_nodes),
        out_of_service={
            **assessment.out_of_service,
            **nodes_out_of_service(
                objects, {*assessment.out_of_service, *(node.node for node in assessment.nodes)}
            ),
        },
    )


def _priority_notes(
    assessment: Assessment, objects: Sequence[SourceObject], options: TranslationOptions
) -> Iterator[Blocker]:
    """Yield the note on pods with devices of a legacy system and with different priorities; none if no pod may evict another."""
    names = {device.key for node in assessment.nodes for device in node.legacy}
    keys = with_renamed(tuple(names), options.renamed_keys)
    pods = (source for source in objects if source.kind == "Pod")
    if rivals := find_rivals(keys, objects, pods):
        own = sorted(name for value in rivals.ends for name in rivals.pods[value])
        message = rivals.statement
        yield Blocker(code="priorities", message=message, fix=KEEP_FREE, objects=tuple(own))


def complete_assessment(
    cluster: AssessedCluster,
    allocator: Cluster,
    readers: Mapping[str, tuple[str, ...]],
    *,
    unreadable: tuple[str, ...],
) -> Assessment:
    """Return the assessment of workloads and nodes.

    Args:
        allocator: The allocator's view of the cluster's state; has the claims of all placed pods
            afterwards.
        readers: The readers for the assessment.
    """
    pods = cluster.state.pods
    staying_places = {*cluster.remaining.nodes, *cluster.offering_none}
    needy = tuple(without_staying_pods(cluster.workloads, pods, staying_places))
    capacity = place_workloads(
        without_parts(needy, pods, cluster.sliced),
        *(allocator, cluster.state.classes),
        usable_classes(cluster.state.classes, allocator),
        cluster.state.node_resources(placed_pods(cluster.workloads)),
        present=cluster.state.pods,
        unserved_next=cluster.unserved_next,
    )
    unplaced = [
        workload for workload in cluster.workloads if workload.key.reference in capacity.unplaced
    ]
    unserved = (
        find_unserved(
            unplaced[:MAX_TRACED],
            _build_allocator(cluster),
            cluster.state.classes,
            cluster.state.node_resources(placed_pods(cluster.workloads)),
        )
        if unplaced
        else frozenset[str]()
    )
    unselected = find_unselected(cluster, unserved)
    staying = staying_nodes(cluster)
    legacy_nodes = {node.node for node in cluster.nodes if node.legacy}
    keys_on = legacy_keys(cluster.nodes, cluster.sliced)
    quota_stops = find_quota_stops(cluster) if cluster.state.quotas else QuotaStops()
    blockers = (
        *check_doubled(cluster.nodes, cluster.state),
        *check_kept_names(cluster.names_in_use),
        *find_blockers(
            cluster.workloads,
            without_unplaced(capacity, unselected),
            [node for node in cluster.state.nodes if node.metadata.name in legacy_nodes],
            cluster.version,
            unreadable,
            unread_nodes=[node.node for node in cluster.nodes if node.is_unreadable],
            unserved=unserved,
            staying=staying,
            converts_quotas=cluster.converts_quotas,
        ),
        *check_uncounted(cluster, capacity, keys_on, staying),
        *check_unmoved(cluster, frozenset().union(*capacity.keys_to_keep.values())),
        *check_early(cluster),
        *check_parts(cluster.workloads, cluster.state.pods, cluster.sliced),
        *check_shares(cluster.workloads, cluster.version),
        *quota_stops.blockers,
        *check_claim_counts((*cluster.claim_shortages, *cluster.early_shortages)),
        *check_limit_ranges(
            cluster.rejected_next,
            legacy_nodes,
            {entry.key.reference for entry in cluster.workloads if entry.result is not None},
        ),
    )
    left_namespaces = only_native_namespaces(cluster.workloads)
    return Assessment(
        workloads=cluster.workloads,
        nodes=cluster.nodes,
        capacity=capacity,
        blockers=blockers,
        notes=(
            *quota_stops.notes,
            *staying_notes(cluster, unselected),
            *find_smaller_cards(cluster.workloads, cluster.nodes, cluster.state),
        ),
        readers={
            name: keys
            for name, keys in readers.items()
            if name.split("/")[1] not in left_namespaces
        },
        version=cluster.version,
        unreadable=unreadable,
        quotas_to_convert=cluster.quotas_to_convert,
        quotas_left=cluster.quotas_left,
        replaced_lines=cluster.replaced_lines,
        unknown_devices=cluster.unknown_devices,
        out_of_service=dict.fromkeys(cluster.offering_none, OFFERING_NONE),
        remaining=cluster.remaining,
        wide_mappings=cluster.wide_mappings,
    )


def _build_allocator(cluster: AssessedCluster) -> Cluster:
    """Return the devices of a cluster; pods that have moved already give theirs back first."""
    claims = release_claims(cluster.state.claims, placed_pods(cluster.workloads))
    return msgspec.structs.replace(cluster.state, claims=claims).cluster(Features())


def assess_cluster(
    objects: Sequence[SourceObject],
    profiles: Mapping[str, Profile],
    options: TranslationOptions,
    *,
    namespace: str,
    version: str = "",
    gates: Mapping[str, bool] = {},
    converts_quotas: bool = True,
    gives_whole: bool = False,
) -> AssessedCluster:
    """Return the workloads and the nodes of a cluster, with an inventory for all of them.

    A class that maps a key of pods too widely loses the name first. Another class may have the name then.

    Args:
        profiles: Driver to profile.
        namespace: The namespace for objects that name none.
        version: The API server's version; empty if it is not known.
        gates: The feature gates for `has_gate`.
        converts_quotas: Evaluate pods as if the lines of `quota convert` were applied, and replaced lines removed.
        gives_whole: Each pod on a node that offers each device several times may get a whole one.
    """
    original_objects = objects
    replaced_lines = find_replaced_lines(objects, namespace)
    remaining = without_replaced_lines(objects, replaced_lines, namespace)
    # Whoever keeps a foreign name, pods are evaluated as if no class mapped it.
    unmapped = without_mappings(remaining, foreign_mappings(objects))
    all_quotas = convert_quotas(unmapped, profiles, options, namespace)
    if converts_quotas:
        objects = with_converted_quotas(remaining, all_quotas, namespace)
    views, _ = decode_objects(objects, STATE_KINDS, namespace)
    state = build_state(views)
    kept_names = kept_device_keys(profiles, options)
    groups = group_workloads(objects, namespace)
    live_nodes = [node for _, node in of_kind(views, Node)]
    koordinator = koordinator_devices(objects)
    all_nodes = read_nodes(
        *(live_nodes, state.slices, koordinator),
        whole_device_keys(profiles.values(), kept_names),
        profiles.values(),
        renamed_keys=options.renamed_keys,
    )
    all_nodes = with_doubled_nics(all_nodes, koordinator, state.slices)
    staying = find_remaining(*(groups, live_nodes, options.kept_replicas), doubled_nodes(all_nodes))
    nodes = [entry for entry in all_nodes if entry.node not in staying.nodes]
    moving = [node for node in live_nodes if node.metadata.name not in staying.nodes]
    target_of = partial(find_target, profiles=profiles, drivers=options.profiles)
    sliced = sliced_nodes(nodes, gives_whole=gives_whole)
    # Nobody knows which of the devices are free that pods have parts of.
    assumed_inventory = without_nodes(
        assume_inventory(nodes, target_of, frozenset(state.classes)), sliced
    )
    whole: list[SourceObject] = [*objects, *assumed_inventory]
    snapshot, _ = build_snapshot(
        profiles,
        (),
        whole,
        namespace=namespace,
        consumable_capacity=has_gate(CONSUMABLE_CAPACITY, objects, version, gates),
    )
    # Where nothing can be mapped, no pod stays as it is.
    mapped_resources = (
        snapshot.extended_resources
        if has_gate(EXTENDED_RESOURCE, objects, version, gates)
        else None
    )
    assumed_views, _ = decode_objects(assumed_inventory, STATE_KINDS, namespace)
    assumed_state = build_state([*views, *assumed_views])
    # A fault names a device that there is already, if one has it.
    devices = (*Inventory(state.slices).devices, *Inventory(assumed_state.slices).devices)
    mappable_names = MappableNames(assumed_state.classes, snapshot, options, devices)
    # Without mapped names every pod is translated, so that all can be placed by their claims; drivers are still to be installed.
    snapshot = translating_every_pod(snapshot)
    workloads = tuple(
        assessed_workload
        for workload in groups
        for assessed_workload in [
            assess_templates(
                *(workload, snapshot, options, namespace, mapped_resources),
                mappable_names=mappable_names,
            )
        ]
        if assessed_workload is not None
    )
    workloads = with_parts(workloads, assumed_state.pods, sliced)
    wide_mappings = (
        mappable_names.wide_mappings(options.kept.union(*(entry.keys for entry in workloads)))
        if mapped_resources is not None
        else ()
    )
    if wide_mappings:
        cluster = assess_cluster(
            *(without_mappings(original_objects, wide_mappings), profiles, options),
            namespace=namespace,
            version=version,
            # A class that maps a name may be all that showed the gate.
            gates={**gates, EXTENDED_RESOURCE: True},
            converts_quotas=converts_quotas,
            gives_whole=gives_whole,
        )
        return msgspec.structs.replace(
            cluster, wide_mappings=(*wide_mappings, *cluster.wide_mappings)
        )
    chart_names = read_chart_names(workloads, assumed_state.classes, state, profiles.values())
    cluster = AssessedCluster(
        workloads=workloads,
        nodes=tuple(nodes),
        state=assumed_state,
        version=version,
        replaced_lines=replaced_lines,
        unknown_devices=unknown_device_keys(moving, {node.node for node in nodes}, kept_names),
        sliced=sliced,
        unserved_next=find_unserved_next(workloads, assumed_state),
        converts_quotas=converts_quotas,
        other_drivers=other_drivers({slice_.spec.driver for slice_ in state.slices}, profiles),
        chart_names=chart_names,
        name_changes=find_name_changes(workloads, assumed_state, chart_names, assumed_inventory),
        remaining=staying,
        offering_none=nodes_offering_none(
            *(objects, whole_device_keys(profiles.values(), kept_names)),
            {*(node.node for node in nodes), *staying.nodes},
        ),
        rejected_next=find_rejected_workloads(
            objects,
            group_with_devices(objects, workloads, namespace),
            {entry.key for entry in workloads},
            namespace,
        )
        if any(source.kind == "LimitRange" for source in objects)
        else {},
        names_in_use=find_names_in_use(
            [node for node in nodes if node.legacy and node.node not in sliced],
            *(live_nodes, groups, options),
        )
        if options.kept
        else {},
    )
    return with_quota_lines(
        *(cluster, original_objects, profiles, options, namespace), quotas=all_quotas
    )


def _readers(
    objects: Iterable[SourceObject], vocabularies: Mapping[str, Vocabulary], namespace: str
) -> dict[str, tuple[str, ...]]:
    """Return the objects that name device keys, with the keys; claims will not have these."""
    return {
        reference(source, namespace): tuple(sorted(keys))
        for source in objects
        if (keys := find_named_keys(source.document, vocabularies))
    }
