"""LowLoadFirst: spread over devices and over nodes.

Devices: the emptiest first. Among equally full devices, the first partition of every piece of
hardware comes before the second of any, so that two partitions come from two cards; otherwise in
upstream's order.

Nodes: the free share after the plan, in percent.

=====================================================  ==============  =====
devices of the node, one more of which is allocated    load after      score
=====================================================  ==============  =====
4 GPUs, none in use                                    1 of 4          75
4 GPUs, 2 in use                                       3 of 4          25
8 GPUs, 2 in use                                       3 of 8          62
=====================================================  ==============  =====

Two requests of one pod that can share a device may get the same device, since the order is computed
before the search. A claim that needs different devices uses `distinctAttribute`.
"""

from collections.abc import Sequence
from typing import Final

from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.model.selectors import DeviceField
from allocator.model.usage import Usage
from allocator.strategies.alternatives import rank_score
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from allocator.strategies.load import FULL, device_loads, hardware, load_after
from allocator.strategies.pod_kinds import PodKind


class LowLoadFirst:
    """Empty devices first, empty nodes first."""

    name = "LowLoadFirst"
    fields: tuple[DeviceField, ...] = ()
    reads_capacities = False
    kinds: tuple[PodKind, ...] = ()

    def __init__(self, weights: CapacityWeights = NO_WEIGHTS) -> None:
        """Count capacities by weights."""
        self.weights = weights

    def order(
        self, node: NodeDevices, usage: Usage, _pending: PendingClaims
    ) -> Sequence[int] | None:
        """Return the emptiest devices first; None if that is upstream's order."""
        return emptiest_first(node, usage, self.weights)

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return the free share of the node after the plan, in percent."""
        return rank_score(plan, 100 * (FULL - load_after(node, usage, plan, self.weights)) // FULL)


LOW_LOAD_FIRST: Final = LowLoadFirst()


def emptiest_first(
    node: NodeDevices, usage: Usage, weights: CapacityWeights
) -> Sequence[int] | None:
    """Return positions by load, then by turn; None if that is upstream's order."""
    loads = device_loads(node, usage, weights)
    turns = _turns(node)
    if turns is None:
        if not any(loads):
            return None
        return sorted(range(len(loads)), key=loads.__getitem__)
    keys = list(zip(loads, turns, strict=True))
    return sorted(range(len(keys)), key=keys.__getitem__)


def _turns(node: NodeDevices) -> list[int] | None:
    """Return the number of earlier devices of the same hardware by position; None without partitions."""
    hardware_of = [hardware(pool) for pool in node.pools]
    if not any(pool_hardware.sets for pool_hardware in hardware_of):
        return None
    counts: dict[tuple[int, tuple[int, ...]], int] = {}
    turns = []
    for pool, device in zip(node.pool_of, node.devices, strict=True):
        sets = hardware_of[pool].partition_of.get(device.id.device)
        if sets is None:
            turns.append(0)
            continue
        turn = counts.get((pool, sets), 0)
        counts[pool, sets] = turn + 1
        turns.append(turn)
    return turns
