"""The wall clock counts while the API server's may agree with it, and no jump of it counts."""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import pytest

from kube.client.server_clock import AGREEMENT, RESOLUTION, ServerTime, correct_time

DATE: Final = datetime(2026, 11, 20, tzinfo=UTC)
ANSWER: Final = ServerTime(date=DATE, sent_s=100.0, received_s=102.0)
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


class Case(NamedTuple):
    """A reading of the wall clock ten seconds after an answer that took two.

    Attributes:
        error: The lead of the wall clock over the date in the answer.
        expected: The same, of the time that counts.
    """

    name: str
    error: timedelta
    expected: timedelta


CASES: Final = (
    Case("as told", 10 * SECOND, 10 * SECOND),
    Case("as the request was sent", 12.5 * SECOND, 12.5 * SECOND),
    Case("a little ahead", 13 * SECOND + AGREEMENT, 13 * SECOND + AGREEMENT),
    Case("a little behind", 10 * SECOND - AGREEMENT, 10 * SECOND - AGREEMENT),
    Case("an hour ahead", HOUR, 12 * SECOND + RESOLUTION),
    Case("a day ahead", DAY, 12 * SECOND + RESOLUTION),
    Case("a day behind", -DAY, 10 * SECOND),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_corrected_time(case: Case) -> None:
    assert correct_time(DATE + case.error, ANSWER, 112.0) == DATE + case.expected


def test_before_the_first_answer_the_wall_clock_counts() -> None:
    assert correct_time(DATE, None, 0.0) == DATE


def test_time_passes_without_answers() -> None:
    """As in a partition: the monotonic clock alone tells the time that has passed."""
    times = [correct_time(DATE + DAY, ANSWER, 102.0 + passed_s) for passed_s in (0.0, 3600.0)]

    assert times[1] - times[0] == HOUR
