"""Faults of a DeviceQuota by itself, and limits that count no published device.

What the schema of the kind rejects is reported here as well, for files that no API server has seen.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.device_quota import MAX_LIMITS, DeviceQuota, QuotaLimit
from kube.api.resource import Device
from kube.cel.device import qualify_name
from kube.quantity import ZERO, Format, Quantity, format_amount
from quotas.device_quotas.limits import Limit, Measure, compile_limits
from rules.context.context import Context
from rules.context.rule import (
    CRD_VALIDATION,
    NEEDS_COMPILER,
    OTHER_OBJECTS,
    Category,
    QuotaRule,
    Scope,
    Subject,
)
from rules.model.engine_words import without_engine_words
from rules.model.naming import closest_name, find_duplicates, suggest_name

Quota = Subject[DeviceQuota]

_MEASURES: Final = "devices, claims, capacity and counter"


def _limits(quota: Quota) -> Sequence[QuotaLimit]:
    return quota.view.spec.limits[:MAX_LIMITS]


def _compiled_limits(quota: Quota) -> Sequence[Limit]:
    return compile_limits(quota.view)[:MAX_LIMITS]


def _path_of(path: FieldPath, index: int) -> FieldPath:
    return path.child("spec", "limits", index)


# --- the text of a quota --------------------------------------------------------------------------


def find_invalid_limits(quota: Quota, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield limits without exactly one measure, and numbers outside their range."""
    if not quota.view.spec.limits:
        yield error(Code.INVALID_DEVICE_QUOTA, path.child("spec", "limits"), "no limit", "add one")
    for index, limit in enumerate(_limits(quota)):
        place = _path_of(path, index)
        measures = (limit.devices, limit.claims, limit.capacity, limit.counter)
        number = sum(measure is not None for measure in measures)
        if number != 1:
            yield error(
                Code.INVALID_DEVICE_QUOTA,
                place,
                f"{number} of {_MEASURES} are set",
                "set exactly one of them",
            )
        if not 0 <= limit.alert_threshold_percent <= 100:
            yield error(
                Code.INVALID_DEVICE_QUOTA,
                place.child("alertThresholdPercent"),
                f"{limit.alert_threshold_percent} is no percentage",
                "write a number from 0 to 100",
            )
        if limit.claims is not None and limit.legacy_keys:
            yield error(
                Code.INVALID_DEVICE_QUOTA,
                place.child("legacyKeys"),
                "pods with keys have no claims to count",
                "limit devices or a capacity, or leave legacyKeys out",
            )
        for field, amount in _amounts(limit):
            if amount.nanos < 0:
                yield error(
                    Code.INVALID_DEVICE_QUOTA,
                    place.child(field),
                    f"{amount} is below zero",
                    "write 0 or more",
                )


def _amounts(limit: QuotaLimit) -> Iterator[tuple[str, Quantity]]:
    yield "max", limit.max
    if limit.per_request is not None:
        yield "perRequest", limit.per_request
    if limit.per_device is not None:
        yield "perDevice", limit.per_device
    for key in limit.legacy_keys or ():
        if key.per_unit is not None:
            yield "legacyKeys", key.per_unit


def find_duplicate_names(quota: Quota, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield duplicate names of limits."""
    yield from find_duplicates(
        (limit.name for limit in _limits(quota)), path.child("spec", "limits")
    )


def find_invalid_selectors(quota: Quota, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield limits with selectors that cannot be evaluated, so that they let nothing through."""
    for limit in _compiled_limits(quota):
        fault = limit.devices.fault
        if fault is not None:
            yield error(
                Code.INVALID_SELECTOR,
                path.join(fault.path),
                f"{without_engine_words(fault.why)}; limit {quote_text(limit.name)} would let nothing through",
                "correct the expression",
            )


def find_caps_above_max(quota: Quota, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield caps that are above the amount that they are a part of."""
    for index, limit in enumerate(_limits(quota)):
        amounts = dict(_amounts(limit))
        for field, bounds in (("perRequest", ("max",)), ("perDevice", ("max", "perRequest"))):
            cap = amounts.get(field)
            lower = next(
                (name for name in bounds if name in amounts and cap and cap > amounts[name]), ""
            )
            if lower:
                yield warning(
                    Code.CAP_ABOVE_MAX,
                    _path_of(path, index).child(field),
                    f"{cap} is above {lower}, which is {amounts[lower]}, so that it never applies",
                    f"write less than {amounts[lower]}, or remove it",
                )


def find_duplicate_limits(quota: Quota, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield limits that count the same as an earlier one."""
    first: dict[Hashable, int] = {}
    limits = _limits(quota)
    for index, limit in enumerate(limits):
        other = first.setdefault(_identity(limit), index)
        if other != index:
            yield warning(
                Code.DUPLICATE_LIMIT,
                _path_of(path, index),
                f"counts the same as limit {quote_text(limits[other].name)}, so only the smaller of"
                f" {limit.max} and {limits[other].max} matters",
                "remove one of them",
            )


def _identity(limit: QuotaLimit) -> Hashable:
    """Return the identity of the devices and requests that a limit counts."""
    return (
        limit.driver,
        frozenset(limit.device_class_names or ()),
        frozenset(limit.selectors or ()),
        limit.devices is not None,
        limit.claims is not None,
        limit.capacity and qualify_name(limit.capacity, limit.driver),
        limit.counter,
    )


# --- the cluster ----------------------------------------------------------------------------------


def find_limits_of_nothing(quota: Quota, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield limits that count nothing of any published device."""
    if not context.inventory.pools:
        return  # Nothing is known of devices.
    for index, limit in enumerate(_compiled_limits(quota)):
        place = _path_of(path, index)
        devices = context.inventory.devices_of(limit.driver)
        if not devices:
            drivers = sorted({pool.driver for pool in context.inventory.pools})
            yield _counts_nothing(
                place.child("driver"),
                f"driver {quote_text(limit.driver)} publishes no device",
                suggest_name(limit.driver, drivers),
            ).rewritten(limit.driver, closest_name(limit.driver, drivers))
            continue
        unknown = limit.classes - context.classes.keys() if context.has_all_classes else ()
        for name in sorted(unknown):
            yield _counts_nothing(
                place.child("deviceClassNames"),
                f"there is no DeviceClass {quote_text(name)}",
                suggest_name(name, sorted(context.classes)),
            )
        if limit.measure is Measure.CAPACITY:
            names = {
                name: qualify_name(name, limit.driver)
                for device in devices
                for name in device.device.capacity or {}
            }
            if limit.capacity not in names.values():
                yield _counts_nothing(
                    place.child("capacity"),
                    f"no device of driver {limit.driver} has capacity {quote_text(limit.capacity[1])}",
                    suggest_name(limit.capacity[1], sorted(names)),
                ).rewritten(limit.capacity[1], closest_name(limit.capacity[1], sorted(names)))
        elif limit.measure is Measure.COUNTER:
            counters = {
                name
                for device in devices
                for consumption in device.device.consumes_counters or ()
                for name in consumption.counters or {}
            }
            if limit.counter not in counters:
                yield _counts_nothing(
                    place.child("counter"),
                    f"no device of driver {limit.driver} consumes counter {quote_text(limit.counter)}",
                    suggest_name(limit.counter, sorted(counters)),
                ).rewritten(limit.counter, closest_name(limit.counter, sorted(counters)))
        if not limit.is_closed and not any(map(limit.devices.counts, devices)):
            yield _counts_nothing(
                place.child("selectors"),
                f"no device of driver {limit.driver} satisfies the selectors",
                "",
            )


def _counts_nothing(path: FieldPath, why: str, fix: str) -> Finding:
    return warning(
        Code.LIMIT_COUNTS_NOTHING,
        path,
        f"{why}, so the limit counts nothing of what is published",
        fix,
    )


def find_limits_below_every_share(
    quota: Quota, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield limits of a capacity below the least that any device gives, such as a number of MiB for bytes."""
    for index, limit in enumerate(_compiled_limits(quota)):
        if limit.measure is not Measure.CAPACITY or not limit.max.nanos > 0:
            continue
        shares = [
            _least_share(device.device, limit)
            for device in context.inventory.devices_of(limit.driver)
        ]
        least = min((share for share in shares if share is not None), default=ZERO)
        if limit.max >= least:
            continue
        mebibytes = Quantity.from_nanos(limit.max.nanos * 2**20, Format.BINARY)
        value = f"{mebibytes} for {limit.max} MiB" if mebibytes >= least else f"{least} or more"
        yield warning(
            Code.LIMIT_BELOW_LEAST,
            _path_of(path, index).child("max"),
            f"{limit.max} is less than {format_amount(least)}, the least {limit.capacity[1]} that a device of driver"
            f" {limit.driver} gives, so the limit lets nothing through",
            f"write {value}, or 0 for nothing",
        )


def _least_share(device: Device, limit: Limit) -> Quantity | None:
    """Return the least of a limit's capacity that a device gives; None if it has none of it."""
    for name, capacity in (device.capacity or {}).items():
        if qualify_name(name, limit.driver) == limit.capacity:
            policy = capacity.request_policy
            if not device.allow_multiple_allocations:
                return capacity.value
            if policy is None:
                return ZERO
            if policy.valid_range is not None:
                return policy.valid_range.min or ZERO
            return min(policy.valid_values or (ZERO,))
    return None


def find_failing_selectors(quota: Quota, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield selectors that error on a published device, so that it counts, or take too many steps for all."""
    for index, limit in enumerate(_compiled_limits(quota)):
        for device in context.inventory.devices_of(limit.driver):
            limit.devices.counts(device)
            fault = limit.devices.fault
            if fault is not None and fault.is_spent:
                yield warning(
                    Code.SELECTOR_FAILS,
                    path.join(fault.path),
                    f"{fault.why}; limit {quote_text(limit.name)} would let nothing through",
                    "read fewer attributes, and none that every device has another value of",
                )
                break
            if limit.devices.failure:
                yield warning(
                    Code.SELECTOR_FAILS,
                    _path_of(path, index).child("selectors"),
                    f"{limit.devices.failure}; a device on which a selector errors counts",
                    "test that the attribute exists before the selector reads it",
                )
                break


def find_missing_namespaces(quota: Quota, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield a selector that selects no namespace."""
    selector = quota.view.spec.namespace_selector
    namespaces = context.namespaces
    if namespaces and not any(map(selector.matches, namespaces.values())):
        yield warning(
            Code.SELECTS_NO_NAMESPACE,
            path.child("spec", "namespaceSelector"),
            f"selects none of {len(namespaces)} namespaces, so the quota limits nobody",
            "label the namespaces of the tenant, or correct the selector",
        )


RULES: Final[tuple[QuotaRule, ...]] = (
    QuotaRule(
        code=Code.INVALID_DEVICE_QUOTA,
        scope=Scope.QUOTA,
        category=Category.INVALID,
        validate=find_invalid_limits,
        fix="Set exactly one measure, and numbers within their range.",
        no_cel_reason=CRD_VALIDATION,
    ),
    QuotaRule(
        code=Code.DUPLICATE_NAME,
        scope=Scope.QUOTA,
        category=Category.INVALID,
        validate=find_duplicate_names,
        fix="Use unique names.",
        no_cel_reason=CRD_VALIDATION,
    ),
    QuotaRule(
        code=Code.INVALID_SELECTOR,
        scope=Scope.QUOTA,
        category=Category.INVALID,
        validate=find_invalid_selectors,
        fix="Write expressions of quotas like selectors of claims, without costly parts.",
        no_cel_reason=NEEDS_COMPILER,
    ),
    QuotaRule(
        code=Code.CAP_ABOVE_MAX,
        scope=Scope.QUOTA,
        category=Category.ADVICE,
        validate=find_caps_above_max,
        fix="Lower the cap, or remove it.",
        no_cel_reason="quantities of a quota may be texts or numbers, and the cap does no harm",
    ),
    QuotaRule(
        code=Code.DUPLICATE_LIMIT,
        scope=Scope.QUOTA,
        category=Category.ADVICE,
        validate=find_duplicate_limits,
        fix="Remove one of the two limits.",
        no_cel_reason=NEEDS_COMPILER,
    ),
    QuotaRule(
        code=Code.LIMIT_COUNTS_NOTHING,
        scope=Scope.QUOTA,
        category=Category.NOT_YET,
        validate=find_limits_of_nothing,
        fix="Correct the name, or install the driver that publishes such devices.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    QuotaRule(
        code=Code.LIMIT_BELOW_LEAST,
        scope=Scope.QUOTA,
        category=Category.NOT_YET,
        validate=find_limits_below_every_share,
        fix="Write the amount in the unit of the capacity, such as 80Gi and not a number of MiB.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    QuotaRule(
        code=Code.SELECTOR_FAILS,
        scope=Scope.QUOTA,
        category=Category.ADVICE,
        validate=find_failing_selectors,
        fix="Test that an attribute exists before a selector reads it.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    QuotaRule(
        code=Code.SELECTS_NO_NAMESPACE,
        scope=Scope.QUOTA,
        category=Category.NOT_YET,
        validate=find_missing_namespaces,
        fix="Label the tenant's namespaces, or correct the selector.",
        no_cel_reason=OTHER_OBJECTS,
    ),
)
