"""DeviceClasses that the claims of a pod need: whether they exist, and whether they have devices. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from translation.claims import Claim
from translation.profiles.profile import Profile
from translation.snapshot import TranslationOptions, TranslationSnapshot


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
