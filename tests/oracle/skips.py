"""Where our allocator's verdict is deliberately not upstream's, and why.

Few, each a proven defect of upstream or a documented limit of ours. An entry that no scenario of
the sample needs fails the test.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.oracle.scenarios import Scenario
from tests.oracle.verdicts import Verdict


class Skip(NamedTuple):
    """A deliberate difference.

    Attributes:
        reason: What upstream does, what we do, and why ours is right.
        applies: Whether it explains this difference: the scenario, our verdict, upstream's.
    """

    reason: str
    applies: Callable[[Scenario, Verdict, Verdict], bool]


SKIPS: Final[tuple[Skip, ...]] = ()
