"""Events about nodes with a device plugin and ResourceSlices that offer the same devices."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from allocator.cluster.cluster import Cluster
from allocator.pods.duplicate_resources import DuplicateResource, duplicate_resources
from allocator.pods.extended_resource_claim import device_plugin_resources
from kube.api.events import Event, ObjectReference
from kube.api.extended_resources import extended_resources
from kube.api.resource import DeviceClass

REASON: Final = "DuplicateResource"
ACTION: Final = "Observe"
MAX_EVENTS: Final = 100
"""Events about one state of the cluster."""


def duplicate_resource_events(
    cluster: Cluster, classes: Mapping[str, DeviceClass]
) -> frozenset[Event]:
    """Return an event about each node for each extended resource that is offered twice.

    Only resources that a DeviceClass maps are compared: this process knows no driver profiles.
    """
    mapped_names = extended_resources(classes.values()).keys()
    nodes = [
        node for node in cluster.nodes.values() if device_plugin_resources(node) & mapped_names
    ]
    duplicates = duplicate_resources(nodes, cluster.node_devices, classes)
    return frozenset(islice(_events(duplicates, cluster), MAX_EVENTS))


def _events(duplicates: tuple[DuplicateResource, ...], cluster: Cluster) -> Iterator[Event]:
    for duplicate in duplicates:
        node = cluster.nodes[duplicate.node]
        yield Event(
            regarding=ObjectReference.of("v1", "Node", node.metadata),
            reason=REASON,
            action=ACTION,
            note=(
                f"{duplicate.resource} is offered twice: {duplicate.allocatable} by a device plugin, and "
                f"{duplicate.devices} devices of {' and '.join(duplicate.drivers)} through DeviceClass "
                f"{duplicate.device_class}. One device can be given to two pods. Stop the device plugin "
                "on this node, or remove extendedResourceName from the class."
            ),
            # Without amounts, which change.
            identity=f"{duplicate.resource} {duplicate.device_class}",
        )
