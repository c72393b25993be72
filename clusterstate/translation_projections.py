"""Projections that only translations read, so that other processes need not load them."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kube.api.core import LimitRange, ResourceQuota, ResourceQuotaStatus
from kube.api.foreign_quotas import ForeignQuotaObject
from kube.api.meta import ApiStruct, ObjectMeta, decode
from kube.api.network_attachments import NetworkAttachmentDefinition
from kube.api.resource import ResourceClaimTemplate, ResourceSlice
from kube.api.tensor_fusion import WorkloadProfile
from kube.manifests.plain_yaml import PlainYamlError, load_yaml
from kube.runtime.stores import Projection
from quotas.resource_quotas.scopes import Quota, quota_of
from quotas.resource_quotas.usage import is_of_devices
from translation.cluster.snapshot import NetworkSummary, TemplateSummary, summarize_network
from translation.compiling.claims import template_classes, template_digest
from translation.model.limit_ranges import LimitRangeSummary, limit_range_summary
from translation.profiles.device_facts import SliceSummary, summary
from translation.profiles.profile import Profile
from translation.reading.foreign_quotas import ForeignQuotaSummary, summarize_foreign_quota
from translation.reading.workload_profiles import ProfileSummary, summarize_profile


def project_quota(raw: bytes) -> Quota | None:
    """Project a ResourceQuota to the resources it counts; None if there are none."""
    quota = quota_of(decode(raw, ResourceQuota))
    return quota if quota.names else None


def project_quota_usage(raw: bytes) -> ResourceQuota | None:
    """Project a ResourceQuota to its amounts of devices and claims; None if it counts neither."""
    quota = decode(raw, ResourceQuota)
    hard = quota.status.hard or quota.spec.hard or {}
    counted = {name: amount for name, amount in hard.items() if is_of_devices(name)}
    if not counted:
        return None
    used = quota.status.used or {}
    return ResourceQuota(
        metadata=ObjectMeta(name=quota.metadata.name, namespace=quota.metadata.namespace),
        spec=msgspec.structs.replace(quota.spec, hard=counted),
        status=ResourceQuotaStatus(
            hard=counted, used={name: used[name] for name in counted if name in used}
        ),
    )


def foreign_quota_summaries(api_version: str, kind: str) -> Projection[ForeignQuotaSummary]:
    """Return the projection of another scheduler's quota to its devices; None if it has none.

    Args:
        api_version: The objects' apiVersion, which lists do not name; likewise `kind`.
    """

    def project(raw: bytes) -> ForeignQuotaSummary | None:
        quota = decode(raw, ForeignQuotaObject)
        return summarize_foreign_quota(
            msgspec.structs.replace(quota, api_version=api_version, kind=kind)
        )

    return project


def project_limit_range(raw: bytes) -> LimitRangeSummary | None:
    """Project a LimitRange to its bounds and defaults; None if it has none."""
    return limit_range_summary(decode(raw, LimitRange))


def project_template_digest(raw: bytes) -> TemplateSummary:
    """Project a ResourceClaimTemplate to the digest of its spec and its classes."""
    template = decode(raw, ResourceClaimTemplate)
    return TemplateSummary(digest=template_digest(template), classes=template_classes(template))


def slice_summaries(profiles: Callable[[], Mapping[str, Profile]]) -> Projection[SliceSummary]:
    """Return the projection of a ResourceSlice to the fields that a translation reads.

    Args:
        profiles: Returns driver to the profile in force.
    """

    def project(raw: bytes) -> SliceSummary | None:
        return summary(decode(raw, ResourceSlice), profiles())

    return project


def project_workload_profile(raw: bytes) -> ProfileSummary:
    """Project a WorkloadProfile to the annotations that its fields stand for."""
    return summarize_profile(decode(raw, WorkloadProfile))


def project_network(raw: bytes) -> NetworkSummary:
    """Project a NetworkAttachmentDefinition to its CNI configuration and its resource name."""
    return summarize_network(decode(raw, NetworkAttachmentDefinition))


def project_kueue_classes(raw: bytes) -> frozenset[str]:
    """Project Kueue's configuration to the DeviceClasses that it counts; none if it names none.

    Source: kueue apis/config, Configuration.resources.deviceClassMappings.
    """
    data = decode(raw, _ConfigMap).data or {}
    try:
        document = load_yaml(data.get(_KUEUE_KEY, ""), _MAX_KUEUE_BYTES)
        configuration = msgspec.convert(document or {}, _KueueConfiguration)
    except (PlainYamlError, msgspec.ValidationError, RecursionError):
        return frozenset()
    mappings = configuration.resources.mappings if configuration.resources else ()
    return frozenset(name for mapping in mappings for name in mapping.classes)


_KUEUE_KEY: Final = "controller_manager_config.yaml"
_MAX_KUEUE_BYTES: Final = 64 * 1024
"""Kueue's own file has some five kilobytes."""


class _ConfigMap(ApiStruct, frozen=True, kw_only=True):
    data: Mapping[str, str] | None = None


class _KueueMapping(msgspec.Struct, frozen=True, kw_only=True):
    classes: tuple[str, ...] = msgspec.field(default=(), name="deviceClassNames")


class _KueueResources(msgspec.Struct, frozen=True, kw_only=True):
    mappings: tuple[_KueueMapping, ...] = msgspec.field(default=(), name="deviceClassMappings")


class _KueueConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    resources: _KueueResources | None = None
