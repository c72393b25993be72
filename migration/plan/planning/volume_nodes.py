"""Running pods with volumes of a zone, and with one node alone that takes them and has devices for them there. Pure.

Kubernetes starts such a pod again on this node only, as one with a volume of the node itself.
"""

from collections.abc import Iterator, Mapping

from allocator.model.feature_gates import Features
from answers.cluster.device_classes import select_devices
from answers.cluster.devices import published_devices
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.capacity import class_names
from migration.assessment.evidence import mapping_at
from migration.assessment.outcomes import AssessedWorkload
from migration.assessment.workloads import OwnerKey, Workload
from migration.plan.facts.ready_pods import node_of
from migration.plan.facts.volumes import Volumes
from migration.plan.facts.work import RUN_TO_COMPLETION
from migration.plan.search import stage_allocator
from migration.plan.search.usable_nodes import EligibleNodes


def pods_of_one_node(
    cluster: AssessedCluster, groups: Mapping[str, Workload], volumes: Volumes
) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the pods that run until they are ended, on the only node for their volumes and devices.

    Args:
        cluster: The cluster with the inventory of all nodes.
        groups: Workload, as `Kind/namespace/name`, to its pods.
        volumes: The cluster's volumes.
    """
    pods = [
        (workload, name, node, reached)
        for workload in cluster.workloads
        if workload.result is not None
        for name, node, reached in _pods_with_places(groups[workload.key.reference], volumes)
    ]
    usable = _usable_nodes(cluster, {workload.key: workload for workload, *_ in pods})
    return frozenset(
        (workload.key.namespace, name)
        for workload, name, node, reached in pods
        if {node} == reached & usable[workload.key]
    )


def _usable_nodes(
    cluster: AssessedCluster, workloads: Mapping[OwnerKey, AssessedWorkload]
) -> Mapping[OwnerKey, frozenset[str]]:
    """Return some workloads to the nodes that take their pods and have devices of their classes, volumes aside."""
    if not workloads:
        return {}
    serving, eligible = _nodes_of_classes(cluster), EligibleNodes(cluster)
    nowhere = frozenset[str]()
    return {
        key: eligible.taking(workload)
        & nowhere.union(*(serving.get(name, nowhere) for name in class_names(workload)))
        for key, workload in workloads.items()
    }


def _pods_with_places(
    group: Workload, volumes: Volumes
) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield the running pods with volumes of some nodes: their name, their node, and the nodes of all their volumes."""
    for pod in group.pods:
        spec, node = mapping_at(pod.document, "spec"), node_of(pod)
        if not node or spec.get("restartPolicy") in RUN_TO_COMPLETION:
            continue
        places = [
            volumes.reached_by(selector)
            for selector in volumes.selectors(group.key.namespace, spec)
        ]
        if places:
            yield pod.name, node, frozenset.intersection(*places)


def _nodes_of_classes(cluster: AssessedCluster) -> Mapping[str, frozenset[str]]:
    """Return DeviceClass to the nodes with devices of it."""
    selected = select_devices(
        cluster.state.classes, published_devices(cluster.state.cluster(Features()))
    )
    return {
        name: frozenset(stage_allocator.node_of(device) or "" for device in devices)
        for name, devices in selected.items()
        if not isinstance(devices, str)
    }
