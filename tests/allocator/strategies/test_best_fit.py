from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.model.devices import NodeDevices
from allocator.strategies.best_fit import BEST_FIT
from kube.api.resource import DeviceRequest, DeviceRequestAllocationResult
from testing.allocation.builders import amount, claim, device, node_with, pool_of, request
from testing.allocation.placing import cards, held_results, placed, share


def sized_node_devices(*memories: str) -> NodeDevices:
    """GPUs of these sizes, given away whole."""
    return node_with(pool_of(*[device(memory, capacity={"memory": memory}) for memory in memories]))


def sliced_node_devices(*memories: str) -> NodeDevices:
    """GPUs of these sizes, shared by memory."""
    return node_with(
        pool_of(
            *[
                device(memory, shared=True, capacity={"memory": amount(memory, min="1Gi")})
                for memory in memories
            ]
        )
    )


def profile(name: str, count: int = 1) -> DeviceRequest:
    """Partitions of one profile."""
    return request(
        "req-0", f'device.attributes["gpu.example.com"].profile == "{name}"', count=count
    )


BIG_ENOUGH = 'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("20Gi"))'


class Row(NamedTuple):
    name: str
    node: NodeDevices
    held: Sequence[DeviceRequestAllocationResult]
    pending: DeviceRequest
    devices: str
    score: int


ROWS = (
    Row(
        "the smallest of all", sized_node_devices("80Gi", "24Gi", "16Gi"), (), request(), "16Gi", 72
    ),
    Row(
        "the smallest that will do",
        sized_node_devices("80Gi", "24Gi", "16Gi"),
        (),
        request("req-0", BIG_ENOUGH),
        *("24Gi", 67),
    ),
    Row(
        "the big one of two",
        sized_node_devices("80Gi", "24Gi"),
        held_results("24Gi"),
        request(),
        "80Gi",
        66,
    ),
    Row(
        "the big one of two where the other is free",
        sized_node_devices("80Gi", "24Gi"),
        (),
        request("req-0", 'device.capacity["gpu.example.com"].memory == quantity("80Gi")'),
        *("80Gi", 56),
    ),
    Row("the small one of two", sized_node_devices("80Gi", "24Gi"), (), request(), "24Gi", 71),
    Row(
        "a share goes where least room is left",
        sliced_node_devices("80Gi", "40Gi", "16Gi"),
        (share("80Gi", memory="68Gi"), share("16Gi", memory="11Gi")),
        request(capacity={"memory": "10Gi"}),
        *("80Gi", 79),
    ),
    Row(
        "one slot goes between the bigger partitions",
        cards(1),
        (),
        profile("1g"),
        "card-0-1g-3",
        62,
    ),
    Row(
        "and then beside the first",
        cards(1),
        held_results("card-0-1g-3"),
        profile("1g"),
        "card-0-1g-0",
        71,
    ),
    Row(
        "one slot goes to the card in use",
        cards(2),
        held_results("card-1-1g-3"),
        profile("1g"),
        *("card-1-1g-0", 68),
    ),
    Row(
        "where it blocks nothing",
        cards(2),
        held_results("card-1-1g-0"),
        profile("1g"),
        *("card-1-1g-1", 77),
    ),
    Row(
        "a bigger partition beside a small one",
        cards(2),
        held_results("card-1-1g-0"),
        profile("3g"),
        *("card-1-3g-4", 63),
    ),
    Row(
        "any partition: the smallest",
        cards(1),
        held_results("card-0-3g-0"),
        request(),
        "card-0-1g-3",
        85,
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_placements(row: Row) -> None:
    assert (row.devices, row.score) == placed(BEST_FIT, row.node, [claim(row.pending)], row.held)
