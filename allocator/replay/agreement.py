"""A recorded cluster beside the stock scheduler: a check of each node against the best of its moment.

Every pod is put where it was bound, so a difference does not spread. A pod that is not on one of the best nodes
has a cause: what the model lacks, or what the recording does not tell.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from allocator.cluster.verdicts import NodePlans
from allocator.model.outcome import AttemptFailed
from allocator.nodes.scoring import DEFAULT_PROFILE, ScoringProfile
from allocator.replay.device_use import UseOverTime
from allocator.replay.recorded import Bound, Changed, Course, Left, RecordedPod
from allocator.replay.results import StrategyResult, Tally, failure_reason
from allocator.replay.scheduler import nodes_to_find
from allocator.replay.state import ReplayState
from allocator.replay.workload import Candidate, Inventory
from allocator.search.attempt import AllocatorOptions
from allocator.strategies.first_fit import FIRST_FIT
from kube.api.resource import ResourceClaim
from kube.names import DEFAULT_SCHEDULER_NAME

RECORDED: Final = "recorded"
"""The name of what happened, beside those of strategies."""
SAME_MOMENT_S: Final = 1.0
"""Seconds within which the order of two decisions is not that of the bindings for sure."""

NOT_DATED: Final = "notDated"
"""It was bound while the recorder had lost the cluster."""
UNKNOWN_NODE: Final = "unknownNode"
"""The recording does not have the node at that moment."""
INVALID_CLAIM: Final = "invalidClaim"
"""Its claims are invalid on every node, as the classes of that moment are."""
NOT_ELIGIBLE: Final = "ineligibleNode"
"""The labels and taints of that moment kept it from running there."""
NO_DEVICES: Final = "noDevices"
"""The node had no devices for the claims of that moment."""
PREFER_NO_SCHEDULE: Final = "preferNoScheduleTaints"
"""Some node has a taint that only lowers its score."""
SAMPLED: Final = "sampledNodes"
"""Better nodes may be among those that kube-scheduler did not look at."""
SAME_MOMENT: Final = "sameMoment"
"""Others were bound within a second, so the moment is not that of the decision."""
SCORES: Final = "otherScores"
"""Nothing of the above: scores of images, of other plugins, or other settings of the scheduler."""


class Agreement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The comparison of the recorded nodes with the scores of the stock scheduler.

    Attributes:
        bindings: Pods that kube-scheduler bound.
        best: The number of these pods on a node with the best score of that moment.
        ties: The number of these pods with several nodes of the best score.
        otherwise: Cause to number of the pods that are not.
        percent: The share of the pods that are among the best; 100 without any.
        other_schedulers: Pods that another scheduler bound, or nobody; they are not compared.
        outcome: The recorded placements, in the form of a replay.
    """

    bindings: int
    best: int
    ties: int
    otherwise: Mapping[str, int]
    percent: float
    other_schedulers: int
    outcome: StrategyResult


def compare(
    course: Course,
    inventory: Inventory,
    options: AllocatorOptions,
    profile: ScoringProfile = DEFAULT_PROFILE,
) -> Agreement:
    """Go through a recording, and compare each binding with the scores of its moment.

    Args:
        course: The recording behind its first state.
        inventory: The cluster of the first state.
        options: The features and policies that kube-scheduler evaluates.
        profile: The scores of nodes that it uses.
    """
    walk = _Walk(course, ReplayState(inventory, options), profile)
    for event in course.events:
        walk.use.reach(event.second)
        match event:
            case Changed():
                walk.state.change(event.nodes, event.slices, event.classes)
            case Bound():
                walk.bind(event)
            case Left():
                walk.leave(event)
    return walk.agreement()


class _Walk:
    """The recording so far."""

    def __init__(self, course: Course, state: ReplayState, profile: ScoringProfile) -> None:
        self.state = state
        self.use = UseOverTime(state, course.arriving, course.begin, course.until)
        self._course = course
        self._profile = profile
        self._tally = Tally()
        self._on: dict[int, tuple[Candidate, str, Sequence[ResourceClaim]]] = {}
        self._bound: set[int] = set()
        self._causes: Counter[str] = Counter()
        self._best = self._ties = self._others = 0
        self._seconds = [event.second for event in course.events if isinstance(event, Bound)]
        self._place = -1
        self._boards: dict[Hashable, _Scoreboard] = {}
        for number, pod in enumerate(course.pods):
            if pod.node:
                candidate, own_claims = state.running(pod.replay, pod.claims)
                self._on[number] = candidate, pod.node, own_claims

    def bind(self, event: Bound) -> None:
        """Compare a binding, and put the pod on the node it was bound to."""
        self._place += 1
        pod = self._course.pods[event.number]
        self._bound.add(event.number)
        waited = max(0.0, event.second - (pod.replay.arrival or 0.0))
        self._tally.count_placed(waited, pod.replay, event.node)
        try:
            candidate = self.state.candidate(pod.replay)
        except AttemptFailed:
            candidate = self.state.bare_candidate(pod.replay)
            cause: str | None = INVALID_CLAIM
        else:
            cause = self._cause(pod, candidate, event)
        if pod.is_fixed or pod.scheduler not in {"", DEFAULT_SCHEDULER_NAME}:
            self._others += 1
        elif cause is None:
            self._best += 1
        else:
            self._causes[cause] += 1
        own_claims = self.state.put(candidate, event.node, event.claims)
        self._on[event.number] = candidate, event.node, own_claims

    def leave(self, event: Left) -> None:
        """Take a pod off its node."""
        running = self._on.pop(event.number, None)
        if running is not None:
            self.state.remove(*running)

    def agreement(self) -> Agreement:
        """Return the result, when all events are gone through."""
        for number, pod in enumerate(self._course.pods):
            if not pod.node and number not in self._bound:
                self._count_failed(pod)
        bindings = self._best + self._causes.total()
        return Agreement(
            bindings=bindings,
            percent=100 * self._best / bindings if bindings else 100.0,
            best=self._best,
            ties=self._ties,
            otherwise=dict(sorted(self._causes.items())),
            other_schedulers=self._others,
            outcome=self._tally.result(
                RECORDED,
                0,
                self.state,
                self._course.arriving,
                FIRST_FIT,
                over_time=self.use.result(),
            ),
        )

    def _count_failed(self, pod: RecordedPod) -> None:
        try:
            candidate = self.state.candidate(pod.replay)
            reason = failure_reason(candidate, self.state, FIRST_FIT)
        except AttemptFailed:
            self._tally.count_failed(INVALID_CLAIM, pod.replay)
            return
        self._tally.count_failed(
            reason.code, pod.replay, candidate, lacks_resource=reason.is_resource
        )

    def _cause(self, pod: RecordedPod, candidate: Candidate, event: Bound) -> str | None:
        """Return the cause for a pod that is not on one of the best nodes; None if it is."""
        if event.node not in self.state.resources:
            return UNKNOWN_NODE
        try:
            plans = self._plans(candidate)
        except AttemptFailed:
            return INVALID_CLAIM
        rejection = self._rejection(candidate, plans, event.node)
        if rejection is not None:
            return self._moment(event) or rejection
        board = self._boards.setdefault(candidate.shape, _Scoreboard())
        board.update(self.state, candidate, plans, self._profile)
        own, highest = board.scores[event.node], max(board.counts)
        if own == highest:
            self._ties += board.counts[highest] > 1
            return None
        return self._unmodelled(pod, board, own) or self._moment(event) or SCORES

    def _plans(self, candidate: Candidate) -> NodePlans | None:
        if candidate.pending is None:
            return None
        return self.state.cluster.node_plans(
            candidate.pending, may_use=partial(self.state.fits, candidate)
        )

    def _rejection(self, candidate: Candidate, plans: NodePlans | None, node: str) -> str | None:
        """Return the reason a node cannot take a pod; a resource by its name. None if it can."""
        if candidate.eligible is not None and node not in candidate.eligible:
            return NOT_ELIGIBLE
        lacks = self.state.lacks(candidate, (node,))
        if lacks:
            return min(lacks)
        if plans is not None and plans.fitting(node) is None:
            return NO_DEVICES
        return None

    def _moment(self, event: Bound) -> str | None:
        """Return the cause that hides the moment of a decision; None if it is known."""
        if not event.is_dated:
            return NOT_DATED
        near = self._seconds[max(0, self._place - 1) : self._place + 2]
        return (
            SAME_MOMENT
            if sum(abs(second - event.second) < SAME_MOMENT_S for second in near) > 1
            else None
        )

    def _unmodelled(self, pod: RecordedPod, board: "_Scoreboard", own: int) -> str | None:
        """Return the part that the model lacks of a pod on a node with a lower score than others; None if none is known."""
        if pod.unmodelled:
            return pod.unmodelled[0]
        nodes = self.state.cluster.nodes
        if any(
            taint.effect == "PreferNoSchedule"
            for name in board.scores
            for taint in nodes[name].spec.taints or ()
        ):
            return PREFER_NO_SCHEDULE
        higher = sum(count for score, count in board.counts.items() if score > own)
        looked_at = nodes_to_find(len(self.state.names), self._profile.percentage_of_nodes)
        return SAMPLED if higher <= len(board.scores) - looked_at else None


class _Scoreboard:
    """The nodes that can take the pods of one shape, with their scores.

    Attributes:
        scores: Node to score.
        counts: Score to number of nodes.
    """

    def __init__(self) -> None:
        self.scores: dict[str, int] = {}
        self.counts: Counter[int] = Counter()
        self._changes: int | None = None

    def update(
        self,
        state: ReplayState,
        candidate: Candidate,
        plans: NodePlans | None,
        profile: ScoringProfile,
    ) -> None:
        """Take in the nodes that changed since the last time; all, the first time."""
        names: Iterable[str] = state.names
        if self._changes is not None:
            names = dict.fromkeys(state.changes[self._changes :])
        self._changes = len(state.changes)
        feasible = []
        for name in names:
            before = self.scores.pop(name, None)
            if before is not None:
                self.counts[before] -= 1
                if not self.counts[before]:
                    del self.counts[before]
            if state.fits(candidate, name) and (plans is None or plans.fitting(name) is not None):
                feasible.append(name)
        for name, score in zip(feasible, state.scores(candidate, feasible, profile), strict=True):
            self.scores[name] = score
            self.counts[score] += 1
