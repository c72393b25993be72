"""How full devices and nodes are; what most strategies weigh.

Load is an integer from 0 to `FULL`, so that sums do not depend on the order of devices.

* A **device that one claim holds alone** is full.
* A **shared device** has the load of its fullest capacity: what is used up first is what counts.
  Where shares consume nothing that is measured, n of them make n / (n + 1).
* **Hardware that is cut into partitions** (a counter set) has the mean of its counters' loads,
  since a counter may stand for one slot of many; a partition that is itself shared counts with
  its own load. A partition is at least as full as the hardware it is cut from.
* A **node** has the mean load of its hardware: counter sets, and devices without counters. Only
  hardware of the drivers that a plan uses counts, so that NICs say nothing about GPUs.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from allocator.core.counters import Declared, declared
from allocator.core.model import (
    Choice,
    DeviceUse,
    NodeDevices,
    Plan,
    Pool,
    PoolId,
    PoolUse,
    Usage,
)
from kube.api.resource import Device
from kube.quantity import Quantity

FULL: Final = 1_000_000
"""The load of a device of which nothing is left: millionths."""

_POOLS: Final = 8192
_NO_SETS: Final[tuple[int, ...]] = ()
_FREE: Final = DeviceUse()


class Hardware(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a pool's devices are cut from.

    Attributes:
        counters: Of the pool.
        devices: By name, also those that other nodes see.
        sets: Names of counter sets that devices of this node consume, numbered by position here.
        set_of: Number of a counter to the number of its set; absent where the set does not count.
        sizes: How many counters above zero each set has.
        cut_from: Device name to the numbers of its sets.
        whole: Names of this node's devices that consume no counters.
    """

    counters: Declared
    devices: Mapping[str, Device]
    sets: tuple[str, ...]
    set_of: Mapping[int, int]
    sizes: tuple[int, ...]
    cut_from: Mapping[str, tuple[int, ...]]
    whole: frozenset[str]

    @property
    def units(self) -> int:
        """How many pieces of hardware there are."""
        return len(self.sets) + len(self.whole)


@lru_cache(maxsize=_POOLS)
def hardware(pool: Pool) -> Hardware:
    """Return what a pool's devices are cut from; the same object for the same pool."""
    counters = declared(pool)
    numbers: dict[str, int] = {}
    cut_from: dict[str, tuple[int, ...]] = {}
    for each in pool.devices:
        consumed = each.device.consumes_counters or ()
        names = dict.fromkeys(one.counter_set for one in consumed)
        if names:
            cut_from[each.id.device] = tuple(
                numbers.setdefault(name, len(numbers)) for name in names
            )
    set_of = {
        counter: numbers[name]
        for counter, (name, _) in enumerate(counters.names)
        if name in numbers and counters.amounts[counter].nanos > 0
    }
    members = list(set_of.values())
    return Hardware(
        counters=counters,
        devices={each.id.device: each.device for each in (*pool.devices, *pool.elsewhere)},
        sets=tuple(numbers),
        set_of=set_of,
        sizes=tuple(members.count(number) for number in range(len(numbers))),
        cut_from=cut_from,
        whole=frozenset(each.id.device for each in pool.devices if each.id.device not in cut_from),
    )


def own_load(device: Device, use: DeviceUse) -> int:
    """Return how full a device is, whatever the hardware that it is cut from.

    >>> gpu = Device(name="gpu-0", allow_multiple_allocations=True)
    >>> own_load(gpu, DeviceUse(share_ids=frozenset({"a", "b", "c"}))) == FULL * 3 // 4
    True
    """
    if use.exclusive:
        return FULL
    load = -1
    published = device.capacity or {}
    for name, consumed in (use.capacity or {}).items():
        capacity = published.get(name)
        if capacity is not None and capacity.value.nanos > 0:
            load = max(load, consumed.nanos * FULL // capacity.value.nanos)
    if load < 0:
        shares = len(use.share_ids)
        return FULL * shares // (shares + 1)
    return min(load, FULL)


def set_loads(made_of: Hardware, use: PoolUse) -> list[int]:
    """Return how full each counter set is, by its number."""
    sums = [0] * len(made_of.sets)
    taken: dict[int, int] = {}
    for name, one in use.items():
        takes = made_of.counters.takes.get(name)
        if takes:
            load = own_load(made_of.devices[name], one)
            for counter, nanos in takes:
                taken[counter] = taken.get(counter, 0) + nanos * load
    for counter, weighted in taken.items():
        number = made_of.set_of.get(counter)
        if number is not None:
            load = weighted // made_of.counters.amounts[counter].nanos
            sums[number] += min(load, FULL)
    return [total // size if size else 0 for total, size in zip(sums, made_of.sizes, strict=True)]


def device_loads(node: NodeDevices, usage: Usage) -> list[int]:
    """Return how full each device of a node is, by position."""
    loads = [0] * len(node.devices)
    uses = [usage.pools.get(pool.id) for pool in node.pools]
    if not any(uses):
        return loads
    made_of = [hardware(pool) if use else None for pool, use in zip(node.pools, uses, strict=True)]
    of_sets = [
        set_loads(each, use) if each is not None and use and each.sets else None
        for each, use in zip(made_of, uses, strict=True)
    ]
    for position, (pool, published) in enumerate(zip(node.pool_of, node.devices, strict=True)):
        use, each = uses[pool], made_of[pool]
        if not use or each is None:
            continue
        name = published.id.device
        one = use.get(name)
        load = 0 if one is None else own_load(published.device, one)
        sets = of_sets[pool]
        if sets is not None:
            for number in each.cut_from.get(name, _NO_SETS):
                load = max(load, sets[number])
        loads[position] = load
    return loads


def node_load(node: NodeDevices, usage: Usage, drivers: Collection[str]) -> int:
    """Return how full the hardware of some drivers is on a node."""
    load = units = 0
    for pool in node.pools:
        if pool.id.driver not in drivers:
            continue
        made_of = hardware(pool)
        units += made_of.units
        use = usage.pools.get(pool.id)
        if use:
            load += sum(set_loads(made_of, use)) if made_of.sets else 0
            whole = made_of.whole.intersection(use)
            load += sum([own_load(made_of.devices[name], use[name]) for name in whole])
    return load // units if units else 0


def load_after(node: NodeDevices, usage: Usage, plan: Plan) -> int:
    """Return how full the hardware of the plan's drivers is once the plan is carried out."""
    return node_load(node, carried_out(node, usage, plan), drivers_of(plan))


def drivers_of(plan: Plan) -> Collection[str]:
    """Return the drivers of which a plan takes devices."""
    return {choice.device.id.driver for choice in held(plan)}


def held(plan: Plan) -> Iterable[Choice]:
    """Yield the choices that take something; admin access takes nothing."""
    for claim in plan.choices:
        for choice in claim:
            if not choice.request.admin:
                yield choice


def carried_out(node: NodeDevices, usage: Usage, plan: Plan) -> Usage:
    """Return how a node's pools are used after a plan; pools of other nodes are left out."""
    pools: dict[PoolId, PoolUse] = {
        pool.id: usage.pools[pool.id] for pool in node.pools if pool.id in usage.pools
    }
    changed: dict[PoolId, dict[str, DeviceUse]] = {}
    for number, choice in enumerate(held(plan)):
        device = choice.device.id
        pool = PoolId(device.driver, device.pool)
        use = changed.get(pool)
        if use is None:
            use = changed[pool] = dict(pools.get(pool, {}))
        use[device.device] = _with(use.get(device.device, _FREE), choice, number)
    return Usage(pools={**pools, **changed})


def _with(use: DeviceUse, choice: Choice, number: int) -> DeviceUse:
    if choice.consumed is None:
        return DeviceUse(exclusive=True, share_ids=use.share_ids, capacity=use.capacity)
    capacity: dict[str, Quantity] = dict(use.capacity or {})
    for name, amount in choice.consumed.items():
        before = capacity.get(name)
        capacity[name] = amount if before is None else before + amount
    # Shares get their ids when the plan is carried out for good; here they only have to be many.
    return DeviceUse(
        exclusive=use.exclusive,
        share_ids=use.share_ids | {f"planned {number}"},
        capacity=capacity or use.capacity,
    )
