"""The demand of pods: the devices, and the amounts of their capacities, that they request of a cluster.

A request counts as what it takes of a device that can serve it, by its class, its selectors and its amounts: the whole
device, or the largest share of any capacity where the device can be shared. Where such devices differ it counts
as the mean over all of them.

Not counted: requests with admin access, which take nothing, and constraints, taints and counters of partitioned hardware.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.features.consumable_capacity import Shape, device_shape
from allocator.model.consumption import Consumption, capacity_consumption
from allocator.model.outcome import AttemptFailed
from allocator.model.requests import Request
from allocator.model.selectors import selector_chain
from allocator.replay.device_use import amount_of_nanos, visible_pools
from kube.api.resource import ResourceClaim

DEVICE: Final = 1_000_000
"""A whole device; shares are counted in millionths."""

_Capacity = tuple[str, str]
"""A driver, and the name of a capacity."""
_Kind = tuple[str, Shape]
"""A driver, and the part of a device that its capacities are."""


class CapacityDemand(msgspec.Struct, frozen=True, kw_only=True):
    """The demand of pods for a capacity of a driver's devices.

    Attributes:
        driver: The driver.
        name: The capacity.
        total: The sum over all devices.
        requested: The amount that the pods request together.
    """

    driver: str
    name: str
    total: float
    requested: float

    @property
    def percent(self) -> float:
        """The share of the total that is requested."""
        return 100 * self.requested / self.total if self.total else 0.0


class Demand(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The demand of pods for devices.

    Attributes:
        total_devices: All devices of the cluster, without nodes that were added.
        requested_devices: Devices that the pods request together; a share of a device is a fraction of one.
        capacities: The capacities of which they request anything.
    """

    total_devices: int
    requested_devices: float
    capacities: tuple[CapacityDemand, ...] = ()

    @property
    def percent(self) -> float:
        """The share of all devices that is requested."""
        return 100 * self.requested_devices / self.total_devices if self.total_devices else 0.0


class RequestedDevices(NamedTuple):
    """The devices that claims request.

    Attributes:
        millionths: Devices in millionths.
        nanos: Amount of each capacity, in nano-units.
    """

    millionths: int
    nanos: Mapping[_Capacity, int]


class _Selected(NamedTuple):
    """The devices that a chain of selectors selects.

    Attributes:
        kinds: Number of devices of each kind.
        pools: Number of pools that have any.
    """

    kinds: Counter[_Kind]
    pools: int


class DemandMeter:
    """The devices of a cluster, to measure the demand of claims by.

    Attributes:
        total_devices: All devices.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pools = visible_pools(cluster, cluster.names)
        self.total_devices = sum(len(pool.devices) + len(pool.elsewhere) for pool in self._pools)
        self._selected: dict[Hashable, _Selected] = {}
        self._requests: dict[Hashable, RequestedDevices | None] = {}

    def requested(self, claims: Sequence[ResourceClaim]) -> RequestedDevices:
        """Return the devices that claims request.

        Of alternatives the first one counts that any device can serve. A request that none can serve counts as
        whole devices; so do claims that are invalid on every node.
        """
        if not claims:
            return RequestedDevices(0, {})
        try:
            pending = self._cluster.resolve(claims)
        except AttemptFailed:
            return RequestedDevices(DEVICE * sum(map(_count_named, claims)), {})
        millionths = 0
        nanos: Counter[_Capacity] = Counter()
        for requests in pending.requests:
            for alternatives in requests:
                devices = self._first_served(alternatives)
                millionths += devices.millionths
                nanos.update(devices.nanos)
        return RequestedDevices(millionths, nanos)

    def demand(self, pods: Iterable[Sequence[ResourceClaim]]) -> Demand:
        """Return the demand of pods.

        Args:
            pods: The claims of each pod.
        """
        millionths = 0
        nanos: Counter[_Capacity] = Counter()
        for claims in pods:
            devices = self.requested(claims)
            millionths += devices.millionths
            nanos.update(devices.nanos)
        totals = self._totals()
        return Demand(
            total_devices=self.total_devices,
            requested_devices=amount_of_nanos(millionths * 1000),
            capacities=tuple(
                CapacityDemand(
                    driver=driver,
                    name=name,
                    total=amount_of_nanos(totals[driver, name]),
                    requested=amount_of_nanos(amount),
                )
                for (driver, name), amount in sorted(nanos.items())
                if amount
            ),
        )

    def _totals(self) -> Mapping[_Capacity, int]:
        totals: Counter[_Capacity] = Counter()
        for pool in self._pools:
            for member in (*pool.devices, *pool.elsewhere):
                for name, capacity in (member.device.capacity or {}).items():
                    totals[pool.id.driver, name] += capacity.value.nanos
        return totals

    def _first_served(self, alternatives: Sequence[Request]) -> RequestedDevices:
        for request in alternatives:
            devices = self._served(request)
            if devices is not None:
                return devices
        return RequestedDevices(DEVICE * max(1, alternatives[0].count), {})

    def _served(self, request: Request) -> RequestedDevices | None:
        """Return the devices of a request; None if no device can serve it."""
        if request.admin:
            return RequestedDevices(0, {})
        chain = selector_chain(request.expressions)
        amounts = None if request.capacity is None else tuple(sorted(request.capacity.items()))
        key = chain.key, amounts, request.count, request.all_devices
        if key not in self._requests:
            self._requests[key] = _measure(request, self._select(request))
        return self._requests[key]

    def _select(self, request: Request) -> _Selected:
        chain = selector_chain(request.expressions)
        if chain.key not in self._selected:
            kinds: Counter[_Kind] = Counter()
            pools = 0
            for pool in self._pools:
                members = (*pool.devices, *pool.elsewhere)
                before = kinds.total()
                for member, verdict in zip(members, chain.verdicts(members), strict=True):
                    if verdict is True:
                        kinds[pool.id.driver, device_shape(member)] += 1
                pools += kinds.total() > before
            self._selected[chain.key] = _Selected(kinds, pools)
        return self._selected[chain.key]


def _measure(request: Request, selected: _Selected) -> RequestedDevices | None:
    devices = 0
    share = Fraction(0)
    nanos: Counter[_Capacity] = Counter()
    for (driver, shape), count in selected.kinds.items():
        consumed = _consumed_amounts(request, shape)
        if consumed is None:
            continue
        devices += count
        share += count * _largest_share(consumed, shape)
        for name, amount in consumed.items():
            nanos[driver, name] += count * amount
    if not devices:
        return None
    # Mode All requests the devices of one pool; here of one that has as many as the mean.
    times = Fraction(devices, selected.pools) if request.all_devices else Fraction(request.count)
    return RequestedDevices(
        round(DEVICE * times * share / devices),
        {key: round(times * amount / devices) for key, amount in nanos.items()},
    )


def _consumed_amounts(request: Request, shape: Shape) -> Mapping[str, int] | None:
    """Return the amount of each capacity that a request takes of a device; None if the device is too small."""
    try:
        consumption = capacity_consumption(request.capacity, shape.capacity, fractional=True)
    except AttemptFailed:
        return None
    if not isinstance(consumption, Consumption):
        return None
    if not shape.shareable:
        return {name: capacity.value.nanos for name, capacity in shape.capacity.items()}
    return {name: amount.nanos for name, amount in consumption.amounts.items()}


def _largest_share(consumed: Mapping[str, int], shape: Shape) -> Fraction:
    """Return the largest share of any capacity; a whole device without capacities."""
    if not shape.shareable:
        return Fraction(1)
    totals = {name: capacity.value.nanos for name, capacity in shape.capacity.items()}
    shares = [
        Fraction(amount, totals[name]) for name, amount in consumed.items() if totals[name] > 0
    ]
    return max(shares, default=Fraction(1))


def _count_named(claim: ResourceClaim) -> int:
    """Return the number of devices that a claim names."""
    total = 0
    for request in claim.spec.devices.requests or ():
        alternative = request.exactly or next(iter(request.first_available or ()), None)
        total += 1 if alternative is None else alternative.count or 1
    return total
