"""The time by the API server's clock, as its answers tell it. Pure.

Times in objects are written and judged by many processes, and the API server's clock is the one that they
share: it writes creation and deletion times, and checks certificates. A wall clock may jump. What passed
since an answer is told by a monotonic clock, which does not.
"""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, Self

import msgspec

AGREEMENT: Final = timedelta(seconds=5)
"""By which clocks may differ and count as equal, so that time does not jump with each answer."""
RESOLUTION: Final = timedelta(seconds=1)
"""Of a Date header."""


class ServerTime(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's clock at an answer.

    Attributes:
        date: In whole seconds, with a time zone.
        sent_s: When the request was sent, in monotonic seconds.
        received_s: When the answer came.
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
        wall: With a time zone.
        server_time: Of the last answer that told it; None for none.
        now_s: Monotonic seconds.
    """
    if server_time is None:
        return wall
    earliest = server_time.date + timedelta(seconds=now_s - server_time.received_s)
    latest = server_time.date + RESOLUTION + timedelta(seconds=now_s - server_time.sent_s)
    if earliest - AGREEMENT <= wall <= latest + AGREEMENT:
        return wall
    return min(max(wall, earliest), latest)
