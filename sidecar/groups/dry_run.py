"""The cost of dry runs in one group cycle: preemption asks for each set of victims, and without each victim."""

from typing import Final

from allocator.model.plan import Budget
from sidecar.groups.places import GroupOutcome
from sidecar.groups.sparing import Found
from sidecar.model.rejections import Code, Rejection, unfinished

WHAT_IF_STEPS: Final = 10_000
"""Steps of one what-if. What is cut off by them alone counts as not fitting."""
DRY_RUN_STEPS: Final = 100_000
"""Steps of all what-ifs of a cycle: nothing else is scheduled meanwhile."""
DRY_RUN_CPU_S: Final = 2.0
"""CPU time of all what-ifs of a cycle."""
TOO_MANY_VICTIMS: Final = unfinished(
    "nobody is evicted for the group: it takes too long to find out whose devices it needs"
)
"""The answer once either is spent. The plugin ends the preemption then."""


class GroupDryRun:
    """The steps and the time that the dry runs of a group may take.

    Attributes:
        uid: The UID of the group.
        found: The places of the group in the last what-if that it fits; None before.

    >>> dry_run = GroupDryRun("uid")
    >>> dry_run.next_budget.steps
    10000
    >>> dry_run.spend(95_000, 0.5)
    >>> dry_run.next_budget.steps, dry_run.is_spent
    (5000, False)
    >>> dry_run.spend(10, 1.5)
    >>> dry_run.is_spent
    True
    """

    def __init__(self, uid: str) -> None:
        """Begin with all steps left."""
        self.uid: Final = uid
        self.found: Found | None = None
        self._left = DRY_RUN_STEPS
        self._left_s = DRY_RUN_CPU_S

    @property
    def next_budget(self) -> Budget:
        """The budget of the next dry run."""
        return Budget(steps=min(WHAT_IF_STEPS, self._left))

    @property
    def is_spent(self) -> bool:
        """True if nothing is left, so that a further victim is not looked at."""
        return self._left <= 0 or self._left_s <= 0

    def spend(self, steps: int, seconds: float) -> None:
        """Take the cost of a dry run.

        Args:
            steps: Steps of its searches.
            seconds: CPU time.
        """
        self._left = max(0, self._left - steps)
        self._left_s = max(0.0, self._left_s - seconds)

    def concluded(self, outcome: GroupOutcome) -> GroupOutcome:
        """Return the outcome of a dry run, unless it was cut off since little was left."""
        is_cut_off = isinstance(outcome, Rejection) and outcome.code is Code.BUDGET_EXHAUSTED
        return TOO_MANY_VICTIMS if is_cut_off and self.is_spent else outcome
