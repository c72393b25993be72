"""The skeleton of a controller: a queue of keys, workers that reconcile them, retries and readiness.

What reconciling a key means is the caller's. A failure costs its key a pause, and nothing else: the
other keys are reconciled meanwhile, also where the failure is a bug.

Source: controller-runtime pkg/internal/controller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

from kube.collections.backoff import Backoff
from kube.errors import KubeError
from kube.logs import get_logger
from kube.runtime.informers import Subscription, unsynced_resources, wait_synced
from kube.runtime.work_queue import WorkQueue

K = TypeVar("K", bound=Hashable)
Reconcile = Callable[[K], Awaitable[float | None]]
"""Reconciles a key; returns after how many seconds to reconcile it again in any case, None for never."""

log = get_logger()


class Controller(Generic[K]):
    """Reconciles the keys of a queue, each by one worker at a time.

    Attributes:
        name: The name in logs and metrics.
        queue: Handlers of subscriptions add keys to it.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile[K],
        *,
        subscriptions: Sequence[Subscription[Any]] = (),
        backoff: Backoff,
        workers: int = 1,
        expected_errors: tuple[type[Exception], ...] = (KubeError,),
    ) -> None:
        """Begin with an empty queue; nothing is reconciled before `run`.

        Args:
            reconcile: The reconcile function; an exception that it raises is logged, and the key is
                reconciled again after a pause.
            subscriptions: Have to be synced before the first key is reconciled.
            backoff: The pauses after failures in a row of one key.
            workers: Keys that are reconciled at a time.
            expected_errors: Exceptions that are no bug, and so are logged without a traceback.
        """
        self.name: Final = name
        self.queue: Final[WorkQueue[K]] = WorkQueue(backoff.delay_s)
        self._reconcile = reconcile
        self._subscriptions = subscriptions
        self._workers = workers
        self._expected = expected_errors

    def check(self) -> str:
        """Return the resources that are not synced, as a readiness check."""
        return unsynced_resources(self._subscriptions)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._subscriptions)
        log.info("controller.synced", controller=self.name)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                again_s = await self._reconcile(key)
            except self._expected as error:
                log.warning("reconcile.failed", **self._labels(key), error=str(error))
                self.queue.retry_later(key)
            except Exception:  # A bug that one key meets must not cost the others.
                log.exception("reconcile.failed", **self._labels(key))
                self.queue.retry_later(key)
            else:
                self.queue.forget(key)
                if again_s is not None:
                    self.queue.add_after(key, again_s)

    def _labels(self, key: K) -> dict[str, str]:
        text = "/".join(map(str, key)) if isinstance(key, tuple) else str(key)
        return {"controller": self.name, "key": text}
