"""The cluster as a translation reads it, kept up to date by watches: a review makes no call.

Of each object only what a translation reads is kept: of a slice a summary, of a template the digest of
its spec and its classes, of a quota what it counts. A part of the snapshot is built again when the
first review after a change needs it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from admission.native_mappings import (
    MappingKey,
    MappingVerdicts,
    text_verdict,
    wide_mappings,
)
from allocator.model.feature_gates import Features
from clusterstate.autoscalers import INSTALLED, KUEUE_CONFIGURATION, ObjectName
from clusterstate.high_water_config_map import (
    HighWaterMarks,
    once_published,
    project_high_water_marks,
)
from clusterstate.projections import (
    project_class,
    project_namespace_labels,
    project_policy,
    project_presence,
)
from clusterstate.published_gates import CONSUMABLE_CAPACITY, project_gates
from clusterstate.translation_projections import (
    foreign_quota_summaries,
    project_kueue_classes,
    project_limit_range,
    project_network,
    project_quota,
    project_quota_usage,
    project_template_digest,
    project_workload_profile,
    slice_summaries,
)
from kube.api.core import ResourceQuota
from kube.api.extended_resources import extended_resources
from kube.api.ownership import bridge_scheduler, owned_drivers, project_ownership
from kube.api.policy import effective_policies
from kube.api.resource import DeviceClass
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    CONFIG_MAPS,
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITY_POLICIES,
    LIMIT_RANGES,
    NAMESPACE_QUOTA_RESOURCES,
    NAMESPACES,
    NETWORK_ATTACHMENTS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    WORKLOAD_PROFILES,
)
from kube.cel.comparisons import drivers_named_by_class
from kube.runtime.informers import InformerFactory, Subscription, unsynced_resources, wait_synced
from kube.runtime.stores import Handler, Projection
from quotas.resource_quotas.scopes import Quota
from translation.cluster.snapshot import (
    ClaimUnawareComponent,
    TranslationOptions,
    TranslationSnapshot,
    WideMapping,
)
from translation.compiling.claims import config_drivers
from translation.model.limit_ranges import LimitRangeSummary
from translation.profiles.device_facts import PublishedFacts
from translation.profiles.profile import Profile
from translation.reading.foreign_quotas import by_namespace

T = TypeVar("T")


class SnapshotCache:
    """Subscriptions, and the snapshot that is built from them.

    Nothing waits for the subscriptions to claim-unaware components: where they may not be read, or do
    not exist, there is no warning. Nor for policies, ownerships, the networks of Multus, the WorkloadProfiles of
    tensor-fusion and the quotas of other schedulers, whose definitions may not be installed.
    """

    def __init__(
        self,
        informers: InformerFactory,
        profiles: Mapping[str, Profile],
        *,
        claim_aware: Collection[ClaimUnawareComponent] = frozenset(),
        inventory: ObjectName | None = None,
        features: Features | None = None,
        options: TranslationOptions | None = None,
    ) -> None:
        """Subscribe to the objects that a translation reads.

        Args:
            claim_aware: Components that see claims in this cluster, so that nothing looks for them.
            inventory: The ConfigMap of the high-water mark, and of the feature gates.
            features: The gates by the settings, for those that nobody has found out.
            options: The translation options for the validation of mapped resource names.
        """
        self._options = options or TranslationOptions()
        self._facts = PublishedFacts()
        self._by_text: dict[MappingKey, WideMapping | None] = {}
        self._by_devices: MappingVerdicts = {}
        self._profiles = profiles
        self._features = features or Features()
        subscribe = informers.subscribe
        self._classes = subscribe(
            DEVICE_CLASSES, project_class, handlers=[self._read_class, self._mark("classes")]
        )
        self._slices = subscribe(
            RESOURCE_SLICES,
            slice_summaries(lambda: self._profiles),
            handlers=[self._facts.replace, self._mark("facts")],
        )
        self._templates = subscribe(RESOURCE_CLAIM_TEMPLATES, project_template_digest)
        self._quotas = subscribe(RESOURCE_QUOTAS, project_quota, handlers=[self._mark("quotas")])
        self._quota_usage: dict[str, dict[str, ResourceQuota]] = {}
        subscribe(RESOURCE_QUOTAS, project_quota_usage, handlers=[self._replace_quota_usage])
        self._limit_ranges = subscribe(
            LIMIT_RANGES, project_limit_range, handlers=[self._mark("limit_ranges")]
        )
        self._namespaces = subscribe(
            NAMESPACES, project_namespace_labels, handlers=[self._mark("namespaces")]
        )
        self._policies = subscribe(
            DEVICE_COMPATIBILITY_POLICIES, project_policy, handlers=[self._mark("policies")]
        )
        self._ownerships = subscribe(
            ALLOCATOR_OWNERSHIPS, project_ownership, handlers=[self._mark("ownerships")]
        )
        self._workload_profiles = subscribe(
            WORKLOAD_PROFILES,
            project_workload_profile,
            handlers=[self._mark("workload_profiles")],
        )
        self._networks = subscribe(
            NETWORK_ATTACHMENTS, project_network, handlers=[self._mark("networks")]
        )
        self._foreign_quotas = [
            subscribe(
                resource,
                foreign_quota_summaries(api_version, kind),
                handlers=[self._mark("foreign_quotas")],
            )
            for (api_version, kind), resource in NAMESPACE_QUOTA_RESOURCES.items()
        ]
        self._components = {
            component: self._subscribe_to(informers, name_of_object, project_presence)
            for component, name_of_object in INSTALLED.items()
            if component not in claim_aware
        }
        self._kueue_classes = (
            self._subscribe_to(informers, KUEUE_CONFIGURATION, project_kueue_classes)
            if ClaimUnawareComponent.KUEUE in self._components
            else None
        )
        self._marks = (
            informers.subscribe(
                CONFIG_MAPS,
                project_high_water_marks,
                namespace=inventory.namespace,
                field_selector=f"metadata.name={inventory.name}",
                handlers=[self._mark("marks")],
            )
            if inventory is not None
            else None
        )
        self._gates = (
            informers.subscribe(
                CONFIG_MAPS,
                project_gates,
                namespace=inventory.namespace,
                field_selector=f"metadata.name={inventory.name}",
                handlers=[self._mark("gates")],
            )
            if inventory is not None
            else None
        )
        self._parts: Final[Mapping[str, Callable[[], Mapping[str, Any]]]] = {
            "classes": self._build_classes,
            "facts": self._build_facts,
            "quotas": self._build_quotas,
            "limit_ranges": self._build_limit_ranges,
            "foreign_quotas": self._build_foreign_quotas,
            "namespaces": self._build_namespaces,
            "claim_unaware_components": self._build_components,
            "policies": self._build_policies,
            "ownerships": self._build_ownerships,
            "marks": self._build_marks,
            "gates": self._build_gates,
            "workload_profiles": self._build_workload_profiles,
            "networks": self._build_networks,
        }
        self._outdated = set(self._parts)
        # Templates change with every workload; a review looks them up in the store itself.
        self._snapshot = TranslationSnapshot(
            profiles=profiles, templates=self._templates.store, quota_usage=self._quota_usage
        )
        self._required: Final[Sequence[Subscription[Any]]] = (
            self._classes,
            self._slices,
            self._templates,
            self._quotas,
            self._limit_ranges,
            self._namespaces,
        )

    def replace_profiles(
        self, profiles: Mapping[str, Profile], versions: Mapping[str, Profile]
    ) -> None:
        """Translate by other profiles from now on, and read the slices again by them.

        Args:
            profiles: Driver to profile.
            versions: Content hash to a version that is kept.
        """
        if profiles != self._profiles:
            self._profiles = profiles
            self._slices.refresh()
        self._snapshot = msgspec.structs.replace(
            self._snapshot, profiles=self._profiles, profile_versions=versions
        )
        for (_, name), device_class in self._classes.store.items():
            self._read_class(("", name), None, device_class)
        self._outdated.add("classes")

    def replace_mapping_verdicts(self, verdicts: MappingVerdicts) -> None:
        """Take over the mapped names that are exact by the published devices; see `MappingEvaluator`."""
        if verdicts != self._by_devices:
            self._by_devices = verdicts
            self._outdated.add("classes")

    def check(self) -> str:
        """Return the resources that are not synced, as a readiness check."""
        return unsynced_resources(self._required)

    async def wait_synced(self) -> None:
        """Return once the snapshot is complete."""
        await wait_synced(self._required)

    def snapshot(self) -> TranslationSnapshot:
        """Return the present snapshot; the same object while nothing changes.

        Its templates are a live view, so a snapshot is valid until the next await.
        """
        if self._outdated:
            fresh: dict[str, Any] = {}
            for part in sorted(self._outdated):
                fresh |= self._parts[part]()
            self._outdated.clear()
            if fresh:
                self._snapshot = msgspec.structs.replace(self._snapshot, **fresh)
        return self._snapshot

    def _subscribe_to(
        self, informers: InformerFactory, name_of_object: ObjectName, projection: Projection[T]
    ) -> Subscription[T]:
        """Subscribe to one object that may exist or not."""
        return informers.subscribe(
            name_of_object.resource,
            projection,
            namespace=name_of_object.namespace,
            field_selector=f"metadata.name={name_of_object.name}",
            handlers=[self._mark("claim_unaware_components")],
        )

    def _mark(self, part: str) -> Handler[Any]:
        """Return a handler that marks a part as outdated."""

        def mark(_key: tuple[str, str], old: object, new: object) -> None:
            if old != new:  # Most changes are of fields that are not projected.
                self._outdated.add(part)

        return mark

    def _replace_quota_usage(
        self, key: tuple[str, str], _old: ResourceQuota | None, new: ResourceQuota | None
    ) -> None:
        """Replace the use of a quota; a review looks it up by its namespace."""
        namespace, name = key
        if new is not None:
            self._quota_usage.setdefault(namespace, {})[name] = new
            return
        quotas = self._quota_usage.get(namespace, {})
        quotas.pop(name, None)
        if not quotas:
            self._quota_usage.pop(namespace, None)

    def _read_class(
        self, _key: tuple[str, str], old: DeviceClass | None, new: DeviceClass | None
    ) -> None:
        """Evaluate the name that a class maps by its text, so that no review has to."""
        if old is not None:
            for mapping in text_verdict(old, self._snapshot, self._options):
                self._by_text.pop(mapping, None)
        if new is not None:
            self._by_text |= text_verdict(new, self._snapshot, self._options)

    # --- parts ------------------------------------------------------------------------------------

    def _build_classes(self) -> Mapping[str, Any]:
        classes = self._classes.store
        mapped_names = extended_resources(classes.values())
        return {
            "classes": frozenset(name for _, name in classes),
            "extended_resources": mapped_names,
            "wide_mappings": self._wide_mappings(mapped_names),
            "class_drivers": {
                name: drivers_named_by_class(device_class)
                for (_, name), device_class in classes.items()
            },
            "class_configs": {
                name: drivers
                for (_, name), device_class in classes.items()
                if (drivers := config_drivers(device_class))
            },
        }

    def _wide_mappings(self, mapped_names: Mapping[str, str]) -> Mapping[str, WideMapping]:
        """Return the mappings that are not exact: by the devices, and by text before these are known."""
        return wide_mappings(
            {
                mapping: self._by_devices.get(mapping, fault)
                for mapping, fault in self._by_text.items()
                if mapped_names.get(mapping.resource) == mapping.device_class
            }
        )

    def _build_facts(self) -> Mapping[str, Any]:
        facts = self._facts.by_driver()
        if facts is self._snapshot.facts:
            return {}  # Answers that are kept for this snapshot stay valid.
        return {"facts": facts, "publishes": frozenset(facts)}

    def _build_quotas(self) -> Mapping[str, Any]:
        quotas: dict[str, dict[str, Quota]] = {}
        for (namespace, name), quota in self._quotas.store.items():
            quotas.setdefault(namespace, {})[name] = quota
        return {"quotas": quotas}

    def _build_limit_ranges(self) -> Mapping[str, Any]:
        limit_ranges: dict[str, dict[str, LimitRangeSummary]] = {}
        for (namespace, name), summary in self._limit_ranges.store.items():
            limit_ranges.setdefault(namespace, {})[name] = summary
        return {"limit_ranges": limit_ranges}

    def _build_foreign_quotas(self) -> Mapping[str, Any]:
        quotas = (
            (namespace, quota)
            for subscription in self._foreign_quotas
            for (namespace, _), quota in subscription.store.items()
        )
        return {"foreign_quotas": by_namespace(quotas)}

    def _build_namespaces(self) -> Mapping[str, Any]:
        return {
            "namespaces": {name: labels for (_, name), labels in self._namespaces.store.items()}
        }

    def _build_policies(self) -> Mapping[str, Any]:
        return {"policies": effective_policies(self._policies.store.values())}

    def _build_ownerships(self) -> Mapping[str, Any]:
        ownerships = self._ownerships.store.values()
        return {
            "owned_drivers": owned_drivers(ownerships),
            "bridge_scheduler": bridge_scheduler(ownerships),
        }

    def _build_workload_profiles(self) -> Mapping[str, Any]:
        return {"workload_profiles": dict(self._workload_profiles.store)}

    def _build_networks(self) -> Mapping[str, Any]:
        return {"networks": dict(self._networks.store)}

    def _build_marks(self) -> Mapping[str, Any]:
        stored_marks = self._marks.store.values() if self._marks is not None else ()
        marks = next(iter(stored_marks), HighWaterMarks())
        return {"once_published": once_published(marks.combined_mark)}

    def _build_gates(self) -> Mapping[str, Any]:
        stored_gates = self._gates.store.values() if self._gates is not None else ()
        gates = next(iter(stored_gates), {})
        return {
            "consumable_capacity": gates.get(
                CONSUMABLE_CAPACITY, self._features.consumable_capacity
            )
        }

    def _build_components(self) -> Mapping[str, Any]:
        configurations = self._kueue_classes.store if self._kueue_classes is not None else {}
        counted_components = frozenset[str]().union(*configurations.values())
        return {
            "claim_unaware_components": {
                component: counted_components
                if component is ClaimUnawareComponent.KUEUE
                else frozenset()
                for component, presence in self._components.items()
                if presence.store
            }
        }
