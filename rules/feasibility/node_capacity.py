"""CPU, memory and huge pages of a pod beside the largest node with its devices."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from allocator.nodes.amounts import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    ResourceAmounts,
    amount_of,
    format_resource,
    read_amounts,
)
from allocator.nodes.pod_requests import container_requests, pod_request
from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import printable
from kube.api.core import Container, Pod
from kube.api.resource import ResourceClaim
from rules.feasibility.idle_cluster import IdleCluster

_HUGE_PAGES: Final = "hugepages-"


def find_excesses(
    pod: Pod, path: FieldPath, claims: Sequence[ResourceClaim], idle_cluster: IdleCluster
) -> Iterator[Finding]:
    """Yield a warning for each resource of a pod in excess of every node with its devices.

    Args:
        path: The pod's path in its object.
        claims: The claims of the pod.
    """
    requested = _requested(pod)
    limits = idle_cluster.allocatable_nodes()
    if not claims or not requested or all(_has(limit, requested) for limit in limits.values()):
        return
    names = idle_cluster.fitting_nodes(claims)
    if not names or not all(name in limits for name in names):
        return
    for resource, amount in requested.items():
        most_by_node = {name: amount_of(limits[name], resource) for name in sorted(names)}
        largest = max(most_by_node, key=most_by_node.__getitem__)
        most = max(0, most_by_node[largest])
        if amount <= most:
            continue
        has = format_resource(resource, most)
        place, who = _origin(pod, resource, most)
        yield warning(
            Code.EXCEEDS_NODE_RESOURCES,
            path.join(place),
            f"{who} {resource} {format_resource(resource, amount)}, and no node with the devices has more than {has}",
            f"request {resource} {has} or less (node {printable(largest)})"
            if most
            else f"remove {resource}",
        )


def _has(limit: ResourceAmounts, requested: Mapping[str, int]) -> bool:
    return all(amount_of(limit, name) >= amount for name, amount in requested.items())


def _requested(pod: Pod) -> dict[str, int]:
    """Return the amounts that a pod requests of nodes' own resources, in the units of ResourceAmounts."""
    amounts = pod_request(pod).amounts
    huge_pages = (name for name in amounts.scalars if name.startswith(_HUGE_PAGES))
    names = (CPU, MEMORY, EPHEMERAL_STORAGE, *huge_pages)
    return {name: amount for name in names if (amount := amount_of(amounts, name)) > 0}


def _origin(pod: Pod, resource: str, most: int) -> tuple[FieldPath, str]:
    """Return the field of a container in excess by itself, and the beginning of a sentence."""
    lists: tuple[tuple[str, str, Sequence[Container]], ...] = (
        ("containers", "container", pod.spec.containers or ()),
        ("initContainers", "init container", pod.spec.init_containers or ()),
    )
    for field, noun, containers in lists:
        for index, container in enumerate(containers):
            if amount_of(read_amounts(container_requests(container)), resource) > most:
                place = FieldPath.of("spec", field, index, "resources", "requests").key(resource)
                return place, f"{noun} {printable(container.name)} requests"
    return FieldPath.of("spec", "containers"), "the containers request together"
