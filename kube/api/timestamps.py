"""Times as the API writes them."""

from datetime import UTC, datetime


def rfc3339(time: datetime) -> str:
    """Return a meta/v1 Time, in whole seconds.

    >>> rfc3339(datetime(2026, 11, 20, 8, 30, tzinfo=UTC))
    '2026-11-20T08:30:00Z'
    """
    return _with_zulu(time.astimezone(UTC).isoformat(timespec="seconds"))


def micro_time(time: datetime) -> str:
    """Return a meta/v1 MicroTime.

    >>> micro_time(datetime(2026, 11, 20, 8, 30, 0, 250_000, tzinfo=UTC))
    '2026-11-20T08:30:00.250000Z'
    """
    return _with_zulu(time.astimezone(UTC).isoformat(timespec="microseconds"))


def _with_zulu(text: str) -> str:
    return text.replace("+00:00", "Z")
