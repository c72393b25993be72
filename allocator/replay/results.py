"""The result of a replay, in the shape of the JSON of `drawbridge replay`."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from allocator.model.devices import Pool
from allocator.model.outcome import AttemptFailed
from allocator.model.usage import DeviceUse, PoolUse
from allocator.replay.idle import FailedShape, idle_reasons
from allocator.replay.quotas import QUOTA_REASONS, HeldPods, Obstacle
from allocator.replay.scheduler import Placement
from allocator.replay.state import ReplayState
from allocator.replay.workload import Candidate, ReplayPod
from allocator.strategies.strategy import Strategy
from findings.text import shorten
from kube.quantity import ZERO

NOT_PLACED: Final = "notPlaced"
"""The reason of a pod that could run: it was behind a scheduling gate, or deleted before there was a place."""
_MAX_ERROR: Final = 500
"""Characters of an error; a selector has up to 10 KiB."""
_NANOS: Final = 10**9
"""Nano-units of a quantity."""


class PodCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of a replay that were placed, and those that were not."""

    placed: int
    failed: int


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


class WaitingSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """The time from a pod's arrival until it was placed, over all pods that were placed."""

    p50: float
    p99: float


class HeldBack(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods of a namespace that a quota held back.

    Attributes:
        quota: The quota and its limit, such as `DeviceQuota vision, limit memory`.
        namespace: The namespace of the pods.
        pods: Pods for which it had too little left when they were tried.
        placed: Those that were placed later.
        waiting_seconds: Their waiting times.
    """

    quota: str
    namespace: str
    pods: int
    placed: int
    waiting_seconds: WaitingSeconds


class Gain(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The difference that added nodes make to one strategy.

    Attributes:
        pods: Pods that were placed, more than without them.
        devices_in_use: Devices in use at the end, more than without them.
        allocated: The amount of the first capacity that is allocated, more than without them; 0 without capacities.
    """

    pods: int
    devices_in_use: int
    allocated: float


class StrategyResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of one strategy with one seed.

    Attributes:
        name: The strategy.
        seed: The seed of ties and of a shuffled order.
        pods: Pods that were placed, and that failed.
        failed_by: Reason to number of pods.
        errors: Reason to the first pod that failed by an error, with its words; unset without any.
        capacities: Capacities at the end; those that pods request come first.
        devices: Devices at the end.
        idle_because: Reason to number of devices that are wholly idle at the end.
        second_attempts: Pods that were tried with all nodes after none of the answer's fitted.
        waiting_seconds: Waiting times.
        held_back: The pods that quotas held back; unset without quotas.
        gain: The difference that added nodes make; unset if none were added.
        cpu_seconds: CPU time of the replay, as the caller measured it.
    """

    name: str
    seed: int
    pods: PodCounts
    failed_by: Mapping[str, int]
    capacities: tuple[CapacityUse, ...]
    devices: DeviceCounts
    idle_because: Mapping[str, int]
    second_attempts: int
    waiting_seconds: WaitingSeconds
    errors: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    held_back: tuple[HeldBack, ...] | msgspec.UnsetType = msgspec.UNSET
    gain: Gain | msgspec.UnsetType = msgspec.UNSET
    cpu_seconds: float = 0.0


class Tally:
    """The counts of a replay while it runs."""

    def __init__(self, *, has_quotas: bool = False) -> None:
        """Begin with nothing.

        Args:
            has_quotas: True if quotas hold pods back.
        """
        self._has_quotas = has_quotas
        self._placed = 0
        self._second_attempts = 0
        self._failed: Counter[str] = Counter()
        self._errors: dict[str, str] = {}
        self._shapes: dict[tuple[Hashable, str], FailedShape] = {}
        self._waits: list[float] = []
        self._held_pods = HeldPods()

    @property
    def placed(self) -> int:
        """Pods that were placed until now."""
        return self._placed

    def count_placed(self, waited: float, pod: ReplayPod | None = None) -> None:
        """Count a pod that was placed after some seconds.

        Args:
            waited: The seconds.
            pod: The pod, for the pods that quotas held back; None where there are no quotas.
        """
        self._placed += 1
        self._waits.append(waited)
        if pod is not None:
            self._held_pods.place(pod.pod, waited)

    def count_held(self, pod: ReplayPod, obstacle: Obstacle) -> None:
        """Count a pod that a quota holds back."""
        self._held_pods.hold(pod.pod, obstacle.quota)

    def count_attempt(self, placement: Placement) -> None:
        """Count the scheduling cycles of a pod."""
        self._second_attempts += placement.attempts > 1

    def count_failed(self, reason: str, candidate: Candidate | None = None) -> None:
        """Count a pod that was never placed; without a candidate if its claims are invalid."""
        self._failed[reason] += 1
        if candidate is not None:
            quota = reason if reason in QUOTA_REASONS else ""
            key = candidate.shape, quota
            first = self._shapes.get(key, FailedShape(candidate, 0, quota))
            self._shapes[key] = first._replace(pods=first.pods + 1)

    def note_error(self, reason: str, pod: ReplayPod, error: AttemptFailed) -> None:
        """Keep the words of the first error of a reason."""
        if reason not in self._errors:
            metadata = pod.pod.metadata
            text = f"Pod/{metadata.namespace}/{metadata.name}: {error}"
            self._errors[reason] = shorten(text, _MAX_ERROR)

    def result(
        self,
        name: str,
        seed: int,
        state: ReplayState,
        pods: Sequence[ReplayPod],
        strategy: Strategy,
    ) -> StrategyResult:
        """Return the result at the end.

        Args:
            name: The name of what placed the pods.
            seed: The seed.
            state: The cluster at the end.
            pods: All pods.
            strategy: The strategy whose verdicts are known.
        """
        capacities, devices = measure_devices(state, pods)
        return StrategyResult(
            name=name,
            seed=seed,
            pods=PodCounts(placed=self._placed, failed=self._failed.total()),
            failed_by=dict(sorted(self._failed.items())),
            capacities=capacities,
            devices=devices,
            idle_because=idle_reasons(state, tuple(self._shapes.values()), strategy),
            second_attempts=self._second_attempts,
            waiting_seconds=_waiting_seconds(self._waits),
            errors=self._errors or msgspec.UNSET,
            held_back=self._held_back() if self._has_quotas else msgspec.UNSET,
        )

    def _held_back(self) -> tuple[HeldBack, ...]:
        rows = []
        for (quota, namespace), waits in self._held_pods.waits.items():
            placed_waits = [wait for wait in waits if wait is not None]
            rows.append(
                HeldBack(
                    quota=quota,
                    namespace=namespace,
                    pods=len(waits),
                    placed=len(placed_waits),
                    waiting_seconds=_waiting_seconds(placed_waits),
                )
            )
        return tuple(rows)


def failure_reason(candidate: Candidate, state: ReplayState, strategy: Strategy) -> str:
    """Return the reason a pod fits nowhere.

    Of several reasons that of the most nodes counts: `noEligibleNode`, `noDevices` where no eligible node has
    devices, else the resource that those with devices lack; `notPlaced` where one has all.

    Args:
        candidate: The pod.
        state: The cluster.
        strategy: The strategy whose verdicts are known; which nodes fit is the same with each.
    """
    eligible = [
        name for name in state.names if candidate.eligible is None or name in candidate.eligible
    ]
    if not eligible:
        return "noEligibleNode"
    if candidate.pending is not None:
        plans = state.cluster.node_plans(candidate.pending, strategy=strategy)
        eligible = [name for name in eligible if plans.fitting(name) is not None]
        if not eligible:
            return "noDevices"
    if any(state.fits(candidate, name) for name in eligible):
        return NOT_PLACED
    lacks = state.lacks(candidate, eligible)
    # The first by name of those that equally many nodes lack.
    return min(lacks, key=lambda name: (-lacks[name], name), default=NOT_PLACED)


def _requested_capacities(pods: Iterable[ReplayPod]) -> Sequence[str]:
    names: dict[str, None] = {}
    specs: set[int] = set()
    for pod in pods:
        for claim in pod.claims:
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
    requested = _requested_capacities(pods)
    pools: dict[object, Pool] = {}
    for node in state.names:
        for pool in state.cluster.node_devices(node).pools:
            pools.setdefault(pool.id, pool)
    totals: Counter[tuple[str, str]] = Counter()
    allocated: Counter[tuple[str, str]] = Counter()
    count = in_use = 0
    unused: PoolUse = {}
    usage = state.cluster.usage.pools
    for pool in pools.values():
        uses = usage.get(pool.id, unused)
        for member in (*pool.devices, *pool.elsewhere):
            count += 1
            use = uses.get(member.id.device)
            in_use += use is not None
            for name, capacity in (member.device.capacity or {}).items():
                key = pool.id.driver, name
                totals[key] += capacity.value.nanos
                allocated[key] += _allocated(use, name, capacity.value.nanos)
    place = {name: number for number, name in enumerate(requested)}
    keys = sorted(totals, key=lambda key: (place.get(key[1], len(place)), key))
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


def _waiting_seconds(waits: Sequence[float]) -> WaitingSeconds:
    return WaitingSeconds(p50=_percentile(waits, 50), p99=_percentile(waits, 99))


def _percentile(values: Sequence[float], percent: int) -> float:
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
