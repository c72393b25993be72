"""The devices of a cluster in use, and the amounts of their capacities: at a moment, and over time."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.devices import Pool, PoolId
from allocator.model.usage import DeviceUse, PoolUse
from allocator.replay.state import ReplayState
from allocator.replay.workload import ReplayPod
from kube.api.resource import DeviceCapacity
from kube.quantity import ZERO

_NANOS: Final = 10**9
"""Nano-units of a quantity."""
_UNUSED: Final[PoolUse] = {}


class CapacityUse(msgspec.Struct, frozen=True, kw_only=True):
    """A capacity of a driver's devices, summed over the cluster.

    Attributes:
        driver: The driver.
        name: The capacity.
        total: The sum over all devices.
        allocated: The sum of what is allocated; all of a device in exclusive use.
    """

    driver: str
    name: str
    total: float
    allocated: float

    @property
    def percent(self) -> float:
        """The share that is allocated."""
        return 100 * self.allocated / self.total if self.total else 0.0


class DeviceCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices of the cluster.

    Attributes:
        total: All devices.
        in_use: Devices that are allocated, or shares of which are.
        whole_idle: Devices of which nothing is in use.
    """

    total: int
    in_use: int
    whole_idle: int


class OverTime(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The use of devices from the first arrival to the last; of a recording, until its end.

    Attributes:
        from_second: The first second.
        until_second: The last second; where it is the first one, means are the values of that moment.
        mean_percent: The mean share of the first capacity that is allocated; without capacities of devices in use.
        peak_percent: The highest share.
        mean_in_use: The mean number of devices that are allocated, or shares of which are.
    """

    from_second: float
    until_second: float
    mean_percent: float
    peak_percent: float
    mean_in_use: float


class UseOverTime:
    """The use of devices while a replay runs, counted anew for changed pools alone."""

    def __init__(
        self, state: ReplayState, pods: Iterable[ReplayPod], begin: float, until: float
    ) -> None:
        """Begin with the first second.

        Args:
            state: The cluster, which changes with the replay.
            pods: All pods.
            begin: The first second.
            until: The last second.
        """
        self._state = state
        self._requested = requested_capacities(pods)
        self._begin, self._until = begin, max(begin, until)
        self._second = begin
        self._percents = self._devices = self._peak = 0.0
        self._seconds = 0.0
        self._names: Sequence[str] = ()
        self._changes = 0
        self._count_all()

    def reach(self, second: float) -> None:
        """Count the time until a second, before anything changes in it."""
        if second <= self._second:
            return
        self._take_changes()
        seconds = min(second, self._until) - self._second
        if self._second <= self._until:
            self._peak = max(self._peak, self._percent)
            if self._begin == self._until:
                # All pods came in one second, so that there is no time between them.
                seconds = 1.0
        if seconds > 0:
            self._seconds += seconds
            self._percents += seconds * self._percent
            self._devices += seconds * self._in_use
        self._second = second

    def result(self) -> OverTime:
        """Return the means when all time has passed."""
        self.reach(float("inf"))
        return OverTime(
            from_second=self._begin,
            until_second=self._until,
            mean_percent=self._percents / self._seconds,
            peak_percent=self._peak,
            mean_in_use=self._devices / self._seconds,
        )

    @property
    def _percent(self) -> float:
        amount, total = (
            (self._in_use, self._count) if self._capacity is None else (self._amount, self._total)
        )
        return 100 * amount / total if total else 0.0

    def _take_changes(self) -> None:
        state = self._state
        if state.names is not self._names:
            self._count_all()
            return
        for name in dict.fromkeys(state.changes[self._changes :]):
            for pool in state.cluster.node_devices(name).pools if name in state.resources else ():
                self._count_pool(pool)
        self._changes = len(state.changes)

    def _count_all(self) -> None:
        """Count all devices, as they may be others."""
        state = self._state
        self._names, self._changes = state.names, len(state.changes)
        pools = visible_pools(state.cluster, state.names)
        self._count = sum(len(pool.devices) + len(pool.elsewhere) for pool in pools)
        keys = {
            (pool.id.driver, name)
            for pool in pools
            for member in (*pool.devices, *pool.elsewhere)
            for name in member.device.capacity or ()
        }
        self._capacity = min(keys, key=_order_of(self._requested), default=None)
        self._uses: dict[PoolId, PoolUse] = {}
        self._amounts: dict[PoolId, tuple[int, int]] = {}
        self._amount = self._in_use = 0
        self._total = 0
        for pool in pools:
            self._total += sum(
                self._capacity_of(member.device.capacity or {}, pool)
                for member in (*pool.devices, *pool.elsewhere)
            )
            self._count_pool(pool)

    def _capacity_of(self, capacities: Mapping[str, DeviceCapacity], pool: Pool) -> int:
        if self._capacity is None or self._capacity[0] != pool.id.driver:
            return 0
        capacity = capacities.get(self._capacity[1])
        return 0 if capacity is None else capacity.value.nanos

    def _count_pool(self, pool: Pool) -> None:
        """Count the devices of a pool that are in use, in place of those before."""
        uses = self._state.cluster.usage.pools.get(pool.id, _UNUSED)
        if self._uses.get(pool.id, _UNUSED) is uses:
            return
        amount = in_use = 0
        for member in (*pool.devices, *pool.elsewhere):
            use = uses.get(member.id.device)
            if use is not None:
                in_use += 1
                total = self._capacity_of(member.device.capacity or {}, pool)
                amount += (
                    _allocated(use, self._capacity[1], total) if self._capacity and total else 0
                )
        before = self._amounts.get(pool.id, (0, 0))
        self._uses[pool.id], self._amounts[pool.id] = uses, (amount, in_use)
        self._amount += amount - before[0]
        self._in_use += in_use - before[1]


def visible_pools(cluster: Cluster, nodes: Iterable[str]) -> Sequence[Pool]:
    """Return all pools that any of some nodes sees, each once."""
    pools: dict[PoolId, Pool] = {}
    for node in nodes:
        for pool in cluster.node_devices(node).pools:
            pools.setdefault(pool.id, pool)
    return tuple(pools.values())


def _order_of(
    requested: Sequence[str],
) -> Callable[[tuple[str, str]], tuple[int, tuple[str, str]]]:
    """Return the key that puts capacities that pods request before the others."""
    place = {name: number for number, name in enumerate(requested)}
    return lambda key: (place.get(key[1], len(place)), key)


def requested_capacities(pods: Iterable[ReplayPod]) -> Sequence[str]:
    """Return the names of the requested capacities, in the order of the pods."""
    names: dict[str, None] = {}
    specs: set[int] = set()
    for pod in pods:
        for claim in pod.all_claims:
            if id(claim.spec) in specs:
                continue
            specs.add(id(claim.spec))
            for request in claim.spec.devices.requests or ():
                exactly = request.exactly
                if exactly is not None and exactly.capacity is not None:
                    amounts = exactly.capacity.requests or {}
                    # A driver may want an amount to be named of which the pod needs nothing.
                    names |= dict.fromkeys(name for name in amounts if amounts[name] > ZERO)
    return list(names)


def measure_devices(
    state: ReplayState, pods: Iterable[ReplayPod]
) -> tuple[tuple[CapacityUse, ...], DeviceCounts]:
    """Return capacities and devices as they are now; the capacities that pods request come first."""
    requested = requested_capacities(pods)
    totals: Counter[tuple[str, str]] = Counter()
    allocated: Counter[tuple[str, str]] = Counter()
    count = in_use = 0
    usage = state.cluster.usage.pools
    for pool in visible_pools(state.cluster, state.names):
        uses = usage.get(pool.id, _UNUSED)
        for member in (*pool.devices, *pool.elsewhere):
            count += 1
            use = uses.get(member.id.device)
            in_use += use is not None
            for name, capacity in (member.device.capacity or {}).items():
                key = pool.id.driver, name
                totals[key] += capacity.value.nanos
                allocated[key] += _allocated(use, name, capacity.value.nanos)
    keys = sorted(totals, key=_order_of(requested))
    capacities = tuple(
        CapacityUse(
            driver=driver,
            name=name,
            total=amount_of_nanos(totals[driver, name]),
            allocated=amount_of_nanos(allocated[driver, name]),
        )
        for driver, name in keys
    )
    return capacities, DeviceCounts(total=count, in_use=in_use, whole_idle=count - in_use)


def _allocated(use: DeviceUse | None, name: str, total: int) -> int:
    if use is None:
        return 0
    if use.exclusive:
        return total
    amount = (use.capacity or {}).get(name)
    return amount.nanos if amount is not None else 0


def amount_of_nanos(nanos: int) -> float:
    """Return an amount in units: whole if it is."""
    return nanos // _NANOS if nanos % _NANOS == 0 else nanos / _NANOS
