"""What the leader does about judging: it raises the high-water mark, and looks at what is stored.

It writes the one object of the mark, and events; no object that it judges is ever changed. Looking
takes a fifth of a core at most, however much is stored.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from kube.api.meta import ApiStruct
from kube.client import Client, PatchType
from kube.errors import AlreadyExists, KubeError, NotFound
from webhook.audited import AUDITED, Audited, Told, event_of, findings_of, tally, told_of
from webhook.findings import Finding
from webhook.high_water import object_of, patch_of
from webhook.judging import Judging
from webhook.knowledge import Knowledge
from webhook.metrics import AuditMetrics
from webhook.picture import Kind
from webhook.resources import CONFIG_MAPS, EVENTS
from webhook.rules.mark import Mark, Stock, raised
from webhook.settings import Settings

IDLE_PART: Final = 4.0
"""Work is followed by a pause of so many times what it took."""
BUNDLE: Final = 16
"""Objects that are judged in one go; a Lease has to be renewed meanwhile."""
MAX_TOLD: Final = 100_000
"""Objects of which is remembered what was told; the API server knows the events anyway."""

log = structlog.get_logger()

Found = tuple[str, ApiStruct, tuple[Finding, ...]]
"""Kind, object and findings."""


class Audit:
    """One process at a time runs it."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        judging: Judging,
        metrics: AuditMetrics,
        *,
        identity: str,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Remember what to work with; nothing is asked before `run`.

        Args:
            identity: Of this process, for events.
            now: The wall clock, in UTC, for events.
            clock: Monotonic seconds.
        """
        self._client = client
        self._namespace = settings.namespace
        self._object = settings.judge.inventory
        self._settings = settings.control
        self._judging = judging
        self._metrics = metrics
        self._identity = identity
        self._now = now
        self._clock = clock
        self._told: set[str] = set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._judging.run())
            await self._judging.wait_ready()
            group.create_task(self._keep_mark())
            group.create_task(self._look_again())

    # --- the mark --------------------------------------------------------------------------------

    async def _keep_mark(self) -> None:
        while True:
            self._judging.changed.clear()
            try:
                stocks = await self._judging.asked(Knowledge.stocks, within_s=None)
            except Exception:  # Nor one that an inventory meets.
                log.exception("mark.failed")
            else:
                await self._raise_mark(stocks)
            await asyncio.sleep(self._settings.mark_seconds)
            await self._judging.changed.wait()

    async def _raise_mark(self, stocks: Mapping[str, Stock]) -> None:
        before = self._judging.marked.seen
        seen = raised(before, stocks)
        if seen != before or not self._judging.is_marked:
            await self._write(seen)

    async def _write(self, seen: Mark) -> None:
        """Write the mark; where that fails, the next look tries again."""
        try:
            try:
                await self._client.patch(
                    CONFIG_MAPS,
                    self._object,
                    patch_of(seen),
                    PatchType.MERGE,
                    msgspec.Raw,
                    namespace=self._namespace,
                )
            except NotFound:
                made = object_of(seen, namespace=self._namespace, name=self._object)
                await self._client.create(CONFIG_MAPS, made, msgspec.Raw, namespace=self._namespace)
        except KubeError as error:
            log.warning("mark.failed", error=str(error))
            self._judging.changed.set()
        else:
            log.info("mark.raised", classes=len(seen.classes))

    # --- what is stored --------------------------------------------------------------------------

    async def _look_again(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(self._settings.audit_seconds)

    async def _look(self) -> None:
        """Judge all that is stored, and tell what is new."""
        began, left = self._clock(), self._settings.audit_events
        found: list[tuple[str, tuple[Finding, ...]]] = []
        for kind in AUDITED:
            objects = await self._judging.asked(partial(_stored, kind), within_s=None)
            for start in range(0, len(objects), BUNDLE):
                bundle = objects[start : start + BUNDLE]
                for name, one, findings in await self._judged(kind, bundle):
                    found.append((name, findings))
                    told = told_of(name, one, findings)
                    if left and told is not None and told.digest not in self._told:
                        left -= 1
                        await self._tell(told)
        self._metrics.show(tally(found), self._clock() - began)
        log.info("audit.done", objects=len(found), took_s=round(self._clock() - began, 3))

    async def _judged(self, kind: Kind, bundle: tuple[Audited, ...]) -> list[Found]:
        around = self._judging.around()

        def judged(knows: Knowledge) -> list[Found]:
            context = knows.context(around)
            return [(AUDITED[kind], one, findings_of(one, context)) for one in bundle]

        began = self._clock()
        try:
            found = await self._judging.asked(judged, within_s=None)
        except Exception:  # A bug that one object meets must not cost pods their templates.
            log.exception("audit.failed", objects=[one.metadata.name for one in bundle])
            found = []
        await asyncio.sleep((self._clock() - began) * IDLE_PART)
        return found

    async def _tell(self, told: Told) -> None:
        if len(self._told) >= MAX_TOLD:
            self._told.clear()
        stamp = self._now().isoformat(timespec="microseconds").replace("+00:00", "Z")
        event = event_of(told, instance=self._identity, time=stamp)
        metadata = told.metadata
        about = f"{told.kind}/{metadata.namespace}/{metadata.name}"
        try:
            await self._client.create(
                EVENTS, event, msgspec.Raw, namespace=event["metadata"]["namespace"]
            )
        except AlreadyExists:
            pass
        except KubeError as error:  # Nothing waits for an event; the next look tells it.
            log.warning("event.failed", about=about, error=str(error))
            return
        self._told.add(told.digest)
        log.warning("object.audited", about=about, reason=event["reason"])


def _stored(kind: Kind, knows: Knowledge) -> tuple[Any, ...]:
    return tuple(knows.stored(kind))
