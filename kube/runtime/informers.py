"""Local copies of objects of the API server, kept up to date by one list and watch per resource.

A factory has one informer for each resource, namespace and selector, whoever subscribes, as client-go's
SharedInformerFactory does. A subscription chooses by a projection what is kept of an object; it is
given the object's JSON, so that memory holds what is used and nothing else. Subscriptions with equal
projections share one store.

An informer never goes back behind an object that a write returned (`Subscription.put`): events and
lists from before that write change nothing.

An informer never ends by itself. A watch that breaks is resumed, one that is too old is followed by a
new list, and failures are followed by pauses that grow.

Not done: resync on a timer (a list that differs from a watch would be a bug of the API server), and
lookups by index.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kube.api.meta import version_number
from kube.api.urls import Resource
from kube.client.client import Client
from kube.client.responses import WatchEvent
from kube.collections.backoff import Backoff
from kube.errors import KubeError
from kube.logs import get_logger
from kube.runtime.availability import Availability, refusal
from kube.runtime.informer_settings import DEFAULTS, InformerSettings
from kube.runtime.stores import Handler, Identity, Key, Projection, Store, read_identity

T = TypeVar("T")

_IN_PLACE: Final = frozenset({0, 429, 502, 503, 504})
"""Statuses after which a watch is resumed at the last resourceVersion; 0 is no answer at all.

An answer that cannot be read (200) is none of them: the same request would get the same answer.
"""

log = get_logger()


class Informer:
    """One list and watch, and the stores of the projections that are subscribed to.

    Attributes:
        resource: The resource that is followed.
        synced: Set when the first list is complete.
        failures: Calls that failed since the last healthy watch.
        availability: The state of the resource at the API server: whether it has it, and shows it
            to us.
        is_listing: Objects are being dropped that a list did not have, whose last state is not known.
        is_watching: The API server has accepted a watch that has not ended yet.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        scope: "Scope",
        *,
        settings: InformerSettings,
        jitter: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._scope = scope
        self._settings = settings
        self._backoff = Backoff(initial_s=settings.backoff_s, max_s=settings.backoff_limit_s)
        self._jitter = jitter
        self._clock = clock
        self._stores: dict[Projection[Any], Store[Any]] = {}
        self._versions: dict[Key, str] = {}
        self._version = ""
        # Versions that writes returned and that no event or list has reached yet.
        self._written: dict[Key, int] = {}
        self._progress = asyncio.Event()
        self._last_contact = -math.inf
        self._watching_since = math.inf
        self._watch_timeout: asyncio.Timeout | None = None
        self._is_outdated_list = False
        self._last_refusal = 0
        self.resource: Final = resource
        self.synced = asyncio.Event()
        self.failures = 0
        self.availability: Final = Availability()
        self.is_listing = False
        self.is_watching = False

    def __len__(self) -> int:
        """Return the number of objects that some projection keeps."""
        return len(self._versions)

    @property
    def decode_errors(self) -> int:
        """Return the number of failed attempts to decode an object for a projection."""
        return sum(store.decode_errors for store in self._stores.values())

    def store(self, projection: Projection[T]) -> Store[T]:
        """Return the store of a projection, a new one if there is none yet."""
        return self._stores.setdefault(projection, Store(self.resource, projection))

    @property
    def contact_age_s(self) -> float:
        """Seconds since the last response or event from the API server; infinite before the first."""
        return self._clock() - self._last_contact

    async def run(self) -> None:
        """Follow the API server; ends only by cancellation, or by a handler that raises."""
        while True:
            self._watching_since = math.inf
            try:
                while not self._version:
                    await self._list()
                if await self._watch_until_refreshed():
                    continue
                is_healthy = True
            except KubeError as error:
                is_healthy = self._last_contact >= self._watching_since
                if error.status not in _IN_PLACE:
                    self._version = ""
                self._log_failure(error)
                self.availability.failed(error.status)
            # A watch that ends at once is a failure even if it ends well, or the loop could spin.
            lasted_s = self._clock() - self._watching_since
            if is_healthy and lasted_s >= self._settings.healthy_s:
                self.failures = 0
                continue
            self.failures += 1
            await asyncio.sleep(self._backoff.delay_s(self.failures, self._jitter()))

    def _log_failure(self, error: KubeError) -> None:
        """Log a failure; that the resource is not served, or not ours to read, only once."""
        before, self._last_refusal = self._last_refusal, refusal(error)
        if not self._last_refusal or self._last_refusal != before:
            facts = {"status": error.status, "error": str(error), "failures": self.failures + 1}
            log.warning("watch.failed", resource=self.resource.plural, **facts)

    def refresh(self) -> None:
        """List again, and project every object anew: a projection reads something else by now."""
        self._versions = dict.fromkeys(self._versions, "")
        self._version = ""
        self._is_outdated_list = True
        # A watch that an earlier refresh has begun to end cannot be told so again.
        if self._watch_timeout is not None and not self._watch_timeout.expired():
            self._watch_timeout.reschedule(asyncio.get_running_loop().time())

    def put(self, raw: bytes) -> None:
        """Take an object as a write returned it, unless it was deleted or changed since."""
        identity = read_identity(raw)
        version = version_number(identity.resource_version)
        if version <= version_number(self._version):
            return  # Whatever happened up to this version is known already.
        if version > self._written.get(identity.key, 0):
            self._take(raw, identity)
            self._written[identity.key] = version
            self._announce()

    def has_seen(self, versions: Mapping[Key, str]) -> bool:
        """Return True if all objects are known as of their resourceVersions, or later ones."""
        newest = version_number(self._version)
        return all(
            version_number(version) <= max(version_number(self._versions.get(key, "")), newest)
            for key, version in versions.items()
        )

    async def wait_seen(self, versions: Mapping[Key, str]) -> None:
        """Return once all objects are known as of their resourceVersions."""
        while not self.has_seen(versions):
            await self.wait_change()

    async def wait_change(self) -> None:
        """Return after the next event, list or write."""
        await self._progress.wait()

    def _announce(self) -> None:
        """Wake those that wait for a version."""
        self._progress.set()
        self._progress = asyncio.Event()

    def _is_outdated(self, key: Key, version: str) -> bool:
        """Return True if a version of an object is older than the result of a write."""
        written_version = self._written.get(key)
        if written_version is None:
            return False
        if version_number(version) >= written_version:
            del self._written[key]
            return False
        return True

    async def _list(self) -> None:
        """Bring the store to the state of one list, page by page, and drop other objects."""
        # This list reads from a quorum, so it knows every write that has returned by now.
        self._written.clear()
        self._is_outdated_list = False
        keys: set[Key] = set()
        version = ""
        pages = self._client.pages(
            self.resource,
            namespace=self._scope.namespace,
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
            limit=self._settings.page_size,
        )
        async with aclosing(pages):
            async for page in pages:
                self._note_contact()
                keys.update([self._take_unless_outdated(bytes(raw)).key for raw in page.items])
                version = page.resource_version
        newer = {key for key, at in self._written.items() if at > version_number(version)}
        self.is_listing = True
        for key in sorted(self._versions.keys() - keys - newer):
            self._forget(key)
        self.is_listing = False
        self._version = "" if self._is_outdated_list else version
        self.synced.set()
        self._last_refusal = 0
        self.availability.answered()
        self._announce()

    async def _watch_until_refreshed(self) -> bool:
        """Follow changes until the watch ends; return True if a new list is needed before that."""
        try:
            async with asyncio.timeout(None) as self._watch_timeout:
                await self._watch()
        except TimeoutError:
            if not self._is_outdated_list:
                raise
            return True
        finally:
            self._watch_timeout = None
        return self._is_outdated_list

    async def _watch(self) -> None:
        shortest, longest = self._settings.watch_s
        events = self._client.watch(
            self.resource,
            resource_version=self._version,
            namespace=self._scope.namespace,
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
            timeout_s=shortest + (longest - shortest) * self._jitter(),
            idle_s=self._settings.idle_s,
            on_open=self._note_open,
        )
        self._watching_since = self._clock()
        try:
            async with aclosing(events):
                async for event in events:
                    self._note_contact()
                    self._apply(event)
        finally:
            self.is_watching = False

    def _note_open(self) -> None:
        self.is_watching = True
        self._note_contact()

    def _note_contact(self) -> None:
        self._last_contact = self._clock()

    def _apply(self, event: WatchEvent) -> None:
        raw = bytes(event.object)
        is_there = event.type in {"ADDED", "MODIFIED"}
        identity = self._take_unless_outdated(raw) if is_there else read_identity(raw)
        key = identity.key
        if event.type == "DELETED" and not self._is_outdated(key, identity.resource_version):
            self._forget(key)
        if not self._is_outdated_list:  # Or the list that a refresh asked for would be left out.
            self._version = identity.resource_version or self._version
        self._announce()

    def _take_unless_outdated(self, raw: bytes) -> Identity:
        identity = read_identity(raw)
        if not (self._written and self._is_outdated(identity.key, identity.resource_version)):
            self._take(raw, identity)
        return identity

    def _take(self, raw: bytes, identity: Identity) -> None:
        """Project an object, unless this version of it was projected."""
        key = identity.key
        if self._versions.get(key) == identity.resource_version != "":
            return
        values = [(store, store.project(key, raw)) for store in self._stores.values()]
        if any(value is not None for _, value in values):
            self._versions[key] = identity.resource_version
        else:
            self._versions.pop(key, None)
        self._replace(key, values)

    def _forget(self, key: Key) -> None:
        self._versions.pop(key, None)
        self._replace(key, [(store, None) for store in self._stores.values()])

    def _replace(self, key: Key, values: Iterable[tuple[Store[Any], Any]]) -> None:
        """Change all stores, then call the handlers; these may look into any store."""
        changes = [change for store, value in values if (change := store.replace(key, value))]
        for change in changes:
            for handler in change.handlers:
                handler(change.key, change.old, change.new)


class Scope(NamedTuple):
    """The objects of a resource that an informer follows; empty texts select all."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


class Subscription(Generic[T]):
    """A consumer's view of an informer, through a projection.

    Attributes:
        resource: The resource that is followed.
        store: A live, read-only view of (namespace, name) to value; all changes of one event are
            made without an await in between.
        synced: Set when the first list is complete.
    """

    def __init__(self, informer: Informer, store: Store[T]) -> None:
        self._informer = informer
        self._store = store
        self.resource: Final = informer.resource
        self.store: Final[Mapping[Key, T]] = MappingProxyType(store.objects)
        self.synced: Final = informer.synced

    def put(self, raw: bytes) -> None:
        """Take an object as a write returned it; the store never goes back behind it."""
        self._informer.put(raw)

    def refresh(self) -> None:
        """Project every object anew, from a new list, since the projection reads something else."""
        self._informer.refresh()

    async def wait_seen(self, versions: Mapping[Key, str]) -> None:
        """Return once all objects are known as of their resourceVersions, or are known as deleted."""
        await self._informer.wait_seen(versions)

    def has_seen(self, versions: Mapping[Key, str]) -> bool:
        """Return True if `wait_seen` has nothing to wait for."""
        return self._informer.has_seen(versions)

    async def wait_change(self) -> None:
        """Return after the next change of any object."""
        await self._informer.wait_change()

    @property
    def decode_errors(self) -> int:
        """Return the number of objects that could not be decoded; they are not in the store."""
        return self._store.decode_errors

    @property
    def failures(self) -> int:
        """Calls that failed since the last healthy watch."""
        return self._informer.failures

    @property
    def is_available(self) -> bool:
        """Return True if the API server has, and shows us, the resource, as far as it said."""
        return self._informer.availability.is_available

    @property
    def is_watching(self) -> bool:
        """Return True if the API server has accepted a watch that has not ended yet."""
        return self._informer.is_watching

    @property
    def is_listing(self) -> bool:
        """Return True if a list found the deletion that is being handled, so that its end is hidden."""
        return self._informer.is_listing

    @property
    def contact_age_s(self) -> float:
        """Seconds since the last response or event from the API server; infinite before the first."""
        return self._informer.contact_age_s


class InformerFactory:
    """The informers of a process: one for each resource, namespace and selector.

    Source: client-go informers.SharedInformerFactory.
    """

    def __init__(
        self,
        client: Client,
        *,
        settings: InformerSettings = DEFAULTS,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without informers; nothing is requested before `run`.

        Args:
            client: An open client.
            settings: Pauses and timeouts.
            jitter: Uniform from 0 to 1.
            clock: Monotonic seconds.
        """
        self._client = client
        self._settings = settings
        self._jitter = jitter
        self._clock = clock
        self._informers: dict[tuple[Resource, Scope], Informer] = {}
        self._has_started = False

    @property
    def informers(self) -> Collection[Informer]:
        """All informers, for metrics."""
        return self._informers.values()

    def subscribe(
        self,
        resource: Resource,
        projection: Projection[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        handlers: Sequence[Handler[T]] = (),
    ) -> Subscription[T]:
        """Subscribe to the objects of a resource, seen through a projection.

        Args:
            projection: A function from an object's JSON to the value to keep, None to keep nothing.
                It may raise msgspec.DecodeError, and must not block. Where it raises RecursionError
                it is called again, with the object without what is nested too deeply. Equal
                projections share a store.
            namespace: Empty for all.
            label_selector: A label selector in the API's syntax.
            field_selector: A field selector in the API's syntax.
            handlers: Called in order for each change, after all stores have changed; they must not
                block, and what they raise ends `run`.

        Raises:
            RuntimeError: `run` has begun, so the first list may be over.
        """
        if self._has_started:
            raise RuntimeError(f"subscribe to {resource.plural} before the informers run")
        scope = Scope(namespace, label_selector, field_selector)
        informer = self._informers.get((resource, scope))
        if informer is None:
            informer = self._informers[resource, scope] = Informer(
                self._client,
                resource,
                scope,
                settings=self._settings,
                jitter=self._jitter,
                clock=self._clock,
            )
        store = informer.store(projection)
        store.handlers += handlers
        return Subscription(informer, store)

    async def run(self) -> None:
        """Follow the API server; ends only by cancellation, or by a handler that raises."""
        self._has_started = True
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())


def unsynced_resources(subscriptions: Iterable[Subscription[Any]]) -> str:
    """Return the resources that are not synced, as a readiness check; empty when all are."""
    missing = sorted({item.resource.plural for item in subscriptions if not item.synced.is_set()})
    return f"waiting for {', '.join(missing)}" if missing else ""


async def wait_synced(subscriptions: Iterable[Subscription[Any]]) -> None:
    """Return once the first lists of all subscriptions are complete."""
    for subscription in subscriptions:
        await subscription.synced.wait()
