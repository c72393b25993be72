"""The evaluator of rules, as handlers of reviews need it."""

from collections.abc import Callable
from typing import Protocol

from admission.pods import Answer
from rules.context.context import Context


class Evaluator(Protocol):
    """Evaluates rules against the cluster."""

    async def evaluate(
        self,
        rules: Callable[[Context], Answer],
        *,
        tenant: str,
        charge: Callable[[float], None],
    ) -> Answer:
        """Evaluate rules.

        Args:
            tenant: The namespace of the review, which takes turns with others.
            charge: Called with the CPU seconds that it took.

        Raises:
            TimeoutError: It takes too long.
        """
        ...

    async def evaluate_without_inventory(
        self,
        rules: Callable[[Context], Answer],
        *,
        tenant: str,
        charge: Callable[[float], None],
    ) -> Answer:
        """Evaluate rules in a context that is available at once.

        Raises:
            TimeoutError: It takes too long.
        """
        ...
