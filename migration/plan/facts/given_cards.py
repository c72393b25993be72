"""The cards that the schedulers of HAMi and Koordinator have given to pods, as they write them on these. Pure.

Sources: Project-HAMi/HAMi, pkg/device/devices.go, EncodeContainerDevices and EncodePodSingleDevice: `uuid,type,memory,cores`
for a device, with `:` after each; and `;` after each container. koordinator-sh/koordinator apis/extension/device_share.go,
DeviceAllocations: a list for each type of device, in JSON; a GPU has its `minor`, and may have its UUID as `id`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from migration.assessment.assumed import device_name
from migration.cluster.evidence import text_map
from migration.cluster.node_devices import NodeDevices, Source
from migration.cluster.workloads import Workload
from translation.vocabularies.koordinator.keys import ALLOCATED as KOORDINATOR_CARDS

HAMI_CARDS: Final = "hami.io/vgpu-devices-allocated"
_MAX_HAMI_TEXT: Final = 4096
"""The longest annotation of HAMi that is read; that of a pod with 16 cards has 900 characters."""
_MAX_KOORDINATOR_TEXT: Final = 16384
"""The longest one of Koordinator; that of a pod with 16 cards, and as many NICs, has 6,000 characters."""


class _Gpu(msgspec.Struct, frozen=True):
    """A GPU of Koordinator's annotation."""

    minor: int
    id: str = ""


class _Allocations(msgspec.Struct, frozen=True):
    gpu: tuple[_Gpu, ...] = ()


_ALLOCATIONS: Final = msgspec.json.Decoder(_Allocations)


def read_cards(
    nodes: Iterable[NodeDevices],
    nodes_of: Mapping[str, Sequence[str]],
    groups: Mapping[str, Workload],
) -> Mapping[tuple[str, int], tuple[str, ...]]:
    """Return workload and number of each pod on cards of HAMi or Koordinator to their names in the assumed inventory.

    A pod with a card that its node has not registered is left out.

    Args:
        nodes: The cluster's nodes with their devices.
        nodes_of: Workload to the nodes of its pods, in the order of their numbers.
        groups: Workload, as `Kind/namespace/name`, to its pods in the same order.
    """
    devices = {
        node.node: node for node in nodes if node.source in {Source.HAMI, Source.KOORDINATOR}
    }
    cards: dict[tuple[str, int], tuple[str, ...]] = {}
    for reference, places in nodes_of.items():
        for number, (pod, place) in enumerate(zip(groups[reference].pods, places, strict=True)):
            node = devices.get(place)
            indexes = () if node is None else _indexes(pod.document, node)
            if indexes:
                cards[reference, number] = tuple(map(device_name, indexes))
    return cards


def _indexes(pod: Mapping[str, Any], node: NodeDevices) -> tuple[int, ...]:
    """Return the places of a pod's cards among the devices of its node; none if one of them is not there."""
    annotations = text_map(pod, "metadata", "annotations")
    if node.source is Source.HAMI:
        places = {device.uuid: index for index, device in enumerate(node.legacy)}
        indexes = [places.get(uuid) for uuid in _uuids(annotations.get(HAMI_CARDS, ""))]
    else:
        gpus = _gpus(annotations.get(KOORDINATOR_CARDS, ""))
        indexes = [_index_of(gpu, node) for gpu in gpus]
    registered = tuple(index for index in indexes if index is not None)
    return registered if len(registered) == len(indexes) else ()


def _uuids(text: str) -> tuple[str, ...]:
    """Return the UUIDs of the cards in HAMi's annotation; none if it is too long."""
    if len(text) > _MAX_HAMI_TEXT:
        return ()
    entries = (entry for container in text.split(";") for entry in container.split(":"))
    return tuple(uuid for entry in entries if (uuid := entry.partition(",")[0].strip()))


def _gpus(text: str) -> tuple[_Gpu, ...]:
    """Return the GPUs of Koordinator's annotation; none if it is malformed or too long."""
    if not text or len(text) > _MAX_KOORDINATOR_TEXT:
        return ()
    try:
        return _ALLOCATIONS.decode(text).gpu
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ()


def _index_of(gpu: _Gpu, node: NodeDevices) -> int | None:
    """Return the place of a GPU among the devices of its node; None for another one there, or for none."""
    return next(
        (
            index
            for index, device in enumerate(node.legacy)
            if device.minor == gpu.minor and gpu.id in {"", device.uuid}
        ),
        None,
    )
