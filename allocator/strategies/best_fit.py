"""BestFit: the smallest device that will do, where it blocks least.

Devices, by these in turn:

1. room: the device's `memory`, less what its shares take; a device without `memory` has none;
2. what a partition blocks: the worth of the other partitions of its hardware that fit now and no
   longer would (`allocator.strategies.partitions`);
3. the fullest first, then upstream's order.

So whole devices and whole counter sets stay free as long as something smaller will do. Whether a
device will do is the search's business: what is too small is passed over.

===========================================================  =====================================
asked                                                        taken first
===========================================================  =====================================
`memory >= 20Gi` of GPUs with 80Gi, 24Gi, 16Gi               24Gi
a share of 10Gi of GPUs with 40Gi, 12Gi, 5Gi free            12Gi
1g of a free card with seven slots (1g x 7, 3g at 0 and 4)   the slot between the two 3g
1g of a free card and one with a slot in use                 the card in use
===========================================================  =====================================

Nodes: 50 for smallness, 30 for what stays possible, 20 for load:

* smallness: the mean over chosen devices of 40Gi / (40Gi + room), so 8/9 of 5Gi, 1/2 of 40Gi, 1/3
  of 80Gi; 1 without `memory`;
* what stays possible: 1 / (1 + what the plan blocks per device), where 1 is blocked when the one
  partition that takes all counters is no longer possible;
* the load of CompactFirst.

=====================================================  =========  ========  =====  =====
plan                                                   smallness  possible  load   score
=====================================================  =========  ========  =====  =====
the 80Gi GPU of two, the other free                    1/3        1         1/2    56
the 24Gi GPU of two, the other free                    5/8        1         1/2    71
=====================================================  =========  ========  =====  =====

It reads no attribute, and of capacities only `memory`, which drivers of GPUs agree on.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from allocator.core.inventory import Place
from allocator.core.model import Asked, DeviceUse, NodeDevices, Plan, Pool, PublishedDevice, Usage
from allocator.strategies.alternatives import ranked
from allocator.strategies.load import (
    FULL,
    carried_out,
    device_loads,
    drivers_of,
    held,
    node_load,
)
from allocator.strategies.partitions import blocked, lost

MEMORY: Final = "memory"
HALF_SMALL: Final = 40 * 2**30 * 10**9
"""Nano-bytes of a device that is neither small nor big: 40Gi."""

_SMALL: Final = 50
_POSSIBLE: Final = 30
_LOAD: Final = 20

_POOLS: Final = 8192

Memory = tuple[str, int]
"""The key under which a device publishes its memory, and nano-bytes."""


class BestFit:
    """Small devices first, nodes that lose least."""

    name = "BestFit"
    places: tuple[Place, ...] = ()
    weighs = True

    def order(self, node: NodeDevices, usage: Usage, _asked: Asked) -> Sequence[int]:
        """Return devices by room, by what they block, and the fullest first."""
        uses = [usage.pools.get(pool.id) for pool in node.pools]
        costs = [blocked(pool, use) for pool, use in zip(node.pools, uses, strict=True)]
        memories = [_memories(pool) for pool in node.pools]
        loads = device_loads(node, usage)
        keys: list[tuple[int, int, int]] = []
        for position, (pool, published) in enumerate(zip(node.pool_of, node.devices, strict=True)):
            name = published.id.device
            use = uses[pool]
            one = use.get(name) if use else None
            room = _room(memories[pool].get(name), one)
            keys.append((room, costs[pool].get(name, 0), -loads[position]))
        return sorted(range(len(keys)), key=keys.__getitem__)

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return how small the plan's devices are, how little they block, how full it leaves."""
        after = carried_out(node, usage, plan)
        points = (
            _SMALL * _smallness(usage, plan)
            + _POSSIBLE * _possible(node, usage, after, plan)
            + _LOAD * node_load(node, after, drivers_of(plan))
        )
        return ranked(plan, points // FULL)


BEST_FIT: Final = BestFit()


@lru_cache(maxsize=_POOLS)
def _memories(pool: Pool) -> Mapping[str, Memory]:
    """Return the memory of a pool's devices, of those that have any."""
    found = {each.id.device: _memory(each) for each in pool.devices}
    return {name: memory for name, memory in found.items() if memory is not None}


def _memory(published: PublishedDevice) -> Memory | None:
    capacity = published.device.capacity or {}
    for key in (MEMORY, f"{published.id.driver}/{MEMORY}"):
        if key in capacity:
            return key, capacity[key].value.nanos
    return None


def _room(memory: Memory | None, use: DeviceUse | None) -> int:
    """Return nano-bytes that a device has left."""
    if memory is None:
        return 0
    key, nanos = memory
    if use is None or not use.capacity or key not in use.capacity:
        return nanos
    return max(0, nanos - use.capacity[key].nanos)


def _smallness(usage: Usage, plan: Plan) -> int:
    """Return how small the chosen devices are, of `FULL`; a share counts the room it is put into."""
    sizes = []
    for choice in held(plan):
        room = _room(_memory(choice.device), usage.of(choice.device.id))
        sizes.append(HALF_SMALL * FULL // (HALF_SMALL + room))
    return sum(sizes) // len(sizes) if sizes else FULL


def _possible(node: NodeDevices, before: Usage, after: Usage, plan: Plan) -> int:
    """Return 1 / (1 + what the plan blocks per device), of `FULL`."""
    touched = {choice.device.id for choice in held(plan)}
    pools = {node.pool_of[node.positions[device]] for device in touched}
    blocks = 0
    for pool in [node.pools[index] for index in pools]:
        blocks += lost(pool, before.pools.get(pool.id), after.pools.get(pool.id))
    return FULL * FULL // (FULL + max(0, blocks) // len(touched)) if touched else FULL
