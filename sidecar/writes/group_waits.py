"""The waits of pods for the others of their group, and the calls that ask for their results.

A pod may wait for minutes, and a call that is held for as long would hold a connection of the scheduler. So a
call is held for a moment, and then repeated; the pod waits between the calls, too.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from math import ceil
from typing import Final, NamedTuple

from sidecar.commit.steps import ConsumedClaim
from sidecar.model.rejections import Rejection

HOLD_S: Final = 2.0
"""The longest time for which a call is held, so that pods that come together need one each."""
MAX_HELD: Final = 512
"""Calls of one namespace that are held, as many as a group has pods; the plugin has connections for eight times as many."""
CALLS_PER_S: Final = 100
"""Calls for the waiting pods of a namespace in a second, of 1 ms each."""
MAX_PAUSE_S: Final = 20.0
"""The longest pause between two calls; the plugin goes on asking for longer than that after the last verdict."""


class Member(NamedTuple):
    """A pod of a group that is to be bound.

    Attributes:
        node: The name of the node that was reserved for it.
    """

    uid: str
    node: str
    claims: tuple[ConsumedClaim, ...]


class StillWaiting(NamedTuple):
    """A pod waits for the others of its group.

    Attributes:
        pause_millis: The time after which to ask again.
    """

    pause_millis: int


class Place:
    """A pod's place before the barrier, in the commit and after it, until its reservation ends.

    Attributes:
        until_s: The latest time to decide again; None if only a change decides.
    """

    def __init__(self, member: Member, namespace: str) -> None:
        """Begin a wait.

        Args:
            namespace: The namespace of the group.
        """
        self.member = member
        self.namespace = namespace
        self.rejection: Rejection | None = None
        self.is_over = False
        self.until_s: float | None = None
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None]

    def end(self, rejection: Rejection | None) -> None:
        """End the wait with a verdict; the first one counts."""
        if not self.is_over:
            self.is_over, self.rejection = True, rejection
            self.wake.set()


class Waits:
    """The waits under way, and the calls that are held."""

    def __init__(self) -> None:
        """Begin without a wait."""
        self._tasks: set[asyncio.Task[None]] = set()
        # By namespace.
        self._waiting: Counter[str] = Counter()
        self._held: Counter[str] = Counter()

    def begin(self, place: Place, wait: Coroutine[None, None, None]) -> None:
        """Begin a wait; it goes on between its calls."""
        # A commit is to end even if this process leads no more, as the call that began it would.
        task = place.task = asyncio.ensure_future(wait)
        self._tasks.add(task)
        self._waiting[place.namespace] += 1

        def end(_: object) -> None:
            self._tasks.discard(task)
            _count_down(self._waiting, place.namespace)

        task.add_done_callback(end)

    async def hold(self, place: Place) -> Rejection | StillWaiting | None:
        """Return the result of a wait, or after a moment that there is none."""
        task, namespace = place.task, place.namespace
        if not task.done() and self._held[namespace] < MAX_HELD:
            self._held[namespace] += 1
            try:
                await asyncio.wait({task}, timeout=HOLD_S)
            finally:
                _count_down(self._held, namespace)
        if not place.is_over:
            pause_s = min(self._waiting[namespace] / CALLS_PER_S, MAX_PAUSE_S)
            return StillWaiting(ceil(pause_s * 1000))
        return place.rejection


def _count_down(counts: Counter[str], namespace: str) -> None:
    counts[namespace] -= 1
    if not counts[namespace]:
        del counts[namespace]
