"""A strategy with nodes divided into two steps by the losses of the pods that usually come.

Does a pod take a place from the usual pods that it would not take elsewhere? Nodes where it does not come before
those where it does, and within each step the strategy decides. It does not where the potential that it costs
(`allocator.strategies.fragmentation_aware`) is at most a twentieth above the least of all nodes that can take it.

=============================  ======  =====================  ==================
node                           lost    score of the strategy  score in two steps
=============================  ======  =====================  ==================
costs the usual pods least     1000    30                     51 + 30 x 0.49: 65
nearly as little               1050    80                     51 + 80 x 0.49: 90
more                           1051    100                    100 / 2: 50
=============================  ======  =====================  ==================

Measured: a tenth instead of a twentieth allocates a point less of the GPUs of a production trace with
CompactFirst, and a fifth 3.5 points less (docs/strategies.md).
"""

from collections.abc import Sequence
from typing import Final

from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.model.usage import Usage
from allocator.strategies.pod_kinds import PodKind
from allocator.strategies.strategy import Strategy

TOLERANCE: Final = 20
"""The divisor of the least loss, by which another loss may be above it in the first step."""

_FIRST_STEP: Final = 51
_SPAN: Final = 49


class InTwoSteps:
    """A strategy with equivalence classes that also tell apart the fields that the usual pods read.

    Attributes:
        base: The strategy.
    """

    reads_capacities = True
    kinds: tuple[PodKind, ...] = ()
    """None: verdicts and scores are those of the strategy, whatever the usual pods are."""

    def __init__(self, base: Strategy, usual: Strategy) -> None:
        """Divide the nodes of a strategy.

        Args:
            base: The strategy.
            usual: The one that says what usual pods lose.
        """
        self.base = base
        self.name = base.name
        self.weights = base.weights
        self.fields = tuple(sorted({*base.fields, *usual.fields}))

    def order(
        self, node: NodeDevices, usage: Usage, pending: PendingClaims
    ) -> Sequence[int] | None:
        """Return the strategy's order of devices."""
        return self.base.order(node, usage, pending)

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return the strategy's score."""
        return self.base.score(node, usage, plan)


def highest_loss(least: int) -> int:
    """Return the highest loss of the first step.

    >>> highest_loss(1000), highest_loss(19), highest_loss(0)
    (1050, 19, 0)
    """
    return least + least // TOLERANCE


def score_in_step(score: int, *, is_first: bool) -> int:
    """Return the score of a node in its step; the first step is above the second.

    >>> [score_in_step(score, is_first=True) for score in (0, 100)]
    [51, 100]
    >>> [score_in_step(score, is_first=False) for score in (0, 100)]
    [0, 50]
    """
    return _FIRST_STEP + score * _SPAN // 100 if is_first else score // 2
