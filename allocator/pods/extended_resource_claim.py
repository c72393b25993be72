"""The claim that the scheduler makes for a pod's extended resources that DeviceClasses map (KEP-5004).

One claim per pod and node: resources that a device plugin offers on the node are left to it, the
others become one request per container and resource. Init containers that end before the others
start use the devices of those; only what the largest of them needs beyond that is requested.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources,
extendeddynamicresources.go, createRequestsAndMappings.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from allocator.nodes.pod_requests import pod_request
from allocator.pods.claims import owner_reference, pod_name
from findings.field_path import FieldPath
from kube.api.core import Container, Node, Pod
from kube.api.meta import ObjectMeta
from kube.api.resource import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kube.quantity import ZERO, Quantity

ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
SUFFIX: Final = "extended-resources"
"""kube-scheduler appends random characters; here the name stays as it is."""


def mapped_resources(pod: Pod, classes: Mapping[str, str]) -> frozenset[str]:
    """Return the extended resources of a pod that a class maps.

    Args:
        classes: Name of an extended resource to name of its DeviceClass.
    """
    return frozenset(
        name
        for container in _containers(pod)
        for name, amount in _requests(container).items()
        if name in classes and amount > ZERO
    )


def device_plugin_resources(node: Node) -> frozenset[str]:
    """Return the resources that a node offers without DRA."""
    offered_resources = node.status.allocatable or {}
    return frozenset(name for name, amount in offered_resources.items() if amount > ZERO)


def unavailable_resources(pod: Pod, node: Node, classes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the extended resources of a pod that neither a class maps nor the node offers.

    Nothing for a node without `status.allocatable`.

    Source: k8s.io/kubernetes v1.37.1, pkg/apis/core/v1/helper, IsExtendedResourceName.
    """
    known_resources = node.status.allocatable
    if known_resources is None:
        return ()
    requested_names = {
        name
        for container in _containers(pod)
        for name, amount in _requests(container).items()
        if amount > ZERO and "/" in name and "kubernetes.io/" not in name
    }
    return tuple(sorted(requested_names - classes.keys() - known_resources.keys()))


def resources_beyond_plugins(pod: Pod, node: Node) -> tuple[str, ...]:
    """Return the extended resources with too small an offer by device plugins of a node."""
    offered_resources = node.status.allocatable or {}
    return tuple(
        name
        for name, amount in sorted(pod_request(pod).amounts.scalars.items())
        if "/" in name
        and offered_resources.get(name, ZERO) > ZERO
        and Quantity.from_int(amount) > offered_resources[name]
    )


def extended_resource_claim(
    pod: Pod, resources: Collection[str], classes: Mapping[str, str]
) -> ResourceClaim:
    """Return the claim for these of a pod's extended resources.

    Args:
        resources: The resources among its `mapped_resources` that DRA has to provide on the node.
        classes: Name of an extended resource to name of its DeviceClass.
    """
    requests = [
        request
        for resource in sorted(resources)
        for request in _device_requests(pod, resource, classes[resource])
    ]
    return ResourceClaim(
        metadata=ObjectMeta(
            name=f"{pod_name(pod)}-{SUFFIX}",
            namespace=pod.metadata.namespace,
            annotations={ANNOTATION: "true"},
            owner_references=(owner_reference(pod),),
        ),
        spec=ResourceClaimSpec(
            devices=DeviceClaim(requests=tuple(sorted(requests, key=lambda request: request.name)))
        ),
    )


def limit_paths(pod: Pod, resources: Collection[str]) -> Mapping[str, FieldPath]:
    """Return the paths of limits in a pod, by the request of its claim for just as many devices.

    There is none for a resource that init containers request as well, since they share the devices of
    the others.
    """
    init, containers = pod.spec.init_containers or (), _containers(pod)
    shared = {
        resource
        for container in init
        if container.restart_policy != "Always"
        for resource in _requests(container)
    }
    paths: dict[str, FieldPath] = {}
    for index, container in enumerate(containers):
        is_init = index < len(init)
        place = ("initContainers", index) if is_init else ("containers", index - len(init))
        limits = FieldPath.of("spec", *place, "resources", "limits")
        for resource in _requests(container).keys() & (set(resources) - shared):
            paths[_request_name(index, container, resource)] = limits.key(resource)
    return paths


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))


def _requests(container: Container) -> Mapping[str, Quantity]:
    # The API server fills requests in from limits; files have not been there.
    return {**container.limits, **container.requests}


def _device_requests(pod: Pod, resource: str, device_class: str) -> Iterable[DeviceRequest]:
    init, containers = pod.spec.init_containers or (), _containers(pod)
    lasting = {
        index: _request(index, container, resource, device_class, reusable=0)
        for index, container in enumerate(containers)
        if index >= len(init) or container.restart_policy == "Always"
    }
    # The devices of the containers that start later.
    reusable = sum(map(_count, lasting.values()))
    surplus: DeviceRequest | None = None
    for index, container in enumerate(init):
        if index in lasting:
            reusable -= _count(lasting[index])
            continue
        request = _request(index, container, resource, device_class, reusable)
        if request is not None and _count(request) > _count(surplus):
            surplus = request
    return [request for request in (surplus, *lasting.values()) if request is not None]


def _request(
    index: int,
    container: Container,
    resource: str,
    device_class: str,
    reusable: int,
) -> DeviceRequest | None:
    """Return the request for the devices that a container cannot reuse; None if it reuses all.

    Args:
        reusable: Devices that it can reuse.
    """
    requests = _requests(container)
    amount = requests.get(resource)
    if amount is None or not amount.is_whole:
        return None
    needed_count = int(amount) - reusable
    if needed_count <= 0:
        return None
    return DeviceRequest(
        name=_request_name(index, container, resource),
        exactly=ExactDeviceRequest(
            device_class_name=device_class, allocation_mode="ExactCount", count=needed_count
        ),
    )


def _request_name(index: int, container: Container, resource: str) -> str:
    return f"container-{index}-request-{sorted(_requests(container)).index(resource)}"


def _count(request: DeviceRequest | None) -> int:
    return (request.exactly.count or 0) if request and request.exactly else 0
