"""All steps of preparing and unpreparing one claim: the places for a driver to die between."""

from typing import Final

from driver.model.steps import Step

OF_PREPARE: Final = (
    (Step.CLAIMS_READ, 1),
    (Step.TEMPORARY_WRITTEN, 1),
    (Step.STARTED_WRITTEN, 1),
    (Step.TEMPORARY_WRITTEN, 2),
    (Step.SPEC_WRITTEN, 1),
    (Step.TEMPORARY_WRITTEN, 3),
    (Step.COMPLETED_WRITTEN, 1),
)
"""Each step in order, and the how manieth time it is."""
OF_UNPREPARE: Final = (
    (Step.SPEC_REMOVED, 1),
    (Step.TEMPORARY_WRITTEN, 1),
    (Step.RECORD_REMOVED, 1),
)
"""Likewise."""
