"""The DeviceQuota API: limits of a tenant's namespaces on the use of a driver's devices.

A ResourceQuota counts devices of a class. A DeviceQuota counts what devices give: memory, cores, shares,
counters, each once for a claim, whoever shares the claim.
"""

from enum import StrEnum
from typing import Final

from kube.api.meta import LABEL_SELECTOR, ApiStruct, LabelSelector, ObjectMeta
from kube.api.policy import Condition
from kube.api.resource import MAX_SELECTORS, DeviceSelector
from kube.api.schema import (
    CONDITIONS,
    COUNT,
    SUBDOMAIN,
    Schema,
    Validation,
    entries,
    entries_by_key,
    name,
    text,
)
from kube.names import GROUP
from kube.quantity import Quantity

VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "DeviceQuota"
MAX_LIMITS: Final = 16
MAX_CLASSES: Final = 16
MAX_LEGACY_KEYS: Final = 16
MAX_NAMESPACES: Final = 100
"""Namespaces in a status."""
ALERT_THRESHOLD: Final = 95
"""The default of `alertThresholdPercent`."""


class Budget(StrEnum):
    """The namespaces that share an amount: all that are selected, or each alone."""

    SHARED = "Shared"
    PER_NAMESPACE = "PerNamespace"


class QuotaEnforcement(StrEnum):
    """The mode of a quota: hold pods back that would exceed it, or only report them."""

    ENFORCE = "Enforce"
    AUDIT = "Audit"


class WhenFull(StrEnum):
    """The answer to a pod for lack of quota: it waits, or it is denied."""

    WAIT = "Wait"
    DENY = "Deny"


class CountedDevices(ApiStruct, frozen=True, kw_only=True):
    """Devices are counted, shared ones once for each claim."""


class CountedClaims(ApiStruct, frozen=True, kw_only=True):
    """Claims with a counted device are counted."""


class LegacyKey(ApiStruct, frozen=True, kw_only=True):
    """Pods that request devices by a key, and not by claims, count like claims.

    Attributes:
        name: The extended resource, as in resources.limits of containers. Pods whose key a DeviceClass
            maps count by their claim.
        per_unit: The amount of the limit for one of the key, such as 1Mi for a key in MiB; 1 without it.
        multiplied_by: A key of the same container with the number of devices, each of which gets the
            amount; 1 where the container does not have it.
        only_with: Only pods that have one of these keys, too, count; all of them without any.
        without: Pods that have one of these keys, too, do not count.
    """

    name: str
    per_unit: Quantity | None = None
    multiplied_by: str | None = None
    only_with: tuple[str, ...] | None = None
    without: tuple[str, ...] | None = None


class QuotaLimit(ApiStruct, frozen=True, kw_only=True):
    """An amount of one driver's devices. Exactly one of devices, claims, capacity and counter is set.

    Attributes:
        name: Unique in the quota.
        driver: The driver whose devices count: spec.driver of ResourceSlices.
        device_class_names: Only requests for these DeviceClasses count; all of them without any.
        selectors: Only devices for which all are true count; all of them without any.
        devices: Count devices.
        claims: Count claims.
        capacity: Add up this capacity: what shares consume of it, and all of it of a device that is
            allocated alone. A name without a domain is in the driver's.
        counter: Add up this counter over the counter sets that devices consume.
        max: The largest amount in use at a time; "0" for nothing.
        per_request: The largest amount of one request, all its devices together. What exceeds it is
            rejected for good.
        per_device: The largest amount on one device.
        alert_threshold_percent: The percentage of max above which the condition AlertThresholdReached
            is true.
        legacy_keys: Pods with these keys count, too, so that one limit holds before, during and after a
            migration to claims.
    """

    name: str
    driver: str
    device_class_names: tuple[str, ...] | None = None
    selectors: tuple[DeviceSelector, ...] | None = None
    devices: CountedDevices | None = None
    claims: CountedClaims | None = None
    capacity: str | None = None
    counter: str | None = None
    max: Quantity
    per_request: Quantity | None = None
    per_device: Quantity | None = None
    alert_threshold_percent: int = ALERT_THRESHOLD
    legacy_keys: tuple[LegacyKey, ...] | None = None


class DeviceQuotaSpec(ApiStruct, frozen=True, kw_only=True):
    """The amounts that the namespaces of a tenant may use.

    Attributes:
        namespace_selector: The namespaces, by their labels; {} selects all. A namespace that several
            quotas select is limited by each of them. Whoever labels namespaces chooses the tenant.
        budget: Shared: one amount for all selected namespaces together. PerNamespace: the amount for
            each of them.
        limits: All of them hold.
        enforcement: Enforce: what exceeds a limit waits or is denied. Audit: the status shows it.
        when_full: Wait: a pod for which nothing is left waits until there is. Deny: a pod without an
            owner is denied, and the owner's workload is warned about.
    """

    namespace_selector: LabelSelector
    budget: Budget = Budget.SHARED
    limits: tuple[QuotaLimit, ...]
    enforcement: QuotaEnforcement = QuotaEnforcement.ENFORCE
    when_full: WhenFull = WhenFull.WAIT


class NamespaceUsage(ApiStruct, frozen=True, kw_only=True):
    """The part of one namespace in the usage of a limit.

    Attributes:
        namespace: The namespace.
        used: The amount that is allocated.
        promised: The amount that is let through and not allocated yet.
        waiting: The amount that claims ask for that wait.
    """

    namespace: str
    used: str = "0"
    promised: str = "0"
    waiting: str = "0"


class LimitStatus(ApiStruct, frozen=True, kw_only=True):
    """The usage of a limit.

    Attributes:
        name: The limit.
        used: The amount that is allocated, of devices and shares as they really are.
        promised: The amount that is let through and not allocated yet, in the worst case.
        waiting: The amount that claims ask for that wait.
        available: The amount that is left of max; with PerNamespace, of the namespace with the least.
        namespaces: The namespaces with the most in use, largest first.
    """

    name: str
    used: str = "0"
    promised: str = "0"
    waiting: str = "0"
    available: str = "0"
    namespaces: tuple[NamespaceUsage, ...] | None = None


class DeviceQuotaStatus(ApiStruct, frozen=True, kw_only=True):
    """The usage of a quota.

    Attributes:
        observed_generation: The generation of the spec that this is about.
        conditions: Accepted: every limit can be evaluated. Enforced: no pod gets more than the limits
            allow; the message says by whom, or what is missing. AlertThresholdReached: some limit is
            used above its threshold. UsageIncomplete: devices in use are not published any more, so
            that their amounts are not known.
        namespace_count: The number of namespaces that are selected.
        summary: The amounts left, in a few words.
        limits: The usage of each limit.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] | None = None
    namespace_count: int = 0
    summary: str = ""
    limits: tuple[LimitStatus, ...] | None = None


class DeviceQuota(ApiStruct, frozen=True, kw_only=True):
    """The amounts of devices, of their capacities and of counters that the namespaces of a tenant may use.

    Attributes:
        spec: The amounts that the namespaces of a tenant may use.
        status: The usage, for people; decisions read claims and pods themselves.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceQuotaSpec
    status: DeviceQuotaStatus | None = None


_LABEL: Final = name("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", 63)
_QUALIFIED_NAME: Final = name(rf"^({SUBDOMAIN[1:-1]}/)?[a-zA-Z_][a-zA-Z0-9_]*$", 96)
_AMOUNT: Final = text(64)
_RESOURCE: Final = name(rf"^{SUBDOMAIN[1:-1]}/[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?$", 317)
_RESOURCES: Final = {
    "minItems": 1,
    "maxItems": MAX_LEGACY_KEYS,
    "x-kubernetes-list-type": "set",
    "items": _RESOURCE,
}

SCHEMA: Final = LABEL_SELECTOR.join(
    Schema(
        limits={
            DeviceQuotaSpec: {
                "limits": {"minItems": 1, **entries_by_key("name", most=MAX_LIMITS)},
            },
            QuotaLimit: {
                "name": _LABEL,
                "driver": name(SUBDOMAIN, 63),
                "deviceClassNames": {
                    "minItems": 1,
                    "maxItems": MAX_CLASSES,
                    "x-kubernetes-list-type": "set",
                    "items": name(SUBDOMAIN, 253),
                },
                "selectors": entries(MAX_SELECTORS),
                "capacity": _QUALIFIED_NAME,
                "counter": _LABEL,
                "alertThresholdPercent": {"minimum": 0, "maximum": 100},
                "legacyKeys": {"minItems": 1, **entries_by_key("name", most=MAX_LEGACY_KEYS)},
            },
            DeviceQuotaStatus: {
                "observedGeneration": COUNT,
                "conditions": CONDITIONS,
                "namespaceCount": COUNT,
                "summary": text(1024),
                "limits": entries_by_key("name", most=MAX_LIMITS),
            },
            LimitStatus: {
                "name": text(63),
                "used": _AMOUNT,
                "promised": _AMOUNT,
                "waiting": _AMOUNT,
                "available": _AMOUNT,
                "namespaces": entries_by_key("namespace", most=MAX_NAMESPACES),
            },
            NamespaceUsage: {
                "namespace": text(63),
                "used": _AMOUNT,
                "promised": _AMOUNT,
                "waiting": _AMOUNT,
            },
            LegacyKey: {
                "name": _RESOURCE,
                "multipliedBy": _RESOURCE,
                "onlyWith": _RESOURCES,
                "without": _RESOURCES,
            },
        },
        validations={
            QuotaLimit: (
                Validation(
                    rule="[has(self.devices), has(self.claims), has(self.capacity), has(self.counter)]"
                    ".filter(is_set, is_set).size() == 1",
                    message="exactly one of devices, claims, capacity and counter is needed",
                ),
                Validation(
                    rule="!has(self.claims) || !has(self.legacyKeys)",
                    message="pods with legacyKeys have no claims to count; limit devices or a capacity",
                ),
            ),
        },
        required={
            DeviceSelector: frozenset({"cel"}),
        },
        defaulted={
            DeviceQuotaSpec: frozenset({"budget", "enforcement", "whenFull"}),
            QuotaLimit: frozenset({"alertThresholdPercent"}),
        },
    )
)
