"""The part of a score that stands for the order of `firstAvailable` alternatives.

The order of alternatives is the preference of the claim's author, which outweighs that of the
operator: a node that offers an earlier alternative always scores at least as high as one that does
not.
"""

from collections.abc import Sequence

from allocator.model.plan import Plan
from kube.api.resource import MAX_ALTERNATIVES


def chosen_alternatives(plan: Plan) -> Sequence[int]:
    """Return the index of the chosen alternative for every request that has alternatives."""
    prioritized_requests = {
        (choice.request.claim, choice.request.index)
        for claim in plan.choices
        for choice in claim
        if choice.request.parent is not None
    }
    return [plan.alternatives[claim][index] for claim, index in sorted(prioritized_requests)]


def rank_score(plan: Plan, score: int) -> int:
    """Scale a score among plans with the same alternatives to one among all plans, 0 to 100.

    The sum of n indices has 7n + 1 values, each a band of its own; `score` is the place in the
    band. So the first alternative at its worst (87) scores as high as the second at its best (87).

    ===========================  ==================  =====================
    plan                         score 0             score 100
    ===========================  ==================  =====================
    no alternatives              0                   100
    the first of one request     700 // 8 = 87       800 // 8 = 100
    the second of one request    600 // 8 = 75       700 // 8 = 87
    ===========================  ==================  =====================
    """
    alternatives = chosen_alternatives(plan)
    worst = (MAX_ALTERNATIVES - 1) * len(alternatives)
    return (100 * (worst - sum(alternatives)) + score) // (worst + 1)
