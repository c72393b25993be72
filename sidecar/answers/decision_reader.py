"""Reads the log of decisions, for the debug endpoint of the socket."""

from sidecar.answers.decision_maker import DecisionMaker
from sidecar.answers.intake import Intake
from sidecar.model.logged_decisions import DecisionsView


class DecisionReader:
    """The log of decisions, as its reader sees it."""

    def __init__(self, decisions: DecisionMaker, intake: Intake, instance: str) -> None:
        """Begin without a reader.

        Args:
            decisions: Have the log.
            intake: Gives turns.
            instance: Random text of the service.
        """
        self._decisions = decisions
        self._intake = intake
        self._instance = instance

    @property
    def is_followed(self) -> bool:
        """Somebody reads the log, so decisions are logged."""
        return self._decisions.log.is_followed

    async def read(self, instance: str, number: int) -> DecisionsView:
        """Return the entries after a number; the log begins anew if they are not there.

        Args:
            instance: The instance that the number is of.
            number: The number of the last entry that the reader has; 0 for none.
        """
        log = self._decisions.log
        if instance != self._instance or not log.has(number):
            async with self._intake.turn:
                await self._decisions.begin_log()
            number = 0
        return log.read(self._instance, number)
