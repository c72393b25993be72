"""The controller of DeviceTranslationProfiles: publishes those in force, and keeps their status.

It follows the objects, the live pods that name versions, classes and slices. What is in force is
written into a ConfigMap that all processes follow; a version is in force only once it is stored there,
so a pod never names one that nobody keeps. `translation.profiles.objects` decides the content, `status`
what is said.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate.projections import project_class, project_slice
from controllers.model.parts import Parts
from controllers.model.settings import Settings
from controllers.profiles.events import profile_events
from controllers.profiles.status import ProfileFacts, build_status
from controllers.profiles.used_versions import project_used_versions
from kube.api.meta import ObjectHead, decode, decode_pruned, rfc3339, status_patch
from kube.api.resource import ResourceSlice
from kube.api.translation_profile import DeviceTranslationProfile, DeviceTranslationProfileStatus
from kube.api.urls import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    DEVICE_TRANSLATION_PROFILES,
    PODS,
    RESOURCE_SLICES,
)
from kube.client.client import Client, PatchType
from kube.errors import Conflict, NotFound
from kube.logs import get_logger
from kube.names import NAME
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder
from kube.runtime.informers import InformerFactory
from process.profiles.profile_files import load_profiles
from process.profiles.published_profiles import project_published
from process.running.leader_election import Work
from translation.cluster.snapshot import TranslationOptions
from translation.profiles.device_counts import count_devices
from translation.profiles.objects import ProfileObject, Verdict, Version, plan_profiles, read_object
from translation.profiles.profile import Profile
from translation.profiles.published import PublishedProfiles, encode_published

PUBLISH: Final = ""
"""The key under which all objects are validated together; the others are names of objects."""
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
STATUS_PAUSE_S: Final = 5.0
"""The pause before a status follows classes and slices, which come and go with nodes."""

Key = tuple[str, str]
log = get_logger()


_ObjectVersion = tuple[str, int]
"""The uid of an object, and its generation."""


class StoredProfiles(msgspec.Struct, frozen=True, kw_only=True):
    """The ConfigMap as it is stored."""

    published: PublishedProfiles
    resource_version: str


def project_stored(raw: bytes) -> StoredProfiles:
    """Project the ConfigMap to the profiles in it, and its version."""
    head = decode(raw, ObjectHead)
    return StoredProfiles(
        published=project_published(raw), resource_version=head.metadata.resource_version
    )


def project_profile(raw: bytes) -> DeviceTranslationProfile:
    """Project an object to itself; nested values that are too deep for Python become null."""
    return decode_pruned(raw, DeviceTranslationProfile)


class ProfileController:
    """Publishes the profiles of the cluster and keeps their status; the leader runs it.

    Attributes:
        controllers: The controllers to be run.
    """

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        recorder: EventRecorder,
        settings: Settings,
        *,
        files: Mapping[str, Profile],
        shipped: Mapping[str, Profile],
        options: TranslationOptions,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Subscribe to objects, pods, classes, slices and the ConfigMap.

        Args:
            files: Driver to profile, of the package and of files.
            shipped: The profiles of the package only.
            now: The wall clock, for conditions.
            clock: Monotonic seconds.
        """
        self._client = client
        self._recorder = recorder
        self._settings = settings
        self._files = files
        self._shipped = shipped
        self._options = options
        self._now = now
        self._clock = clock
        self._config_map = settings.translation.profiles_config_map
        self._profiles = informers.subscribe(
            DEVICE_TRANSLATION_PROFILES, project_profile, handlers=[self._profile_changed]
        )
        self._stored = informers.subscribe(
            CONFIG_MAPS,
            project_stored,
            namespace=settings.namespace,
            field_selector=f"metadata.name={self._config_map}",
            handlers=[self._stored_changed],
        )
        self._pods = informers.subscribe(
            PODS,
            project_used_versions,
            field_selector=LIVE_PODS,
            handlers=[self._pod_changed],
        )
        self._classes = informers.subscribe(
            DEVICE_CLASSES, project_class, handlers=[self._class_changed]
        )
        self._slices = informers.subscribe(
            RESOURCE_SLICES, project_slice, handlers=[self._slice_changed]
        )
        self._used: Counter[Version] = Counter()
        self._known = {profile.content_hash: profile for profile in files.values()}
        self._unused_since_s: dict[str, float] = {}
        self._verdicts: Mapping[str, Verdict] = {}
        # What the verdicts are about, by the name of the object.
        self._judged_versions: Mapping[str, _ObjectVersion] = {}
        self._controller: Controller[str] = Controller(
            "profiles",
            self._reconcile,
            subscriptions=(self._stored, self._pods, self._classes, self._slices, self._profiles),
            backoff=settings.controllers.backoff(),
        )
        self._controller.queue.add(PUBLISH)
        self.controllers: Final = (self._controller,)

    # --- changes ----------------------------------------------------------------------------------

    def _profile_changed(
        self,
        key: Key,
        old: DeviceTranslationProfile | None,
        new: DeviceTranslationProfile | None,
    ) -> None:
        if old is None or new is None or _version_of(old) != _version_of(new):
            self._controller.queue.add(PUBLISH)
        elif old.status != new.status:
            self._controller.queue.add(key[1])

    def _stored_changed(self, _key: Key, _old: object, _new: object) -> None:
        self._controller.queue.add(PUBLISH)

    def _pod_changed(
        self, _key: Key, old: frozenset[Version] | None, new: frozenset[Version] | None
    ) -> None:
        if old == new:
            return
        before = set(self._used)
        self._used.subtract(old or ())
        self._used.update(new or ())
        self._used = +self._used
        if before != set(self._used):
            self._controller.queue.add(PUBLISH)

    def _class_changed(self, _key: Key, old: object, new: object) -> None:
        if old is None or new is None:
            for _, name in self._profiles.store:
                self._controller.queue.add_after(name, STATUS_PAUSE_S)

    def _slice_changed(
        self, _key: Key, old: ResourceSlice | None, new: ResourceSlice | None
    ) -> None:
        if old == new:
            return
        for slice_ in (old, new):
            if slice_ is not None and ("", slice_.spec.driver) in self._profiles.store:
                self._controller.queue.add_after(slice_.spec.driver, STATUS_PAUSE_S)

    # --- reconciliation ---------------------------------------------------------------------------

    async def _reconcile(self, name: str) -> float | None:
        if name == PUBLISH:
            return await self._publish()
        try:
            await self._update_status(name)
        except (Conflict, NotFound):
            log.debug("profile.gone", profile=name)  # The watch brings what is there instead.
        return None

    async def _publish(self) -> float | None:
        """Store the profiles in force and kept; return the time until an unused version is due."""
        stored_profiles = self._stored.store.get((self._settings.namespace, self._config_map))
        before = stored_profiles.published if stored_profiles is not None else PublishedProfiles()
        # What was stored is known as long as this process leads, even if somebody deletes it.
        self._known |= before.versions
        versions = {
            name: _version_of(document) for (_, name), document in self._profiles.store.items()
        }
        plan = plan_profiles(
            self._objects(),
            known_versions=self._known,
            before=before,
            used_versions=self._used.keys(),
            retained=self._retained(before),
        )
        if not plan.published.is_same(before):
            await self._write(plan.published, stored_profiles)
        self._verdicts, self._judged_versions = plan.verdicts, versions
        for name in plan.verdicts:
            self._controller.queue.add(name)
        period_s = self._settings.controllers.profile_unused_period
        due_s = [since_s + period_s - self._clock() for since_s in self._unused_since_s.values()]
        return max(min(due_s), 1.0) if due_s else None

    def _objects(self) -> list[ProfileObject]:
        return [read_object(document) for document in self._profiles.store.values()]

    def _retained(self, before: PublishedProfiles) -> frozenset[str]:
        """Return the versions that nothing needs since a short time."""
        drivers = {name for _, name in self._profiles.store}
        in_force = {hash_ for name, hash_ in before.in_force.items() if name in drivers}
        used = {hash_ for _, hash_ in self._used}
        now_s = self._clock()
        self._unused_since_s = {
            hash_: self._unused_since_s.get(hash_, now_s)
            for hash_ in before.versions
            if hash_ not in in_force and hash_ not in used
        }
        period_s = self._settings.controllers.profile_unused_period
        return frozenset(
            hash_ for hash_, since_s in self._unused_since_s.items() if now_s - since_s < period_s
        )

    async def _write(
        self, published_profiles: PublishedProfiles, stored_profiles: StoredProfiles | None
    ) -> None:
        data: dict[str, str | None] = dict(encode_published(published_profiles))
        namespace = self._settings.namespace
        if stored_profiles is None:
            raw = await self._client.create(
                CONFIG_MAPS,
                config_map_document(data, namespace=namespace, name=self._config_map),
                msgspec.Raw,
                namespace=namespace,
            )
        else:
            removed = dict.fromkeys(
                encode_published(stored_profiles.published).keys() - data.keys()
            )
            patch = {
                "metadata": {"resourceVersion": stored_profiles.resource_version},
                "data": {**removed, **data},
            }
            raw = await self._client.patch(
                CONFIG_MAPS,
                self._config_map,
                patch,
                PatchType.MERGE,
                msgspec.Raw,
                namespace=namespace,
            )
        self._stored.put(bytes(raw))
        log.info(
            "profiles.published",
            in_force=dict(published_profiles.in_force),
            versions=len(published_profiles.versions),
        )

    async def _update_status(self, name: str) -> None:
        document = self._profiles.store.get(("", name))
        verdict = self._verdicts.get(name)
        if document is None or verdict is None:
            return
        if self._judged_versions[name] != _version_of(document):
            return  # It changed while it was published, and is published again.
        status = build_status(
            document, verdict, self._facts(name), self._options, rfc3339(self._now())
        )
        if status == document.status:
            return
        await self._client.patch(
            DEVICE_TRANSLATION_PROFILES,
            name,
            status_patch(document.metadata, status),
            PatchType.MERGE,
            msgspec.Raw,
            subresource="status",
        )
        log.info("profile.updated", profile=name, conditions=_conditions(status))
        for event in profile_events(document, status):
            self._recorder.record(event)

    def _facts(self, driver: str) -> ProfileFacts:
        stored_profiles = self._stored.store.get((self._settings.namespace, self._config_map))
        published_profiles = (
            stored_profiles.published if stored_profiles is not None else PublishedProfiles()
        )
        profiles = {**self._files, **published_profiles.profiles()}
        slices = [slice_ for slice_ in self._slices.store.values() if slice_.spec.driver == driver]
        profile = profiles.get(driver)
        return ProfileFacts(
            profiles=profiles,
            classes=frozenset(name for _, name in self._classes.store),
            slices=len(slices),
            devices=count_devices(slices, profile) if profile is not None else {},
            replaces=replaced_source(driver, self._files, self._shipped),
            kept_versions=sum(
                version.driver == driver for version in published_profiles.versions.values()
            ),
        )


def _version_of(document: DeviceTranslationProfile) -> _ObjectVersion:
    """Return the identity of a spec: an object of the same name may be another one."""
    return document.metadata.uid, document.metadata.generation


def replaced_source(
    driver: str, files: Mapping[str, Profile], shipped: Mapping[str, Profile]
) -> str:
    """Return the source that the profile of an object replaces, in a word."""
    if driver not in files:
        return ""
    return "shipped" if files[driver] == shipped.get(driver) else "file"


def config_map_document(
    data: Mapping[str, str | None], *, namespace: str, name: str
) -> Mapping[str, Any]:
    """Return the ConfigMap to create."""
    labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "controller"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "data": dict(data),
    }


def _conditions(status: DeviceTranslationProfileStatus) -> Mapping[str, str]:
    return {condition.type: condition.status for condition in status.conditions or ()}


def controller(parts: Parts) -> Work:
    """Return the controller of profiles."""
    profiles = ProfileController(
        parts.client,
        parts.informers,
        parts.recorder,
        parts.settings,
        files=parts.files,
        shipped=load_profiles(),
        options=parts.options,
        now=parts.now,
    )
    return Work(controllers=profiles.controllers)
