"""Scenarios with deliberate differences of our allocator from upstream, with the reason.

Few, each a proven defect of upstream or a documented limit of ours. An entry that no scenario of
the sample needs fails the test.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from testing.oracle.scenarios import Scenario
from testing.oracle.verdicts import Verdict


class Skip(NamedTuple):
    """A deliberate difference.

    Attributes:
        reason: The behaviour of upstream, ours, and the reason that ours is right.
        applies: Whether it explains the difference.
    """

    reason: str
    applies: Callable[["Case"], bool]


class Case(NamedTuple):
    """A difference to be explained.

    Attributes:
        theirs: The verdict of an allocator that was asked about all nodes, one after the other.
        alone: The verdict of an allocator that was asked about this node only.
    """

    scenario: Scenario
    ours: Verdict
    theirs: Verdict
    alone: Verdict


SKIPS: Final[tuple[Skip, ...]] = (
    Skip(
        "Upstream works out once per pool, for all nodes, what is left of its counters and which "
        "groups its held devices have in common. Nodes that see a pool differently (its slices in "
        "another order, another generation of it) get what the first node saw, so the verdict "
        "depends on which node was asked first. We evaluate each node by itself.",
        lambda case: (
            any(slice_["spec"].get("sharedCounters") for slice_ in case.scenario["slices"])
            and case.ours.compared == case.alone.compared
        ),
    ),
)
