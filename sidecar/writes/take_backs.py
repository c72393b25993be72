"""Takes back the claims that were written for pods of a group in vain: at once, or when a write is settled."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from kube.logs import get_logger
from sidecar.commit.group_steps import TakeBack, split
from sidecar.writes.binder import Binder

log = get_logger()


class TakeBacks:
    """The claims that are to be taken back, each until that is done.

    Attributes:
        pending: The pending ones by UID of the claim. Most are made at once; others wait until an earlier write is
            settled, or the API server answers.
    """

    def __init__(self, binder: Binder, find_used: Callable[[TakeBack], Collection[str]]) -> None:
        """Begin without one.

        Args:
            find_used: Returns UIDs of the entries by which pods use a claim that stay in it.
        """
        self.pending: Final[dict[str, TakeBack]] = {}
        self._binder = binder
        self._find_used = find_used

    def drop(self, uids: Collection[str]) -> None:
        """Leave their claims to pods that are bound, or may be."""
        for take_back in tuple(self.pending.values()):
            _, of_others = split(take_back, uids)
            if of_others is None:
                del self.pending[take_back.uid]
            else:
                self.pending[take_back.uid] = of_others

    def add(self, take_backs: Iterable[TakeBack]) -> None:
        """Have claims taken back later."""
        self.pending.update({take_back.uid: take_back for take_back in take_backs})

    async def make(self, take_backs: Collection[TakeBack]) -> None:
        """Take claims back, together."""
        self.add(take_backs)
        async with asyncio.TaskGroup() as group:
            for take_back in take_backs:
                group.create_task(self._make(take_back))

    async def make_pending(self, active: Collection[str]) -> None:
        """Repeat failed attempts to take back writes.

        Args:
            active: UIDs of the pods that are tried again: their commit writes these claims, or takes them back.
        """
        await self.make(
            [
                take_back
                for take_back in self.pending.values()
                if not any(pod.pod_uid in active for pod in take_back.pods)
            ]
        )

    async def _make(self, take_back: TakeBack) -> None:
        is_done = await self._binder.take_back(take_back, lambda: self._find_used(take_back))
        if is_done and self.pending.get(take_back.uid) is take_back:
            del self.pending[take_back.uid]
            log.info("claim.taken_back", claim="/".join(take_back.name), pods=len(take_back.pods))
