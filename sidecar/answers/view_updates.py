"""Keeps the view of the devices up to date between the answers, so that no answer waits for much of it.

Many slices change at once when a driver is upgraded, or when a DeviceTaintRule selects all its devices.
An answer applies a part of such changes; this loop applies the rest, one part in each turn, so that
other answers have their turns in between. A view under other policies, or with other slices of a pool
that many nodes see, is built on a thread of its own.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from kube.logs import get_logger
from sidecar.answers.service import Service
from sidecar.state.device_view import NextView
from sidecar.state.state import ClusterState

PERIOD_S: Final = 0.02
"""The time between two turns."""
RETRY_S: Final = 30.0
"""The delay after a bug."""

log = get_logger()


class ViewUpdater:
    """Applies the changes of the inventory that no answer has applied."""

    def __init__(
        self,
        state: ClusterState,
        service: Service,
        *,
        period_s: float = PERIOD_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with the changes made until now.

        Args:
            service: Gives turns.
            clock: Monotonic seconds.
        """
        self._state = state
        self._service = service
        self._period_s = period_s
        self._clock = clock

    async def run(self) -> None:
        """Keep the view up to date until cancelled."""
        while True:
            await self._state.inventory_changed.wait()
            self._state.inventory_changed.clear()
            try:
                await self.update()
            except Exception:
                log.exception("view_update.failed")
                await self._service.rebuild()
                await asyncio.sleep(RETRY_S)
                self._state.inventory_changed.set()

    async def update(self) -> None:
        """Apply all changes that are known."""
        is_behind = True
        while is_behind:
            await self._service.prepare()
            rest_s = self._period_s
            if self._state.next_view is not None:
                rest_s = max(rest_s, await self._build(self._state.next_view))
                await self._service.prepare()
            is_behind = self._state.is_behind
            # Where views are built one after the other, decisions have half of the time for themselves.
            await asyncio.sleep(rest_s)

    async def _build(self, view: NextView) -> float:
        """Build a view; return the seconds that it took."""
        began_s = self._clock()
        await build(view)
        return self._clock() - began_s


async def build(view: NextView) -> None:
    """Build a view, then apply the changes made meanwhile."""
    for _ in range(2):
        await asyncio.to_thread(view.cache.apply, view.feed.take())
    while view.cache.is_behind:
        await asyncio.to_thread(view.cache.apply, {})
    view.is_built = True
