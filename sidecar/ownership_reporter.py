"""Writes the status of the AllocatorOwnership: who leads, which drivers are served, what is held back."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final

from kube.api.meta import status_patch
from kube.api.ownership import AllocatorOwnership
from kube.errors import KubeError, NotFound
from kube.logs import get_logger
from sidecar.plan.ownership_status import Report, complete_pools, ownership_status
from sidecar.state import ClusterState

PERIOD_S: Final = 1.0
MAX_RETRY_S: Final = 30.0

Patch = Callable[[str, Mapping[str, Any]], Awaitable[bytes]]
"""Patches the status of the AllocatorOwnership of a name, and returns the object as stored."""

log = get_logger()


class OwnershipReporter:
    """Compares what is stored with what is so, once a second, and lets held devices go in time."""

    def __init__(
        self,
        state: ClusterState,
        patch: Patch,
        *,
        holder: str,
        problem: Callable[[], str],
        now: Callable[[], datetime],
        period_s: float = PERIOD_S,
    ) -> None:
        """Begin without a report.

        Args:
            patch: Writes the status.
            holder: Identity of this process.
            problem: Returns why no call is answered; empty if calls are.
            now: The wall clock.
            period_s: Between two reports.
        """
        self._period_s = period_s
        self._state = state
        self._patch = patch
        self._holder = holder
        self._problem = problem
        self._now = now
        self._failures = 0

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self.report()
            await asyncio.sleep(min(self._period_s * 2**self._failures, MAX_RETRY_S))

    async def report(self) -> None:
        """Let go what was held back for long enough, and write the status if it is another."""
        self._state.held_back.expire()
        ownership = self._state.ownership
        if ownership is None or self._state.check():
            return
        status = ownership_status(ownership, self._report(ownership), self._now())
        if status == ownership.status:
            self._failures = 0
            return
        try:
            raw = await self._patch(
                ownership.metadata.name, status_patch(ownership.metadata, status)
            )
        except NotFound:
            return
        except KubeError as error:
            self._failures += 1
            log.warning("ownership.not_written", error=str(error), failures=self._failures)
        else:
            self._failures = 0
            self._state.put_ownership(raw)

    def _report(self, ownership: AllocatorOwnership) -> Report:
        names = {driver.name for driver in ownership.spec.drivers or ()}
        slices = (
            resource_slice
            for resource_slice in self._state.slices.values()
            if resource_slice.spec.driver in names
        )
        return Report(
            holder=self._holder,
            problem=self._problem(),
            fence=self._state.fence,
            pools=complete_pools(slices),
            held_back=self._state.held_back.claims.values(),
            settings=self._state.driver_settings,
        )
