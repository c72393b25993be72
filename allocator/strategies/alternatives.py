"""What the rank of `firstAvailable` alternatives is worth in a score.

Whoever writes alternatives says what he prefers, and that outweighs what an operator prefers: a
node that offers an earlier alternative always scores at least as high as one that does not.
"""

from collections.abc import Sequence

from allocator.core.model import Plan
from kube.api.resource import MAX_ALTERNATIVES


def ranks(plan: Plan) -> Sequence[int]:
    """Return which alternative was chosen, 0 the first, of every request that has alternatives."""
    prioritized = {
        (choice.request.claim, choice.request.index)
        for claim in plan.choices
        for choice in claim
        if choice.request.parent is not None
    }
    return [plan.alternatives[claim][index] for claim, index in sorted(prioritized)]


def ranked(plan: Plan, score: int) -> int:
    """Return a score of 0 to 100 among plans of the same ranks as one among all plans.

    The sum of n ranks has 7n + 1 values, each a band of its own; `score` says where in the band.
    So the first alternative at its worst (87) is no worse than the second at its best (87).

    ===========================  ==================  =====================
    plan                         score 0             score 100
    ===========================  ==================  =====================
    no alternatives              0                   100
    the first of one request     700 // 8 = 87       800 // 8 = 100
    the second of one request    600 // 8 = 75       700 // 8 = 87
    ===========================  ==================  =====================
    """
    chosen = ranks(plan)
    worst = (MAX_ALTERNATIVES - 1) * len(chosen)
    return (100 * (worst - sum(chosen)) + score) // (worst + 1)
