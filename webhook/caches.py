"""What the webhook knows of the cluster, kept up to date by watches, so that a review calls nobody.

Of each object only what a translation reads is kept: of a slice a summary, of a template the digest
of its spec and its classes, of a quota what it counts, of what may not see claims that it is there. A part of the world is put together anew when the
next review after a change asks for it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from kube.api.core import Namespace, ResourceQuota
from kube.api.meta import ApiStruct, ObjectMeta, decode
from kube.api.policy import DeviceCompatibilityPolicy, in_force
from kube.api.resource import DeviceClass, DeviceClassSpec, ResourceClaimTemplate, ResourceSlice
from kube.api.url import Resource
from kube.client import Client
from kube.informer import DEFAULTS, Handler, Informer, InformerSettings
from webhook.claims import template_classes, template_digest
from webhook.extended_resources import extended_resources
from webhook.inventory import SliceSummary, facts_by_driver, summary
from webhook.profile import Profile
from webhook.quotas import Quota, quota_of
from webhook.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITY_POLICIES,
    NAMESPACES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
)
from webhook.world import Onlooker, Template, World


class Named(NamedTuple):
    """One object; the namespace of a cluster-scoped one is empty."""

    resource: Resource
    namespace: str
    name: str


NAMED: Final[Mapping[Onlooker, Named]] = {
    Onlooker.CLUSTER_AUTOSCALER: Named(CONFIG_MAPS, "kube-system", "cluster-autoscaler-status"),
    Onlooker.KARPENTER: Named(CUSTOM_RESOURCE_DEFINITIONS, "", "nodepools.karpenter.sh"),
    Onlooker.KUEUE: Named(CUSTOM_RESOURCE_DEFINITIONS, "", "clusterqueues.kueue.x-k8s.io"),
}
"""Onlooker to an object that is there when it is installed."""
KUEUE_CONFIGURATION: Final = Named(CONFIG_MAPS, "kueue-system", "kueue-manager-config")
"""Where Kueue's manifests and its chart keep its configuration."""


class Caches:
    """Informers, and the world that they tell.

    Attributes:
        informers: Resource name to informer, for probes and metrics.
        onlooking: Those that tell who may not see claims. Nobody waits for them: without the right
            to look, or where nothing is found, nobody is warned.
        unawaited: All for which nobody waits: these, and policies, of which there are none where our
            definition of them is not installed.
    """

    def __init__(
        self,
        client: Client,
        profiles: Mapping[str, Profile],
        *,
        seeing: Collection[Onlooker] = frozenset(),
        settings: InformerSettings = DEFAULTS,
    ) -> None:
        """Remember what to follow; nothing is asked before `run`.

        Args:
            seeing: Onlookers that nobody has to look for.
        """

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
            "onlookers": self._of_onlookers,
            "policies": self._of_policies,
        }
        self._onlookers = {
            onlooker: self._one(client, NAMED[onlooker], kept_presence, settings)
            for onlooker in Onlooker
            if onlooker not in seeing
        }
        self._counted = self._one(client, KUEUE_CONFIGURATION, kept_mapped_classes, settings)
        kueue = [self._counted] if Onlooker.KUEUE in self._onlookers else []
        self.onlooking: Final[tuple[Informer[Any], ...]] = (*self._onlookers.values(), *kueue)
        self._policies = Informer(
            client,
            DEVICE_COMPATIBILITY_POLICIES,
            kept_policy,
            handlers=(self._noted("policies"),),
            settings=settings,
        )
        self.unawaited: Final[tuple[Informer[Any], ...]] = (*self.onlooking, self._policies)
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
            for informer in (*self.informers.values(), *self.unawaited):
                group.create_task(informer.run())

    def _one(
        self,
        client: Client,
        named: Named,
        keep: Callable[[bytes], frozenset[str] | None],
        settings: InformerSettings,
    ) -> Informer[frozenset[str]]:
        """Return the informer of one object, which may be there or not."""
        return Informer(
            client,
            named.resource,
            keep,
            namespace=named.namespace,
            field_selector=f"metadata.name={named.name}",
            handlers=(self._noted("onlookers"),),
            settings=settings,
        )

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
        quotas: dict[str, dict[str, Quota]] = {}
        for (namespace, name), quota in self._quotas.store.items():
            quotas.setdefault(namespace, {})[name] = quota
        return {"quotas": quotas}

    def _of_namespaces(self) -> Mapping[str, Any]:
        return {
            "namespaces": {name: labels for (_, name), labels in self._namespaces.store.items()}
        }

    def _of_policies(self) -> Mapping[str, Any]:
        return {"policies": in_force(self._policies.store.values())}

    def _of_onlookers(self) -> Mapping[str, Any]:
        counted = frozenset().union(*self._counted.store.values())
        return {
            "onlookers": {
                onlooker: counted if onlooker is Onlooker.KUEUE else frozenset()
                for onlooker, informer in self._onlookers.items()
                if informer.store
            }
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


def kept_template(raw: bytes) -> Template:
    """Return what is known of a ResourceClaimTemplate."""
    found = decode(raw, ResourceClaimTemplate)
    return Template(digest=template_digest(found), classes=template_classes(found))


def kept_policy(raw: bytes) -> DeviceCompatibilityPolicy:
    """Return a DeviceCompatibilityPolicy without what changes while it says the same."""
    found = decode(raw, DeviceCompatibilityPolicy)
    return DeviceCompatibilityPolicy(
        metadata=ObjectMeta(
            name=found.metadata.name, creation_timestamp=found.metadata.creation_timestamp
        ),
        spec=found.spec,
    )


def kept_quota(raw: bytes) -> Quota | None:
    """Return what a ResourceQuota counts; None when it counts nothing."""
    quota = quota_of(decode(raw, ResourceQuota))
    return quota if quota.names else None


def kept_presence(_raw: bytes) -> frozenset[str]:
    """Return that an object is there, and nothing of it."""
    return frozenset()


def kept_mapped_classes(raw: bytes) -> frozenset[str]:
    """Return the DeviceClasses whose claims Kueue counts; none where its configuration says none.

    Source: kueue apis/config, Configuration.resources.deviceClassMappings.
    """
    data = decode(raw, _ConfigMap).data or {}
    try:
        document = yaml.safe_load(data.get(_KUEUE_KEY, ""))
        configuration = msgspec.convert(document or {}, _KueueConfiguration)
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError):
        return frozenset()
    mappings = configuration.resources.mappings if configuration.resources else ()
    return frozenset(name for mapping in mappings for name in mapping.classes)


_KUEUE_KEY: Final = "controller_manager_config.yaml"


class _ConfigMap(ApiStruct, frozen=True, kw_only=True):
    data: Mapping[str, str] | None = None


class _KueueMapping(msgspec.Struct, frozen=True, kw_only=True):
    classes: tuple[str, ...] = msgspec.field(default=(), name="deviceClassNames")


class _KueueResources(msgspec.Struct, frozen=True, kw_only=True):
    mappings: tuple[_KueueMapping, ...] = msgspec.field(default=(), name="deviceClassMappings")


class _KueueConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    resources: _KueueResources | None = None


def kept_labels(raw: bytes) -> Mapping[str, str]:
    """Return the labels of a Namespace."""
    return decode(raw, Namespace).metadata.labels or {}
