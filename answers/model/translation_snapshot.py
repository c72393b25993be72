"""The snapshot that a translation depends on, of objects of files or of a cluster."""

from collections.abc import Mapping, Sequence

import msgspec

from admission import native_mappings
from admission.native_mappings import wide_mappings, with_wide_mappings
from allocator.model.feature_gates import Features
from answers.model.added_tolerations import find_added_tolerations
from answers.model.findings import DEFAULT_NAMESPACE, ObjectFinding
from answers.model.kinds import KINDS
from answers.model.objects import InputObject, decode_objects, merge_objects, of_kind
from kube.api.core import LimitRange, Namespace, Node, ResourceQuota
from kube.api.extended_resources import extended_resources
from kube.api.foreign_quotas import ForeignQuotaObject
from kube.api.network_attachments import NetworkAttachmentDefinition
from kube.api.ownership import AllocatorOwnership, bridge_scheduler, owned_drivers
from kube.api.resource import DeviceClass, ResourceClaimTemplate, ResourceSlice
from kube.api.tensor_fusion import WorkloadProfile
from kube.cel.comparisons import drivers_named_by_class
from quotas.resource_quotas.scopes import Quota, quota_of
from rules.context.inventory import Inventory
from translation.cluster.node_taints import summarize_taints
from translation.cluster.snapshot import (
    TemplateSummary,
    TranslationOptions,
    TranslationSnapshot,
    WideMapping,
    summarize_network,
)
from translation.compiling.claims import config_drivers, template_classes, template_digest
from translation.model.limit_ranges import LimitRangeSummary, limit_range_summary
from translation.profiles.device_facts import facts_by_driver, summary
from translation.profiles.profile import Profile
from translation.reading.foreign_quotas import by_namespace, summarize_foreign_quota
from translation.reading.workload_profiles import summarize_profile


def build_snapshot(
    profiles: Mapping[str, Profile],
    manifests: Sequence[InputObject],
    state: Sequence[InputObject] | None = None,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    is_whole: bool = False,
    consumable_capacity: bool = True,
) -> tuple[TranslationSnapshot, list[ObjectFinding]]:
    """Return the snapshot, and findings for wrong values in the state of the cluster.

    Args:
        manifests: The objects of `-f`; the caller reports wrong values in them.
        state: The objects of the cluster; None when nothing is known of it.
        namespace: The namespace for objects that name none.
        is_whole: The state has all kinds. If it may have less, one without any DeviceClass does not
            mean that there is none.
        consumable_capacity: True if the feature gate DRAConsumableCapacity is on.
    """
    objects = merge_objects(state or (), manifests, namespace)
    views, faults = decode_objects(objects, KINDS, namespace, reported_elsewhere=manifests)
    classes = [device_class for _, device_class in of_kind(views, DeviceClass)]
    has_classes = is_whole or any(object_.kind == "DeviceClass" for object_ in state or ())
    slices = [slice_ for _, slice_ in of_kind(views, ResourceSlice)]
    summaries = [facts for slice_ in slices if (facts := summary(slice_, profiles)) is not None]
    nodes = [node for _, node in of_kind(views, Node)]
    ownerships = [ownership for _, ownership in of_kind(views, AllocatorOwnership)]
    quotas: dict[str, dict[str, Quota]] = {}
    for place, quota in of_kind(views, ResourceQuota):
        quotas.setdefault(place, {})[quota.metadata.name] = quota_of(quota)
    limit_ranges: dict[str, dict[str, LimitRangeSummary]] = {}
    for place, limit_range in of_kind(views, LimitRange):
        bounds = limit_range_summary(limit_range)
        if bounds is not None:
            limit_ranges.setdefault(place, {})[limit_range.metadata.name] = bounds
    snapshot = TranslationSnapshot(
        profiles=profiles,
        facts=facts_by_driver(summaries),
        publishes=frozenset(facts.driver for facts in summaries) if is_whole or slices else None,
        classes=frozenset(device_class.metadata.name for device_class in classes)
        if has_classes
        else None,
        extended_resources=extended_resources(classes),
        class_drivers={class_.metadata.name: drivers_named_by_class(class_) for class_ in classes},
        class_configs={
            class_.metadata.name: drivers
            for class_ in classes
            if (drivers := config_drivers(class_))
        },
        templates={
            (place, template.metadata.name): TemplateSummary(
                digest=template_digest(template), classes=template_classes(template)
            )
            for place, template in of_kind(views, ResourceClaimTemplate)
        },
        quotas=quotas,
        limit_ranges=limit_ranges,
        foreign_quotas=by_namespace(
            (place, foreign_summary)
            for place, foreign_quota in of_kind(views, ForeignQuotaObject)
            if (foreign_summary := summarize_foreign_quota(foreign_quota)) is not None
        ),
        namespaces={
            namespace_.metadata.name: namespace_.metadata.labels or {}
            for _, namespace_ in of_kind(views, Namespace)
        },
        networks={
            (place, network.metadata.name): summarize_network(network)
            for place, network in of_kind(views, NetworkAttachmentDefinition)
        },
        workload_profiles={
            (place, profile.metadata.name): summarize_profile(profile)
            for place, profile in of_kind(views, WorkloadProfile)
        },
        node_taints=summarize_taints(
            nodes,
            slices,
            # Not every command reads the nodes of a whole cluster.
            is_known=bool(nodes),
            are_tolerations_added=find_added_tolerations(objects, namespace),
        ),
        owned_drivers=owned_drivers(ownerships),
        bridge_scheduler=bridge_scheduler(ownerships),
        consumable_capacity=consumable_capacity,
    )
    return snapshot, faults


def evaluate_mappings(
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    objects: Sequence[InputObject],
    namespace: str,
) -> TranslationSnapshot:
    """Return a snapshot with the DeviceClasses that map more than a resource name means.

    Args:
        objects: All that the snapshot is of.
        namespace: The namespace for objects that name none.
    """
    views, _ = decode_objects(objects, KINDS, namespace)
    classes = {
        device_class.metadata.name: device_class for _, device_class in of_kind(views, DeviceClass)
    }
    slices = [slice_ for _, slice_ in of_kind(views, ResourceSlice)]
    return with_wide_mappings(snapshot, options, classes, Inventory(slices).devices)


def find_wide_mappings(
    classes: Sequence[DeviceClass],
    slices: Sequence[ResourceSlice],
    options: TranslationOptions,
    profiles: Mapping[str, Profile],
) -> tuple[WideMapping, ...]:
    """Return the DeviceClasses that map more than a resource name means.

    Args:
        profiles: Driver to profile.
    """
    snapshot = TranslationSnapshot(
        profiles=profiles, extended_resources=extended_resources(classes)
    )
    by_name = {device_class.metadata.name: device_class for device_class in classes}
    verdicts = native_mappings.evaluate_mappings(
        by_name, snapshot, options, Inventory(slices).devices
    )
    return tuple(wide_mappings(verdicts).values())


def apply_features(snapshot: TranslationSnapshot, features: Features) -> TranslationSnapshot:
    """Restrict a snapshot to the gates of a cluster."""
    snapshot = msgspec.structs.replace(
        snapshot,
        consumable_capacity=snapshot.consumable_capacity and features.consumable_capacity,
    )
    if features.extended_resources:
        return snapshot
    return msgspec.structs.replace(snapshot, extended_resources={}, wide_mappings={})
