"""Amounts that a request can have of the rest of a capacity."""

from collections.abc import Iterator
from typing import Final

from kube.api.resource import DeviceCapacity
from kube.quantity import Format

_PARTS: Final = (1, 2, 3, 4, 8)
"""Numbers of equal shares into which the rest of a device may be divided."""


def amounts_within(capacity: DeviceCapacity, free_nanos: int) -> Iterator[int]:
    """Yield amounts that a request can have of the rest of a capacity, in nano-units.

    These are the whole rest and even parts of it, each lowered to what the request policy allows.
    """
    policy = capacity.request_policy
    limit = policy.valid_range if policy is not None else None
    for parts in _PARTS:
        part = _round_down(free_nanos // parts, capacity.value.format)
        if policy is not None and policy.valid_values:
            valid = [value.nanos for value in policy.valid_values if value.nanos <= part]
            part = max(valid, default=0)
        elif limit is not None:
            if limit.max is not None:
                part = min(part, limit.max.nanos)
            if limit.min is not None and limit.step is not None and limit.step.nanos > 0:
                part -= (part - limit.min.nanos) % limit.step.nanos
            if limit.min is not None and part < limit.min.nanos:
                continue
        yield part


def _round_down(nanos: int, family: Format) -> int:
    """Return an amount in whole mebibytes, or whole units, if it is large enough."""
    unit = (2**20 if family is Format.BINARY else 1) * 10**9
    return nanos - nanos % unit if nanos >= unit else nanos
