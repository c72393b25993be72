"""DeviceQuotas as tests write them: `quota(capacity_limit("memory", "80Gi"))`."""

from collections.abc import Mapping
from typing import Any, Final

from kube.api.device_quota import (
    CountedClaims,
    CountedDevices,
    DeviceQuota,
    DeviceQuotaSpec,
    LegacyKey,
    QuotaLimit,
)
from kube.api.meta import LabelSelector, ObjectMeta
from kube.quantity import Quantity
from testing.allocation.builders import DRIVER, selectors

_TEN: Final = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
_THOUSAND: Final = f"{_TEN}.all(a, {_TEN}.all(b, {_TEN}.all(c, a + b + c >= 0)))"
COSTLY_SELECTOR: Final = (
    f"{' && '.join([_THOUSAND] * 8)} && device.attributes['gpu.example.com'].index < 0"
)
"""Costs a tenth of what Kubernetes allows; a limit may evaluate it on some 200 devices."""
ENDLESS_SELECTOR: Final = f"{_TEN}.all(d, {_THOUSAND})"
"""Compiles, and takes more iterations than the engine has."""


def device_limit(most: str | int, name: str = "devices", **fields: Any) -> QuotaLimit:
    """A limit on the number of devices."""
    return _limit(name, most, devices=CountedDevices(), **fields)


def claim_limit(most: str | int, name: str = "claims", **fields: Any) -> QuotaLimit:
    """A limit on the number of claims."""
    return _limit(name, most, claims=CountedClaims(), **fields)


def capacity_limit(capacity: str, most: str | int, name: str = "", **fields: Any) -> QuotaLimit:
    """A limit on a capacity."""
    return _limit(name or capacity, most, capacity=capacity, **fields)


def counter_limit(counter: str, most: str | int, name: str = "", **fields: Any) -> QuotaLimit:
    """A limit on a counter."""
    return _limit(name or counter, most, counter=counter, **fields)


def _limit(
    name: str,
    most: str | int,
    *,
    where: str = "",
    per_request: str | None = None,
    per_device: str | None = None,
    classes: tuple[str, ...] | None = None,
    driver: str = DRIVER,
    legacy_keys: tuple[LegacyKey, ...] | None = None,
    **measure: Any,
) -> QuotaLimit:
    return QuotaLimit(
        legacy_keys=legacy_keys,
        name=name,
        driver=driver,
        device_class_names=classes,
        selectors=selectors(where) if where else None,
        max=Quantity(most),
        per_request=Quantity(per_request) if per_request is not None else None,
        per_device=Quantity(per_device) if per_device is not None else None,
        **measure,
    )


def quota(
    *limits: QuotaLimit, name: str = "team", labels: Mapping[str, str] | None = None, **fields: Any
) -> DeviceQuota:
    """A quota for the namespaces with these labels; for all without any."""
    return DeviceQuota(
        metadata=ObjectMeta(name=name, uid=name, generation=1),
        spec=DeviceQuotaSpec(
            namespace_selector=LabelSelector(match_labels=labels), limits=limits, **fields
        ),
    )
