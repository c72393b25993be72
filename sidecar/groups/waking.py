"""Choice of the waiting pods and groups that could be placed now, all together.

A group takes its turn among the pods by priority and time. It is decided about as in its next attempt, on what those
before it leave, so it is woken when all of it has devices, and not before.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Final

from msgspec import structs

from allocator.model.plan import Budget
from allocator.pods.claims import Name
from kube.cel.scope import AnswersPending, BudgetSpent, Meter, current_scope, evaluating
from sidecar.groups.candidates import charge_claims
from sidecar.groups.decide import Attempt, find_places
from sidecar.groups.places import Places
from sidecar.model.protocol import GroupRequest, Verdict
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.occupancy import Keep
from sidecar.plan.pod_claims import claim_names
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.waking import (
    MAX_STEPS,
    MAX_WOKEN,
    PlacedPods,
    WaitingPod,
    Woken,
    bounded,
    ending_claims,
    question_of,
)

GROUP_BUDGET: Final = Budget(steps=4_000)
"""The cost of one group. One that is not decided by then is tried again by the scheduler, a minute later."""
MAX_NODES_LOOKED_AT: Final = 20_000
"""Nodes of one plan, some 0.2 seconds: each group looks at all of them. The next plan has the turn of other groups."""
NODES_IN_VAIN: Final = MAX_NODES_LOOKED_AT // 4
"""Nodes at which the groups of one namespace look in vain before those of others have had their turn."""


class Unplaceable:
    """The groups that did not fit in a plan, as long as nothing changes: plans need not ask about them again."""

    def __init__(self) -> None:
        """Begin without a group."""
        self._circumstances = (-1, 0, 0)
        self._uids: set[str] = set()

    def at(self, version: int, waiting: Collection[WaitingPod]) -> set[str]:
        """Return the UIDs of the groups that were looked at; a plan adds to them.

        Args:
            version: The version of the cluster.
            waiting: All that wait: those that are planned before a group take devices from it.
        """
        newest = max((entry.number for entry in waiting), default=0)
        circumstances = (version, len(waiting), newest)
        if circumstances != self._circumstances:
            self._circumstances, self._uids = circumstances, set()
        return self._uids


def find_placeable(
    waiting: Iterable[WaitingPod],
    snapshot: Snapshot,
    *,
    unplaceable: set[str] | None = None,
    limit: int = MAX_WOKEN,
) -> Woken:
    """Return those of the waiting pods and groups that could be placed now, together.

    And those that waited for a release that is over: they may evict a pod instead.

    Args:
        unplaceable: UIDs of groups that do not fit, to which others are added.
        limit: Pods at most; a group counts with all of its own, and is not divided.
    """
    plan = _Plan(snapshot, set() if unplaceable is None else unplaceable)
    return _find_placeable(waiting, plan, ending_claims(snapshot), limit)


def _find_placeable(
    waiting: Iterable[WaitingPod], plan: "_Plan", endings: frozenset[Name], limit: int
) -> Woken:
    woken: list[WaitingPod] = []
    pods = 0
    for entry in plan.in_turn(plan.in_order(waiting)):
        if isinstance(entry, Keep):
            plan.keep(entry)
            continue
        with evaluating(tenant=entry.pod.metadata.namespace, meter=plan.meter_of(entry)):
            is_placeable = plan.takes(entry)
        # One that was woken before, and not tried since, takes its devices and is not woken again.
        if entry.woken_s is not None:
            continue
        if not is_placeable and not entry.has_waited(endings):
            continue
        if pods >= limit:
            return Woken(tuple(woken), more=True)
        woken.append(entry)
        pods += len(entry.names)
    return Woken(tuple(woken), more=False, is_partial=plan.is_partial)


class _Plan:
    """Pods and groups that are taken to be placed, one after the other.

    Attributes:
        is_partial: Some group had no turn.
    """

    def __init__(self, snapshot: Snapshot, unplaceable: set[str]) -> None:
        self.is_partial = False
        self._snapshot = snapshot
        self._pods = PlacedPods(snapshot)
        self._unplaceable = unplaceable
        self._taken: set[str] = set()
        self._is_late = False
        self._meter = current_scope().meter
        self._meters: dict[str, Meter] = {}
        # Groups of which equal ones did not fit: what is taken since does not help them.
        self._exhausted: set[Hashable] = set()
        self._nodes_looked_at = 0
        # By namespace: the nodes at which groups looked that were not taken.
        self._in_vain: Counter[str] = Counter()

    def in_order(self, waiting: Iterable[WaitingPod]) -> Sequence[WaitingPod | Keep]:
        """Return pods and groups, the most important first; after a group that keeps devices comes its keep.

        Of equal priority those that are nominated come before others, as devices are kept for them, too.
        """
        keeps = {keep.group: 2 * rank for rank, keep in enumerate(self._snapshot.keeps)}
        turns: list[tuple[tuple[int, int, int], WaitingPod | Keep]] = [
            ((-keep.priority, keeps[keep.group] + 1, 0), keep) for keep in self._snapshot.keeps
        ]
        for entry in waiting:
            priority, number = entry.importance
            is_nominated = self._is_nominated(entry)
            turn = keeps.get(entry.uid, 2 * len(keeps) + (not is_nominated))
            turns.append(((priority, turn, number), entry))
        return [entry for _, entry in sorted(turns, key=lambda turn: turn[0])]

    def _is_nominated(self, entry: WaitingPod) -> bool:
        pods = (entry.pod,) if entry.group is None else entry.group.pods
        return any(pod.metadata.uid in self._snapshot.nominated for pod in pods)

    def in_turn(self, entries: Iterable[WaitingPod | Keep]) -> Iterator[WaitingPod | Keep]:
        """Yield pods and groups in order; the groups of a namespace that has had its turn are last.

        Old groups that do not fit could otherwise take the turn of others in plan after plan.
        """
        keeping = {keep.group for keep in self._snapshot.keeps}
        last: list[WaitingPod | Keep] = []
        for entry in entries:
            if isinstance(entry, Keep) or entry.group is None or entry.uid in keeping:
                yield entry
            elif self._in_vain[entry.pod.metadata.namespace] >= NODES_IN_VAIN:
                last.append(entry)
            else:
                yield entry
        yield from last

    def keep(self, keep: Keep) -> None:
        """Leave its devices to a group that does not fit yet."""
        if keep.group not in self._taken:
            self._pods.add(keep.claims)

    def meter_of(self, entry: WaitingPod) -> Meter:
        """Return the meter of the steps for pods and groups of a namespace: others have steps of their own."""
        namespace = entry.pod.metadata.namespace
        meter = self._meters.get(namespace)
        if meter is None:
            meter = self._meters[namespace] = bounded(MAX_STEPS, parent=self._meter)
        return meter

    def takes(self, entry: WaitingPod) -> bool:
        """Take a pod or group to be placed, if it can be; return True if it can."""
        if entry.group is None:
            return self._takes_pod(entry)
        if entry.uid in self._unplaceable:
            return False
        key = _question_of(entry.group, self._snapshot)
        is_placeable = key not in self._exhausted and self._takes_group(entry, entry.group, key)
        if is_placeable is False:
            self._unplaceable.add(entry.uid)
        return bool(is_placeable)

    def _takes_pod(self, entry: WaitingPod) -> bool:
        """Return True if a pod by itself is taken, or costs too much: then it is answered by itself.

        In each plan again it would keep all others asleep otherwise.
        """
        if self._is_late:
            return self._pods.places.take(entry.pod)
        try:
            charge_claims(entry.pod)
            return self._pods.takes(entry)
        except AnswersPending:
            return self._pods.places.take(entry.pod)
        except BudgetSpent:
            self._note_spent()
            return self._pods.places.take(entry.pod)

    def _note_spent(self) -> None:
        """Take note that the plan took too much time, unless it is the steps of a namespace that are spent."""
        self._is_late = self._is_late or current_scope().meter.left > 0

    def _takes_group(self, entry: WaitingPod, request: GroupRequest, key: Hashable) -> bool | None:
        """Return True if a group is taken; None if it has no turn, or is not decided by then."""
        if self._nodes_looked_at >= MAX_NODES_LOOKED_AT or self._pods.is_spent or self._is_late:
            self.is_partial = True
            return None
        if entry.code is Code.BUDGET_EXHAUSTED:
            return None
        nodes, namespace = len(self._snapshot.cluster.nodes), entry.pod.metadata.namespace
        self._nodes_looked_at += nodes
        self._in_vain[namespace] += nodes
        if entry.code is not Code.GROUP_LACKS_RESOURCES:
            # What nodes have left may be old news, which must not keep a group asleep.
            request = without_resources(request)
        attempt = Attempt(
            budget=GROUP_BUDGET,
            allocated=tuple(self._pods.allocated),
            # Who is nominated, or keeps devices, has had its turn before those of its priority.
            keeps_devices=False,
        )
        try:
            outcome = find_places(request, self._snapshot, attempt)
        except AnswersPending:
            return True
        except BudgetSpent:
            self._note_spent()
            return None
        if isinstance(outcome, Places):
            self._pods.add(planned.claim for planned in outcome.claims.values())
            self._pods.places.take_all(outcome.nodes, request.pods)
            self._taken.add(entry.uid)
            self._in_vain[namespace] -= nodes
            return True
        if not isinstance(outcome, Rejection) or outcome.verdict is Verdict.ERROR:
            return True
        if outcome.code is Code.BUDGET_EXHAUSTED:
            return None
        self._exhausted.add(key)
        return False


def without_resources(request: GroupRequest) -> GroupRequest:
    """Return a request without a comparison with the headroom of nodes."""
    return structs.replace(request, requests={})


def _question_of(request: GroupRequest, snapshot: Snapshot) -> Hashable:
    """Return a key that groups share if the same nodes have devices for them."""
    numbers: dict[Name, int] = {}
    members = tuple(
        (
            question_of(pod, snapshot),
            # Which pods share claims, without their names.
            tuple(numbers.setdefault(name, len(numbers)) for name in claim_names(pod)),
            tuple(request.excluded.get(pod.metadata.uid, ())),
        )
        for pod in request.pods
    )
    placed = tuple(pod.node for pod in request.placed) if request.topology else ()
    needed = request.group.min_count - len(request.placed)
    return members, needed, request.topology, placed
