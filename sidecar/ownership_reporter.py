"""Writes the status of the AllocatorOwnership: who leads, which drivers are served, what is held back."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final

from kube.api.meta import status_patch
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
        self._pools: Mapping[str, bool] = {}
        self._pools_version = -1

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
        status = ownership_status(ownership, self._report(), self._now())
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

    def _report(self) -> Report:
        return Report(
            holder=self._holder,
            problem=self._problem(),
            fence=self._state.fence,
            pools=self._complete_pools(),
            held_back=self._state.held_back.claims.values(),
            settings=self._state.driver_settings,
        )

    def _complete_pools(self) -> Mapping[str, bool]:
        """Return which drivers' pools are complete; all slices are counted when one has changed."""
        if self._pools_version != self._state.slices_version:
            self._pools_version = self._state.slices_version
            self._pools = complete_pools(self._state.slices.values())
        return self._pools
