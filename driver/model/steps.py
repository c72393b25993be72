"""The points of preparing and unpreparing that the driver may die between.

Code that changes something on the node calls its `at_step` after each of them. The driver itself does nothing
there; a test ends the process.
"""

from collections.abc import Callable
from enum import StrEnum


class Step(StrEnum):
    """A step that has just been completed."""

    CLAIMS_READ = "claimsRead"
    STARTED_WRITTEN = "startedWritten"
    SPEC_WRITTEN = "specWritten"
    COMPLETED_WRITTEN = "completedWritten"
    SPEC_REMOVED = "specRemoved"
    RECORD_REMOVED = "recordRemoved"
    TEMPORARY_WRITTEN = "temporaryWritten"
    """A new version of a file is on the disk, but not yet under its name."""


StepHook = Callable[[Step], None]


def ignore_step(_step: Step) -> None:
    """Do nothing at a step."""
