"""ResourceQuotas that would not count the claims of a pod."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from quotas.resource_quotas.scopes import REQUESTS, Quota, devices_of_class
from translation.cluster.snapshot import QuotaPolicy, TranslationOptions, TranslationSnapshot
from translation.model.dimensions import amount_fix, counts_amounts
from translation.model.intents import LegacyPod, Vocabulary
from translation.preflight.model.inputs import PreflightInput
from translation.preflight.quotas.coverage import (
    ClassKinds,
    counts_claims,
    drivers_of_class,
    drivers_of_key,
    is_class_counted,
    kinds_of_classes,
    matching_quotas,
)
from translation.record.derive import Readings

LIMITS: Final = "limits."
"""Prefix of the quota resource that HAMi's scheduler counts; Kubernetes counts no devices under it.

Source: Project-HAMi/HAMi v2.10, pkg/device/quota.go, managedQuotaName.
"""
_OR_WARN: Final = "; translation.quota: warn admits the pods, and gives this limit up"


def check_quotas(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a finding for each quota that would silently stop counting the pod.

    A quota concerns the pod if it counts one of its keys, or any other key that is served by a driver
    of its claims: devices are the same, whatever they are called, except that MIG devices are no whole
    ones. A quota without scopes counts the claims itself where their class maps the key. A line on devices
    is replaced by lines on the classes of the claims, and a line on memory or compute by nothing.
    """
    snapshot, options = inputs.snapshot, inputs.options
    quotas = snapshot.quotas.get(inputs.namespace, {})
    counting = matching_quotas(quotas, inputs.legacy.scopes)
    if not counting:
        return
    classes = sorted({name for claim in inputs.claims for name in claim.class_names()})
    kinds = kinds_of_classes(classes, snapshot)
    vocabularies = inputs.vocabularies.values()
    finding = error if options.quota is QuotaPolicy.DENY else warning
    has_selectors = any(
        request.get("selectors") for claim in inputs.claims for request in claim.requests()
    )

    def uncounted(key: str) -> Sequence[str] | None:
        """Return the classes that no quota counts in place of a key; None if all are counted."""
        own = _classes_of_key(key, classes, kinds, snapshot, options)
        names = [name for name in own if not is_class_counted(name, quotas.values())]
        return names if names or not own else None

    own = list(quota_amounts(inputs.legacy, inputs.readings, inputs.vocabularies))
    own_names: set[str] = set()
    for key, path in own:
        # Devices are counted in place of devices; nothing counts the memory and compute of claims.
        is_amount = counts_amounts(key, vocabularies)
        names = uncounted(key)
        fix = (
            f"{amount_fix(key, vocabularies)}{_OR_WARN}"
            if is_amount
            else _count_fix(names or (), has_selectors=has_selectors)
        )
        keys = _names_of(key, options.renamed_keys) if is_amount else (key,)
        own_names.update(keys)
        for name, quota in counting if is_amount or names is not None else ():
            lines = (_line_without_claims(quota, entry, classes, snapshot) for entry in keys)
            for line in filter(None, lines):
                yield finding(
                    Code.QUOTA_NOT_COUNTED, path, f"ResourceQuota {name} counts {line}", fix
                )
    for name, quota in counting:
        for key in sorted(quota.counted_keys() - own_names):
            names = uncounted(key)
            if names is None or counts_claims(quota, key, classes, snapshot):
                continue
            beside = kinds.beside(options.renamed_keys.get(key, key))
            drivers = _drivers_of_claims(set(classes) - beside, snapshot)
            for driver in sorted(drivers & drivers_of_key(key, snapshot, options)):
                yield finding(
                    Code.QUOTA_NOT_COUNTED,
                    own[0][1] if own else FieldPath.of("spec", "resourceClaims"),
                    f"ResourceQuota {name} counts requests.{key}, which also stands for devices of "
                    f"{driver}, and does not include claims",
                    _count_fix(names, has_selectors=has_selectors),
                )


def _names_of(key: str, renamed_keys: Mapping[str, str]) -> Sequence[str]:
    """Return all names of a key in pods; quotas count each by itself."""
    meaning = renamed_keys.get(key, key)
    return sorted(
        {key, meaning, *(name for name, other in renamed_keys.items() if other == meaning)}
    )


def _line_without_claims(
    quota: Quota, key: str, classes: Collection[str], snapshot: TranslationSnapshot
) -> str:
    """Return the line of a quota that counts a key and no claims of it; empty for none."""
    if f"{REQUESTS}{key}" in quota.names and not counts_claims(quota, key, classes, snapshot):
        return f"{REQUESTS}{key}, which does not include claims"
    if f"{LIMITS}{key}" in quota.names:
        return f"{LIMITS}{key} by HAMi's scheduler, which does not see claims"
    return ""


def _classes_of_key(
    key: str,
    classes: Sequence[str],
    kinds: ClassKinds,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> Sequence[str]:
    """Return the classes with devices that a key stands for; all of them if none is known to have such.

    A pod with GPUs and NICs has claims of both, and a quota of GPUs is not about its NICs.
    """
    drivers = drivers_of_key(key, snapshot, options)
    beside = kinds.beside(options.renamed_keys.get(key, key))
    own = [
        name
        for name in classes
        if name not in beside and drivers_of_class(name, snapshot).among(drivers)
    ]
    return own or classes


def _count_fix(names: Iterable[str], *, has_selectors: bool) -> str:
    """Return the fix of a line that counts none of the devices that claims have.

    Args:
        names: The DeviceClasses that no quota counts.
        has_selectors: The claims select some of the devices of a class.
    """
    fix = f"count {', '.join(map(devices_of_class, names)) or 'claims'} in a ResourceQuota instead"
    if has_selectors:
        fix += ", which counts devices of all sizes, or create a DeviceClass for each size that maps its resource name"
    return fix


def _drivers_of_claims(classes: Collection[str], snapshot: TranslationSnapshot) -> frozenset[str]:
    """Return the drivers with profiles that have these DeviceClasses."""
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
