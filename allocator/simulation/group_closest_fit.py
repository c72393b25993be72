"""The closest fit of a group of equal pods: the same change to all of them."""

from typing import Final

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.cluster.equivalence import explanation_projection
from allocator.explain.change import ClosestFit
from allocator.explain.closest_fit import MAX_NODES, change_of, least_option, with_option
from allocator.explain.relaxation import Relaxation
from allocator.explain.relaxations import find_relaxations
from allocator.groups.decide import decide_group
from allocator.groups.model import GroupMember, GroupPlan, GroupQuestion
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget

_DECISIONS: Final = 32
"""Decisions about the changed group for one closest fit."""
_BUDGET: Final = Budget(steps=20_000)
"""The cost of each of them."""
_MAX_RELAXATIONS: Final = 64


def has_equal_members(question: GroupQuestion) -> bool:
    """Return True if all members of a group request the same on the same nodes."""
    first, *others = map(_request_of, question.members)
    return all(request == first for request in others)


def closest_fit_of_group(cluster: Cluster, question: GroupQuestion) -> ClosestFit | None:
    """Return the smallest single change to each of equal members for a place of the whole group.

    Args:
        cluster: The cluster without the members; it is the same afterwards.
        question: The question about the group; all of its members are equal.

    Returns:
        None when no change was found within the budget.
    """
    first = question.members[0]
    if len(first.options) != 1 or not first.options[0].claims:
        return None
    option = first.options[0]
    try:
        pending = cluster.resolve(option.claims)
        nodes = cluster.representatives(explanation_projection(pending), option.nodes)[:MAX_NODES]
        relaxations = list(find_relaxations(nodes, pending, cluster.usage, cluster.options))
    except AttemptFailed:
        return None
    trial = _GroupTrial(cluster, question)
    best: tuple[int, Relaxation, int] | None = None
    relaxations.sort(key=lambda relaxation: relaxation.options[0].cost)
    for relaxation in relaxations[:_MAX_RELAXATIONS]:
        if best is not None and relaxation.options[0].cost >= best[0]:
            break
        number = trial.least(relaxation)
        if number is not None and (best is None or relaxation.options[number].cost < best[0]):
            best = relaxation.options[number].cost, relaxation, number
    return trial.answer(best[1], best[2]) if best is not None else None


class _GroupTrial:
    """Tries the group with one change to each of its members."""

    def __init__(self, cluster: Cluster, question: GroupQuestion) -> None:
        self._cluster = cluster
        self._question = question
        self._left = _DECISIONS

    def least(self, relaxation: Relaxation) -> int | None:
        """Return the least fitting option; None for none."""
        return least_option(relaxation, lambda number: self._plan(relaxation, number) is not None)

    def answer(self, relaxation: Relaxation, number: int) -> ClosestFit:
        """Return a fitting option as the closest fit of the group."""
        first = self._question.members[0]
        claims = first.options[0].claims
        return ClosestFit(
            changes=(change_of(relaxation, number, claims),),
            claims=with_option(claims, relaxation, number),
            node=first.options[0].nodes[0],
            pods=len(self._question.members),
        )

    def _plan(self, relaxation: Relaxation, number: int) -> GroupPlan | None:
        """Return the placement of the changed group; None without one, or when the budget is spent."""
        if self._left <= 0:
            return None
        self._left -= 1
        members = tuple(
            replace(
                member,
                options=tuple(
                    replace(option, claims=with_option(option.claims, relaxation, number))
                    for option in member.options
                ),
            )
            for member in self._question.members
        )
        try:
            outcome = decide_group(self._cluster, replace(self._question, members=members), _BUDGET)
        except AttemptFailed:
            return None
        return outcome if isinstance(outcome, GroupPlan) else None


def _request_of(member: GroupMember) -> tuple[object, ...]:
    """Return all of a member but its name and the names of its claims."""
    options = [(option.nodes, [claim.spec for claim in option.claims]) for option in member.options]
    return options, member.request
