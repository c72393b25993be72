"""The observer: tells pods that wait for devices what is missing, in events. Writes nothing else.

It follows what decides about devices, and the pods that have no node. Whatever came is applied in
bundles, between two explanations; these run in a thread, so that probes answer, and each is followed
by a pause. What is decided is in `observation`, what is said in `allocator.waiting`.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from allocator import waiting
from allocator.pod_claims import Name
from allocator.waiting import Answer, Look
from kube.api.core import Pod
from kube.client import Client, PatchType
from kube.errors import AlreadyExists, KubeError, NotFound
from kube.informer import DEFAULTS, Handler, Informer, InformerSettings
from webhook.metrics import ObserverMetrics
from webhook.observation import (
    FOLLOWED,
    KEEP,
    WAITING_FIELDS,
    Ledger,
    Telling,
    event_of,
    is_unschedulable,
    kept_pod,
    repetition_of,
)
from webhook.picture import Kind, Picture
from webhook.resources import (
    EVENTS,
    PODS,
)
from webhook.settings import ObserveSettings

UNAWAITED: Final = frozenset({Kind.TAINT_RULE, Kind.POLICY})
"""Kinds that a cluster need not have. Their first lists come before any pod has settled."""

LONGEST_PAUSE_S: Final = 30.0
TICK_S: Final = 0.1
"""Between two bundles of changes at least."""
MAX_UNSENT: Final = 1000


log = structlog.get_logger()


class _Looked(NamedTuple):
    """An answer, for all pods that are told the same."""

    pods: tuple[Name, ...]
    answer: Answer | None
    version: int
    took_s: float


class Observer:
    """One process runs it; a second one would say nothing else, and hardly anything twice.

    Attributes:
        informers: Resource to informer, for probes and metrics.
        ledger: Pods that wait, and what they were told.
    """

    def __init__(
        self,
        client: Client,
        settings: ObserveSettings,
        metrics: ObserverMetrics,
        *,
        identity: str,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        informer_settings: InformerSettings = DEFAULTS,
    ) -> None:
        """Remember what to work with; nothing is asked before `run`.

        Args:
            identity: Of this process, for events.
            now: The wall clock, in UTC, for events.
            clock: Monotonic seconds.
        """
        self._client = client
        self._settings = settings
        self._metrics = metrics
        self._identity = identity
        self._now = now
        self._clock = clock
        self.ledger = Ledger(settings)
        self._picture = Picture(settings.features())
        self._changes: dict[Kind, dict[Name, Any]] = {}
        self._changed = asyncio.Event()
        self._unsent: asyncio.Queue[Telling] = asyncio.Queue(MAX_UNSENT)
        followed = [kind for kind in Kind if kind is not Kind.POLICY or settings.policies_enforced]
        self.informers: Final[dict[str, Informer[Any]]] = {
            kind.value: Informer(
                client,
                FOLLOWED[kind],
                KEEP[kind],
                handlers=(self._noted(kind),),
                settings=informer_settings,
            )
            for kind in followed
        }
        self._pods: Informer[Pod] = Informer(
            client,
            PODS,
            kept_pod,
            field_selector=WAITING_FIELDS,
            handlers=(self._pod_changed,),
            settings=informer_settings,
        )
        self.informers["pods"] = self._pods

    def check(self) -> str:
        """Return which first lists are not complete."""
        missing = [name for name, each in self._awaited() if not each.synced.is_set()]
        return f"waiting for {', '.join(missing)}" if missing else ""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers.values():
                group.create_task(informer.run())
            group.create_task(self._send())
            for _, informer in self._awaited():
                await informer.synced.wait()
            log.info("observer.synced", pods=len(self.ledger))
            while True:
                self._changed.clear()
                await self._pass()
                await self._rest()

    def _awaited(self) -> Iterator[tuple[str, Informer[Any]]]:
        return ((name, each) for name, each in self.informers.items() if name not in UNAWAITED)

    # --- what changes -----------------------------------------------------------------------------

    def _noted(self, kind: Kind) -> Handler[Any]:
        def note(key: Name, old: object, new: object) -> None:
            if old != new:  # Most changes are of what is not kept.
                self._changes.setdefault(kind, {})[key] = new
                self._changed.set()

        return note

    def _pod_changed(self, key: Name, _old: Pod | None, new: Pod | None) -> None:
        self.ledger.replace(key, new, self._clock())
        self._changed.set()

    def _taken(self) -> Mapping[Kind, Mapping[Name, Any]]:
        changes, self._changes = self._changes, {}
        return changes

    # --- looking ----------------------------------------------------------------------------------

    async def _pass(self) -> None:
        """Look at all pods that are due, those that are equal together."""
        began = self._clock()
        changes = self._taken()
        await asyncio.to_thread(self._picture.apply, changes)
        due = self.ledger.due(self._picture.version, self._clock())
        pods = {name: pod for name in due if (pod := self.ledger.pod(name)) is not None}
        looks = await asyncio.to_thread(self._looks, pods)
        await self._paused(self._clock() - began, self._settings.core_share)
        alike: dict[bytes, list[Name]] = {}
        for name, look in looks.items():
            alike.setdefault(look.key, []).append(name)
        for key, names in alike.items():
            is_new = any(map(self.ledger.is_new, names))
            still = {name: pod for name in names if (pod := self.ledger.pod(name)) is not None}
            looked = await asyncio.to_thread(self._look_at, key, still, self._taken())
            self._metrics.explained(looked.took_s)
            for name in looked.pods:
                await self._tell(name, looked)
            share = self._settings.first_core_share if is_new else self._settings.core_share
            await self._paused(looked.took_s, share)
        for name in pods.keys() - looks.keys():
            self.ledger.looked(name, None, self._picture.version, self._clock())
        self._metrics.show(len(self.ledger), self.ledger.reasons())

    def _looks(self, pods: Mapping[Name, Pod]) -> dict[Name, Look]:
        """Return what answers depend on, of the pods that deserve one."""
        picture, found = self._picture, {}
        for name, pod in pods.items():
            look = waiting.look(pod, picture.claims, picture.templates, picture.extended_resources)
            if look is not None and (look.missing or is_unschedulable(pod)):
                found[name] = look
        return found

    def _look_at(
        self, key: bytes, pods: Mapping[Name, Pod], changes: Mapping[Kind, Mapping[Name, Any]]
    ) -> _Looked:
        """Return the answer for those pods that are still equal after the changes.

        The others come with the next pass: who holds devices by now would be told that they are taken.
        """
        began, picture, answer = self._clock(), self._picture, None
        picture.apply(changes)
        looks = {name: look for name, look in self._looks(pods).items() if look.key == key}
        if looks:
            look = next(iter(looks.values()))
            resources = picture.extended_resources
            answer = waiting.answer(picture.cluster, look, picture.classes, resources)
        return _Looked(tuple(looks), answer, picture.version, self._clock() - began)

    async def _tell(self, name: Name, looked: _Looked) -> None:
        before = self.ledger.suppressed
        telling = self.ledger.looked(name, looked.answer, looked.version, self._clock())
        if telling is not None:
            await self._unsent.put(telling)
        elif self.ledger.suppressed != before:
            self._metrics.count("suppressed")

    async def _paused(self, took_s: float, share: float) -> None:
        """Leave the rest of the core to others."""
        await asyncio.sleep(min(took_s * (1 - share) / share, LONGEST_PAUSE_S))

    async def _rest(self) -> None:
        """Return when something changed, or a pod is due."""
        left_s = self.ledger.next_s(self._picture.version) - self._clock()
        if left_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if left_s == float("inf") else left_s):
                    await self._changed.wait()
        await asyncio.sleep(TICK_S)

    # --- telling ----------------------------------------------------------------------------------

    async def _send(self) -> None:
        """Send events, one after the other, not faster than the settings say."""
        while True:
            telling = await self._unsent.get()
            if self._is_waiting(telling):
                self._metrics.count(await self._sent(telling))
                await asyncio.sleep(1 / self._settings.events_per_second)

    def _is_waiting(self, telling: Telling) -> bool:
        pod = self.ledger.pod(telling.pod)
        return pod is not None and pod.metadata.uid == telling.uid

    async def _sent(self, telling: Telling) -> str:
        """Send one event, and return what became of it."""
        namespace, name = telling.pod
        stamp = self._now().isoformat(timespec="microseconds").replace("+00:00", "Z")
        try:
            if telling.repeats and await self._is_repeated(telling, stamp):
                return "repeated"
            event = event_of(telling, instance=self._identity, time=stamp)
            try:
                await self._client.create(EVENTS, event, msgspec.Raw, namespace=namespace)
            except AlreadyExists:  # The process before this one told it.
                if telling.is_first:
                    return "suppressed"
                return "repeated" if await self._is_repeated(telling, stamp) else "suppressed"
        except KubeError as error:
            log.warning("event.failed", pod=f"{namespace}/{name}", error=str(error))
            self.ledger.failed(telling.pod)
            self._changed.set()
            return "failed"
        log.info("pod.told", pod=f"{namespace}/{name}", uid=telling.uid, note=telling.note)
        return "sent"

    async def _is_repeated(self, telling: Telling, stamp: str) -> bool:
        """Say of an Event that it has happened again; false when it has expired.

        Raises:
            KubeError: It could not be said.
        """
        patch, (namespace, _) = repetition_of(telling, time=stamp), telling.pod
        with suppress(NotFound):
            await self._client.patch(
                EVENTS, telling.event, patch, PatchType.MERGE, msgspec.Raw, namespace=namespace
            )
            return True
        return False
