"""CompactFirst, LowLoadFirst and the one between them, on the same nodes."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.model.devices import NodeDevices
from allocator.strategies.compact_first import COMPACT_FIRST
from allocator.strategies.low_load_first import LOW_LOAD_FIRST
from allocator.strategies.node_compact_device_low_load import NODE_COMPACT_DEVICE_LOW_LOAD
from kube.api.resource import DeviceRequest, DeviceRequestAllocationResult
from testing.allocation.builders import alternative, claim, first_of, request
from testing.allocation.placing import cards, held_results, placed, share, sharing, whole

ONE_SLOT = 'device.attributes["gpu.example.com"].profile == "1g"'
QUARTER = {"memory": "20Gi"}


class Row(NamedTuple):
    name: str
    node: NodeDevices
    held: Sequence[DeviceRequestAllocationResult]
    pending: DeviceRequest
    compact: str
    low_load: str
    packed: int
    spread: int


ROWS = (
    Row("an empty node", whole(4), (), request(), "gpu-0", "gpu-0", 25, 75),
    Row(
        "whole devices are alike",
        whole(4),
        held_results("gpu-0", "gpu-2"),
        request(),
        *("gpu-1", "gpu-1", 75, 25),
    ),
    Row(
        "a bigger node is emptier",
        whole(8),
        held_results("gpu-0", "gpu-1"),
        request(),
        "gpu-2",
        "gpu-2",
        37,
        62,
    ),
    Row(
        "shares",
        sharing(2),
        (share("gpu-1", memory="40Gi"),),
        request(capacity=QUARTER),
        *("gpu-1", "gpu-0", 37, 62),
    ),
    Row(
        "what is full is passed over",
        sharing(3),
        (share("gpu-1", memory="70Gi"), share("gpu-2", memory="10Gi")),
        request(capacity=QUARTER),
        *("gpu-2", "gpu-0", 41, 58),
    ),
    Row(
        "two partitions of free cards",
        cards(2),
        (),
        request("req-0", ONE_SLOT, count=2),
        *("card-0-1g-0 card-0-1g-1", "card-0-1g-0 card-1-1g-0", 14, 85),
    ),
    Row(
        "a partition beside others",
        cards(2),
        held_results("card-1-1g-0"),
        request("req-0", ONE_SLOT),
        *("card-1-1g-1", "card-0-1g-0", 14, 85),
    ),
    Row(
        "the first alternative outweighs the load",
        whole(4),
        (),
        first_of("req-0", alternative()),
        *("gpu-0", "gpu-0", 90, 96),
    ),
    Row(
        "a later alternative is behind it on any node",
        whole(4),
        held_results("gpu-0", "gpu-1", "gpu-2"),
        first_of("req-0", alternative("two", count=2), alternative("one")),
        *("gpu-3", "gpu-3", 87, 75),
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_placements(row: Row) -> None:
    claims = [claim(row.pending)]

    compact = placed(COMPACT_FIRST, row.node, claims, row.held)
    low_load = placed(LOW_LOAD_FIRST, row.node, claims, row.held)
    between = placed(NODE_COMPACT_DEVICE_LOW_LOAD, row.node, claims, row.held)

    assert (row.compact, row.packed) == compact
    assert (row.low_load, row.spread) == low_load
    assert (row.low_load, row.packed) == between


def test_admin_access_adds_no_load() -> None:
    claims = [claim(request(admin_access=True), namespace="admin")]

    assert placed(COMPACT_FIRST, whole(4), claims, held_results("gpu-0")).score == 0
