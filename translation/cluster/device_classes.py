"""What the claims of a pod need of a cluster: DeviceClasses that exist, devices of them, and models. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import quote_text
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.compiling.claims import Claim
from translation.model.intents import DeviceFilter
from translation.profiles.device_facts import UNKNOWN
from translation.profiles.profile import Profile
from translation.record.derive import Readings, provider

MAX_MODELS: Final = 3
"""Product names in a message."""


def check_device_classes(
    claims: Sequence[Claim], snapshot: TranslationSnapshot, options: TranslationOptions
) -> Iterator[Finding]:
    """Yield a warning for each DeviceClass that claims use and the cluster does not have."""
    if snapshot.classes is None:
        return
    for name in sorted({name for claim in claims for name in claim.class_names()}):
        if name not in snapshot.classes:
            yield warning(
                Code.DEVICE_CLASS_MISSING,
                FieldPath.of("spec", "resourceClaims"),
                f"DeviceClass {name} does not exist: the pod waits until its driver is installed",
                f"install the driver, or choose another: {options.driver_option}",
            )


def check_published_devices(
    claims: Sequence[Claim],
    profiles: Iterable[Profile],
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> Iterator[Finding]:
    """Yield a warning for each DeviceClass whose driver has published no devices."""
    if snapshot.publishes is None or snapshot.classes is None:
        return
    drivers_by_class = {
        name: profile.driver
        for profile in profiles
        if profile.driver not in snapshot.publishes
        for name in profile.class_names() & snapshot.classes
    }
    for claim in claims:
        for index, name in claim.classes_by_request():
            driver = drivers_by_class.pop(name, None)
            if driver is not None:
                yield warning(
                    Code.NO_DEVICES,
                    claim.source(FieldPath.of("requests", index)) or FieldPath.of("spec"),
                    f"no device of DeviceClass {name} is published: driver {driver} has no "
                    "ResourceSlices, and the pod waits",
                    f"install the driver, or choose another: {options.driver_option}",
                )


def check_published_models(
    readings: Readings, providers: Mapping[str, Profile], snapshot: TranslationSnapshot
) -> Iterator[Finding]:
    """Yield a warning for each choice of product names that no published device has."""
    for vocabulary, reading in readings.items():
        for intent in reading.intents:
            profile = provider(intent, vocabulary, providers)
            facts = snapshot.facts.get(profile.driver, {}) if profile is not None else {}
            published_models = facts.get(intent.kind, UNKNOWN).models
            if published_models and not any(
                map(partial(_is_selected, intent.filter), published_models)
            ):
                shown_models = ", ".join(map(quote_text, published_models[:MAX_MODELS]))
                more = len(published_models) - MAX_MODELS
                yield warning(
                    Code.SELECTOR_MATCHES_NOTHING,
                    intent.path("models" if intent.filter.models is not None else "not_models"),
                    f"no published device has such a product name, and the pod waits; published are "
                    f"{shown_models}{f' and {more} more' if more > 0 else ''}",
                    "name a published model, or a part of its name",
                )


def _is_selected(device_filter: DeviceFilter, model: str) -> bool:
    """Return whether a filter selects devices by this product name; see `device_selectors`."""
    if device_filter.models is not None and not any(part in model for part in device_filter.models):
        return False
    return not any(part in model for part in device_filter.not_models or ())
