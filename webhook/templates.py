"""The controller of templates: makes them for pods that wait, heals them, collects them.

It follows pods, templates and free claims, and looks again at each pod that a change concerns; what
is to be done is decided in `template_actions`. Watches lag behind our own writes, so what we made
or deleted is remembered until they tell of it.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog

from kube.client import Client
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.informer import DEFAULTS, Informer, InformerSettings
from webhook.profile import Profile
from webhook.resources import (
    EVENTS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    WORKLOADS,
)
from webhook.settings import ControlSettings
from webhook.template_actions import (
    Action,
    CreateTemplate,
    DeleteClaim,
    DeleteTemplate,
    KeptClaim,
    KeptPod,
    KeptTemplate,
    Key,
    Report,
    Unused,
    derivation,
    due,
    event_of,
    kept_claim,
    kept_pod,
    kept_template,
    named_templates,
    template_of,
    unused,
)
from webhook.workqueue import WorkQueue

WORKERS: Final = 8
"""Pods that are worked on at a time; a write takes milliseconds, and a rollout brings many."""
KNOWN_ANNOTATIONS: Final = 1024
"""Of which the claims are remembered; replicas share one."""
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
MAX_EVENT_NAME: Final = 253

T = TypeVar("T", bound=Hashable)

log = structlog.get_logger()


class Index(Generic[T]):
    """Which pods name a thing."""

    def __init__(self) -> None:
        self._pods: dict[T, set[Key]] = {}

    def replace(self, pod: Key, old: Collection[T], new: Collection[T]) -> None:
        """Note that a pod named the old things, and names the new ones now."""
        for thing in set(old) - set(new):
            self._pods[thing].discard(pod)
            if not self._pods[thing]:
                del self._pods[thing]
        for thing in new:
            self._pods.setdefault(thing, set()).add(pod)

    def pods(self, thing: T) -> Collection[Key]:
        """Return the pods that name a thing."""
        return sorted(self._pods.get(thing, ()))

    def things(self) -> Collection[T]:
        """Return everything that some pod names."""
        return self._pods.keys()


class TemplateController:
    """One process at a time runs it.

    Attributes:
        informers: Resource name to informer, for metrics; likewise `queues`.
    """

    def __init__(
        self,
        client: Client,
        settings: ControlSettings,
        profiles: Mapping[str, Profile],
        *,
        identity: str,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        informer_settings: InformerSettings = DEFAULTS,
    ) -> None:
        """Remember what to work with; nothing is asked before `run`.

        Args:
            identity: Of this process, for events.
            now: The wall clock, for events only.
            clock: Monotonic seconds.
        """
        self._client = client
        self._settings = settings
        self._identity = identity
        self._now = now
        self._clock = clock
        self._derivation = lru_cache(KNOWN_ANNOTATIONS)(lambda text: derivation(text, profiles))
        self._pods = Informer(
            client,
            PODS,
            lambda raw: kept_pod(raw, sys.intern),
            field_selector=LIVE_PODS,
            handlers=(self._pod_changed,),
            settings=informer_settings,
        )
        self._templates = Informer(
            client,
            RESOURCE_CLAIM_TEMPLATES,
            kept_template,
            handlers=(self._template_changed,),
            settings=informer_settings,
        )
        self._claims = Informer(
            client,
            RESOURCE_CLAIMS,
            kept_claim,
            handlers=(self._claim_changed,),
            settings=informer_settings,
        )
        self._queue: WorkQueue[Key] = WorkQueue(settings.backoff().pause_s)
        self.informers: Final[Mapping[str, Informer[Any]]] = {
            "pods": self._pods,
            "resourceclaimtemplates": self._templates,
            "resourceclaims": self._claims,
        }
        self.queues: Final[Mapping[str, WorkQueue[Any]]] = {"pods": self._queue}
        self._by_template: Index[Key] = Index()
        self._by_claim: Index[Key] = Index()
        self._creating: dict[Key, asyncio.Lock] = {}
        self._made: dict[Key, KeptTemplate] = {}
        self._deleted: set[str] = set()
        self._altered: set[str] = set()
        self._told: dict[Key, set[Report]] = {}
        self._unused: Mapping[Key, Unused] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in (self._pods, self._templates, self._claims):
                group.create_task(informer.run())
            for informer in (self._pods, self._templates, self._claims):
                await informer.synced.wait()
            log.info("templates.synced", pods=len(self._pods.store))
            for _ in range(WORKERS):
                group.create_task(self._work())
            group.create_task(self._collect_again_and_again())

    # --- what changes concern which pods ----------------------------------------------------------

    def _pod_changed(self, key: Key, old: KeptPod | None, new: KeptPod | None) -> None:
        namespace, _ = key
        self._by_template.replace(key, _templates(namespace, old), _templates(namespace, new))
        self._by_claim.replace(key, _claims(namespace, old), _claims(namespace, new))
        if old is not None and (new is None or new.uid != old.uid):
            self._told.pop(key, None)
        if new is not None and new.request is not None:
            self._queue.add(key)

    def _template_changed(
        self, key: Key, old: KeptTemplate | None, new: KeptTemplate | None
    ) -> None:
        self._made.pop(key, None)
        if old is not None and (new is None or new.uid != old.uid):
            self._deleted.discard(old.uid)
            self._altered.discard(old.uid)
        self._look_again(key)

    def _claim_changed(self, key: Key, _old: KeptClaim | None, _new: KeptClaim | None) -> None:
        for pod in self._by_claim.pods(key):
            self._queue.add(pod)

    def _look_again(self, template: Key) -> None:
        for pod in self._by_template.pods(template):
            self._queue.add(pod)

    # --- work -------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._reconcile(key)
            except KubeError as error:
                log.warning("pod.failed", pod="/".join(key), error=str(error))
                self._queue.failed(key)
            except Exception:  # A bug that one pod meets must not cost the others their claims.
                log.exception("pod.failed", pod="/".join(key))
                self._queue.failed(key)
            else:
                self._queue.succeeded(key)

    async def _reconcile(self, key: Key) -> None:
        pod = self._pods.store.get(key)
        if pod is None or pod.request is None:
            return
        derived = self._derivation(pod.request)
        for action in due(key, pod, derived, self._template, self._claims.store.get):
            await self._do(action, key, pod)

    def _template(self, key: Key) -> KeptTemplate | None:
        """Return a template as it is, even where the watch does not know yet."""
        found = self._templates.store.get(key)
        if found is None or found.uid in self._deleted:
            found = self._made.get(key)
        if found is not None and found.uid in self._altered:
            return msgspec.structs.replace(found, is_altered=True)
        return found

    async def _do(self, action: Action, key: Key, pod: KeptPod) -> None:
        match action:
            case CreateTemplate():
                await self._create(action)
            case DeleteTemplate():
                await self._delete(action)
            case DeleteClaim():
                await self._delete_claim(action)
            case Report():
                await self._report(action, key, pod)

    async def _create(self, action: CreateTemplate) -> None:
        """Make a template, once for all the pods that wait for it."""
        namespace, name = action.key
        try:
            async with self._creating.setdefault(action.key, asyncio.Lock()):
                if self._template(action.key) is not None:
                    return  # Another worker was first.
                raw = await self._client.create(
                    RESOURCE_CLAIM_TEMPLATES, template_of(action), msgspec.Raw, namespace=namespace
                )
                made = kept_template(bytes(raw))
                if action.key not in self._templates.store:
                    self._made[action.key] = made
        finally:
            self._creating.pop(action.key, None)
        log.info("template.made", template=f"{namespace}/{name}")
        if made.digest != action.claim.digest:
            # Else it would be deleted and made again without end.
            self._altered.add(made.uid)
            log.error("template.altered", template=f"{namespace}/{name}")

    async def _delete(self, action: DeleteTemplate) -> None:
        namespace, name = action.key
        try:
            await self._client.delete(
                RESOURCE_CLAIM_TEMPLATES, name, namespace=namespace, uid=action.uid
            )
        except (NotFound, Conflict):
            return  # It is gone, or another one; the watch will tell.
        known = self._templates.store.get(action.key)
        if known is not None and known.uid == action.uid:
            self._deleted.add(action.uid)
        log.warning("template.deleted", template=f"{namespace}/{name}", reason="other content")
        self._look_again(action.key)

    async def _delete_claim(self, action: DeleteClaim) -> None:
        namespace, name = action.key
        try:
            await self._client.delete(
                RESOURCE_CLAIMS,
                name,
                namespace=namespace,
                uid=action.uid,
                resource_version=action.resource_version,
            )
        except (NotFound, Conflict):
            return  # It is gone, or was allocated in the meantime.
        log.warning("claim.deleted", claim=f"{namespace}/{name}", reason="other content")

    async def _report(self, report: Report, key: Key, pod: KeptPod) -> None:
        known = self._pods.store.get(key)
        if known is None or known.uid != pod.uid:
            return  # It went while we worked on it; its successor is told what concerns it.
        told = self._told.setdefault(key, set())
        if report in told:
            return
        told.add(report)
        namespace, name = key
        log.warning("pod.reported", pod=f"{namespace}/{name}", reason=report.reason.value)
        # The name derives from what is told, so that a restart does not tell it twice.
        digest = sha256(f"{pod.uid}{report.reason}{report.note}".encode()).hexdigest()[:16]
        event = event_of(
            report,
            key,
            pod,
            name=f"{name[: MAX_EVENT_NAME - 17]}.{digest}",
            instance=self._identity,
            time=self._now().isoformat(timespec="microseconds").replace("+00:00", "Z"),
        )
        try:
            await self._client.create(EVENTS, event, msgspec.Raw, namespace=namespace)
        except AlreadyExists:
            pass
        except KubeError as error:  # Nothing waits for an event.
            log.warning("event.failed", pod=f"{namespace}/{name}", error=str(error))

    # --- collection -------------------------------------------------------------------------------

    async def _collect_again_and_again(self) -> None:
        while True:
            try:
                await self._collect()
            except KubeError as error:
                log.warning("collection.failed", error=str(error))
            await asyncio.sleep(self._settings.collect_every_seconds)

    async def _collect(self) -> None:
        """Delete the templates that have been without use for long enough."""
        now_s = self._clock()
        templates = self._templates.store
        self._unused = unused(templates, self._by_template.things(), self._unused, now_s)
        grace_s = self._settings.collect_after_seconds
        old = {key: each for key, each in self._unused.items() if now_s - each.since_s >= grace_s}
        for namespace in sorted({namespace for namespace, _ in old}):
            named = await self._named_in(namespace)
            for key, template in sorted(old.items()):
                if key[0] == namespace and key not in named:
                    await self._collected(key, template)

    async def _named_in(self, namespace: str) -> frozenset[Key]:
        """Return the templates that workloads of a namespace name."""
        named: frozenset[Key] = frozenset()
        for resource in WORKLOADS:
            async for page in self._client.pages(resource, namespace=namespace):
                named = named.union(*(named_templates(bytes(raw)) for raw in page.items))
        return named

    async def _collected(self, key: Key, template: Unused) -> None:
        if key in self._by_template.things():
            return  # A pod came while we asked.
        namespace, name = key
        try:
            await self._client.delete(
                RESOURCE_CLAIM_TEMPLATES, name, namespace=namespace, uid=template.uid
            )
        except (NotFound, Conflict):
            return
        log.info("template.collected", template=f"{namespace}/{name}")


def _templates(namespace: str, pod: KeptPod | None) -> Collection[Key]:
    return {(namespace, name) for name in pod.templates.values()} if pod else ()


def _claims(namespace: str, pod: KeptPod | None) -> Collection[Key]:
    return {(namespace, name) for name in pod.claims.values()} if pod else ()
