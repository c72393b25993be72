"""A local copy of some objects of the API server, kept up to date by list and watch.

What is kept of an object is the caller's choice (`keep`), made on bytes, so that memory holds what
is used and nothing else. The loop never ends by itself: a watch that breaks resumes where it was,
one that is too old lists again, and in between it waits, longer each time, so that a server in
trouble is not asked to death.

Not done: resync on a timer (a list that differs from a watch would be a bug of the API server), and
lookups by index.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from kube.api import meta
from kube.api.url import Resource
from kube.backoff import Backoff
from kube.client import PAGE_SIZE, Client, WatchEvent
from kube.errors import KubeError

T = TypeVar("T")
Key = tuple[str, str]
"""Namespace and name; the namespace of a cluster-scoped object is empty."""
Handler = Callable[[Key, T | None, T | None], None]
"""Called with key, old and new value: None for what was not there, or is not any more."""

_IN_PLACE: Final = frozenset({0, 429, 502, 503, 504})
"""Statuses after which the last resourceVersion is still good; 0 is no answer at all.

An answer that makes no sense (200) is none of them: asked in place, the server would say it again.
"""

log = structlog.get_logger()


class InformerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an informer spaces its calls. Defaults follow client-go's reflector where it has them.

    Attributes:
        backoff_s: The longest first pause after a failure; each further one may be twice as long.
        backoff_limit_s: The longest pause of all.
        healthy_s: A watch that lasted this long ends a series of failures.
        watch_s: The shortest and longest time that the server is asked to hold a watch; random
            between the two, so that informers do not return all at once.
        idle_s: Of silence, after which a watch counts as dead.
        page_size: Objects per page of a list.
    """

    backoff_s: float = 0.8
    backoff_limit_s: float = 30.0
    healthy_s: float = 1.0
    watch_s: tuple[float, float] = (240.0, 480.0)
    idle_s: float = 150.0
    page_size: int = PAGE_SIZE


DEFAULTS: Final = InformerSettings()


class _Head(meta.ApiStruct, frozen=True, kw_only=True):
    metadata: meta.ObjectMeta = meta.ObjectMeta()


class Informer(Generic[T]):
    """Keeps `store` equal to what the API server has, as seen through `keep`.

    Attributes:
        store: A live, read-only view of (namespace, name) to value; all changes of one event are
            made without an await in between.
        synced: Set when the first list is complete.
        failures: Calls that failed since the last healthy watch.
        unreadable: Objects that `keep` could not decode; they count as not kept.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        keep: Callable[[bytes], T | None],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        handlers: tuple[Handler[T], ...] = (),
        settings: InformerSettings = DEFAULTS,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Remember what to follow; nothing is asked before `run`.

        Args:
            client: An open client.
            resource: What to follow.
            keep: From an object's JSON to what is stored, None for what is not. It may raise
                msgspec.DecodeError, and must not block. Where it raises RecursionError it is asked
                again, about the object without what is nested too deeply.
            namespace: Empty for all.
            label_selector: As the API takes it.
            field_selector: As the API takes it.
            handlers: Called in order for each change, before anything else happens; they must not
                block, and what they raise ends `run`.
            settings: Pauses and timeouts.
            jitter: Uniform from 0 to 1.
            clock: Monotonic seconds.
        """
        self._client = client
        self._resource = resource
        self._keep = keep
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._handlers = handlers
        self._settings = settings
        self._backoff = Backoff(first_s=settings.backoff_s, longest_s=settings.backoff_limit_s)
        self._jitter = jitter
        self._clock = clock
        self._kept: dict[Key, T] = {}
        self._versions: dict[Key, str] = {}
        self._version = ""
        self._last_contact = -math.inf
        self._watching_since = math.inf
        self.store: Mapping[Key, T] = MappingProxyType(self._kept)
        self.synced = asyncio.Event()
        self.failures = 0
        self.unreadable = 0

    @property
    def contact_age_s(self) -> float:
        """Seconds since the API server last said anything; infinite before it did."""
        return self._clock() - self._last_contact

    async def run(self) -> None:
        """Follow the API server; ends only by cancellation, or by a handler that raises."""
        while True:
            self._watching_since = math.inf
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                is_healthy = True
            except KubeError as error:
                is_healthy = self._last_contact >= self._watching_since
                if error.status not in _IN_PLACE:
                    self._version = ""
                log.warning(
                    "watch.failed",
                    resource=self._resource.plural,
                    status=error.status,
                    error=str(error),
                    failures=self.failures + 1,
                )
            # A watch that ends at once is a failure even if it ends well, or the loop could spin.
            lasted_s = self._clock() - self._watching_since
            if is_healthy and lasted_s >= self._settings.healthy_s:
                self.failures = 0
                continue
            self.failures += 1
            await asyncio.sleep(self._backoff.pause_s(self.failures, self._jitter()))

    async def _list(self) -> None:
        """Bring the store to the state of one list, page by page, and drop what is not in it."""
        seen: set[Key] = set()
        version = ""
        pages = self._client.pages(
            self._resource,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            limit=self._settings.page_size,
        )
        async with aclosing(pages):
            async for page in pages:
                self._last_contact = self._clock()
                seen.update([_key(self._took(bytes(raw))) for raw in page.items])
                version = page.resource_version
        for key in sorted(self._versions.keys() - seen):
            self._forget(key)
        self._version = version
        self.synced.set()

    async def _watch(self) -> None:
        shortest, longest = self._settings.watch_s
        events = self._client.watch(
            self._resource,
            resource_version=self._version,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            timeout_s=shortest + (longest - shortest) * self._jitter(),
            idle_s=self._settings.idle_s,
        )
        self._watching_since = self._clock()
        async with aclosing(events):
            async for event in events:
                self._last_contact = self._clock()
                self._apply(event)

    def _apply(self, event: WatchEvent) -> None:
        raw = bytes(event.object)
        is_there = event.type in {"ADDED", "MODIFIED"}
        metadata = self._took(raw) if is_there else _head(raw)
        if event.type == "DELETED":
            self._forget(_key(metadata))
        self._version = metadata.resource_version or self._version

    def _took(self, raw: bytes) -> meta.ObjectMeta:
        """Take an object in, unless this very version of it is kept, and return its metadata."""
        metadata = _head(raw)
        key = _key(metadata)
        if self._versions.get(key) == metadata.resource_version != "":
            return metadata
        try:
            new = self._kept_of(raw)
        except msgspec.DecodeError as error:
            self.unreadable += 1
            log.warning(
                "object.unreadable", resource=self._resource.plural, key=key, error=str(error)
            )
            new = None
        if new is None:
            self._forget(key)
        else:
            self._versions[key] = metadata.resource_version
            self._replace(key, new)
        return metadata

    def _kept_of(self, raw: bytes) -> T | None:
        try:
            return self._keep(raw)
        except RecursionError:  # The list could just read it, and what came of it cannot be walked.
            return self._keep(meta.pruned(raw))

    def _forget(self, key: Key) -> None:
        self._versions.pop(key, None)
        self._replace(key, None)

    def _replace(self, key: Key, new: T | None) -> None:
        old = self._kept.get(key)
        if old is None and new is None:
            return
        if new is None:
            del self._kept[key]
        else:
            self._kept[key] = new
        for handler in self._handlers:
            handler(key, old, new)


def _key(metadata: meta.ObjectMeta) -> Key:
    return metadata.namespace, metadata.name


def _head(raw: bytes) -> meta.ObjectMeta:
    try:
        return meta.decode(raw, _Head).metadata
    except msgspec.DecodeError as error:
        raise KubeError(f"an object without readable metadata: {error}", status=200) from error
