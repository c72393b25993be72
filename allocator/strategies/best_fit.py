"""BestFit: the smallest sufficient device that blocks the least.

Devices, by these in turn:

1. free memory: the device's `memory` minus the consumption of its shares; 0 without `memory`;
2. blocked partitions: the score of the other partitions of its hardware that fit now and no longer
   would (`allocator.strategies.partitions`);
3. the fullest first, then upstream's order.

So whole devices and whole counter sets stay free while something smaller is sufficient. Whether a
device is sufficient is decided by the search, which passes over devices that are too small.

===========================================================  =====================================
requested                                                    allocated first
===========================================================  =====================================
`memory >= 20Gi` of GPUs with 80Gi, 24Gi, 16Gi               24Gi
a share of 10Gi of GPUs with 40Gi, 12Gi, 5Gi free            12Gi
1g of a free card with seven slots (1g x 7, 3g at 0 and 4)   the slot between the two 3g
1g of a free card and one with a slot in use                 the card in use
===========================================================  =====================================

Nodes: 50 for smallness, 30 for what remains possible, 20 for load:

* smallness: the mean over chosen devices of 40Gi / (40Gi + free memory), so 8/9 for 5Gi, 1/2 for
  40Gi, 1/3 for 80Gi; 1 without `memory`;
* possible: 1 / (1 + blocked score per device of the plan), where the blocked score is 1 if the one
  partition that consumes all counters no longer fits;
* the load of CompactFirst.

=====================================================  =========  ========  =====  =====
plan                                                   smallness  possible  load   score
=====================================================  =========  ========  =====  =====
the 80Gi GPU of two, the other free                    1/3        1         1/2    56
the 24Gi GPU of two, the other free                    5/8        1         1/2    71
=====================================================  =========  ========  =====  =====

The strategy reads no attribute, and of capacities only `memory`, the name that GPU drivers share.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from allocator.model.devices import NodeDevices, Pool, PublishedDevice
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.model.selectors import DeviceField
from allocator.model.usage import DeviceUse, Usage
from allocator.strategies.alternatives import rank_score
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from allocator.strategies.load import (
    FULL,
    consuming_choices,
    device_loads,
    drivers_of,
    node_load,
    usage_after,
)
from allocator.strategies.partitions import blocked_scores, lost_score
from allocator.strategies.pod_kinds import PodKind

MEMORY: Final = "memory"
HALF_SMALL: Final = 40 * 2**30 * 10**9
"""Free memory of a device with smallness 1/2 in nano-bytes: 40Gi."""

_SMALL: Final = 50
_POSSIBLE: Final = 30
_LOAD: Final = 20

_POOLS: Final = 8192

Memory = tuple[str, int]
"""The key of a device's memory capacity, and its nano-bytes."""


class BestFit:
    """Small devices first; nodes that lose least first."""

    name = "BestFit"
    fields: tuple[DeviceField, ...] = ()
    reads_capacities = True
    kinds: tuple[PodKind, ...] = ()

    def __init__(self, weights: CapacityWeights = NO_WEIGHTS) -> None:
        """Count capacities by weights."""
        self.weights = weights

    def order(self, node: NodeDevices, usage: Usage, _pending: PendingClaims) -> Sequence[int]:
        """Return devices by free memory, then by blocked partitions, then the fullest first."""
        uses = [usage.pools.get(pool.id) for pool in node.pools]
        pool_scores = [
            blocked_scores(pool, use) for pool, use in zip(node.pools, uses, strict=True)
        ]
        memories = [_memories(pool) for pool in node.pools]
        loads = device_loads(node, usage, self.weights)
        keys: list[tuple[int, int, int]] = []
        for position, (pool, device) in enumerate(zip(node.pool_of, node.devices, strict=True)):
            name = device.id.device
            use = uses[pool]
            free = _free_memory(memories[pool].get(name), use.get(name) if use else None)
            keys.append((free, pool_scores[pool].get(name, 0), -loads[position]))
        return sorted(range(len(keys)), key=keys.__getitem__)

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return the sum of smallness, remaining possibilities and load."""
        after = usage_after(node, usage, plan)
        points = (
            _SMALL * _smallness(usage, plan)
            + _POSSIBLE * _possible(node, usage, after, plan)
            + _LOAD * node_load(node, after, drivers_of(plan), self.weights)
        )
        return rank_score(plan, points // FULL)


BEST_FIT: Final = BestFit()


@lru_cache(maxsize=_POOLS)
def _memories(pool: Pool) -> Mapping[str, Memory]:
    """Return the memory of a pool's devices that have any, by device name."""
    return {
        device.id.device: memory
        for device in pool.devices
        if (memory := _memory(device)) is not None
    }


def _memory(device: PublishedDevice) -> Memory | None:
    capacity = device.device.capacity or {}
    for key in (MEMORY, f"{device.id.driver}/{MEMORY}"):
        if key in capacity:
            return key, capacity[key].value.nanos
    return None


def _free_memory(memory: Memory | None, use: DeviceUse | None) -> int:
    """Return the free memory of a device in nano-bytes; 0 without memory."""
    if memory is None:
        return 0
    key, nanos = memory
    if use is None or not use.capacity or key not in use.capacity:
        return nanos
    return max(0, nanos - use.capacity[key].nanos)


def _smallness(usage: Usage, plan: Plan) -> int:
    """Return the mean smallness of the chosen devices, of `FULL`, by their free memory before."""
    sizes = []
    for choice in consuming_choices(plan):
        free = _free_memory(_memory(choice.device), usage.of(choice.device.id))
        sizes.append(HALF_SMALL * FULL // (HALF_SMALL + free))
    return sum(sizes) // len(sizes) if sizes else FULL


def _possible(node: NodeDevices, before: Usage, after: Usage, plan: Plan) -> int:
    """Return 1 / (1 + blocked score per device), of `FULL`."""
    touched_devices = {choice.device.id for choice in consuming_choices(plan)}
    pools = {node.pool_of[node.positions[device]] for device in touched_devices}
    lost_total = 0
    for pool in [node.pools[index] for index in pools]:
        lost_total += lost_score(pool, before.pools.get(pool.id), after.pools.get(pool.id))
    return (
        FULL * FULL // (FULL + max(0, lost_total) // len(touched_devices))
        if touched_devices
        else FULL
    )
