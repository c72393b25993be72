"""ResourceQuotas for quotas of other schedulers: numbers of devices of a class."""

from collections.abc import Iterable, Mapping
from typing import Final

from migration.quotas.line_amounts import line_amounts
from migration.quotas.model import FoundQuota, MeasuredLine, Part, QuotaConversion
from quotas.resource_quotas.scopes import devices_of_class

_NO_AMOUNTS: Final = "no ResourceQuota counts shares of a device; a DeviceQuota does (--to device)"
_NO_CAPS: Final = "a ResourceQuota has no caps for one request or device"
_NO_SELECTORS: Final = "a ResourceQuota counts all devices of a class, and these are some"
_SEVERAL: Final = "a ResourceQuota is of one namespace, and this limits several together"


def to_resource_quota(
    quota: FoundQuota, lines: Iterable[MeasuredLine], missing: Mapping[str, str]
) -> QuotaConversion:
    """Return a ResourceQuota for a quota of one namespace.

    Args:
        lines: Its lines, measured.
        missing: Lines that measure nothing to the reason.
    """
    lines_converted = line_amounts(
        quota,
        lines,
        missing,
        target="ResourceQuota",
        name_of=lambda measure: devices_of_class(measure.device_class),
        reason_of=lambda entry: _reason(quota, entry),
    )
    document = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": quota.name, "namespace": next(iter(quota.namespaces), "")},
        "spec": {"hard": {name: str(amount) for name, amount in lines_converted.amounts.items()}},
    }
    return QuotaConversion(
        object=quota.object,
        converted=lines_converted.converted,
        not_convertible=lines_converted.not_convertible,
        documents=(document,) if lines_converted.amounts else (),
    )


def _reason(quota: FoundQuota, entry: MeasuredLine) -> str:
    if not quota.namespaces:
        return quota.unknown_namespaces
    if len(quota.namespaces) > 1:
        return _SEVERAL
    if entry.measure is None or entry.measure.capacity:
        return _NO_AMOUNTS
    if entry.line.part is not Part.TOTAL:
        return _NO_CAPS
    return _NO_SELECTORS if entry.measure.selectors else ""
