"""The driver profiles that a command translates by: profiles of files, overridden by a cluster's.

A DeviceTranslationProfile is in force here if it would be in the cluster: the same function decides.
"""

from collections.abc import Iterable, Mapping

import msgspec

from findings.text import printable
from kube.api.meta import convert
from kube.api.translation_profile import API_VERSION, KIND, DeviceTranslationProfile
from kube.manifests.source import SourceObject, ViewedObject
from translation.profiles.objects import ProfileObject, plan_profiles, read_object
from translation.profiles.profile import Profile

InputObject = SourceObject | ViewedObject


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """The profiles in force, and notes about the other ones.

    Attributes:
        profiles: Driver to profile.
        notes: The reasons that objects are not in force, for standard error.
    """

    profiles: Mapping[str, Profile]
    notes: tuple[str, ...] = ()


def profiles_in_force(files: Mapping[str, Profile], objects: Iterable[InputObject]) -> InForce:
    """Return the profiles of files and objects.

    Args:
        files: Driver to profile, of the package and of files.
        objects: Objects of any kind; the last of several namesakes counts.
    """
    return _in_force(files, map(_read, objects))


def stored_profiles_in_force(
    files: Mapping[str, Profile], stored_profiles: Iterable[DeviceTranslationProfile]
) -> InForce:
    """Return the profiles of files and of a cluster's objects."""
    return _in_force(files, map(read_object, stored_profiles))


def _in_force(files: Mapping[str, Profile], objects: Iterable[ProfileObject | None]) -> InForce:
    profile_objects = {object_.name: object_ for object_ in objects if object_ is not None}
    plan = plan_profiles(profile_objects.values())
    notes = tuple(
        printable(f"{KIND} {name} is not in force: {verdict.message}")
        for name, verdict in sorted(plan.verdicts.items())
        if not verdict.is_accepted
    )
    in_force = plan.published.profiles()
    return InForce(profiles={**files, **in_force} if in_force else files, notes=notes)


def _read(object_: InputObject) -> ProfileObject | None:
    """Return an object as decisions read it; None for other kinds, and without a readable spec."""
    if (object_.api_version, object_.kind) != (API_VERSION, KIND):
        return None
    if isinstance(object_, ViewedObject):
        value = object_.value
        return read_object(value) if isinstance(value, DeviceTranslationProfile) else None
    try:
        return read_object(convert(object_.document, DeviceTranslationProfile))
    except msgspec.ValidationError:
        return None  # A finding tells the type of the field.
