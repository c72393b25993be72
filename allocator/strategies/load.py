"""The load of devices and nodes; most strategies score by it.

Load is an integer from 0 to `FULL`, so that sums do not depend on the order of devices.

* A **device in exclusive use** is full.
* A **shared device** has the load of its fullest capacity, the one that runs out first, or the mean
  of its capacities by `allocator.strategies.capacity_weights`. Where shares consume no capacity, n of
  them make a load of n / (n + 1).
* **Partitioned hardware** (a counter set) has the mean of its counters' loads, since a counter may
  stand for one slot of many; a partition that is itself shared counts with its own load. A
  partition is at least as full as its hardware.
* A **node** has the mean load of its hardware: counter sets, and devices without counters. Only
  hardware of the drivers that a plan uses counts, so that the load of NICs does not affect GPUs.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from allocator.features.partitionable_devices import PoolCounters, pool_counters
from allocator.model.devices import NodeDevices, Pool, PoolId
from allocator.model.plan import Choice, Plan
from allocator.model.usage import DeviceUse, PoolUse, Usage
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from kube.api.resource import Device, DeviceCapacity
from kube.quantity import Quantity

FULL: Final = 1_000_000
"""The load of a device with nothing available, in millionths."""

_POOLS: Final = 8192
_NO_SETS: Final[tuple[int, ...]] = ()
_FREE: Final = DeviceUse()
_UNWEIGHTED: Final[Mapping[str, int]] = {}


class Hardware(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The hardware of a pool: counter sets, and devices that consume no counters.

    Attributes:
        counters: Counters of the pool.
        devices: Device by name, including those of other nodes.
        sets: Names of the counter sets that devices of this node consume; the index is the number.
        set_of: Number of a counter to the number of its set, if devices of this node consume it.
        sizes: Number of counters above zero of each set.
        partition_of: Device name to the numbers of the sets that it consumes.
        whole: Names of this node's devices that consume no counters.
    """

    counters: PoolCounters
    devices: Mapping[str, Device]
    sets: tuple[str, ...]
    set_of: Mapping[int, int]
    sizes: tuple[int, ...]
    partition_of: Mapping[str, tuple[int, ...]]
    whole: frozenset[str]

    @property
    def units(self) -> int:
        """Number of pieces of hardware."""
        return len(self.sets) + len(self.whole)


@lru_cache(maxsize=_POOLS)
def hardware(pool: Pool) -> Hardware:
    """Return the hardware of a pool, from a cache."""
    counters = pool_counters(pool)
    numbers: dict[str, int] = {}
    partition_of: dict[str, tuple[int, ...]] = {}
    for device in pool.devices:
        consumptions = device.device.consumes_counters or ()
        names = dict.fromkeys(consumption.counter_set for consumption in consumptions)
        if names:
            partition_of[device.id.device] = tuple(
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
        devices={device.id.device: device.device for device in (*pool.devices, *pool.elsewhere)},
        sets=tuple(numbers),
        set_of=set_of,
        sizes=tuple(members.count(number) for number in range(len(numbers))),
        partition_of=partition_of,
        whole=frozenset(
            device.id.device for device in pool.devices if device.id.device not in partition_of
        ),
    )


def own_load(device: Device, use: DeviceUse, weights: Mapping[str, int] = _UNWEIGHTED) -> int:
    """Return the load of a device by itself, without that of its counter sets.

    Args:
        weights: The weights of its capacities; empty for the load of the fullest one.

    >>> gpu = Device(name="gpu-0", allow_multiple_allocations=True)
    >>> own_load(gpu, DeviceUse(share_ids=frozenset({"a", "b", "c"}))) == FULL * 3 // 4
    True
    """
    if use.exclusive:
        return FULL
    load = -1
    capacities = device.capacity or {}
    counted = {name: weights[key] for name in capacities if (key := _key_in(weights, name))}
    if counted and use.capacity:
        return _weighted_load(capacities, use.capacity, counted)
    for name, consumed_amount in (use.capacity or {}).items():
        capacity = capacities.get(name)
        if capacity is not None and capacity.value.nanos > 0:
            load = max(load, consumed_amount.nanos * FULL // capacity.value.nanos)
    if load < 0:
        shares = len(use.share_ids)
        return FULL * shares // (shares + 1)
    return min(load, FULL)


def _key_in(weights: Mapping[str, int], capacity: str) -> str:
    """Return the key of a capacity's weight: its name, with or without the driver's domain."""
    if capacity in weights:
        return capacity
    name = capacity.rpartition("/")[2]
    return name if name in weights else ""


def _weighted_load(
    capacities: Mapping[str, DeviceCapacity],
    consumed_amounts: Mapping[str, Quantity],
    weights: Mapping[str, int],
) -> int:
    """Return the mean load of capacities by their weights."""
    total = 0
    for name, weight in weights.items():
        size, consumed_amount = capacities[name].value.nanos, consumed_amounts.get(name)
        if consumed_amount is not None and size > 0:
            total += weight * min(consumed_amount.nanos * FULL // size, FULL)
    return total // sum(weights.values())


def set_loads(
    pool_hardware: Hardware, use: PoolUse, weights: Mapping[str, int] = _UNWEIGHTED
) -> list[int]:
    """Return the load of each counter set, by its number."""
    sums = [0] * len(pool_hardware.sets)
    consumed_by_counter: dict[int, int] = {}
    for name, device_use in use.items():
        consumption = pool_hardware.counters.consumption.get(name)
        if consumption:
            load = own_load(pool_hardware.devices[name], device_use, weights)
            for counter, nanos in consumption:
                consumed_by_counter[counter] = consumed_by_counter.get(counter, 0) + nanos * load
    for counter, weighted_amount in consumed_by_counter.items():
        number = pool_hardware.set_of.get(counter)
        if number is not None:
            load = weighted_amount // pool_hardware.counters.amounts[counter].nanos
            sums[number] += min(load, FULL)
    return [
        total // size if size else 0 for total, size in zip(sums, pool_hardware.sizes, strict=True)
    ]


def device_loads(
    node: NodeDevices, usage: Usage, weights: CapacityWeights = NO_WEIGHTS
) -> list[int]:
    """Return the load of each device of a node, by position."""
    loads = [0] * len(node.devices)
    uses = [usage.pools.get(pool.id) for pool in node.pools]
    if not any(uses):
        return loads
    hardware_of = [
        hardware(pool) if use else None for pool, use in zip(node.pools, uses, strict=True)
    ]
    weights_of = [weights.weights_on(node, pool.id.driver) for pool in node.pools]
    loads_of_sets = [
        set_loads(pool_hardware, use, own_weights)
        if pool_hardware is not None and use and pool_hardware.sets
        else None
        for pool_hardware, use, own_weights in zip(hardware_of, uses, weights_of, strict=True)
    ]
    for position, (pool, device) in enumerate(zip(node.pool_of, node.devices, strict=True)):
        use, pool_hardware = uses[pool], hardware_of[pool]
        if not use or pool_hardware is None:
            continue
        name = device.id.device
        device_use = use.get(name)
        load = 0
        if device_use is not None:
            load = own_load(device.device, device_use, weights_of[pool])
        sets = loads_of_sets[pool]
        if sets is not None:
            for number in pool_hardware.partition_of.get(name, _NO_SETS):
                load = max(load, sets[number])
        loads[position] = load
    return loads


def node_load(
    node: NodeDevices,
    usage: Usage,
    drivers: Collection[str],
    weights: CapacityWeights = NO_WEIGHTS,
) -> int:
    """Return the load of the hardware of some drivers on a node."""
    load = units = 0
    for pool in node.pools:
        if pool.id.driver not in drivers:
            continue
        pool_hardware = hardware(pool)
        units += pool_hardware.units
        use = usage.pools.get(pool.id)
        if use:
            own_weights = weights.weights_on(node, pool.id.driver)
            load += sum(set_loads(pool_hardware, use, own_weights)) if pool_hardware.sets else 0
            whole = pool_hardware.whole.intersection(use)
            load += sum(
                [own_load(pool_hardware.devices[name], use[name], own_weights) for name in whole]
            )
    return load // units if units else 0


def load_after(
    node: NodeDevices, usage: Usage, plan: Plan, weights: CapacityWeights = NO_WEIGHTS
) -> int:
    """Return the load of the hardware of the plan's drivers after the plan."""
    return node_load(node, usage_after(node, usage, plan), drivers_of(plan), weights)


def drivers_of(plan: Plan) -> Collection[str]:
    """Return the drivers with devices that a plan uses."""
    return {choice.device.id.driver for choice in consuming_choices(plan)}


def consuming_choices(plan: Plan) -> Iterable[Choice]:
    """Yield the choices that use a device or a share; admin access uses nothing."""
    for claim in plan.choices:
        for choice in claim:
            if not choice.request.admin:
                yield choice


def usage_after(node: NodeDevices, usage: Usage, plan: Plan) -> Usage:
    """Return the usage of a node's pools after a plan; pools of other nodes are left out."""
    pools: dict[PoolId, PoolUse] = {
        pool.id: usage.pools[pool.id] for pool in node.pools if pool.id in usage.pools
    }
    changed_uses: dict[PoolId, dict[str, DeviceUse]] = {}
    for number, choice in enumerate(consuming_choices(plan)):
        device = choice.device.id
        pool = PoolId(device.driver, device.pool)
        use = changed_uses.get(pool)
        if use is None:
            use = changed_uses[pool] = dict(pools.get(pool, {}))
        use[device.device] = _with_choice(use.get(device.device, _FREE), choice, number)
    return Usage(pools={**pools, **changed_uses})


def _with_choice(use: DeviceUse, choice: Choice, number: int) -> DeviceUse:
    if choice.consumed is None:
        return DeviceUse(exclusive=True, share_ids=use.share_ids, capacity=use.capacity)
    capacity: dict[str, Quantity] = dict(use.capacity or {})
    for name, amount in choice.consumed.items():
        before = capacity.get(name)
        capacity[name] = amount if before is None else before + amount
    # Shares get their real ids in the allocation result; here the ids only have to be distinct.
    return DeviceUse(
        exclusive=use.exclusive,
        share_ids=use.share_ids | {f"planned {number}"},
        capacity=capacity or use.capacity,
    )
