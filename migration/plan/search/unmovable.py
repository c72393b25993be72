"""Nodes, workloads and namespaces that no wave moves because of their pods, each with its reason. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from allocator.pods.node_eligibility import counted_rejection
from findings.text import join_names
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.blockers import GpuParts, fix_for_parts, sizes_text, times_text
from migration.assessment.capacity import (
    legacy_keys,
    without_devices,
)
from migration.assessment.claim_counts import ClaimShortage, describe_shortages
from migration.assessment.doubled import DoubledReason
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.unmoved import unmoved_text
from migration.assessment.unserved import LackingClasses, serve_fix, unserved_text
from migration.cluster.equivalence import selected_labels
from migration.cluster.evidence import Evidence, is_ready, mapping_at
from migration.cluster.limit_ranges import LimitRangeFault
from migration.cluster.workloads import Workload
from migration.plan.model.node_labels import with_labels
from migration.plan.model.plan import RESTARTED_KINDS, Held, is_name
from migration.plan.search.moments import Candidate
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage import PodKey, Stage

_RUNS_UNSERVED: Final = "pods of {} run on it, and after their move no node would serve them"
_NOT_WHOLE: Final = "it cannot move as a whole, since {} cannot move; any other Deployments and StatefulSets of it move by themselves"
_DESELECTED: Final = "its pods select nodes by {}, which the switch of a node changes, and then no node would take them"
_RUNS_DESELECTED: Final = "pods of {} run on it, and select it by a label that its switch changes"
_SELECT_OTHERS: Final = (
    "let them select nodes by a label that stays, or by nodeAffinity with the label of the driver as another term; "
    "then plan again from a new snapshot"
)
_BOUND: Final = (
    "its pods have a PersistentVolume of their node, and would get claims: between the switch of the node and their "
    "claims they could run nowhere"
)
_IN_PARTS: Final = (
    "its pods have a part of a GPU each on nodes that offer every one {} under the name of whole ones, and a DRA driver "
    "would give each a whole one"
)
_IN_MIG: Final = (
    "its pods have a MIG device each on nodes that offer those of {} under the name of GPUs, and with a DRA driver each "
    "would wait for a whole GPU"
)
_SLICED: Final = (
    "its device plugin offers each GPU {} (time slicing or MPS), and a DRA driver would give a whole one to each pod that "
    "has a part of one"
)
_MIG: Final = (
    "its device plugin offers MIG devices of {} under the name of GPUs, and a DRA driver publishes no GPU there, so a pod "
    "with that name would wait"
)
_RUNS_BOUND: Final = "pods of {} run on it with a PersistentVolume of it, and would get claims"
CORDONED: Final = "it is cordoned, and the end of its wave would uncordon it"
_UNCORDON: Final = "uncordon it, if it may take pods; then plan again from a new snapshot"
NOT_READY: Final = "it is not ready, so its drain and its driver would wait"
_REPAIR: Final = "repair it, or remove it from the cluster; then plan again from a new snapshot"
_RUNS_UNCREATED: Final = (
    "pods of {} run on it, and a ResourceQuota would reject their next pods, or claims of these"
)
_REJECTED: Final = "its next pods would be rejected by {}, so those that are evicted or restarted would not come again"
_RUNS_REJECTED: Final = "pods of {} run on it, and {} would reject their next ones"
_WOULD_WAIT: Final = (
    "the next pods of {} may be placed on it, and would have no devices there once it is switched: a ResourceQuota does "
    "not let their claims be created"
)
_MOVE_VOLUME: Final = (
    "move the volume to a storage that other nodes reach, or switch the node by hand at once with the label of the "
    "workload; then plan again from a new snapshot"
)


def held_unavailable(
    candidates: Iterable[Candidate],
    objects: Iterable[SourceObject],
    doubled: Mapping[str, DoubledReason] = {},
) -> Iterator[Held]:
    """Yield the nodes that are cordoned or not ready: a wave would uncordon them, or wait for them.

    Args:
        candidates: The nodes that could be switched.
        objects: The cluster's objects.
        doubled: Node to its reason, of those with devices that two systems hand out.
    """
    names = {entry.node.name for entry in candidates}.union(filter(is_name, doubled))
    for source in objects:
        if (source.api_version, source.kind) != ("v1", "Node") or source.name not in names:
            continue
        reference = f"Node//{source.name}"
        if source.name in doubled:
            message, fix = doubled[source.name]
            yield Held(object=reference, reason=message, fix=fix)
            continue
        if mapping_at(source.document, "spec").get("unschedulable") is True:
            yield Held(object=reference, reason=CORDONED, fix=_UNCORDON)
        if not is_ready(source.document):
            yield Held(object=reference, reason=NOT_READY, fix=_REPAIR)


def held_by_pods(
    candidates: Iterable[Candidate],
    cluster: AssessedCluster,
    nodes_of: Mapping[str, Iterable[str]],
    evidence: Evidence,
) -> Iterator[Held]:
    """Yield the nodes that cannot be drained because of their pods, each with the first reason.

    Args:
        candidates: The nodes that could be switched.
        cluster: The cluster.
        nodes_of: Workload to the nodes of its pods.
        evidence: All pods of the cluster.
    """
    stuck: dict[str, AssessedWorkload] = {}
    for workload in cluster.workloads:
        if workload.result is None:
            for node in nodes_of[workload.key.reference]:
                stuck.setdefault(node, workload)
    moving = {entry.key.reference for entry in cluster.workloads if entry.result is not None}
    rejected: dict[str, dict[LimitRangeFault, list[str]]] = {}
    for reference, own in cluster.rejected_next.items():
        # Those that would move are held with their nodes.
        for node in own.nodes if reference not in moving else ():
            rejected.setdefault(node, {}).setdefault(own.fault, []).append(reference)
    for entry in candidates:
        reference, name = f"Node//{entry.node.name}", entry.node.name
        blocking = next(evidence.blocking_budgets(name), None)
        if blocking is not None:
            budget, _ = blocking
            text = budget.never_text.format("of its pods there")
            yield Held(object=reference, reason=text, fix=budget.never_fix)
        elif name in rejected:
            texts = [
                _RUNS_REJECTED.format(join_names(names), fault.text)
                for fault, names in rejected[name].items()
            ]
            fault = next(iter(rejected[name]))
            yield Held(object=reference, reason="; ".join(texts), fix=fault.fix)
        elif name in stuck:
            workload = stuck[name]
            lacking = cluster.unserved_next.get(workload.key.reference, ())
            cause, fix = unmoved_text(workload, lacking)
            subject = f"a pod of {workload.key.reference} ({workload.outcome.value})"
            text = f"{subject} uses its devices, and {cause}"
            yield Held(object=reference, reason=text, fix=fix)


def lacking_devices(
    cluster: AssessedCluster,
    placer: Placer,
    stage: Stage,
    nodes_of: Mapping[str, Sequence[str]],
) -> frozenset[str]:
    """Return the workloads that run, and would get devices of a driver that has some on no node.

    Args:
        cluster: The cluster.
        placer: Has not placed those whose devices are neither published nor assumed.
        stage: The nodes and namespaces that have moved.
        nodes_of: Workload to the nodes of its pods.
    """
    moved = {
        workload.key.reference for workload in cluster.workloads if stage.has_moved(workload)
    } - placer.unrestarted_workloads
    lacking = without_devices(
        *(cluster.workloads, placer.not_counted, nodes_of),
        legacy_keys(cluster.nodes, cluster.sliced),
        moved,
    )
    return frozenset(workload.key.reference for workload in lacking)


class Unmovable(NamedTuple):
    """A workload that never moves.

    Attributes:
        reason: The reason it does not.
        on_node: The same of a node that its pods run on, with a place for the names of workloads.
        nodes: The nodes that are held for it; None for all that its pods run on.
        leaves_room: It is known which devices of its nodes its pods have, so others come there by device keys.
    """

    workload: AssessedWorkload
    reason: str
    on_node: str
    fix: str
    nodes: frozenset[str] | None = None
    leaves_room: bool = False


def unserved_workload(
    workload: AssessedWorkload, lacking: LackingClasses, staying: Collection[str]
) -> Unmovable:
    """Return a workload with running pods that no node would serve after their move.

    Args:
        workload: The workload.
        lacking: The classes of its claims that lack devices.
        staying: The nodes of its pods that stay with their device plugin.
    """
    fix = f"{serve_fix(workload, lacking, staying)}; then plan again from a new snapshot"
    return Unmovable(workload, unserved_text(workload, lacking), _RUNS_UNSERVED, fix)


def deselected_workloads(
    cluster: AssessedCluster,
    placer: Placer,
    labels: Mapping[str, Mapping[str, str]],
    switched: frozenset[str],
) -> Iterator[Unmovable]:
    """Yield the workloads with running pods that no node would take, since the switch changes a label that they select.

    Pods of a DaemonSet have one node; others may have any that serves them.

    Args:
        cluster: The cluster.
        placer: Knows the devices of nodes.
        labels: Node to the labels that its switch sets.
        switched: Nodes that have a DRA driver already.
    """
    nodes = {node.metadata.name: node for node in cluster.state.nodes}
    changed_keys = frozenset(
        key
        for name, own in labels.items()
        for key, value in own.items()
        if name in nodes and nodes[name].labels.get(key, value) != value
    )
    for workload in cluster.workloads:
        if workload.result is None:
            continue
        pods = [pod for name in sorted(workload.members) if (pod := cluster.state.pods.get(name))]
        for pod in pods:
            keys = changed_keys.intersection(selected_labels(pod))
            node = pod.spec.node_name
            if not keys or node not in labels:
                continue
            is_pinned = workload.key.kind == DAEMON_SET
            places = {node} if is_pinned else {node, *placer.serving_nodes(workload)}
            if workload.outcome is not Outcome.NATIVE:
                # Claims need a switched node: one that keeps its device plugin, and its labels, is of no use.
                places &= labels.keys() | switched
            free = msgspec.structs.replace(
                pod, spec=msgspec.structs.replace(pod.spec, node_name="")
            )
            if not any(
                counted_rejection(free, with_labels(nodes[name], labels.get(name, {}))) is None
                for name in places
                if name in nodes
            ):
                texts = sorted(f"{key}={nodes[node].labels.get(key, '')}" for key in keys)
                yield Unmovable(
                    workload,
                    _DESELECTED.format(", ".join(texts)),
                    _RUNS_DESELECTED,
                    _SELECT_OTHERS,
                    leaves_room=True,
                )
                break


def bound_workloads(
    workloads: Iterable[AssessedWorkload],
    pods: Collection[tuple[str, str]],
    stage: Stage,
    nodes_of: Mapping[str, Iterable[str]],
) -> Iterator[Unmovable]:
    """Yield the workloads that would get claims, with pods that have a volume of a node with a device plugin.

    Kubernetes places such a pod on that node only. It would wait from the switch of the node to the claims of its
    workload, or the other way round.

    Args:
        workloads: The cluster's workloads.
        pods: Namespace and name of the pods with a volume of one node.
        stage: The nodes and namespaces that have moved.
        nodes_of: Workload to the nodes of its pods.
    """
    for workload in workloads:
        reference = workload.key.reference
        gets_claims = workload.result is not None and workload.outcome is not Outcome.NATIVE
        on_plugin = any(node and node not in stage.switched for node in nodes_of[reference])
        if (
            gets_claims
            and not stage.has_moved(workload)
            and on_plugin
            and workload.key.kind != DAEMON_SET
            and not workload.members.isdisjoint(pods)
        ):
            yield Unmovable(workload, _BOUND, _RUNS_BOUND, _MOVE_VOLUME, leaves_room=True)


def uncreated_workloads(cluster: AssessedCluster) -> Iterator[Unmovable]:
    """Yield the workloads with pods that a LimitRange rejects, or that wait for claims that a ResourceQuota rejects."""
    shortages: dict[str, list[ClaimShortage]] = {}
    for shortage in cluster.claim_shortages:
        for reference in shortage.workloads if shortage.stops_pods else ():
            shortages.setdefault(reference, []).append(shortage)
    for workload in cluster.workloads:
        if own := shortages.get(workload.key.reference):
            reason, fix = describe_shortages(own)
            again = f"{fix}; then plan again from a new snapshot"
            yield Unmovable(workload, f"its {reason}", _RUNS_UNCREATED, again, leaves_room=True)
        elif workload.result is not None and workload.key.reference in cluster.rejected_next:
            fault = cluster.rejected_next[workload.key.reference].fault
            escaped = fault.text.replace("{", "{{").replace("}", "}}")
            on_node = _RUNS_REJECTED.format("{}", escaped)
            reason = _REJECTED.format(fault.text)
            yield Unmovable(workload, reason, on_node, fault.fix, leaves_room=True)


def left_without_claims(
    cluster: AssessedCluster, unmovable: Iterable[Unmovable], starting: Collection[str]
) -> list[Unmovable]:
    """Return the native workloads with next pods that a ResourceQuota admits, and then lets have no claims.

    Args:
        cluster: The cluster.
        unmovable: The workloads that never move.
        starting: The workloads with pods to come, as `Kind/namespace/name`.
    """
    waiting: set[str] = set()
    rejected: set[str] = set()
    for shortage in cluster.claim_shortages:
        if shortage.stops_pods:
            (rejected if shortage.rejects_pods else waiting).update(shortage.workloads)
    names = waiting - rejected - cluster.not_started.keys()
    return [
        entry
        for entry in unmovable
        for key in [entry.workload.key]
        if entry.workload.outcome is Outcome.NATIVE
        and key.reference in names
        and (key.kind in RESTARTED_KINDS - {DAEMON_SET} or key.reference in starting)
    ]


def held_without_claims(
    left: Iterable[Unmovable],
    nodes: Iterable[str],
    serving: Callable[[AssessedWorkload], frozenset[str]],
) -> Iterator[Held]:
    """Yield the nodes that next pods may use with their device plugin, and could not with claims that are not created.

    kube-scheduler chooses nodes of both sides once a class maps the name, and creates the claim afterwards. Where none
    does, pods that use the device plugin lose the node.

    Args:
        left: The workloads of these pods.
        nodes: The nodes that could be switched.
        serving: A function that returns the nodes with devices for claims of a workload that take its pods.
    """
    places = [(entry, serving(entry.workload)) for entry in left]
    for name in nodes:
        if own := [entry for entry, own_places in places if name in own_places]:
            text = _WOULD_WAIT.format(join_names([entry.workload.key.reference for entry in own]))
            yield Held(object=f"Node//{name}", reason=text, fix=own[0].fix)


def sliced_workloads(
    workloads: Iterable[AssessedWorkload],
    nodes_of: Mapping[str, Iterable[str]],
    sliced: Mapping[str, GpuParts],
) -> Iterator[Unmovable]:
    """Yield the workloads with pods that have a part of a GPU each, and would get a whole one, or none.

    Args:
        workloads: The cluster's workloads.
        nodes_of: Workload to the nodes of its pods.
        sliced: The nodes that offer parts of GPUs under the name of whole ones.
    """
    for workload in workloads:
        own = [sliced[name] for name in nodes_of[workload.key.reference] if name in sliced]
        if own and workload.result is not None:
            sizes, times = sizes_text(own), times_text(parts.times for parts in own)
            reason = _IN_MIG.format(sizes) if sizes else _IN_PARTS.format(times)
            yield Unmovable(
                workload, reason, _sliced_text(own), fix_for_parts(own), nodes=frozenset()
            )


def held_sliced(sliced: Mapping[str, GpuParts]) -> Iterator[Held]:
    """Yield the nodes that offer parts of GPUs under the name of whole ones."""
    for name, parts in sliced.items():
        if is_name(name):
            text = _sliced_text([parts])
            yield Held(object=f"Node//{name}", reason=text, fix=fix_for_parts([parts]))


def _sliced_text(parts: Sequence[GpuParts]) -> str:
    sizes = sizes_text(parts)
    return (
        _MIG.format(sizes) if sizes else _SLICED.format(times_text(entry.times for entry in parts))
    )


def pods_on(
    nodes: Collection[str],
    nodes_of: Mapping[str, Sequence[str]],
    groups: Mapping[str, Workload],
) -> dict[PodKey, tuple[str, str]]:
    """Return the pods of some nodes, with namespace and name.

    Args:
        nodes: The nodes.
        nodes_of: Workload to the nodes of its pods, in the order of their numbers.
        groups: Workload, as `Kind/namespace/name`, to its pods in the same order.
    """
    return {
        PodKey(reference, number): (group.key.namespace, group.pods[number].name)
        for reference, own in nodes_of.items()
        for number, node in enumerate(own)
        if node in nodes
        for group in [groups[reference]]
    }


def pods_at_home(
    bound: Collection[tuple[str, str]],
    nodes_of: Mapping[str, Sequence[str]],
    groups: Mapping[str, Workload],
) -> dict[PodKey, str]:
    """Return the pods with a volume of their node, with this node.

    Args:
        bound: Namespace and name of these pods.
        nodes_of: Workload to the nodes of its pods, in the order of their numbers.
        groups: Workload, as `Kind/namespace/name`, to its pods in the same order.
    """
    return {
        PodKey(reference, number): node
        for reference, own in nodes_of.items()
        for number, node in enumerate(own)
        if node
        for group in [groups[reference]]
        if (group.key.namespace, group.pods[number].name) in bound
    }


def held_unmovable(
    unmovable: Mapping[str, Unmovable],
    nodes_of: Mapping[str, Iterable[str]],
    candidates: Iterable[Candidate],
    namespaces: Iterable[str],
) -> Iterator[Held]:
    """Yield the workloads that never move, their nodes and their namespaces.

    Args:
        unmovable: Workload, as `Kind/namespace/name`, to the reason.
        nodes_of: Workload to the nodes that its pods run on.
        candidates: The nodes that could be switched.
        namespaces: The namespaces that could be opted in.
    """
    nodes: dict[str, list[str]] = {}
    owners: dict[str, list[str]] = {}
    for reference, entry in unmovable.items():
        yield Held(object=reference, reason=entry.reason, fix=entry.fix)
        for node in nodes_of[reference]:
            nodes.setdefault(node, []).append(reference)
        if entry.workload.outcome is not Outcome.NATIVE:
            owners.setdefault(entry.workload.key.namespace, []).append(reference)
    for candidate in candidates:
        if names := nodes.get(candidate.node.name):
            first = unmovable[names[0]]
            alike = [name for name in names if unmovable[name].on_node == first.on_node]
            text = first.on_node.format(join_names(alike))
            yield Held(object=f"Node//{candidate.node.name}", reason=text, fix=first.fix)
    for namespace in namespaces:
        if names := owners.get(namespace):
            text = _NOT_WHOLE.format(join_names(names))
            yield Held(object=f"Namespace//{namespace}", reason=text, fix=unmovable[names[0]].fix)


def without_held(candidates: Iterable[Candidate], blocked: Iterable[Held]) -> list[Candidate]:
    """Return nodes without those that are held."""
    names = {entry.object for entry in blocked}
    return [entry for entry in candidates if f"Node//{entry.node.name}" not in names]
