"""The expiry of Leases, computed from their times. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Final

LEASE_GRACE: Final = timedelta(seconds=15)
"""The time that a Lease may be over its duration: clocks differ."""


def age_of(renewed: str, now: datetime) -> timedelta | None:
    """Return the time since a Lease was renewed; None if it does not say when."""
    try:
        return now - datetime.fromisoformat(renewed).astimezone(UTC)
    except ValueError:
        return None


def is_over(renewed: str, duration_s: int, now: datetime) -> bool:
    """Return True if nobody holds a Lease any more that was renewed at a time."""
    age = age_of(renewed, now)
    return age is None or age > timedelta(seconds=duration_s) + LEASE_GRACE
