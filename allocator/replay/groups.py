"""The groups of a replay: their pods are placed together, or none is.

With the strategies of the bridge a group is one search, that of `allocator.groups`. The stock scheduler places the pods
of a group one after the other, and takes them all back if they are too few.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/schedule_one_podgroup.go, podGroupSchedulingDefaultAlgorithm.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from allocator.groups.arrangement import arrangement_of
from allocator.groups.decide import decide_group
from allocator.groups.model import GroupMember, GroupPlan, GroupQuestion, MemberOption, NodeShare
from allocator.model.outcome import AttemptFailed
from allocator.pods.claims import Name, claim_name
from allocator.replay.scheduler import Scheduler
from allocator.replay.state import ReplayState
from allocator.replay.workload import Candidate, ReplayGroup
from kube.api.resource import ResourceClaim


class Place(NamedTuple):
    """The place of a pod of a group, with its own claims as they were allocated."""

    candidate: Candidate
    node: str
    claims: tuple[ResourceClaim, ...]


def place_group(
    group: ReplayGroup,
    members: Sequence[Candidate],
    nodes: Sequence[str],
    state: ReplayState,
    scheduler: Scheduler,
) -> Sequence[Place]:
    """Place pods of a group, and return the places of those that got one; none if they are too few.

    Args:
        members: The pods without a node, in the order in which they arrived.
        nodes: The nodes of the others.
    """
    try:
        if not scheduler.searches_groups:
            return _place_one_by_one(group, members, nodes, state, scheduler)
        return _place_together(group, members, nodes, state, scheduler)
    except AttemptFailed:
        return ()


def _place_together(
    group: ReplayGroup,
    members: Sequence[Candidate],
    nodes: Sequence[str],
    state: ReplayState,
    scheduler: Scheduler,
) -> Sequence[Place]:
    question = GroupQuestion(
        members=tuple(_member(candidate, state) for candidate in members),
        min_count=group.min_count,
        placed=tuple(nodes),
        resources=state.resources,
        from_claims=state.from_claims,
        strategy=scheduler.strategy,
        arrangement=arrangement_of(scheduler.strategy),
        domain=group.domain,
        needs_one_domain=group.needs_one_domain,
    )
    plan = decide_group(state.cluster, question)
    if not isinstance(plan, GroupPlan):
        return ()
    allocated = _allocated_claims(plan, state)
    places = []
    for candidate in members:
        node = plan.nodes.get(_name(candidate))
        if node is not None:
            claims = [allocated[claim_name(claim)] for claim in _open_claims(candidate)]
            places.append(Place(candidate, node, state.put(candidate, node, claims)))
    return places


def _member(candidate: Candidate, state: ReplayState) -> GroupMember:
    eligible = candidate.eligible
    nodes = state.names if eligible is None else tuple(sorted(eligible))
    option = MemberOption(nodes=nodes, claims=_open_claims(candidate))
    return GroupMember(name=_name(candidate), options=(option,), request=candidate.request)


def _open_claims(candidate: Candidate) -> tuple[ResourceClaim, ...]:
    """Return the claims of a pod that are not allocated."""
    return () if candidate.pending is None else candidate.pending.claims


def _name(candidate: Candidate) -> str:
    metadata = candidate.pod.pod.metadata
    return f"{metadata.namespace}/{metadata.name}"


def _allocated_claims(plan: GroupPlan, state: ReplayState) -> Mapping[Name, ResourceClaim]:
    return {
        claim_name(claim): claim
        for share in plan.shares
        for claim in state.allocated(share.plan, share.pending, _seed(share))
    }


def _seed(share: NodeShare) -> str:
    """Return a seed that no other claims have: pods of the group that arrive later get shares of their own."""
    return ",".join("/".join(claim_name(claim)) for claim in share.pending.claims)


def _place_one_by_one(
    group: ReplayGroup,
    members: Sequence[Candidate],
    nodes: Sequence[str],
    state: ReplayState,
    scheduler: Scheduler,
) -> Sequence[Place]:
    places: list[Place] = []
    # An error of one pod ends the attempt of its group.
    with suppress(AttemptFailed):
        for member in members:
            candidate = state.renewed(member)
            placement = scheduler.choose(candidate, state)
            if placement.node is not None:
                claims = state.place(candidate, placement.node, placement.plan)
                places.append(Place(candidate, placement.node, claims))
        if len(nodes) + len(places) >= group.min_count:
            return places
    for place in reversed(places):
        state.remove(*place)
    return ()


class Arrived:
    """The pods of a group that have arrived.

    Attributes:
        waiting: Those without a node, each with the second of its arrival.
        nodes: The nodes of the others.
    """

    def __init__(self, group: ReplayGroup) -> None:
        """Begin with the pods that run before the replay."""
        self.group = group
        self.waiting: dict[str, tuple[float, Candidate]] = {}
        self.nodes = list(group.placed)
        self._names: set[str] = set()

    @property
    def is_complete(self) -> bool:
        """Return True if as many pods have arrived as the group needs."""
        return len(self.waiting) + len(self.nodes) >= self.group.min_count

    def try_all(self, state: ReplayState, scheduler: Scheduler) -> Sequence[tuple[float, Place]]:
        """Place those that wait; return the new places, each with the second of the pod's arrival."""
        if not self.is_complete:
            return ()
        try:
            members = [state.renewed(candidate) for _, candidate in self.waiting.values()]
        except AttemptFailed:
            return ()
        places = place_group(self.group, members, self.nodes, state, scheduler)
        self.nodes += [place.node for place in places]
        return [(self.waiting.pop(_name(place.candidate))[0], place) for place in places]

    def waits(self, candidate: Candidate) -> bool:
        """Return True if a pod has no node yet."""
        return _name(candidate) in self.waiting

    def is_placed(self, candidate: Candidate) -> bool:
        """Return True if a pod has a node."""
        return _name(candidate) in self._names and not self.waits(candidate)

    def add(self, candidate: Candidate, second: float) -> None:
        """Take a pod that arrives, or waits already."""
        self._names.add(_name(candidate))
        self.waiting.setdefault(_name(candidate), (second, candidate))
