"""A replay of pods on a cluster with one strategy."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple

from allocator.model.outcome import AttemptFailed
from allocator.pods.claims import claim_name
from allocator.replay.bridge import BridgeScheduler
from allocator.replay.device_use import OverTime, UseOverTime
from allocator.replay.fragmentation import FragmentationScheduler, TwoStepScheduler
from allocator.replay.groups import Arrived
from allocator.replay.profiles import DEFAULT_PROFILES, SchedulerProfiles
from allocator.replay.quotas import Obstacle, Quotas
from allocator.replay.recorded import Changed, Course
from allocator.replay.results import FailureReason, StrategyResult, Tally, failure_reason
from allocator.replay.scheduler import STOCK, STOCK_MOST_ALLOCATED, Scheduler, StockScheduler
from allocator.replay.state import ReplayState
from allocator.replay.tie_breaker import TieBreaker
from allocator.replay.timeline import Recorder
from allocator.replay.workload import (
    GROUP_DOES_NOT_FIT,
    GROUP_INCOMPLETE,
    Candidate,
    Inventory,
    Order,
    ReplayPod,
    in_order,
)
from allocator.search.attempt import AllocatorOptions
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.fragmentation_aware import FRAGMENTATION_AWARE
from allocator.strategies.registry import ALL
from allocator.strategies.strategy import Strategy
from kube.api.resource import ResourceClaim

STRATEGIES: Final = (STOCK, STOCK_MOST_ALLOCATED, *(strategy.name for strategy in ALL))
"""The names of the strategies that can be replayed."""

INVALID_CLAIM: Final = "invalidClaim"
"""The reason of a pod whose claims are invalid on every node."""

DENIED: Final = "denied"
"""The reason of a pod that the webhook would deny, with another driver or after a migration."""

ATTEMPT_FAILED: Final = "attemptFailed"
"""The reason of a pod whose attempt ends in an error, as when a selector fails on a device."""

_OPTIONS: Final = AllocatorOptions()
_ORDER_SEED: Final = 0x5EED
"""Added to the seed of the order, so that ties do not repeat it."""


def replay(
    name: str,
    pods: Sequence[ReplayPod],
    inventory: Inventory,
    *,
    order: Order = Order.FILE,
    seed: int = 0,
    options: AllocatorOptions = _OPTIONS,
    profiles: SchedulerProfiles = DEFAULT_PROFILES,
    recorder: Recorder | None = None,
    course: Course | None = None,
    quotas: Quotas | None = None,
    keeps_places: bool = False,
) -> StrategyResult:
    """Place pods with a strategy, and return the result.

    Args:
        name: One of `STRATEGIES`.
        pods: The pods.
        inventory: The cluster.
        order: The order in which they arrive.
        seed: Decides between equal nodes, and a shuffled order.
        options: Feature gates and policies.
        profiles: The scores of nodes that the schedulers use.
        recorder: Samples the replay while it runs.
        course: The recording of which the pods are, with the order of arrivals: pods that run when it begins leave,
            nodes come and go, and its end is that of the replay. None without one.
        quotas: The quotas that hold pods back, charged with the pods that run before; they change with the replay.
            None for none.
        keeps_places: The place of each pod is part of the result.
    """
    scheduler = _schedulers(profiles)[name](TieBreaker(seed))
    return replay_with(
        scheduler,
        name,
        pods,
        inventory,
        order=order,
        seed=seed,
        options=options,
        recorder=recorder,
        course=course,
        quotas=quotas,
        keeps_places=keeps_places,
    )


def replay_with(
    scheduler: Scheduler,
    name: str,
    pods: Sequence[ReplayPod],
    inventory: Inventory,
    *,
    order: Order = Order.FILE,
    seed: int = 0,
    options: AllocatorOptions = _OPTIONS,
    recorder: Recorder | None = None,
    course: Course | None = None,
    quotas: Quotas | None = None,
    keeps_places: bool = False,
) -> StrategyResult:
    """Place pods with a scheduler, and return the result under a name; arguments as of `replay`."""
    tally = Tally(has_quotas=quotas is not None, keeps_places=keeps_places)
    run = _Run(ReplayState(inventory, options), scheduler, tally, recorder, quotas)
    arrivals = in_order(pods, order, seed + _ORDER_SEED)
    over_time = None
    if order is Order.ARRIVAL:
        over_time = run.over_time(arrivals, pods, course)
    else:
        for _, pod in arrivals:
            run.try_once(pod)
    run.end()
    return run.tally.result(name, seed, run.state, pods, run.strategy, over_time=over_time)


def _schedulers(profiles: SchedulerProfiles) -> Mapping[str, Callable[[TieBreaker], Scheduler]]:
    schedulers: dict[str, Callable[[TieBreaker], Scheduler]] = {
        STOCK: partial(StockScheduler, profile=profiles.stock),
        STOCK_MOST_ALLOCATED: partial(StockScheduler, profile=profiles.most_allocated),
    }
    for strategy in ALL:
        schedulers[strategy.name] = partial(TwoStepScheduler, strategy, profiles=profiles)
    schedulers[FIRST_FIT.name] = partial(BridgeScheduler, FIRST_FIT, profiles=profiles)
    schedulers[FRAGMENTATION_AWARE.name] = partial(FragmentationScheduler, profiles=profiles)
    return schedulers


def _use_over_time(
    state: ReplayState,
    arrivals: Sequence[tuple[float, ReplayPod]],
    pods: Sequence[ReplayPod],
    course: Course | None,
) -> UseOverTime:
    """Return the use from the first arrival to the last; of a recording, until its end."""
    if course is not None:
        return UseOverTime(state, pods, course.begin, course.until)
    first, last = (arrivals[0][0], arrivals[-1][0]) if arrivals else (0.0, 0.0)
    return UseOverTime(state, pods, first, last)


class _Running(NamedTuple):
    """A pod that leaves; the number makes its place in a heap unique."""

    departure: float
    number: int
    candidate: Candidate
    node: str
    claims: tuple[ResourceClaim, ...]


class _Run:
    """The pods that arrived so far."""

    def __init__(
        self,
        state: ReplayState,
        scheduler: Scheduler,
        tally: Tally,
        recorder: Recorder | None,
        quotas: Quotas | None,
    ) -> None:
        self.state = state
        self.tally = tally
        self._scheduler = scheduler
        self._recorder = recorder
        self._quotas = quotas
        self._running: list[_Running] = []
        # Sorted by priority, then by arrival.
        self._waiting: list[tuple[int, int, float, Candidate]] = []
        self._number = 0
        self._groups: dict[str, Arrived] = {}
        self._use: UseOverTime | None = None
        self._now = 0.0

    @property
    def strategy(self) -> Strategy:
        """The strategy that orders devices at present."""
        return self._scheduler.strategy

    def try_once(self, pod: ReplayPod) -> None:
        """Place a pod, or count it as failed."""
        candidate = self._candidate(pod)
        is_placed = candidate is None or self._place(candidate, arrival=0.0, now=0.0)
        # The pods of a group wait for further ones.
        if candidate is not None and not is_placed and not self._waits_in_group(candidate):
            self._count_failed(candidate)
        self._record(0.0)

    def end(self) -> None:
        """Count the pods of groups that wait still."""
        for arrived in self._groups.values():
            reason = GROUP_DOES_NOT_FIT if arrived.is_complete else GROUP_INCOMPLETE
            for _, candidate in arrived.waiting.values():
                self.tally.count_failed(reason, candidate.pod, candidate)

    def over_time(
        self,
        arrivals: Sequence[tuple[float, ReplayPod]],
        pods: Sequence[ReplayPod],
        course: Course | None = None,
    ) -> OverTime:
        """Let pods arrive and leave; those that still wait at the end failed. Return the use of devices meanwhile."""
        use = self._use = _use_over_time(self.state, arrivals, pods, course)
        events: list[tuple[float, Changed | ReplayPod]] = []
        if course is not None:
            self._start(course)
            events += [(event.second, event) for event in course.changes]
        # Of one second, what changes comes before the pods.
        for now, event in sorted([*events, *arrivals], key=itemgetter(0)):
            self._leave_until(now)
            use.reach(now)
            if isinstance(event, Changed):
                self._change(event)
                continue
            candidate = self._candidate(event)
            if candidate is not None and not self._place(candidate, arrival=now, now=now):
                self._number += 1
                self._waiting.append((-event.priority, self._number, now, candidate))
            self._record(now)
        self._leave_until(float("inf") if course is None else course.until)
        for _, _, _, candidate in self._waiting:
            if not self._waits_in_group(candidate) and not self._is_placed_with_group(candidate):
                self._count_failed(candidate)
        if self._recorder is not None:
            end = self._now if course is None else course.until
            self._recorder.finish(self.state, self.tally, end)
        return use.result()

    def _start(self, course: Course) -> None:
        """Let the pods that run when a recording begins leave in their seconds."""
        for pod in course.pods:
            if not pod.node:
                continue
            candidate, own_claims = self.state.running(pod.replay, pod.claims)
            departure = pod.replay.departure
            if departure is not None:
                self._number += 1
                heapq.heappush(
                    self._running,
                    _Running(departure, self._number, candidate, pod.node, own_claims),
                )

    def _change(self, event: Changed) -> None:
        """Take over changed nodes, slices and classes, and try those that wait again."""
        self.state.change(event.nodes, event.slices, event.classes)
        if self._quotas is not None:
            self._quotas.change(event.slices, event.classes)
        waiting, self._waiting = self._waiting, []
        for priority, number, arrival, before in waiting:
            candidate = self._candidate(before.pod)
            if candidate is not None:
                self._waiting.append((priority, number, arrival, candidate))
        self._retry(event.second)

    def _record(self, now: float) -> None:
        if self._recorder is not None:
            self._recorder.count(self.state, self.tally, now)

    def _leave_until(self, now: float) -> None:
        while self._running and self._running[0].departure <= now:
            second = self._now = self._running[0].departure
            if self._use is not None:
                self._use.reach(second)
            while self._running and self._running[0].departure == second:
                gone = heapq.heappop(self._running)
                self.state.remove(gone.candidate, gone.node, gone.claims)
                if self._quotas is not None:
                    self._quotas.release(gone.candidate.pod.pod)
            self._retry(second)
            if self._recorder is not None:
                self._recorder.follow(self.state, self.tally, second)

    def _retry(self, now: float) -> None:
        """Try those that wait again, but for those that have given up."""
        waiting = []
        for entry in sorted(self._waiting, key=lambda entry: entry[:2]):
            _, _, arrival, candidate = entry
            if self._is_placed_with_group(candidate):
                continue
            gives_up = candidate.pod.gives_up
            if gives_up is not None and gives_up <= now:
                self._count_failed(candidate, gave_up=True)
            elif not self._place(candidate, arrival=arrival, now=now):
                waiting.append(entry)
        self._waiting = waiting

    def _is_placed_with_group(self, candidate: Candidate) -> bool:
        """Return True if a pod got its node when another pod of its group was tried."""
        group = candidate.pod.group
        return group is not None and (
            group.name in self._groups and self._groups[group.name].is_placed(candidate)
        )

    def _waits_in_group(self, candidate: Candidate) -> bool:
        """Return True if a pod waits with others of its group, so that it is counted with them."""
        group = candidate.pod.group
        return group is not None and (
            group.name in self._groups and self._groups[group.name].waits(candidate)
        )

    def _candidate(self, pod: ReplayPod) -> Candidate | None:
        """Return a pod that is ready to be placed; count one that fails at once, and return None."""
        if pod.is_denied:
            self.tally.count_failed(DENIED, pod)
            return None
        try:
            return self.state.candidate(pod)
        except AttemptFailed as error:
            self.tally.note_error(INVALID_CLAIM, pod, error)
            self.tally.count_failed(INVALID_CLAIM, pod)
            return None

    def _count_failed(self, candidate: Candidate, *, gave_up: bool = False) -> None:
        """Count a pod that is not placed any more; gave_up: while others come still."""
        obstacle = self._obstacle(candidate)
        if obstacle is not None:
            self.tally.count_held(candidate.pod, obstacle)
            self.tally.count_failed(obstacle.reason, candidate.pod, candidate)
            return
        try:
            candidate = self.state.renewed(candidate)
            reason = failure_reason(candidate, self.state, self._scheduler.strategy)
        except AttemptFailed as error:
            reason = FailureReason(ATTEMPT_FAILED)
            self.tally.note_error(ATTEMPT_FAILED, candidate.pod, error)
        self.tally.count_failed(
            reason.code,
            candidate.pod,
            candidate,
            lacks_resource=reason.is_resource and not gave_up,
        )

    def _place(self, candidate: Candidate, *, arrival: float, now: float) -> bool:
        """Place a pod if it fits, or its group; a pod that waited leaves as much later."""
        group = candidate.pod.group
        if not self._waits_in_group(candidate) and self._is_held_back(candidate):
            return False
        if group is not None:
            arrived = self._groups.setdefault(group.name, Arrived(group))
            arrived.add(candidate, arrival)
            # What is let through and waits for others of its group is promised to it.
            self._charge(candidate, candidate.pod.claims)
            for since, place in arrived.try_all(self.state, self._scheduler):
                self._count_placed(*place, arrival=since, now=now)
            return not arrived.waits(candidate)
        try:
            candidate = self.state.renewed(candidate)
            placement = self._scheduler.choose(candidate, self.state)
        except AttemptFailed:
            return False
        self.tally.count_attempt(placement)
        if placement.node is None:
            return False
        claims = self.state.place(candidate, placement.node, placement.plan)
        self._count_placed(candidate, placement.node, claims, arrival=arrival, now=now)
        return True

    def _is_held_back(self, candidate: Candidate) -> bool:
        """Return True if a quota has too little left for a pod, and count that."""
        obstacle = self._obstacle(candidate)
        if obstacle is not None:
            self.tally.count_held(candidate.pod, obstacle)
        return obstacle is not None

    def _obstacle(self, candidate: Candidate) -> Obstacle | None:
        if self._quotas is None:
            return None
        pod = candidate.pod
        return self._quotas.obstacle(pod.pod, pod.claims, pod.shared)

    def _charge(self, candidate: Candidate, claims: Sequence[ResourceClaim]) -> None:
        """Charge quotas with a pod, its own claims, and those that it shares, as they are now."""
        if self._quotas is not None:
            pod = candidate.pod
            shared = {claim_name(claim): claim for claim in pod.shared}
            shared |= {claim_name(claim): claim for claim in self.state.shared_claims(pod)}
            self._quotas.charge(pod.pod, claims, tuple(shared.values()))

    def _count_placed(
        self,
        candidate: Candidate,
        node: str,
        claims: tuple[ResourceClaim, ...],
        *,
        arrival: float,
        now: float,
    ) -> None:
        self.tally.count_placed(now - arrival, candidate.pod, node)
        self._charge(candidate, claims)
        departure = candidate.pod.departure
        if departure is not None:
            self._number += 1
            leaves = max(now, departure + now - arrival)
            heapq.heappush(
                self._running,
                _Running(leaves, self._number, candidate, node, claims),
            )
