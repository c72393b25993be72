"""The result of a replay, in the shape of the JSON of `drawbridge replay`."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from allocator.model.outcome import AttemptFailed
from allocator.replay.device_use import CapacityUse, DeviceCounts, OverTime, measure_devices
from allocator.replay.idle import FailedShape, idle_reasons, served_without_limits
from allocator.replay.quotas import QUOTA_REASONS, HeldPods, Obstacle
from allocator.replay.scheduler import Placement
from allocator.replay.state import ReplayState
from allocator.replay.workload import Candidate, ReplayPod, describe_devices
from allocator.strategies.strategy import Strategy
from findings.text import shorten

NO_DEVICES: Final = "noDevices"
"""The reason of a pod for which no node that it may run on has the devices left."""
MAX_FAILED_SHAPES: Final = 100
"""Shapes of failed pods in a result, the most frequent ones."""
NOT_PLACED: Final = "notPlaced"
"""The reason of a pod that could run: it was behind a scheduling gate, or deleted before there was a place."""
_MAX_ERROR: Final = 500
"""Characters of an error; a selector has up to 10 KiB."""
_NEVER: Final = float("inf")
"""The wait of a pod that was never placed."""


class PodCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of a replay that were placed, and those that were not."""

    placed: int
    failed: int


class WaitsOfAll(msgspec.Struct, frozen=True, kw_only=True):
    """The time from a pod's arrival until it was placed, over all pods; None for one that was never placed."""

    p50: float | None
    p99: float | None


class WaitingSeconds(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The time from a pod's arrival until it was placed, over all pods that were placed.

    Attributes:
        p50: The median.
        p99: The 99th percentile.
        of_all: The same over all pods; unset where no time passes.
    """

    p50: float
    p99: float
    of_all: WaitsOfAll | msgspec.UnsetType = msgspec.UNSET


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


class ShapeCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The placed and failed pods with the same requests for devices.

    Attributes:
        devices: The devices that each requests, such as `2 gpu with memory 40Gi`, or `no devices`.
        pods: All such pods.
        failed: Those that failed.
        failed_by: Reason to number of pods.
    """

    devices: str
    pods: int
    failed: int
    failed_by: Mapping[str, int]


class PodPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The node of a pod, or the reason that it has none.

    Attributes:
        namespace: The pod's namespace.
        name: The pod's name.
        node: The node; empty for a pod that failed.
        reason: The reason, as in `failedBy`; empty for a pod that was placed.
    """

    namespace: str
    name: str
    node: str = ""
    reason: str = ""


class _Failure(NamedTuple):
    """A pod that failed.

    Attributes:
        candidate: The pod as it was tried; None if its claims are invalid.
        lacks_resource: The reason is a resource that nodes with devices lack at the end.
    """

    pod: ReplayPod
    reason: str
    candidate: Candidate | None
    lacks_resource: bool


class Gain(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The difference that added nodes make to one strategy.

    Attributes:
        pods: Pods that were placed, more than without them.
        devices_in_use: Devices in use at the end, more than without them; where time passes, their means.
        allocated: The amount of the first capacity that is allocated, more than without them; 0 without capacities.
        mean_percent: Percentage points of the mean over time, more than without them; unset where no time passes.
    """

    pods: int
    devices_in_use: float
    allocated: float
    mean_percent: float | msgspec.UnsetType = msgspec.UNSET


class StrategyResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of one strategy with one seed.

    Attributes:
        name: The strategy.
        seed: The seed of ties and of a shuffled order.
        pods: Pods that were placed, and that failed.
        failed_by: Reason to number of pods.
        errors: Reason to the first pod that failed by an error, with its words; unset without any.
        failed_shapes: The failed pods by the devices that they request, the most frequent first.
        capacities: Capacities at the end; those that pods request come first.
        devices: Devices at the end.
        idle_because: Reason to number of devices that are wholly idle at the end.
        second_attempts: Pods that were tried with all nodes after none of the answer's fitted.
        waiting_seconds: Waiting times.
        placements: The pods, in the order in which it was decided about them; unset where they are not asked for.
        over_time: The use of devices over time; unset where no time passes.
        held_back: The pods that quotas held back; unset without quotas.
        gain: The difference that added nodes make; unset if none were added.
        cpu_seconds: CPU time of the replay, as the caller measured it.
    """

    name: str
    seed: int
    pods: PodCounts
    failed_by: Mapping[str, int]
    failed_shapes: tuple[ShapeCounts, ...]
    capacities: tuple[CapacityUse, ...]
    devices: DeviceCounts
    idle_because: Mapping[str, int]
    second_attempts: int
    waiting_seconds: WaitingSeconds
    errors: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    placements: tuple[PodPlace, ...] | msgspec.UnsetType = msgspec.UNSET
    over_time: OverTime | msgspec.UnsetType = msgspec.UNSET
    held_back: tuple[HeldBack, ...] | msgspec.UnsetType = msgspec.UNSET
    gain: Gain | msgspec.UnsetType = msgspec.UNSET
    cpu_seconds: float = 0.0


class Tally:
    """The counts of a replay while it runs."""

    def __init__(self, *, has_quotas: bool = False, keeps_places: bool = False) -> None:
        """Begin with nothing.

        Args:
            has_quotas: True if quotas hold pods back.
            keeps_places: True if the place of each pod is part of the result.
        """
        self._keeps_places = keeps_places
        self._has_quotas = has_quotas
        self._placed = 0
        self._second_attempts = 0
        self._errors: dict[str, str] = {}
        self._places: list[PodPlace] = []
        self._placed_by_devices: Counter[str] = Counter()
        self._failures: list[_Failure] = []
        self._waits: list[float] = []
        self._held_pods = HeldPods()

    @property
    def placed(self) -> int:
        """Pods that were placed until now."""
        return self._placed

    def count_placed(self, waited: float, pod: ReplayPod, node: str) -> None:
        """Count a pod that was placed on a node after some seconds."""
        self._placed += 1
        self._waits.append(waited)
        self._held_pods.place(pod.pod, waited)
        self._placed_by_devices[describe_devices(pod.all_claims)] += 1
        if self._keeps_places:
            self._places.append(_place(pod, node=node))

    def count_held(self, pod: ReplayPod, obstacle: Obstacle) -> None:
        """Count a pod that a quota holds back."""
        self._held_pods.hold(pod.pod, obstacle.quota)

    def count_attempt(self, placement: Placement) -> None:
        """Count the scheduling cycles of a pod."""
        self._second_attempts += placement.attempts > 1

    def count_failed(
        self,
        reason: str,
        pod: ReplayPod,
        candidate: Candidate | None = None,
        *,
        lacks_resource: bool = False,
    ) -> None:
        """Count a pod that was never placed.

        Args:
            reason: The reason.
            pod: The pod.
            candidate: The pod as it was tried; None if its claims are invalid.
            lacks_resource: The reason is a resource that nodes lack; at the end it is decided how many pods it kept
                from devices.
        """
        self._failures.append(_Failure(pod, reason, candidate, lacks_resource))

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
        *,
        over_time: OverTime | None = None,
    ) -> StrategyResult:
        """Return the result at the end. The cluster is of no use behind it.

        Args:
            name: The name of what placed the pods.
            seed: The seed.
            state: The cluster at the end.
            pods: All pods.
            strategy: The strategy whose verdicts are known.
            over_time: The use of devices over time; None where no time passes.
        """
        capacities, devices = measure_devices(state, pods)
        idle_because = idle_reasons(state, _equal_shapes(self._failures), strategy)
        failures = _decided(self._failures, state, strategy)
        places = [
            *self._places,
            *(_place(failure.pod, reason=failure.reason) for failure in failures),
        ]
        return StrategyResult(
            name=name,
            seed=seed,
            pods=PodCounts(placed=self._placed, failed=len(failures)),
            failed_by=_counted(failures),
            failed_shapes=_failed_shapes(failures, self._placed_by_devices),
            capacities=capacities,
            devices=devices,
            idle_because=idle_because,
            second_attempts=self._second_attempts,
            errors=self._errors or msgspec.UNSET,
            waiting_seconds=_waiting_seconds(
                self._waits, never=None if over_time is None else len(failures)
            ),
            placements=tuple(places) if self._keeps_places else msgspec.UNSET,
            over_time=msgspec.UNSET if over_time is None else over_time,
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


class FailureReason(NamedTuple):
    """The reason a pod fits nowhere.

    Attributes:
        code: The reason, as in `failedBy`.
        is_resource: It is a resource that nodes lack which have the devices.
    """

    code: str
    is_resource: bool = False


def failure_reason(candidate: Candidate, state: ReplayState, strategy: Strategy) -> FailureReason:
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
        return FailureReason("noEligibleNode")
    if candidate.pending is not None:
        plans = state.cluster.node_plans(candidate.pending, strategy=strategy)
        eligible = [name for name in eligible if plans.fitting(name) is not None]
        if not eligible:
            return FailureReason(NO_DEVICES)
    if any(state.fits(candidate, name) for name in eligible):
        return FailureReason(NOT_PLACED)
    lacks = state.lacks(candidate, eligible)
    # The first by name of those that equally many nodes lack.
    code = min(lacks, key=lambda name: (-lacks[name], name), default=None)
    return FailureReason(NOT_PLACED) if code is None else FailureReason(code, is_resource=True)


def _decided(
    failures: Sequence[_Failure], state: ReplayState, strategy: Strategy
) -> Sequence[_Failure]:
    """Return failures with their reasons at the end: a resource for no more pods than devices are left for.

    A single idle device on a node without CPU would else be the reason of all pods that ask for one.
    """
    lacking = [
        failure.candidate
        for failure in failures
        if failure.candidate is not None and failure.lacks_resource
    ]
    served = iter(served_without_limits(state, lacking, strategy))
    return [
        failure._replace(reason=NO_DEVICES)
        if failure.candidate is not None and failure.lacks_resource and not next(served)
        else failure
        for failure in failures
    ]


def _equal_shapes(failures: Iterable[_Failure]) -> Sequence[FailedShape]:
    """Return the failed pods by shape and by the quota that held them back, if one did."""
    shapes: dict[tuple[Hashable, str], FailedShape] = {}
    for failure in failures:
        if failure.candidate is not None:
            quota = failure.reason if failure.reason in QUOTA_REASONS else ""
            key = failure.candidate.shape, quota
            first = shapes.get(key, FailedShape(failure.candidate, 0, quota))
            shapes[key] = first._replace(pods=first.pods + 1)
    return tuple(shapes.values())


def _counted(failures: Iterable[_Failure]) -> Mapping[str, int]:
    return dict(sorted(Counter(failure.reason for failure in failures).items()))


def _failed_shapes(
    failures: Iterable[_Failure], placed: Mapping[str, int]
) -> tuple[ShapeCounts, ...]:
    by_devices: dict[str, list[_Failure]] = {}
    for failure in failures:
        by_devices.setdefault(describe_devices(failure.pod.all_claims), []).append(failure)
    shapes = [
        ShapeCounts(
            devices=devices,
            pods=placed.get(devices, 0) + len(failed),
            failed=len(failed),
            failed_by=_counted(failed),
        )
        for devices, failed in by_devices.items()
    ]
    return tuple(sorted(shapes, key=lambda shape: -shape.failed)[:MAX_FAILED_SHAPES])


def _place(pod: ReplayPod, *, node: str = "", reason: str = "") -> PodPlace:
    metadata = pod.pod.metadata
    return PodPlace(namespace=metadata.namespace, name=metadata.name, node=node, reason=reason)


def _waiting_seconds(waits: Sequence[float], never: int | None = None) -> WaitingSeconds:
    """Return waiting times of placed pods; with a number of others, those of all."""
    of_all: WaitsOfAll | msgspec.UnsetType = msgspec.UNSET
    if never is not None:
        all_waits = [*waits, *[_NEVER] * never]
        p50, p99 = _percentile(all_waits, 50), _percentile(all_waits, 99)
        of_all = WaitsOfAll(p50=None if p50 == _NEVER else p50, p99=None if p99 == _NEVER else p99)
    return WaitingSeconds(p50=_percentile(waits, 50), p99=_percentile(waits, 99), of_all=of_all)


def _percentile(values: Sequence[float], percent: int) -> float:
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
