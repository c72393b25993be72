"""Choice of the waiting pods and groups that could be placed now, all together.

A group takes its turn among the pods by priority and time. It is decided about as in its next attempt, on what those
before it leave, so it is woken when all of it has devices, and not before.
"""

from collections.abc import Hashable, Iterable
from typing import Final

from msgspec import structs

from allocator.model.plan import Budget
from allocator.pods.claims import Name
from kube.cel.scope import evaluating, metered
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import Places
from sidecar.model.protocol import GroupRequest, Verdict
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.pod_claims import claim_names
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.waking import (
    MAX_STEPS,
    MAX_WOKEN,
    PlacedPods,
    WaitingPod,
    Woken,
    ending_claims,
    question_of,
)

GROUP_BUDGET: Final = Budget(steps=4_000)
"""The cost of one group; if that is not enough, it is tried again by itself."""


def find_placeable(
    waiting: Iterable[WaitingPod], snapshot: Snapshot, *, limit: int = MAX_WOKEN
) -> Woken:
    """Return those of the waiting pods and groups that could be placed now, together.

    And those that waited for a release that is over: they may evict a pod instead.

    Args:
        limit: Pods at most; a group counts with all of its own, and is not divided.
    """
    with metered(MAX_STEPS):
        return _find_placeable(waiting, snapshot, limit)


def _find_placeable(waiting: Iterable[WaitingPod], snapshot: Snapshot, limit: int) -> Woken:
    plan = _Plan(snapshot)
    endings = ending_claims(snapshot)
    woken: list[WaitingPod] = []
    pods = 0
    for entry in sorted(waiting, key=lambda entry: entry.importance):
        with evaluating(tenant=entry.pod.metadata.namespace):
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
    return Woken(tuple(woken), more=False)


class _Plan:
    """Pods and groups that are taken to be placed, one after the other."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._pods = PlacedPods(snapshot)
        # Groups of which equal ones did not fit: what is taken since does not help them.
        self._exhausted: set[Hashable] = set()

    def takes(self, entry: WaitingPod) -> bool:
        """Take a pod or group to be placed, if it can be; return whether it can."""
        if entry.group is None:
            return self._pods.takes(entry)
        key = _question_of(entry.group, self._snapshot)
        if key in self._exhausted:
            return False
        if self._pods.is_spent:
            return True
        request = entry.group
        if entry.code is not Code.GROUP_LACKS_RESOURCES:
            # What nodes have left may be old news, which must not keep a group asleep.
            request = without_resources(request)
        outcome = decide(
            request,
            self._snapshot,
            Attempt(
                budget=GROUP_BUDGET,
                allocated=tuple(self._pods.allocated),
                # Who is nominated comes first by its importance.
                keeps_nominations=False,
            ),
        )
        if isinstance(outcome, Places):
            self._pods.add(planned.claim for planned in outcome.claims.values())
            return True
        if isinstance(outcome, Rejection) and outcome.verdict is not Verdict.ERROR:
            is_unknown = outcome.is_unfinished or outcome.code is Code.BUDGET_EXHAUSTED
            if not is_unknown:
                self._exhausted.add(key)
            return is_unknown
        return True


def without_resources(request: GroupRequest) -> GroupRequest:
    """Return a request for which what nodes have left does not count."""
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
