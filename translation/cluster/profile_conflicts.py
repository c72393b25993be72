"""The resource names that a driver profile serves in a cluster, and those that others serve.

The status of a DeviceTranslationProfile, admission warnings and `drawbridge check` tell the same.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from findings.text import printable
from kube.api.translation_profile import KeyConflict
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.model.intents import DeviceKind
from translation.profiles.object_checks import SPEC
from translation.profiles.profile import DeviceProfile, Profile
from translation.profiles.resource_profiles import resource_profile, resource_profiles
from translation.reading.arbiter import VOCABULARIES, ceded_pools, owner_of
from translation.vocabularies import rdma, sriov
from translation.vocabularies.resources import NAME as RESOURCES

RDMA: Final = rdma.VOCABULARY.name
SRIOV: Final = sriov.VOCABULARY.name
_NO_EFFECT = "remove the name"


def find_conflicts(
    profile: Profile, profiles: Mapping[str, Profile], options: TranslationOptions
) -> tuple[KeyConflict, ...]:
    """Return the resource names of a profile that it does not serve, sorted.

    Args:
        profiles: Driver to the profile in force, this one included.
    """
    conflicts = {
        name: conflict
        for kind, device in profile.devices.items()
        for name in device.resources or ()
        if "/" in name
        if (conflict := _conflict(name, kind, profile, profiles, options)) is not None
    }
    return tuple(conflicts[name] for name in sorted(conflicts))


def served_names(
    profile: Profile, profiles: Mapping[str, Profile], options: TranslationOptions
) -> tuple[str, ...]:
    """Return the resource names that a profile lists and serves, sorted."""
    conflicts = {conflict.key for conflict in find_conflicts(profile, profiles, options)}
    return tuple(sorted(set(profile.resource_names()) - conflicts))


def _conflict(
    name: str,
    kind: DeviceKind,
    profile: Profile,
    profiles: Mapping[str, Profile],
    options: TranslationOptions,
) -> KeyConflict | None:
    """Return the reason a profile does not serve a name that it lists; None if it does."""
    if options.drivers.get(name, profile.driver) != profile.driver:
        return KeyConflict(
            key=name,
            owner=options.drivers[name],
            message=f"translation.profiles of Drawbridge's settings gives it to {options.drivers[name]}",
        )
    # A pattern begins with what its names begin with.
    owner = owner_of(name.removesuffix("*"))
    if kind is DeviceKind.NIC and name in _ceded_names(profile, profiles, options):
        return None
    if owner is not None and owner != RESOURCES:
        return _vocabulary_conflict(name, owner, kind, profile, options)
    if kind is not DeviceKind.DEVICE:
        return _other_kind_conflict(name, profile, options)
    return _device_conflict(name, profile, profiles, options)


def _ceded_names(
    profile: Profile, profiles: Mapping[str, Profile], options: TranslationOptions
) -> tuple[str, ...]:
    """Return the names of pools that a profile has for virtual functions."""
    if options.profiles.get(SRIOV) != profile.driver or SRIOV not in options.vocabularies:
        return ()
    of_pools = profiles.get(options.profiles.get(RDMA, ""))
    return ceded_pools(
        profile.resource_names(), () if of_pools is None else of_pools.resource_names()
    )


def _vocabulary_conflict(
    name: str, owner: str, kind: DeviceKind, profile: Profile, options: TranslationOptions
) -> KeyConflict | None:
    """Return the reason this profile does not serve a name of a vocabulary."""
    driver = options.profiles.get(owner, "")
    if kind is not DeviceKind.DEVICE and driver == profile.driver:
        return None
    # Koordinator's keys of NICs and of other accelerators are in the profiles of their drivers.
    if kind is not DeviceKind.DEVICE and not VOCABULARIES[owner].takes_names:
        return None
    return KeyConflict(
        key=name,
        owner=owner,
        message=f"it belongs to the vocabulary {owner}, which {driver or 'no driver'} serves; to change "
        f"that, set translation.profiles.{owner} in Drawbridge's settings, or {_NO_EFFECT}",
    )


def _other_kind_conflict(
    name: str, profile: Profile, options: TranslationOptions
) -> KeyConflict | None:
    """Return the reason a name of a kind with a vocabulary of its own has no effect."""
    serving = [
        vocabulary
        for vocabulary, driver in options.profiles.items()
        if driver == profile.driver and VOCABULARIES[vocabulary].takes_names
    ]
    if serving or name in options.drivers:
        return None
    return KeyConflict(
        key=name,
        message="no vocabulary that takes names is served by this driver; list the name under "
        "devices.device, or set translation.profiles.rdma or .sriov in Drawbridge's settings",
    )


def _device_conflict(
    name: str, profile: Profile, profiles: Mapping[str, Profile], options: TranslationOptions
) -> KeyConflict | None:
    """Return the other profile that serves a name of devices of any vendor."""
    first = resource_profile(name, resource_profiles(profiles, options.profiles))
    if first is None or first.driver == profile.driver:
        return None
    return KeyConflict(
        key=name,
        owner=first.driver,
        message=f"the profile of {first.driver} lists it too and precedes; to change that, set "
        f"translation.profiles.{RESOURCES} in Drawbridge's settings to {profile.driver}, or {_NO_EFFECT}",
    )


def check_profile(
    profile: Profile,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    shipped_drivers: frozenset[str] = frozenset(),
) -> Iterator[Finding]:
    """Yield the effects that a profile will not have in a cluster.

    Args:
        snapshot: The cluster's snapshot; this profile need not be in force there yet.
        shipped_drivers: The drivers with a profile in the package.
    """
    profiles = {**snapshot.profiles, profile.driver: profile}
    for conflict in find_conflicts(profile, profiles, options):
        path = _path_of(conflict.key, profile)
        message = f"{printable(conflict.key)} is not served: {printable(conflict.message)}"
        yield warning(Code.PROFILE_KEY_NOT_SERVED, path, message)
    yield from _check_classes(profile, snapshot)
    if profile.driver in shipped_drivers:
        yield info(
            Code.SHIPPED_PROFILE_REPLACED,
            SPEC,
            f"replaces the shipped profile of {printable(profile.driver)} as a whole: nothing of that "
            "is in force beside it",
        )


def _path_of(name: str, profile: Profile) -> FieldPath:
    kind = next(
        kind for kind, device in profile.devices.items() if name in (device.resources or ())
    )
    return SPEC.child("devices", kind.value, "resources").key(name)


def _check_classes(profile: Profile, snapshot: TranslationSnapshot) -> Iterator[Finding]:
    if snapshot.classes is None:
        return
    for kind, device in profile.devices.items():
        for name in sorted(classes_of(device) - snapshot.classes):
            yield warning(
                Code.DEVICE_CLASS_MISSING,
                SPEC.child("devices", kind.value),
                f"the cluster has no DeviceClass {printable(name)}",
                "create the class, or install the driver, which may bring it",
            )


def classes_of(device: DeviceProfile) -> frozenset[str]:
    """Return the DeviceClasses of a kind of device."""
    names = {device.class_name}
    for devices in (device.resources or {}).values():
        if devices.class_name is not None:
            names.add(devices.class_name)
    return frozenset(names)
