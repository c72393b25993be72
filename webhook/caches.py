"""What the webhook knows of the cluster, kept up to date by watches, so that a review calls nobody.

Of each object only what a translation reads is kept: of a slice a summary, of a template the digest
of its spec, of a quota the names that it counts. A part of the world is put together anew when the
next review after a change asks for it.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kube.api.core import Namespace, ResourceQuota
from kube.api.meta import ObjectMeta, decode
from kube.api.resource import DeviceClass, DeviceClassSpec, ResourceClaimTemplate, ResourceSlice
from kube.client import Client
from kube.informer import DEFAULTS, Handler, Informer, InformerSettings
from webhook.claims import template_digest
from webhook.extended_resources import extended_resources
from webhook.inventory import SliceSummary, facts_by_driver, summary
from webhook.profile import Profile
from webhook.resources import (
    DEVICE_CLASSES,
    NAMESPACES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
)
from webhook.world import World


class Caches:
    """Five informers, and the world that they tell.

    Attributes:
        informers: Resource name to informer, for probes and metrics.
    """

    def __init__(
        self,
        client: Client,
        profiles: Mapping[str, Profile],
        *,
        settings: InformerSettings = DEFAULTS,
    ) -> None:
        def of_slice(raw: bytes) -> SliceSummary | None:
            return summary(decode(raw, ResourceSlice), profiles)

        self._classes = Informer(
            client,
            DEVICE_CLASSES,
            kept_class,
            handlers=(self._noted("classes"),),
            settings=settings,
        )
        self._slices = Informer(
            client, RESOURCE_SLICES, of_slice, handlers=(self._noted("facts"),), settings=settings
        )
        self._templates = Informer(
            client, RESOURCE_CLAIM_TEMPLATES, kept_template, settings=settings
        )
        self._quotas = Informer(
            client,
            RESOURCE_QUOTAS,
            kept_quota,
            handlers=(self._noted("quotas"),),
            settings=settings,
        )
        self._namespaces = Informer(
            client,
            NAMESPACES,
            kept_labels,
            handlers=(self._noted("namespaces"),),
            settings=settings,
        )
        self._parts: Final[Mapping[str, Callable[[], Mapping[str, Any]]]] = {
            "classes": self._of_classes,
            "facts": self._of_slices,
            "quotas": self._of_quotas,
            "namespaces": self._of_namespaces,
        }
        self._changed = set(self._parts)
        # Templates change with every workload; their store already is what a review looks up.
        self._world = World(profiles=profiles, templates=self._templates.store)
        self.informers: Final[Mapping[str, Informer[Any]]] = {
            "deviceclasses": self._classes,
            "resourceslices": self._slices,
            "resourceclaimtemplates": self._templates,
            "resourcequotas": self._quotas,
            "namespaces": self._namespaces,
        }

    def check(self) -> str:
        """Return which first lists are not complete, so that the world cannot be believed yet."""
        missing = [name for name, each in self.informers.items() if not each.synced.is_set()]
        return f"waiting for {', '.join(missing)}" if missing else ""

    async def wait_synced(self) -> None:
        """Return once the world can be believed."""
        for informer in self.informers.values():
            await informer.synced.wait()

    def world(self) -> World:
        """Return the world as it is now; the same object while nothing changes.

        Its templates are a live view, so a picture is good until the next await.
        """
        if self._changed:
            fresh: dict[str, Any] = {}
            for part in sorted(self._changed):
                fresh |= self._parts[part]()
            self._changed.clear()
            self._world = msgspec.structs.replace(self._world, **fresh)
        return self._world

    async def run(self) -> None:
        """Follow the API server; ends only by cancellation."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers.values():
                group.create_task(informer.run())

    def _noted(self, part: str) -> Handler[Any]:
        def note(_key: tuple[str, str], old: object, new: object) -> None:
            if old != new:  # Most changes are of what is not kept.
                self._changed.add(part)

        return note

    def _of_classes(self) -> Mapping[str, Any]:
        kept = self._classes.store
        return {
            "classes": frozenset(name for _, name in kept),
            "extended_resources": extended_resources(kept.values()),
        }

    def _of_slices(self) -> Mapping[str, Any]:
        return {"facts": facts_by_driver(self._slices.store.values())}

    def _of_quotas(self) -> Mapping[str, Any]:
        quotas: dict[str, dict[str, frozenset[str]]] = {}
        for (namespace, name), keys in self._quotas.store.items():
            quotas.setdefault(namespace, {})[name] = keys
        return {"quotas": quotas}

    def _of_namespaces(self) -> Mapping[str, Any]:
        return {
            "namespaces": {name: labels for (_, name), labels in self._namespaces.store.items()}
        }


# --- what is kept of an object --------------------------------------------------------------------


def kept_class(raw: bytes) -> DeviceClass:
    """Return a DeviceClass with nothing but what maps it to a resource name."""
    found = decode(raw, DeviceClass)
    return DeviceClass(
        metadata=ObjectMeta(
            name=found.metadata.name, creation_timestamp=found.metadata.creation_timestamp
        ),
        spec=DeviceClassSpec(extended_resource_name=found.spec.extended_resource_name),
    )


def kept_template(raw: bytes) -> str:
    """Return the digest of a ResourceClaimTemplate's spec."""
    return template_digest(decode(raw, ResourceClaimTemplate))


def kept_quota(raw: bytes) -> frozenset[str] | None:
    """Return the names that a ResourceQuota counts; None when it counts nothing."""
    return frozenset(decode(raw, ResourceQuota).spec.hard or ()) or None


def kept_labels(raw: bytes) -> Mapping[str, str]:
    """Return the labels of a Namespace."""
    return decode(raw, Namespace).metadata.labels or {}
