"""The evaluations that pods wait for, beside the decisions.

A decision that needs verdicts of the worker ends without an answer. They are asked for here, for a
moment while the scheduler waits, and after that while it goes on with other pods.
"""

import asyncio
from collections import Counter, OrderedDict
from functools import partial
from typing import Final, Protocol

from allocator.model.selectors import release_verdicts
from process.selectors.deferring import Demand
from process.selectors.engine import Answered

EVALUATION_WAIT_S: Final = 0.1
"""The scheduler's wait for evaluations of a pod's selectors; they go on beside other decisions."""
MAX_WAITING_BYTES: Final = 8 * 2**20
"""Demands of one namespace that wait; one more is taken while they are smaller."""
MAX_ALL_WAITING_BYTES: Final = 64 * 2**20
"""Demands of all namespaces; beyond it only those without any get one more."""
MAX_ENDED: Final = 256
"""Pods that ended while a decision about them may have been under way."""


class Engine(Protocol):
    """Has demands answered."""

    def submit(
        self, demand: Demand, *, tenant: str, question: str | None = None
    ) -> asyncio.Future[Answered]:
        """Have a demand answered; a caller that cancels the future gives it up."""
        ...

    def release(self, question: str) -> None:
        """Keep the results for a question no longer than the rest."""
        ...


class Pods(Protocol):
    """Pods by UID."""

    def __contains__(self, uid: str, /) -> bool:
        """Return True if the scheduler asked about a pod that was not bound or deleted since."""
        ...


class Evaluations:
    """The evaluations that decisions about pods wait for."""

    def __init__(self, engine: Engine | None, pods: Pods) -> None:
        """Begin without an evaluation.

        Args:
            engine: None where everything is evaluated in place.
            pods: The pods that may be asked for.
        """
        self._engine = engine
        self._pods = pods
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._waiting_bytes = Counter[str]()
        # UID to namespace of the pods for which there was no room.
        self._postponed: dict[str, str] = {}
        self._pending: dict[str, asyncio.Future[Answered]] = {}

    def has(self, uid: str) -> bool:
        """Return True if verdicts are kept for a pod until there is an answer about it."""
        return uid in self._pending

    def is_pending(self, uid: str) -> bool:
        """Return True if a pod waits for evaluations, or for room to ask for them."""
        pending = self._pending.get(uid)
        if pending is not None and not pending.done():
            return True
        namespace = self._postponed.get(uid)
        return namespace is not None and not self._has_room(namespace)

    async def ask(self, uid: str, namespace: str, demand: Demand, wait_s: float) -> bool:
        """Have a pod's demand answered; return True if it was within some seconds.

        It goes on afterwards. A later demand of the pod replaces it: what was answered is kept. Nothing is
        asked for a pod that was bound or deleted while it was decided about.
        """
        if uid not in self._pods:
            self.forget(uid)
            return False
        if self._engine is None or not demand.questions:
            return False
        before = self._pending.get(uid)
        if before is not None:
            before.cancel()
            await asyncio.sleep(0)  # Its room is free then.
        if not self._has_room(namespace):
            self._postponed[uid] = namespace
            return False
        self._postponed.pop(uid, None)
        answered = self._engine.submit(demand, tenant=namespace, question=uid)
        self._pending[uid] = answered
        self._waiting_bytes[namespace] += demand.size
        answered.add_done_callback(partial(self._leave, namespace, demand.size))
        await asyncio.wait({answered}, timeout=max(0.0, wait_s))
        return answered.done() and not answered.cancelled() and answered.result().is_complete

    def forget(self, uid: str) -> None:
        """Ask no longer for a pod: there is an answer about it, or it is gone."""
        self._postponed.pop(uid, None)
        pending = self._pending.pop(uid, None)
        if pending is not None:
            pending.cancel()
            if uid not in self._pods:
                self._ended[uid] = None
                if len(self._ended) > MAX_ENDED:
                    self._ended.popitem(last=False)
        # A decision that was under way when the pod ended had further verdicts kept.
        elif uid in self._ended:
            del self._ended[uid]
        else:
            return
        if self._engine is not None:
            self._engine.release(uid)
            release_verdicts(uid)

    def _has_room(self, namespace: str) -> bool:
        """Return True if a namespace may have another demand wait."""
        used = self._waiting_bytes[namespace]
        is_full = self._waiting_bytes.total() >= MAX_ALL_WAITING_BYTES
        return not used or (used < MAX_WAITING_BYTES and not is_full)

    def _leave(self, namespace: str, size: int, _: asyncio.Future[Answered]) -> None:
        self._waiting_bytes[namespace] -= size
        if not self._waiting_bytes[namespace]:
            del self._waiting_bytes[namespace]
