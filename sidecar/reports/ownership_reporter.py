"""Writes the AllocatorOwnership's status: leader, served drivers, devices held back or kept for groups."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, Protocol

from kube.api.ownership import AllocatorOwnershipStatus
from kube.collections.backoff import Backoff
from kube.errors import Conflict, KubeError, NotFound
from kube.logs import get_logger
from sidecar.commit.writes import Patch
from sidecar.groups.kept import kept_group
from sidecar.ownership.ownership_status import (
    Report,
    complete_pools,
    conditional_patch,
    ownership_status,
)
from sidecar.plan.occupancy import Keep
from sidecar.state.state import ClusterState

PERIOD_S: Final = 1.0
MAX_RETRY_S: Final = 30.0

log = get_logger()


class Writer(Protocol):
    """The port that writes and reads an AllocatorOwnership."""

    async def patch_ownership(self, name: str, patch: Patch) -> bytes:
        """Patch the status, and return the object as stored."""
        ...

    async def read_ownership(self, name: str) -> bytes:
        """Return the object as stored."""
        ...


class OwnershipReporter:
    """Compares stored and actual status, once a second, and lets held devices go in time."""

    def __init__(
        self,
        state: ClusterState,
        writer: Writer,
        *,
        holder: str,
        scheduler_name: str,
        problem: Callable[[], str],
        keeps: Callable[[], Iterable[Keep]],
        now: Callable[[], datetime],
        period_s: float = PERIOD_S,
    ) -> None:
        """Begin without a report.

        Args:
            writer: Writes the status.
            holder: Identity of this process.
            scheduler_name: schedulerName of the pods that the bridge places.
            problem: Returns why no call is answered; empty if calls are.
            keeps: Returns the devices that are kept for groups.
            now: The wall clock.
            period_s: The time between two reports.
        """
        self._backoff = Backoff(initial_s=period_s, max_s=MAX_RETRY_S)
        self._state = state
        self._writer = writer
        self._holder = holder
        self._scheduler_name = scheduler_name
        self._problem = problem
        self._keeps = keeps
        self._now = now
        self._failures = 0
        self._stored: tuple[AllocatorOwnershipStatus | None, AllocatorOwnershipStatus] | None = None
        self._pools: Mapping[str, bool] = {}
        self._pools_version = -1

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self.report()
            await asyncio.sleep(self._backoff.delay_s(self._failures + 1))

    async def report(self) -> None:
        """Let go devices that were held back long enough, and write the status if it changed."""
        self._state.held_back.expire()
        ownership = self._state.ownership
        if ownership is None or self._state.check():
            return
        status = ownership_status(ownership, self._report(), self._now())
        # An API server with the definition of an earlier version drops the fields that it does not know.
        if status == ownership.status or (ownership.status, status) == self._stored:
            self._failures = 0
            return
        name = ownership.metadata.name
        try:
            raw = await self._writer.patch_ownership(name, conditional_patch(ownership, status))
        except NotFound:
            return
        except Conflict:
            await self._refresh(name)
        except KubeError as error:
            self._fail(error)
        else:
            self._failures = 0
            self._state.put_ownership(raw)
            stored_ownership = self._state.ownership
            if stored_ownership is not None:
                self._stored = (stored_ownership.status, status)

    async def _refresh(self, name: str) -> None:
        """Read the object after others' writes, so that the next status is decided on it."""
        try:
            self._state.put_ownership(await self._writer.read_ownership(name))
        except KubeError as error:
            self._fail(error)

    def _fail(self, error: KubeError) -> None:
        self._failures += 1
        log.warning("ownership.not_written", error=str(error), failures=self._failures)

    def _report(self) -> Report:
        return Report(
            holder=self._holder,
            problem=self._problem(),
            fence=self._state.fence,
            pools=self._complete_pools(),
            held_back=self._state.held_back.claims.values(),
            kept=[kept_group(keep) for keep in self._keeps()],
            settings=self._state.driver_settings,
            scheduler_name=self._scheduler_name,
        )

    def _complete_pools(self) -> Mapping[str, bool]:
        """Return the completeness of pools by driver; a changed slice makes all be counted."""
        if self._pools_version != self._state.slices_version:
            self._pools_version = self._state.slices_version
            self._pools = complete_pools(self._state.slices.values())
        return self._pools
