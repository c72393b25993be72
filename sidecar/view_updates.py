"""Keeps the view of the devices up to date between the answers, so that no answer waits for much of it.

Many slices change at once when a driver is upgraded, or when a DeviceTaintRule selects all its devices.
An answer applies a part of such changes; this loop applies the rest, one part in each turn, so that
other answers have their turns in between. A view under other policies, or with other slices of a pool
that many nodes see, is built on a thread of its own.
"""

import asyncio
from typing import Final

from kube.cel.engine import SelectorEngine, use_engine
from kube.logs import get_logger
from sidecar.device_view import NextView
from sidecar.service import Service
from sidecar.state import ClusterState

PERIOD_S: Final = 0.02
"""Between two turns."""
RETRY_S: Final = 30.0
"""After a bug."""

log = get_logger()


class ViewUpdater:
    """Applies the changes of the inventory that no answer has applied."""

    def __init__(
        self,
        state: ClusterState,
        service: Service,
        *,
        engine: SelectorEngine | None = None,
        period_s: float = PERIOD_S,
    ) -> None:
        """Begin with what has changed until now.

        Args:
            service: Gives turns.
            engine: Evaluates selectors; None evaluates them on the thread.
        """
        self._state = state
        self._service = service
        self._engine = engine
        self._period_s = period_s

    async def run(self) -> None:
        """Keep the view up to date until cancelled."""
        use_engine(self._engine)  # The threads of this task inherit it.
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
            if self._state.next_view is not None:
                await build(self._state.next_view)
            is_behind = self._state.is_behind
            await asyncio.sleep(self._period_s)


async def build(view: NextView) -> None:
    """Build a view, then apply what has changed meanwhile."""
    for _ in range(2):
        await asyncio.to_thread(view.cache.apply, view.feed.take())
    while view.cache.is_behind:
        await asyncio.to_thread(view.cache.apply, {})
    view.is_built = True
