"""Devices that cannot be prepared time and again, although their claims are as they should be.

A scheduler that knows nothing of it would give them to the next pod, and to the one after that. The
kubelet repeats a failed call after ten to fifteen seconds.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from driver.model.health import Fault

KIND: Final = "prepareFailed"
BOUND: Final = 5
"""Failures in a row after which a device has a fault."""
HOLD_S: Final = 60.0
"""The time for which it is remembered without another try: longer than the kubelet waits between two."""


class _Failures(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    reason: str
    until_s: float


class PrepareFailures:
    """A count of consecutive failures by device, kept by calls and read by the health watch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with no failures.

        Args:
            clock: Monotonic seconds.
        """
        self._clock = clock
        self._failures: Mapping[str, _Failures] = {}

    def record_failure(self, devices: Iterable[str], reason: str) -> None:
        """Count a call that failed for these devices.

        Args:
            reason: Must name no claim: all who have the device can read it.
        """
        until_s = self._clock() + HOLD_S
        failures = {
            name: _Failures(count=self._count(name) + 1, reason=reason, until_s=until_s)
            for name in devices
        }
        self._failures = {**self._current(), **failures}

    def record_success(self, devices: Iterable[str]) -> None:
        """Forget failures of devices that could be prepared."""
        prepared_devices = set(devices)
        self._failures = {
            name: failures
            for name, failures in self._current().items()
            if name not in prepared_devices
        }

    def read(self) -> Mapping[str, Fault]:
        """Return the devices that have failed too often."""
        return {
            name: Fault(kind=KIND, message=f"failed {failures.count} times: {failures.reason}")
            for name, failures in self._current().items()
            if failures.count >= BOUND
        }

    def _count(self, name: str) -> int:
        failures = self._current().get(name)
        return failures.count if failures is not None else 0

    def _current(self) -> Mapping[str, _Failures]:
        now_s = self._clock()
        return {
            name: failures for name, failures in self._failures.items() if failures.until_s > now_s
        }
