"""Extended resources that a node offers twice: by a device plugin, and by a driver's ResourceSlices.

The kubelet counts the plugin's devices in `status.allocatable`, the driver publishes them again, and
nothing in Kubernetes compares the two. So one GPU can be given to two pods: to one by the kubelet,
to the other by a claim.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/noderesources, fit.go: a pod is
served by the plugin on nodes whose allocatable has the resource, and by the DeviceClass elsewhere.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from allocator.model.devices import NodeDevices, PublishedDevice
from allocator.model.requests import Expression
from allocator.model.selectors import selector_chain
from allocator.pods.extended_resource_claim import device_plugin_resources
from kube.api.core import Node
from kube.api.extended_resources import extended_resources
from kube.api.resource import DeviceClass
from kube.quantity import Quantity


class DuplicateResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An extended resource that a device plugin and ResourceSlices offer on one node.

    Attributes:
        allocatable: The amount that the device plugin offers.
        drivers: Drivers that publish devices for the resource on this node, sorted.
        devices: The number of these devices.
        device_class: The DeviceClass that maps the resource to some of these devices; empty where
            only a profile connects the resource with the drivers.
    """

    node: str
    resource: str
    allocatable: Quantity
    drivers: tuple[str, ...]
    devices: int
    device_class: str = ""


def no_drivers(_resource: str) -> Collection[str]:
    """Return no driver: for callers that know of no profiles."""
    return ()


def duplicate_resources(
    nodes: Iterable[Node],
    node_devices: Callable[[str], NodeDevices],
    classes: Mapping[str, DeviceClass],
    drivers_of: Callable[[str], Collection[str]] = no_drivers,
) -> tuple[DuplicateResource, ...]:
    """Return the resources that are offered twice, by node and resource.

    Args:
        nodes: Nodes that do not tell what is allocatable are skipped.
        node_devices: Node name to its devices; those that no node has to itself do not count.
        classes: DeviceClasses by name.
        drivers_of: Resource name to the drivers that serve it according to their profiles.
    """
    mapped_classes = {
        resource: classes[name] for resource, name in extended_resources(classes.values()).items()
    }
    return tuple(
        duplicate
        for node in sorted(nodes, key=lambda node: node.metadata.name)
        for duplicate in _on_node(
            node, _local(node_devices(node.metadata.name)), mapped_classes, drivers_of
        )
    )


def _on_node(
    node: Node,
    devices: Collection[PublishedDevice],
    mapped_classes: Mapping[str, DeviceClass],
    drivers_of: Callable[[str], Collection[str]],
) -> Iterator[DuplicateResource]:
    for resource in sorted(device_plugin_resources(node)):
        device_class = mapped_classes.get(resource)
        selected_devices = (
            frozenset(_selected_devices(device_class, devices)) if device_class else frozenset()
        )
        drivers = drivers_of(resource)
        offered_devices = [
            device
            for device in devices
            if device in selected_devices or device.id.driver in drivers
        ]
        if offered_devices:
            yield DuplicateResource(
                node=node.metadata.name,
                resource=resource,
                allocatable=(node.status.allocatable or {})[resource],
                drivers=tuple(sorted({device.id.driver for device in offered_devices})),
                devices=len(offered_devices),
                device_class=device_class.metadata.name
                if device_class and selected_devices
                else "",
            )


def _local(node: NodeDevices) -> tuple[PublishedDevice, ...]:
    """Return the devices of slices that are this node's own."""
    return tuple(
        device
        for device in node.devices
        if node.node in {device.slice.spec.node_name, device.device.node_name}
    )


def _selected_devices(
    device_class: DeviceClass, devices: Iterable[PublishedDevice]
) -> Iterator[PublishedDevice]:
    """Yield the devices of a class, without devices that make its selectors fail."""
    selectors = selector_chain(
        tuple(
            Expression(text=selector.cel.expression, origin="")
            for selector in device_class.spec.selectors or ()
            if selector.cel is not None
        )
    )
    return (device for device in devices if selectors.verdict(device) is True)
