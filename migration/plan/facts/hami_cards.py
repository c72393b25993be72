"""The cards that HAMi's scheduler has given to pods, as it writes them on these. Pure.

Source: Project-HAMi/HAMi, pkg/device/devices.go, EncodeContainerDevices and EncodePodSingleDevice: `uuid,type,memory,cores`
for a device, with `:` after each; and `;` after each container.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from migration.assessment.assumed import device_name
from migration.cluster.evidence import text_map
from migration.cluster.node_devices import NodeDevices, Source
from migration.cluster.workloads import Workload

ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
_MAX_TEXT: Final = 4096
"""The longest annotation that is read; that of a pod with 16 cards has 900 characters."""


def read_cards(
    nodes: Iterable[NodeDevices],
    nodes_of: Mapping[str, Sequence[str]],
    groups: Mapping[str, Workload],
) -> Mapping[tuple[str, int], tuple[str, ...]]:
    """Return workload and number of each pod on cards of HAMi to their names in the assumed inventory.

    A pod with a card that its node has not registered is left out.

    Args:
        nodes: The cluster's nodes with their devices.
        nodes_of: Workload to the nodes of its pods, in the order of their numbers.
        groups: Workload, as `Kind/namespace/name`, to its pods in the same order.
    """
    names = {
        node.node: {device.uuid: device_name(index) for index, device in enumerate(node.legacy)}
        for node in nodes
        if node.source is Source.HAMI
    }
    cards: dict[tuple[str, int], tuple[str, ...]] = {}
    for reference, places in nodes_of.items():
        for number, (pod, node) in enumerate(zip(groups[reference].pods, places, strict=True)):
            own = names.get(node, {})
            uuids = _uuids(pod.document) if own else ()
            if uuids and own.keys() >= set(uuids):
                cards[reference, number] = tuple(own[uuid] for uuid in uuids)
    return cards


def _uuids(pod: Mapping[str, Any]) -> tuple[str, ...]:
    text = text_map(pod, "metadata", "annotations").get(ALLOCATED, "")
    if len(text) > _MAX_TEXT:
        return ()
    entries = (entry for container in text.split(";") for entry in container.split(":"))
    return tuple(uuid for entry in entries if (uuid := entry.partition(",")[0].strip()))
