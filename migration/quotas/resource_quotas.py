"""ResourceQuotas for quotas of other schedulers: numbers of devices of a class."""

from collections.abc import Iterable, Mapping
from typing import Final

from kube.quantity import Quantity
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
    not_convertible = {**quota.dropped, **missing}
    converted: dict[str, str] = {}
    hard: dict[str, Quantity] = {}
    for entry in lines:
        reason = _reason(quota, entry)
        if entry.measure is None or reason:
            not_convertible[entry.line.name] = reason
            continue
        name = devices_of_class(entry.measure.device_class)
        hard[name] = min(hard.get(name, entry.amount), entry.amount)
        converted[entry.line.name] = f"{name} of ResourceQuota {quota.name}"
    document = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": quota.name, "namespace": next(iter(quota.namespaces), "")},
        "spec": {"hard": {name: str(amount) for name, amount in hard.items()}},
    }
    return QuotaConversion(
        object=quota.object,
        converted=converted,
        not_convertible=not_convertible,
        documents=(document,) if hard else (),
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
