"""The conversion of all quotas of a cluster that name devices, into one kind of quota."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kube.manifests.source import SourceObject
from migration.conversion.quota_amounts import NamespaceUse
from migration.conversion.quota_conversion import ConvertedQuota
from migration.quotas.device_quotas import to_device_quota
from migration.quotas.found import find_quotas
from migration.quotas.measured import measure_lines
from migration.quotas.measures import Measures
from migration.quotas.model import FoundQuota, MeasuredLine, QuotaConversion, Target
from migration.quotas.queues import KueueWriter, to_volcano
from migration.quotas.resource_quotas import to_resource_quota
from translation.cluster.snapshot import TranslationOptions
from translation.profiles.profile import Profile

_COUNTED: Final = ", by the amount of {}, the line that Kubernetes counts"
_WRITERS: Final = {
    Target.DEVICE: to_device_quota,
    Target.CORE: to_resource_quota,
    Target.VOLCANO: to_volcano,
}


class ConversionInput(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with quotas to convert.

    Attributes:
        profiles: Driver to profile.
        namespace: The namespace for objects that name none.
        usage: Namespace to the devices that its pods use; None for whole amounts where a key may become devices of
            several classes.
        absent: The DeviceClasses that are nowhere in the cluster.
    """

    objects: tuple[SourceObject, ...]
    profiles: Mapping[str, Profile]
    options: TranslationOptions
    namespace: str
    usage: Mapping[str, NamespaceUse] | None = None
    absent: frozenset[str] = frozenset()


def convert_to(target: Target, cluster: ConversionInput) -> list[QuotaConversion]:
    """Return the conversion of each quota; ResourceQuotas are not converted to ResourceQuotas here.

    `migration.conversion.quota_conversion` adds lines for claims to ResourceQuotas that exist.
    """
    measures = Measures(cluster.profiles, cluster.options)
    measured = [
        (quota, *_measure(quota, measures, cluster, counts_pods=target is Target.DEVICE))
        for quota in find_quotas(cluster.objects, measures, cluster.namespace)
        if target is not Target.CORE or not quota.is_core
    ]
    if target is not Target.KUEUE:
        return [
            _with_counted(quota, _WRITERS[target](quota, lines, missing))
            for quota, lines, missing in measured
        ]
    writer = KueueWriter(line for _, lines, _ in measured for line in lines)
    conversions = [
        _with_counted(quota, writer.write(quota, lines, missing))
        for quota, lines, missing in measured
    ]
    return [writer.configuration, *conversions] if conversions else []


def convert_rest(
    converted_quotas: Sequence[ConvertedQuota], cluster: ConversionInput
) -> list[QuotaConversion]:
    """Return DeviceQuotas for quotas and lines that ResourceQuotas do not replace.

    Args:
        converted_quotas: The ResourceQuotas with their added lines, and the lines that none replaces.
    """
    rest = {quota.object: quota.not_convertible for quota in converted_quotas}
    measures = Measures(cluster.profiles, cluster.options)
    conversions = []
    for quota in find_quotas(cluster.objects, measures, cluster.namespace):
        lines = quota.lines
        if quota.is_core:
            lines = tuple(line for line in lines if line.name in rest.get(quota.object, {}))
        if lines or not quota.is_core:
            rest_of_quota = msgspec.structs.replace(quota, lines=lines)
            measured = _measure(rest_of_quota, measures, cluster, counts_pods=True)
            conversion = to_device_quota(rest_of_quota, *measured)
            conversions.append(_with_counted(rest_of_quota, conversion))
    return conversions


def _with_counted(quota: FoundQuota, conversion: QuotaConversion) -> QuotaConversion:
    """Return a conversion that names the lines with the amount of another one."""
    counted_by = {line.name: line.counted_by for line in quota.lines if line.counted_by}
    if not counted_by:
        return conversion
    converted = {
        line: f"{text}{_COUNTED.format(counted_by[line])}" if line in counted_by else text
        for line, text in conversion.converted.items()
    }
    return msgspec.structs.replace(conversion, converted=converted)


def _measure(
    quota: FoundQuota, measures: Measures, cluster: ConversionInput, *, counts_pods: bool
) -> tuple[tuple[MeasuredLine, ...], Mapping[str, str]]:
    used = _used(quota, cluster)
    return measure_lines(quota, measures, used, cluster.absent, counts_pods=counts_pods)


def _used(quota: FoundQuota, cluster: ConversionInput) -> NamespaceUse | None:
    """Return the devices that the pods of a quota use."""
    if cluster.usage is None:
        return None
    return NamespaceUse.merged(cluster.usage.get(name, NamespaceUse()) for name in quota.namespaces)
