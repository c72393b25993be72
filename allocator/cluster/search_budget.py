"""The steps that the searches of one answer may take together."""

from typing import Final

from allocator.cluster.verdict_cache import SearchCosts

ANSWER_STEPS: Final = 50_000
"""Steps of an answer, all parts together, evaluations of selectors, and what is kept for nominated pods:
half a second. What was searched and evaluated is remembered, so that the next answer goes on from there."""


class SearchBudget:
    """A number of steps that every search on a cluster takes from.

    It is passed by no more than the last selector that a search evaluates.
    """

    def __init__(self, costs: SearchCosts, steps: int) -> None:
        """Begin with all steps left.

        Args:
            costs: The cluster's costs, which count the steps of its searches.
        """
        self._costs = costs
        self._end = costs.steps + steps

    @property
    def left(self) -> int:
        """The steps that are left; 0 if it is spent."""
        return max(0, self._end - self._costs.steps)

    @property
    def is_spent(self) -> bool:
        """Return True if all steps are spent."""
        return not self.left
