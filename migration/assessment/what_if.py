"""The placement of the first pod of each workload, with the reasons against other nodes."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from allocator.cluster.cluster import Cluster
from allocator.explain.trace import PlacementTrace
from allocator.nodes.node_resources import NodeResources
from allocator.simulation.model import PlacedClaim, SimulationInput, SimulationOptions
from allocator.simulation.simulate import simulate_in_order
from kube.api.meta import ObjectMeta
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimStatus
from migration.assessment.capacity import build_pods, build_templates, class_names
from migration.assessment.outcomes import AssessedWorkload

MAX_TRACED: Final = 500
"""Workloads whose placement is traced; each takes some milliseconds for each class of nodes."""


def trace_first_pods(
    workloads: Iterable[AssessedWorkload],
    cluster: Cluster,
    classes: Mapping[str, DeviceClass],
    usable_classes: frozenset[str],
    resources: Mapping[str, NodeResources],
) -> dict[str, PlacementTrace]:
    """Return `Kind/namespace/name` of workloads to the placement of one pod alone.

    Args:
        cluster: The cluster with the claims that are allocated already; it is unchanged afterwards.
        usable_classes: Names of the DeviceClasses that select any device.
        resources: Node to its CPU, memory and other counted resources, with the pods that are not placed anew.
    """
    placed_workloads = (
        workload
        for workload in workloads
        if workload.result is not None and class_names(workload) <= usable_classes
    )
    traces: dict[str, PlacementTrace] = {}
    for workload in islice(placed_workloads, MAX_TRACED):
        question = SimulationInput(
            pods=tuple(islice(build_pods(workload), 1)),
            templates=dict(build_templates(workload)),
            classes=classes,
            resources=resources,
        )
        answer = simulate_in_order(cluster, question, SimulationOptions(traces=1))
        release_placed(cluster, answer.claims)
        for trace in answer.traces:
            traces[workload.key.reference] = trace
    return traces


def find_unserved(
    workloads: Iterable[AssessedWorkload],
    cluster: Cluster,
    classes: Mapping[str, DeviceClass],
    resources: Mapping[str, NodeResources],
) -> frozenset[str]:
    """Return the workloads with a pod that no node would serve alone, as `Kind/namespace/name`.

    Args:
        workloads: The workloads to try.
        cluster: The cluster without the claims of pods that are placed anew; it is unchanged afterwards.
        classes: The DeviceClasses by name.
        resources: Node to its CPU, memory and other counted resources, likewise.
    """
    unserved: set[str] = set()
    for workload in workloads:
        question = SimulationInput(
            pods=tuple(islice(build_pods(workload), 1)),
            templates=dict(build_templates(workload)),
            classes=classes,
            resources=resources,
        )
        answer = simulate_in_order(cluster, question, SimulationOptions())
        release_placed(cluster, answer.claims)
        if any(pod.node is None for pod in answer.pods):
            unserved.add(workload.key.reference)
    return frozenset(unserved)


def release_placed(cluster: Cluster, claims: Iterable[PlacedClaim]) -> None:
    """Release the devices of claims that a simulation has placed."""
    for claim in claims:
        if claim.allocation is not None:
            cluster.release(
                ResourceClaim(
                    metadata=ObjectMeta(namespace=claim.namespace, name=claim.name),
                    status=ResourceClaimStatus(allocation=claim.allocation),
                )
            )
