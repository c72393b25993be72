"""The kinds of pods that usually come, and how many more of each a node has devices for.

A kind is what a pod requests: its devices, its CPU and its memory. Slots are counted per kind and
node: the number of its pods for which devices are left. A device that can be shared has as many slots as
its scarcest capacity; a pod with several requests has as many as the scarcest of them.

Not counted: counters of partitioned hardware, constraints between devices, and taints.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from allocator.features.consumable_capacity import Shape, device_shape
from allocator.model.consumption import Consumption, capacity_consumption
from allocator.model.devices import NodeDevices, PublishedDevice
from allocator.model.outcome import AttemptFailed
from allocator.model.requests import Expression, PendingClaims, Request
from allocator.model.selectors import DeviceField, selector_chain
from allocator.model.usage import DeviceUse, Usage
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from allocator.strategies.load import FULL, own_load
from kube.api.resource import Device
from kube.quantity import Quantity

MAX_KINDS: Final = 64
"""Kinds that a strategy values nodes by. More of them cost time at every decision."""

_SHARES: Final = 1 << 14
_NO_SHARE: Final = (0, 0)
_UNWEIGHTED: Final[Mapping[str, int]] = {}


class DeviceDemand(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one request.

    Attributes:
        selectors: CEL expressions of the class and the request.
        count: Number of devices.
        amounts: Capacity to the amount that is requested of each device, sorted; None for a request
            without capacities.
    """

    selectors: tuple[str, ...] = ()
    count: int = 1
    amounts: tuple[tuple[str, Quantity], ...] | None = None


class PodKind(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that request the same.

    Attributes:
        demands: Devices by request; empty for pods without devices, which no strategy values.
        cpu_milli: CPU in thousandths of a core.
        memory: Memory in bytes.
        weight: Share of the kind among all pods with devices, in thousandths.
    """

    demands: tuple[DeviceDemand, ...]
    cpu_milli: int = 0
    memory: int = 0
    weight: int = 1


class KindSlots(NamedTuple):
    """The pods of one kind for which a node has devices.

    Attributes:
        cpu_milli: CPU of one pod.
        memory: Memory of one pod.
        slots: Number of pods.
        value: Value of one pod: the share of a device that it gets, in millionths, by weight.
    """

    cpu_milli: int
    memory: int
    slots: int
    value: int


def demands_of(pending: PendingClaims) -> tuple[DeviceDemand, ...]:
    """Return the devices that claims request; the first alternatives where there are several.

    Requests for all devices of a node, and for admin access, are left out.
    """
    return tuple(
        demand_of(alternatives[0])
        for requests in pending.requests
        for alternatives in requests
        if not alternatives[0].all_devices and not alternatives[0].admin
    )


def demand_of(request: Request) -> DeviceDemand:
    """Return the devices of one request."""
    return DeviceDemand(
        selectors=tuple(expression.text for expression in request.expressions),
        count=request.count,
        amounts=None if request.capacity is None else tuple(sorted(request.capacity.items())),
    )


def fields_of(kinds: Sequence[PodKind]) -> tuple[DeviceField, ...] | None:
    """Return the attributes that the selectors of kinds read; None if they may read any."""
    fields: set[DeviceField] = set()
    for demand in {demand for kind in kinds for demand in kind.demands}:
        read = selector_chain(_expressions(demand)).fields
        if read is None:
            return None
        fields.update(read)
    return tuple(sorted(fields))


def kind_slots(
    kinds: Sequence[PodKind],
    node: NodeDevices,
    usage: Usage,
    weights: CapacityWeights = NO_WEIGHTS,
) -> tuple[KindSlots, ...]:
    """Return the slots of the kinds on a node; kinds without slots are left out."""
    slots_of: dict[DeviceDemand, tuple[int, int]] = {}
    rows = []
    for kind in kinds:
        slots, value = 0, 0
        for number, demand in enumerate(kind.demands):
            counted = slots_of.get(demand)
            if counted is None:
                counted = slots_of[demand] = _demand_slots(demand, node, usage, weights)
            slots = min(slots, counted[0]) if number else counted[0]
            value += counted[1]
        if slots:
            rows.append(KindSlots(kind.cpu_milli, kind.memory, slots, value * kind.weight))
    return tuple(rows)


def potential(rows: Sequence[KindSlots], cpu_milli: int | None, memory: int | None) -> int:
    """Return the devices that the usual pods could get on a node, in millionths, by weight.

    Args:
        rows: Slots on the node.
        cpu_milli: CPU that is left; None if it is not known, or without limit.
        memory: Memory that is left.

    >>> potential([KindSlots(cpu_milli=4000, memory=0, slots=8, value=10)], 10_000, None)
    20
    """
    total = 0
    for cpu_of_pod, memory_of_pod, slots, value in rows:
        pods = slots
        if cpu_of_pod and cpu_milli is not None and cpu_milli < cpu_of_pod * pods:
            pods = cpu_milli // cpu_of_pod
        if memory_of_pod and memory is not None and memory < memory_of_pod * pods:
            pods = memory // memory_of_pod
        total += pods * value
    return total


def selected(demand: DeviceDemand, node: NodeDevices) -> int:
    """Return the mask of the devices of a node that a demand's selectors select."""
    if not demand.selectors:
        return -1
    return selector_chain(_expressions(demand)).selection(node).selected


def device_slots(
    demand: DeviceDemand,
    device: PublishedDevice,
    use: DeviceUse | None,
    weights: Mapping[str, int] = _UNWEIGHTED,
) -> tuple[int, int]:
    """Return the number of shares that a demand can get of a device, and the load of one of them.

    Args:
        demand: The demand, whose selectors select the device.
        device: The device; one that cannot be shared has one share.
        use: The device's use; None if it is not in use.
        weights: Weights of its capacities.
    """
    shape = device_shape(device)
    if use is not None and (use.exclusive or not shape.shareable):
        return _NO_SHARE
    share = _share(demand.amounts, shape, tuple(weights.items()))
    if share is None:
        return _NO_SHARE
    if not shape.shareable:
        return 1, FULL
    amounts, load = share
    return _shares_left(amounts, shape, use), load


def use_after(
    demand: DeviceDemand, device: PublishedDevice, use: DeviceUse | None
) -> DeviceUse | None:
    """Return the use of a device one more share of which a demand gets; None if it is too small."""
    shape = device_shape(device)
    share = _share(demand.amounts, shape, ())
    if share is None:
        return None
    if not shape.shareable:
        return DeviceUse(exclusive=True)
    in_use = (use.capacity if use is not None else None) or {}
    capacity = {
        name: in_use[name] + Quantity.from_nanos(nanos)
        if name in in_use
        else Quantity.from_nanos(nanos)
        for name, nanos in zip(shape.capacity, share[0], strict=True)
    }
    share_ids = use.share_ids if use is not None else frozenset[str]()
    return DeviceUse(share_ids=share_ids | {""}, capacity=capacity)


def _demand_slots(
    demand: DeviceDemand, node: NodeDevices, usage: Usage, weights: CapacityWeights
) -> tuple[int, int]:
    """Return the number of times that a node can serve a demand, and the load of one of them."""
    selected_mask = selected(demand, node)
    uses = [usage.pools.get(pool.id) for pool in node.pools]
    weights_of = [weights.weights_of(pool.id.driver) for pool in node.pools]
    shares = total_load = 0
    for position, (pool, device) in enumerate(zip(node.pool_of, node.devices, strict=True)):
        if selected_mask >> position & 1:
            pool_use = uses[pool]
            use = pool_use.get(device.id.device) if pool_use else None
            slots, load = device_slots(demand, device, use, weights_of[pool])
            shares += slots
            total_load += slots * load
    times = shares // demand.count
    # Devices of one node may differ, so the load of one time is that of the mean.
    return times, total_load * demand.count // shares if times else 0


@lru_cache(maxsize=_SHARES)
def _share(
    amounts: tuple[tuple[str, Quantity], ...] | None,
    shape: Shape,
    weights: tuple[tuple[str, int], ...],
) -> tuple[tuple[int, ...], int] | None:
    """Return what one share consumes of each capacity, and its load; None if it is too large."""
    requested = None if amounts is None else dict(amounts)
    try:
        consumption = capacity_consumption(requested, shape.capacity, fractional=True)
    except AttemptFailed:
        return None
    if not isinstance(consumption, Consumption):
        return None
    consumed = tuple(amount.nanos for amount in consumption.amounts.values())
    device = Device(name="", capacity=shape.capacity, allow_multiple_allocations=True)
    use = DeviceUse(share_ids=frozenset({""}), capacity=consumption.amounts)
    return consumed, own_load(device, use, dict(weights))


def _shares_left(consumed: Sequence[int], shape: Shape, use: DeviceUse | None) -> int:
    in_use = (use.capacity if use is not None else None) or {}
    left = None
    for (name, capacity), nanos in zip(shape.capacity.items(), consumed, strict=True):
        if nanos:
            free = capacity.value.nanos - (in_use[name].nanos if name in in_use else 0)
            shares = max(0, free // nanos)
            left = shares if left is None else min(left, shares)
    # A share that consumes nothing can be had any number of times; one of them counts.
    return 1 if left is None else left


@lru_cache(maxsize=_SHARES)
def _expressions(demand: DeviceDemand) -> tuple[Expression, ...]:
    return tuple(
        Expression(text=text, origin=f"kind of pod: selector #{number}")
        for number, text in enumerate(demand.selectors)
    )
