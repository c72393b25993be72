"""The recorder of events: each is written once, and repeated as a series.

Recording never holds up the work. Events wait in a bounded queue, are written one by one, no faster
than a rate, and again after a pause where the API server is in trouble. Namespaces take turns, and what a full queue
drops is of the namespace that has most in it: users choose how many of their objects have something to be told.

Source: client-go tools/events, whose recorder repeats an Event by its series, too.
"""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

import msgspec

from kube.api.events import Event, event_document, series_patch
from kube.api.urls import EVENTS
from kube.client.client import Client, PatchType
from kube.collections.backoff import Backoff
from kube.errors import AlreadyExists, KubeError, NamespaceTerminating, NotFound
from kube.logs import get_logger
from kube.runtime.turn_queue import TurnQueue

MAX_WRITTEN: Final = 4096
"""Names of written events that are remembered, so that a repetition needs no failed create."""
MAX_REMEMBERED: Final = 100_000
"""Names of events that `NewEventRecorder` remembers; the API server knows the events anyway."""
_TEMPORARY: Final = frozenset({0, 429, 500, 502, 503, 504})
"""Statuses after which a write may succeed later; 0 is no answer at all."""

log = get_logger()


class EventResult(StrEnum):
    """The outcome of an event."""

    CREATED = "created"
    UPDATED = "updated"
    """The series of an Event that exists was updated."""
    EXISTING = "existing"
    """It was written before, by another process."""
    OBSOLETE = "obsolete"
    """It was no longer true when its turn came, or its namespace is being deleted."""
    SUPPRESSED = "suppressed"
    """It would have said nothing new, or said it too soon."""
    DROPPED = "dropped"
    """The queue was full, and no other namespace had more events in it."""
    FAILED = "failed"
    """The API server rejected it, or was in trouble for too long."""

    @property
    def is_written(self) -> bool:
        """Return True if people can read it."""
        return self in {EventResult.CREATED, EventResult.UPDATED, EventResult.EXISTING}


class EventRecorderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The rate limit of event writes.

    Attributes:
        per_second: Writes at most.
        max_queued: Events that wait at most.
        attempts: The number of attempts of one write, while the API server is in trouble.
        backoff: The pauses between these attempts.
    """

    per_second: float = 20.0
    max_queued: int = 1000
    attempts: int = 5
    backoff: Backoff = Backoff(initial_s=0.5, max_s=8.0)


def _always() -> bool:
    return True


class _Queued(NamedTuple):
    event: Event
    is_current: Callable[[], bool]
    on_result: Callable[[EventResult], None]


class EventRecorder:
    """Writes events, one after the other; one per process."""

    def __init__(
        self,
        client: Client,
        *,
        controller: str,
        instance: str,
        now: Callable[[], datetime],
        count: Callable[[EventResult], None] = lambda _: None,
        settings: EventRecorderSettings = EventRecorderSettings(),  # noqa: B008 - a frozen value
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Begin with an empty queue; nothing is written before `run`.

        Args:
            client: An open client.
            controller: The reporting controller, a qualified name.
            instance: The reporting process.
            now: The wall clock.
            count: Called with each result, for metrics.
            settings: Rate and retries.
            jitter: Uniform from 0 to 1.
            clock: Monotonic seconds.
            sleep: Waits for seconds.
        """
        self._client = client
        self._controller = controller
        self._instance = instance
        self._now = now
        self._settings = settings
        self._jitter = jitter
        self._clock = clock
        self._sleep = sleep
        self._queue: TurnQueue[_Queued] = TurnQueue(
            lambda queued_event: queued_event.event.namespace, settings.max_queued
        )
        self._written: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._has_logged_drop = False
        self.count: Final = count

    def record(
        self,
        event: Event,
        *,
        is_current: Callable[[], bool] = _always,
        on_result: Callable[[EventResult], None] = lambda _: None,
    ) -> None:
        """Queue an event; if the queue is full, the last one of the namespace with most events is dropped.

        Args:
            is_current: Returns whether the event still holds, called before it is written.
            on_result: Called with the outcome.
        """
        dropped = self._queue.put_or_displace(_Queued(event, is_current, on_result))
        if dropped is None:
            return
        if not self._has_logged_drop:
            # Once for each write: where thousands wait to be told, the metric counts the others.
            regarding, reason = str(dropped.event.regarding), dropped.event.reason
            log.warning("event.dropped", regarding=regarding, reason=reason)
            self._has_logged_drop = True
        self._finish(dropped, EventResult.DROPPED)

    async def run(self) -> None:
        """Write the queued events, until cancelled."""
        while True:
            queued_event = await self._queue.get()
            if not queued_event.is_current():
                self._finish(queued_event, EventResult.OBSOLETE)
                continue
            began = self._clock()
            self._has_logged_drop = False
            self._finish(queued_event, await self._write_with_retries(queued_event.event))
            left_s = began + 1 / self._settings.per_second - self._clock()
            await self._sleep(max(0.0, left_s))

    def _finish(self, queued_event: _Queued, result: EventResult) -> None:
        self.count(result)
        queued_event.on_result(result)

    async def _write_with_retries(self, event: Event) -> EventResult:
        """Write an event, and try again while the API server is in trouble."""
        for attempt in range(1, self._settings.attempts + 1):
            try:
                result = await self._write(event)
            except NamespaceTerminating:
                return EventResult.OBSOLETE  # Its readers are deleting what it is about.
            except KubeError as error:
                is_last = attempt == self._settings.attempts or error.status not in _TEMPORARY
                log.warning(
                    "event.failed",
                    regarding=str(event.regarding),
                    reason=event.reason,
                    error=str(error),
                    attempt=attempt,
                )
                if is_last:
                    return EventResult.FAILED
                await self._sleep(self._settings.backoff.delay_s(attempt, self._jitter()))
            else:
                self._remember(event)
                if result is not EventResult.EXISTING:
                    log.info(
                        "event.recorded",
                        regarding=str(event.regarding),
                        uid=event.regarding.uid,
                        reason=event.reason,
                        note=event.note,
                    )
                return result
        return EventResult.FAILED

    async def _write(self, event: Event) -> EventResult:
        """Create an Event, or update the series of the one that exists.

        Raises:
            KubeError: Neither was possible.
        """
        is_repeated = event.series_count > 1
        is_written = (event.namespace, event.name) in self._written
        if is_repeated and is_written and await self._update(event):
            return EventResult.UPDATED
        document = event_document(
            event, controller=self._controller, instance=self._instance, now=self._now()
        )
        try:
            await self._client.create(EVENTS, document, msgspec.Raw, namespace=event.namespace)
        except AlreadyExists:
            if is_repeated and await self._update(event):
                return EventResult.UPDATED
            return EventResult.EXISTING
        return EventResult.CREATED

    async def _update(self, event: Event) -> bool:
        """Update the series of an Event; return True if it still exists."""
        try:
            await self._client.patch(
                EVENTS,
                event.name,
                series_patch(event, self._now()),
                PatchType.MERGE,
                msgspec.Raw,
                namespace=event.namespace,
            )
        except NotFound:  # Events expire.
            return False
        return True

    def _remember(self, event: Event) -> None:
        self._written[event.namespace, event.name] = None
        self._written.move_to_end((event.namespace, event.name))
        if len(self._written) > MAX_WRITTEN:
            self._written.popitem(last=False)


class NewEventRecorder:
    """Records each event once, for objects that are evaluated again and again."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._recorded: set[str] = set()

    def is_new(self, event: Event) -> bool:
        """Return True if an event was not recorded yet."""
        return event.name not in self._recorded

    def record(self, event: Event) -> None:
        """Record an event; one that cannot be written is new again."""
        if len(self._recorded) >= MAX_REMEMBERED:
            self._recorded.clear()
        self._recorded.add(event.name)
        self._recorder.record(event, on_result=partial(self._finished, event.name))

    def _finished(self, name: str, result: EventResult) -> None:
        if not result.is_written:
            self._recorded.discard(name)
