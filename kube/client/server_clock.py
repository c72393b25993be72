"""The time by the API server's clock, as its answers tell it. Pure.

Times in objects are written and compared by many processes, and the API server's clock is the one that they
share: it writes creation and deletion times, and checks certificates. A wall clock may jump. What passed
since an answer is told by a monotonic clock, which does not.
"""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, Self

import msgspec

AGREEMENT: Final = timedelta(seconds=5)
"""The difference below which clocks count as equal, so that time does not jump with each answer."""
RESOLUTION: Final = timedelta(seconds=1)
"""The resolution of a Date header."""


class ServerTime(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's clock at an answer.

    Attributes:
        date: The time in whole seconds, with a time zone.
        sent_s: The time when the request was sent, in monotonic seconds.
        received_s: The time when the answer came, in monotonic seconds.
    """

    date: datetime
    sent_s: float
    received_s: float

    @classmethod
    def read(cls, header: str, sent_s: float, received_s: float) -> Self | None:
        """Return the time in a Date header; None if it holds none."""
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return cls(date=date, sent_s=sent_s, received_s=received_s)


def correct_time(wall: datetime, server_time: ServerTime | None, now_s: float) -> datetime:
    """Return the wall clock, or the nearest time that the API server's clock may have now.

    Args:
        wall: The time of the wall clock, with a time zone.
        server_time: The clock of the last answer that had one; None if none had.
        now_s: Monotonic seconds.
    """
    if server_time is None:
        return wall
    earliest = server_time.date + timedelta(seconds=now_s - server_time.received_s)
    latest = server_time.date + RESOLUTION + timedelta(seconds=now_s - server_time.sent_s)
    if earliest - AGREEMENT <= wall <= latest + AGREEMENT:
        return wall
    return min(max(wall, earliest), latest)
