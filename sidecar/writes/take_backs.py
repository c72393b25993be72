"""Takes back the claims that were written for pods of a group in vain: at once, or when a write is settled."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from kube.logs import get_logger
from sidecar.commit.group_steps import TakeBack, joined, split
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
            self._leave(take_back, uids)

    def _leave(self, pending: TakeBack, uids: Collection[str]) -> None:
        """Have the pods of a pending one no more to be taken out."""
        _, of_others = split(pending, uids)
        if of_others is None:
            del self.pending[pending.uid]
        else:
            self.pending[pending.uid] = of_others

    def add(self, take_backs: Iterable[TakeBack]) -> None:
        """Have claims taken back later, beside those of other attempts."""
        for take_back in take_backs:
            self.pending[take_back.uid] = joined(self.pending.get(take_back.uid), take_back)

    async def make(self, take_backs: Collection[TakeBack]) -> None:
        """Take claims back, together."""
        self.add(take_backs)
        await self._make_all(take_backs)

    async def make_pending(self, active: Collection[str]) -> None:
        """Repeat failed attempts to take back writes.

        Args:
            active: UIDs of the pods that are tried again: their commit writes these claims, or takes them back.
        """
        await self._make_all(
            [
                take_back
                for take_back in self.pending.values()
                if not any(pod.pod_uid in active for pod in take_back.pods)
            ]
        )

    async def _make_all(self, take_backs: Iterable[TakeBack]) -> None:
        async with asyncio.TaskGroup() as group:
            for take_back in take_backs:
                group.create_task(self._make(take_back))

    async def _make(self, take_back: TakeBack) -> None:
        pending = self.pending.get(take_back.uid)
        is_done = await self._binder.take_back(take_back, lambda: self._find_used(take_back))
        # What has changed meanwhile is looked at again.
        if is_done and pending is not None and self.pending.get(take_back.uid) is pending:
            self._leave(pending, {pod.pod_uid for pod in take_back.pods})
            log.info("claim.taken_back", claim="/".join(take_back.name), pods=len(take_back.pods))
