"""The controller of templates: creates them for pods that wait, repairs them, and collects unused ones.

It follows pods, templates and unallocated claims, and reconciles each pod that a change concerns;
`actions` decides what to do. Watches lag behind our own writes, so what was created is stored at once, and
what was deleted is remembered until they show it.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from controllers.model.parts import Parts
from controllers.model.settings import ControllerSettings
from controllers.model.template_documents import template_document
from controllers.templates.actions import (
    Action,
    CreateTemplate,
    DeleteClaim,
    DeleteTemplate,
    GeneratedClaim,
    Key,
    Reason,
    RecordEvent,
    TemplateState,
    TranslatedPod,
    plan_actions,
    plan_unsigned,
    pod_event,
    project_claim,
    project_pod,
    project_template,
    signed_content,
)
from controllers.templates.collection import UnusedTemplate, referenced_templates, unused_templates
from controllers.templates.derivations import DerivationCache
from controllers.templates.metrics import TemplateMetrics
from kube.api.urls import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, WORKLOADS
from kube.client.client import Client
from kube.errors import Conflict, NotFound
from kube.logs import get_logger
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder
from kube.runtime.informers import InformerFactory, Subscription
from process.certificates.signing import SigningKeyCache
from process.running.leader_election import Work
from translation.profiles.profile import Profile
from translation.record.signature import SignatureStatus, verify

WORKERS: Final = 8
"""Pods that are reconciled at a time; a write takes milliseconds, and a rollout brings many."""
MAX_WRITES: Final = 8
"""Templates and claims of one pod that are written before other pods have their turn: a pod may use dozens of
templates, and a worker that creates them one after the other has nothing for anybody else meanwhile."""
MAX_EVENTS: Final = 16
"""The largest number of events about one pod; a user who may change its annotations could cause any
number."""
UNKNOWN_KEY_PAUSE_S: Final = 5.0
"""A signature of an unknown key is looked at once more, since a new key may reach the webhook first."""
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"

T = TypeVar("T", bound=Hashable)

ONCE: Final = frozenset({Reason.REQUEST_MISMATCH, Reason.NOT_SIGNED, Reason.CLAIM_ALTERED})
"""Reasons of which a pod has one event."""

log = get_logger()
COLLECTION: Final = "collection"
"""The only key of the collection."""


class Index(Generic[T]):
    """The pods that refer to a value."""

    def __init__(self) -> None:
        self._pods: dict[T, set[Key]] = {}

    def replace(self, pod: Key, old: Collection[T], new: Collection[T]) -> None:
        """Replace the values that a pod refers to."""
        for value in set(old) - set(new):
            self._pods[value].discard(pod)
            if not self._pods[value]:
                del self._pods[value]
        for value in new:
            self._pods.setdefault(value, set()).add(pod)

    def pods(self, value: T) -> Collection[Key]:
        """Return the pods that refer to a value."""
        return sorted(self._pods.get(value, ()))

    def values(self) -> Collection[T]:
        """Return every value that some pod refers to."""
        return self._pods.keys()


class TemplateController:
    """Creates, repairs and collects templates; the leader runs it.

    Attributes:
        controllers: The controllers to be run: one of pods, one of the collection.
    """

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        recorder: EventRecorder,
        settings: ControllerSettings,
        profiles: Mapping[str, Profile],
        *,
        signing_keys: SigningKeyCache,
        further: Sequence[Subscription[Any]] = (),
        count_unsigned: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Subscribe to pods, templates and claims.

        Args:
            signing_keys: The keys that may have signed pods.
            further: The caches to be filled before the first pod, such as the profiles of the
                cluster.
            count_unsigned: Counts a pod without a valid signature, by the reason.
            clock: Monotonic seconds.
        """
        self._signing_keys = signing_keys
        signing_keys.changed = self._queue_translated_pods
        self._count_unsigned = count_unsigned
        self._client = client
        self._settings = settings
        self._recorder = recorder
        self._clock = clock
        self._derivations = DerivationCache(profiles)
        self._pods = informers.subscribe(
            PODS,
            lambda raw: project_pod(raw, sys.intern),
            field_selector=LIVE_PODS,
            handlers=[self._pod_changed],
        )
        self._templates = informers.subscribe(
            RESOURCE_CLAIM_TEMPLATES, project_template, handlers=[self._template_changed]
        )
        self._claims = informers.subscribe(
            RESOURCE_CLAIMS, project_claim, handlers=[self._claim_changed]
        )
        self._pods_by_template: Index[Key] = Index()
        self._pods_by_claim: Index[Key] = Index()
        self._creating: dict[Key, asyncio.Lock] = {}
        self._deleted: set[str] = set()
        self._altered: set[str] = set()
        self._recorded: dict[Key, set[RecordEvent]] = {}
        self._unsigned: dict[Key, str] = {}
        self._claim_deletions: dict[Key, dict[str, int]] = {}
        self._unused: Mapping[Key, UnusedTemplate] = {}
        subscriptions: tuple[Subscription[Any], ...] = (
            self._pods,
            self._templates,
            self._claims,
            signing_keys.subscription,
            *further,
        )
        self._controller: Controller[Key] = Controller(
            "templates",
            self._reconcile,
            subscriptions=subscriptions,
            backoff=settings.backoff(),
            workers=WORKERS,
        )
        collection: Controller[str] = Controller(
            "template-collection",
            self._collect,
            subscriptions=subscriptions,
            backoff=settings.backoff(),
        )
        collection.queue.add(COLLECTION)
        self.controllers: Final = (self._controller, collection)

    # --- changes ----------------------------------------------------------------------------------

    def _pod_changed(self, key: Key, old: TranslatedPod | None, new: TranslatedPod | None) -> None:
        namespace, _ = key
        self._pods_by_template.replace(key, _templates(namespace, old), _templates(namespace, new))
        self._pods_by_claim.replace(key, _claims(namespace, old), _claims(namespace, new))
        if old is not None and (new is None or new.uid != old.uid):
            for pod_state in (self._recorded, self._unsigned, self._claim_deletions):
                pod_state.pop(key, None)
        if new is not None and new.annotation is not None:
            self._controller.queue.add(key)

    def _template_changed(
        self, key: Key, old: TemplateState | None, new: TemplateState | None
    ) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._deleted.discard(old.uid)
            self._altered.discard(old.uid)
        if old is None or new is None or _differ(old, new):
            self._queue_pods_of(key)

    def _claim_changed(
        self, key: Key, _old: GeneratedClaim | None, _new: GeneratedClaim | None
    ) -> None:
        for pod in self._pods_by_claim.pods(key):
            self._controller.queue.add(pod)

    def _queue_translated_pods(self) -> None:
        for key, pod in self._pods.store.items():
            if pod.annotation is not None:
                self._controller.queue.add(key)

    def replace_profiles(
        self, profiles: Mapping[str, Profile], versions: Mapping[str, Profile]
    ) -> None:
        """Derive templates by other profiles, also those that could not be derived before.

        Args:
            profiles: Driver to the profile in force.
            versions: Content hash to a version that is kept for the pods that name it.
        """
        self._derivations.replace_profiles(profiles, versions)
        self._queue_translated_pods()

    def _queue_pods_of(self, template: Key) -> None:
        for pod in self._pods_by_template.pods(template):
            self._controller.queue.add(pod)

    # --- pods -------------------------------------------------------------------------------------

    async def _reconcile(self, key: Key) -> float | None:
        pod = self._pods.store.get(key)
        keys = self._signing_keys.keys
        if pod is None or pod.annotation is None or not keys:
            return None  # Without keys nothing is known; when there are some, all pods are queued.
        status = verify(pod.signature, signed_content(key, pod), keys, pod.created)
        if status is SignatureStatus.VALID:
            self._unsigned.pop(key, None)
            return await self._apply_actions(key, pod, pod.annotation)
        is_new = self._unsigned.get(key) != pod.uid
        self._unsigned[key] = pod.uid
        if is_new:
            self._count_unsigned(status.value)
            if status is SignatureStatus.UNKNOWN_KEY:
                return UNKNOWN_KEY_PAUSE_S
        for event in plan_unsigned(key, pod, status, self._template):
            self._record(event, key, pod)
        return None

    async def _apply_actions(self, key: Key, pod: TranslatedPod, annotation: str) -> float | None:
        """Apply the actions for a signed pod, a few at a time; return the delay until the rest."""
        writes = 0
        for action in plan_actions(
            key,
            pod,
            self._derivations.derive(annotation),
            self._template,
            self._claims.store.get,
            deletions=self._claim_deletions.get(key, {}),
        ):
            if writes == MAX_WRITES:
                return 0.0
            writes += not isinstance(action, RecordEvent)
            await self._apply(action, key, pod)
        return None

    def _template(self, key: Key) -> TemplateState | None:
        """Return a template as it is, even if the watch does not show its deletion yet."""
        template = self._templates.store.get(key)
        if template is None or template.uid in self._deleted:
            return None
        if template.uid in self._altered:
            return msgspec.structs.replace(template, is_altered=True)
        return template

    async def _apply(self, action: Action, key: Key, pod: TranslatedPod) -> None:
        match action:
            case CreateTemplate():
                await self._create(action)
            case DeleteTemplate():
                await self._delete(action)
            case DeleteClaim():
                await self._delete_claim(action, key)
            case RecordEvent():
                self._record(action, key, pod)

    async def _create(self, action: CreateTemplate) -> None:
        """Create a template, once for all the pods that wait for it."""
        namespace, name = action.key
        try:
            async with self._creating.setdefault(action.key, asyncio.Lock()):
                if self._template(action.key) is not None:
                    return  # Another worker was first.
                document = template_document(namespace, action.claim)
                raw = await self._client.create(
                    RESOURCE_CLAIM_TEMPLATES, document, msgspec.Raw, namespace=namespace
                )
                new_template = project_template(bytes(raw))
                self._templates.put(bytes(raw))
                if action.key not in self._templates.store:  # It is known by now to be deleted.
                    self._queue_pods_of(action.key)
        finally:
            self._creating.pop(action.key, None)
        log.info("template.created", template=f"{namespace}/{name}")
        if new_template.digest != action.claim.digest:
            # Without this it would be deleted and created again without end.
            self._altered.add(new_template.uid)
            log.error("template.altered", template=f"{namespace}/{name}")

    async def _delete(self, action: DeleteTemplate) -> None:
        namespace, name = action.key
        try:
            await self._client.delete(
                RESOURCE_CLAIM_TEMPLATES, name, namespace=namespace, uid=action.uid
            )
        except (NotFound, Conflict):
            return  # It is gone, or was replaced; the watch brings what is there.
        stored_template = self._templates.store.get(action.key)
        if stored_template is not None and stored_template.uid == action.uid:
            self._deleted.add(action.uid)
        log.warning("template.deleted", template=f"{namespace}/{name}", reason="other content")
        self._queue_pods_of(action.key)

    async def _delete_claim(self, action: DeleteClaim, pod: Key) -> None:
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
            return  # It is gone, or was allocated meanwhile.
        counts = self._claim_deletions.setdefault(pod, {})
        counts[action.entry] = counts.get(action.entry, 0) + 1
        log.warning("claim.deleted", claim=f"{namespace}/{name}", reason="other content")

    def _record(self, action: RecordEvent, key: Key, pod: TranslatedPod) -> None:
        if not self._is_stored(key, pod.uid):
            return  # It was deleted meanwhile; the next pod of the name gets events of its own.
        recorded_pods = self._recorded.setdefault(key, set())
        # Notes about an annotation repeat parts of it, so one of a kind is enough.
        is_repeated = action.reason in ONCE and any(
            event.reason is action.reason for event in recorded_pods
        )
        if action not in recorded_pods and not is_repeated and len(recorded_pods) < MAX_EVENTS:
            recorded_pods.add(action)
            self._recorder.record(
                pod_event(action, key, pod), is_current=partial(self._is_stored, key, pod.uid)
            )

    def _is_stored(self, key: Key, uid: str) -> bool:
        pod = self._pods.store.get(key)
        return pod is not None and pod.uid == uid

    # --- collection -------------------------------------------------------------------------------

    async def _collect(self, _key: str) -> float:
        """Delete the templates that have been unused for long enough."""
        now_s = self._clock()
        templates = self._templates.store
        used = self._pods_by_template.values()
        self._unused = unused_templates(templates, used, self._unused, now_s)
        period_s = self._settings.template_unused_period
        expired_templates = {
            key: unused_template
            for key, unused_template in self._unused.items()
            if now_s - unused_template.since_s >= period_s
        }
        for namespace in sorted({namespace for namespace, _ in expired_templates}):
            referenced_keys = await self._referenced_in(namespace)
            for key, unused_template in sorted(expired_templates.items()):
                if key[0] == namespace and key not in referenced_keys:
                    await self._delete_unused(key, unused_template)
        return self._settings.template_collect_period

    async def _referenced_in(self, namespace: str) -> frozenset[Key]:
        """Return the templates that workloads of a namespace refer to."""
        referenced_keys: frozenset[Key] = frozenset()
        for resource in WORKLOADS:
            async for page in self._client.pages(resource, namespace=namespace):
                keys = (referenced_templates(bytes(raw)) for raw in page.items)
                referenced_keys = referenced_keys.union(*keys)
        return referenced_keys

    async def _delete_unused(self, key: Key, unused_template: UnusedTemplate) -> None:
        if key in self._pods_by_template.values():
            return  # A pod was created meanwhile.
        namespace, name = key
        try:
            await self._client.delete(
                RESOURCE_CLAIM_TEMPLATES, name, namespace=namespace, uid=unused_template.uid
            )
        except (NotFound, Conflict):
            return
        log.info("template.collected", template=f"{namespace}/{name}")


def _differ(old: TemplateState, new: TemplateState) -> bool:
    """Return True if a change of a template concerns its pods; users may write labels at any rate."""
    return msgspec.structs.replace(old, resource_version=new.resource_version) != new


def _templates(namespace: str, pod: TranslatedPod | None) -> Collection[Key]:
    return {(namespace, name) for name in pod.templates.values()} if pod else ()


def _claims(namespace: str, pod: TranslatedPod | None) -> Collection[Key]:
    return {(namespace, name) for name in pod.claims.values()} if pod else ()


def controller(parts: Parts, metrics: TemplateMetrics) -> Work:
    """Return the controller of templates."""
    settings, profiles = parts.settings, parts.profiles
    templates = TemplateController(
        parts.client,
        parts.informers,
        parts.recorder,
        settings.controllers,
        parts.files,
        further=(profiles.subscription,),
        signing_keys=SigningKeyCache(parts.informers, settings.namespace, settings.signing),
        count_unsigned=metrics.count_unsigned,
    )
    profiles.on_change(templates.replace_profiles)
    return Work(controllers=templates.controllers)
