"""The cost of dry runs in one group cycle: preemption asks for each set of victims, and without each victim."""

from typing import Final

from allocator.model.plan import Budget

WHAT_IF_STEPS: Final = 10_000
"""Steps of one what-if. What is cut off counts as not fitting."""
DRY_RUN_STEPS: Final = 100_000
"""Steps of all what-ifs of a cycle: nothing else is scheduled meanwhile."""
LATE_STEPS: Final = 1_000
"""Steps of one what-if once these are spent. Groups that are not hard to place need fewer."""


class GroupDryRun:
    """The steps that the dry runs of a group may take.

    Attributes:
        uid: The UID of the group.

    >>> dry_run = GroupDryRun("uid")
    >>> dry_run.next_budget.steps
    10000
    >>> dry_run.spend(95_000)
    >>> dry_run.next_budget.steps
    5000
    """

    def __init__(self, uid: str) -> None:
        """Begin with all steps left."""
        self.uid: Final = uid
        self._left = DRY_RUN_STEPS

    @property
    def next_budget(self) -> Budget:
        """The budget of the next dry run."""
        return Budget(steps=max(LATE_STEPS, min(WHAT_IF_STEPS, self._left)))

    def spend(self, steps: int) -> None:
        """Take the steps of a dry run."""
        self._left = max(0, self._left - steps)
