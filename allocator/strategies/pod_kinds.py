"""The kinds of pods that usually come, and the number of further pods that a node has devices for.

A kind is what a pod requests: its devices, its CPU and its memory. Slots are counted per kind and
node: the number of its pods for which devices are left. A device that can be shared has as many slots as
its scarcest capacity; a pod with several requests has as many as the scarcest of them.

Not counted: counters of partitioned hardware, constraints between devices, and taints.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from allocator.features.consumable_capacity import Shape, device_shape
from allocator.model.consumption import Consumption, capacity_consumption
from allocator.model.devices import NodeDevices
from allocator.model.outcome import AttemptFailed
from allocator.model.requests import Expression, PendingClaims, Request
from allocator.model.selectors import DeviceField, SelectorChain, selector_chain
from allocator.model.usage import DeviceUse, Usage
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from allocator.strategies.load import FULL, own_load
from kube.api.resource import Device
from kube.quantity import Quantity

MAX_KINDS: Final = 64
"""Kinds that a strategy values nodes by. More of them cost time at every decision."""

_SHARES: Final = 1 << 14
_STATES: Final = 1 << 14
_CHAINS: Final = 1 << 10

_Free = tuple[int, ...] | None
"""The free amount of each capacity of a device, in nano-units; None if no share of it can be had."""
_Shares = tuple[int, int]
"""A number of shares of a device, and the load of one of them."""

_NO_SHARES: Final = (0, 0)


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
    """The pods of one kind that a node has devices for.

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
    """Return the devices that claims request; the first alternatives if there are several.

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
        read = _chain(demand.selectors).fields
        if read is None:
            return None
        fields.update(read)
    return tuple(sorted(fields))


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


class KindTable:
    """Kinds of pods, with all that is computed once for them.

    Attributes:
        kinds: The kinds.
        total_weight: Sum of their weights.
    """

    def __init__(self, kinds: Sequence[PodKind], weights: CapacityWeights = NO_WEIGHTS) -> None:
        """Prepare kinds.

        Args:
            kinds: The kinds; all have devices.
            weights: Weights of capacities in loads.
        """
        self.kinds = tuple(kinds)
        self.total_weight = sum(kind.weight for kind in kinds)
        self._weights = weights
        weight_of: dict[DeviceDemand, int] = {}
        for kind in kinds:
            for demand in kind.demands:
                weight_of[demand] = weight_of.get(demand, 0) + kind.weight
        self._demands = tuple(weight_of)
        # Most demands differ in amounts alone.
        self._chains = tuple(dict.fromkeys(demand.selectors for demand in self._demands))
        self._chain_of = [self._chains.index(demand.selectors) for demand in self._demands]
        self._demand_weights = tuple(weight_of.values())
        numbers = {demand: number for number, demand in enumerate(self._demands)}
        self._numbers_of = [tuple(numbers[demand] for demand in kind.demands) for kind in kinds]
        self._shares_of: dict[tuple[Shape, _Free, str, int | None], tuple[_Shares, ...]] = {}

    def slots(self, node: NodeDevices, usage: Usage) -> tuple[KindSlots, ...]:
        """Return the slots of the kinds on a node; kinds without slots are left out."""
        masks = self._masks(node)
        shares = [0] * len(masks)
        loads = [0] * len(masks)
        for position, (_, shares_of_demands) in enumerate(self._device_shares(node, usage)):
            for number, (count, load) in enumerate(shares_of_demands):
                if count and masks[number] >> position & 1:
                    shares[number] += count
                    loads[number] += count * load
        rows = []
        for kind, numbers in zip(self.kinds, self._numbers_of, strict=True):
            pods, load = None, 0
            for number, demand in zip(numbers, kind.demands, strict=True):
                times = shares[number] // demand.count
                if times:
                    # Devices of one node may differ, so the load of one time is that of the mean.
                    load += loads[number] * demand.count // shares[number]
                pods = times if pods is None else min(pods, times)
            if pods:
                rows.append(KindSlots(kind.cpu_milli, kind.memory, pods, load * kind.weight))
        return tuple(rows)

    def device_losses(self, node: NodeDevices, usage: Usage, pending: PendingClaims) -> list[int]:
        """Return the potential of each device that is lost if a request of the claims gets a share of it."""
        masks = self._masks(node)
        requested = [(demand, _selected(demand.selectors, node)) for demand in demands_of(pending)]
        losses = []
        for position, (free, before) in enumerate(self._device_shares(node, usage)):
            bit = 1 << position
            demand = next((demand for demand, mask in requested if mask & bit), None)
            device = node.devices[position]
            loss = 0
            if demand is not None and free is not None:
                shape = device_shape(device)
                after = self._shares(
                    shape, _free_after(demand, shape, free), device.id.driver, node
                )
                for number, (count, load) in enumerate(before):
                    if count and masks[number] & bit:
                        lost = max(0, count - after[number][0])
                        loss += self._demand_weights[number] * load * lost
            losses.append(loss)
        return losses

    def _masks(self, node: NodeDevices) -> list[int]:
        """Return the devices that each demand's selectors select, as a mask of positions."""
        masks = [_selected(selectors, node) for selectors in self._chains]
        return [masks[number] for number in self._chain_of]

    def _device_shares(
        self, node: NodeDevices, usage: Usage
    ) -> Iterator[tuple[_Free, tuple[_Shares, ...]]]:
        """Yield the free amounts of each device, and the shares that each demand can get, selectors aside."""
        uses = [usage.pools.get(pool.id) for pool in node.pools]
        for pool, device in zip(node.pool_of, node.devices, strict=True):
            pool_use = uses[pool]
            shape = device_shape(device)
            free = _free(shape, pool_use.get(device.id.device) if pool_use else None)
            yield free, self._shares(shape, free, device.id.driver, node)

    def _shares(
        self, shape: Shape, free: _Free, driver: str, node: NodeDevices
    ) -> tuple[_Shares, ...]:
        """Return the shares that each demand can get of a device in a state, from a cache."""
        key = shape, free, driver, node.node_pools.get(driver)
        shares = self._shares_of.get(key)
        if shares is None:
            if len(self._shares_of) >= _STATES:
                self._shares_of.clear()
            weights = tuple(self._weights.weights_on(node, driver).items())
            shares = tuple([_shares_left(demand, shape, free, weights) for demand in self._demands])
            self._shares_of[key] = shares
        return shares


def _selected(selectors: tuple[str, ...], node: NodeDevices) -> int:
    """Return the mask of the devices of a node that selectors select."""
    if not selectors:
        return -1
    return _chain(selectors).selection(node).selected


def _free(shape: Shape, use: DeviceUse | None) -> _Free:
    """Return the free amounts of a device; None if no share of it can be had."""
    if use is None:
        return tuple([capacity.value.nanos for capacity in shape.capacity.values()])
    if use.exclusive or not shape.shareable:
        return None
    in_use = use.capacity or {}
    return tuple(
        [
            capacity.value.nanos - (in_use[name].nanos if name in in_use else 0)
            for name, capacity in shape.capacity.items()
        ]
    )


def _free_after(demand: DeviceDemand, shape: Shape, free: tuple[int, ...]) -> _Free:
    """Return the free amounts after a share, or all, of a device is given to a demand."""
    share = _share(demand.amounts, shape, ())
    if share is None:
        return free  # The device is too small, so the demand gets nothing of it.
    if not shape.shareable:
        return None
    return tuple([nanos - amount for nanos, amount in zip(free, share[0], strict=True)])


def _shares_left(
    demand: DeviceDemand, shape: Shape, free: _Free, weights: tuple[tuple[str, int], ...]
) -> _Shares:
    if free is None:
        return _NO_SHARES
    share = _share(demand.amounts, shape, weights)
    if share is None:
        return _NO_SHARES
    if not shape.shareable:
        return 1, FULL
    amounts, load = share
    counts = [
        max(0, nanos // amount) for nanos, amount in zip(free, amounts, strict=True) if amount
    ]
    # A share that consumes nothing can be had any number of times; one of them counts.
    return min(counts, default=1), load


@lru_cache(maxsize=_SHARES)
def _share(
    amounts: tuple[tuple[str, Quantity], ...] | None,
    shape: Shape,
    weights: tuple[tuple[str, int], ...],
) -> tuple[tuple[int, ...], int] | None:
    """Return the consumption of one share by capacity, and its load; None if it is too large."""
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


@lru_cache(maxsize=_CHAINS)
def _chain(selectors: tuple[str, ...]) -> SelectorChain:
    return selector_chain(
        tuple(
            Expression(text=text, origin=f"kind of pod: selector #{number}")
            for number, text in enumerate(selectors)
        )
    )
