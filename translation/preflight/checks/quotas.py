"""ResourceQuotas that would not count the claims of a pod."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from quotas.resource_quotas.scopes import REQUESTS, devices_of_class
from translation.cluster.snapshot import QuotaPolicy, TranslationSnapshot
from translation.model.intents import LegacyPod, Vocabulary
from translation.preflight.model.inputs import PreflightInput
from translation.preflight.quotas.coverage import (
    counts_claims,
    drivers_of_key,
    is_class_counted,
    matching_quotas,
)
from translation.preflight.quotas.dimensions import counts_amounts
from translation.record.derive import Readings

AMOUNT_FIX: Final = (
    "no ResourceQuota counts memory or compute of claims, and a DeviceQuota does: drawbridge quota convert prints "
    "one; then remove the line; translation.quota: warn admits the pods, and gives this limit up"
)


def check_quotas(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a finding for each quota that would silently stop counting the pod.

    A quota concerns the pod if it counts one of its keys, or any other key that is served by a driver
    of its claims: devices are the same, whatever they are called. A quota without scopes counts the
    claims itself where their class maps the key. A line on devices is replaced by lines on the classes of
    the claims, and a line on memory or compute by nothing.
    """
    snapshot, options = inputs.snapshot, inputs.options
    quotas = snapshot.quotas.get(inputs.namespace, {})
    counting = matching_quotas(quotas, inputs.legacy.scopes)
    if not counting:
        return
    classes = sorted({name for claim in inputs.claims for name in claim.class_names()})
    # Devices are counted in place of devices; nothing counts the memory and compute of claims.
    is_counted = bool(classes) and all(is_class_counted(name, quotas.values()) for name in classes)
    vocabularies = inputs.vocabularies.values()
    finding = error if options.quota is QuotaPolicy.DENY else warning
    fix = (
        f"count {', '.join(map(devices_of_class, classes)) or 'claims'} in a ResourceQuota instead"
    )
    if any(request.get("selectors") for claim in inputs.claims for request in claim.requests()):
        fix += ", which counts devices of all sizes, or create a DeviceClass that maps the resource name"
    own = list(quota_amounts(inputs.legacy, inputs.readings, inputs.vocabularies))
    for key, path in own:
        is_amount = counts_amounts(key, vocabularies)
        for name, quota in counting if is_amount or not is_counted else ():
            if f"{REQUESTS}{key}" in quota.names and not counts_claims(
                quota, key, classes, snapshot
            ):
                message = (
                    f"ResourceQuota {name} counts requests.{key}, which does not include claims"
                )
                yield finding(
                    Code.QUOTA_NOT_COUNTED, path, message, AMOUNT_FIX if is_amount else fix
                )
    drivers = _drivers_of_claims(classes, snapshot)
    for name, quota in counting if not is_counted else ():
        for key in sorted(quota.counted_keys() - {key for key, _ in own}):
            if counts_claims(quota, key, classes, snapshot):
                continue
            for driver in sorted(drivers & drivers_of_key(key, snapshot, options)):
                yield finding(
                    Code.QUOTA_NOT_COUNTED,
                    own[0][1] if own else FieldPath.of("spec", "resourceClaims"),
                    f"ResourceQuota {name} counts requests.{key}, which also stands for devices of "
                    f"{driver}, and does not include claims",
                    fix,
                )


def _drivers_of_claims(classes: Collection[str], snapshot: TranslationSnapshot) -> frozenset[str]:
    """Return the drivers whose profiles have these DeviceClasses."""
    return frozenset(
        driver
        for driver, profile in snapshot.profiles.items()
        if not profile.class_names().isdisjoint(classes)
    )


def quota_amounts(
    legacy: LegacyPod, readings: Readings, vocabularies: Mapping[str, Vocabulary]
) -> Iterator[tuple[str, FieldPath]]:
    """Yield key and path of every amount that quotas count in the untranslated pod."""
    for container in legacy.containers:
        for key, amount in sorted(container.limits.items()):
            if amount:
                yield key, container.limit_path(key)
    limits = {container.name: container.limits for container in legacy.containers}
    for vocabulary, reading in readings.items():
        added_key = vocabularies[vocabulary].added_key
        for intent in reading.intents:
            if added_key is not None and added_key not in limits[intent.container]:
                yield added_key, intent.path("count")
