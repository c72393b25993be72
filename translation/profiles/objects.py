"""DeviceTranslationProfiles: a cluster's objects that are in force, and reasons against the others.

A profile in an object replaces the shipped one of its driver as a whole, and one in a file. An object
is named after its driver, so there is one for each. Where limits are reached, older objects precede, so
that no new one takes a profile away that pods rely on. An object that cannot be accepted changes
nothing: the version of it that was in force stays so.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from findings.finding import Finding
from kube.api.translation_profile import DeviceTranslationProfile
from translation.profiles.names import (
    MAX_NAME_CHARACTERS,
    MAX_NAMES,
    MAX_PROFILES,
    MAX_VERSION_BYTES,
    MAX_VERSIONS,
)
from translation.profiles.object_checks import check_spec
from translation.profiles.profile import Profile, canonical_content
from translation.profiles.published import PublishedProfiles

Version = tuple[str, str]
"""A driver, and the content hash of a version of its profile, as a pod's record names them."""


class ProfileObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object, as far as decisions depend on it.

    Attributes:
        created: Its creation time; empty for one in a manifest, which is younger than all others.
        profile: Its profile; None where the spec is none.
        findings: The findings on the object by itself.
    """

    name: str
    created: str = ""
    generation: int = 0
    profile: Profile | None = None
    findings: tuple[Finding, ...] = ()


class AcceptedReason(StrEnum):
    """The reason of the condition Accepted of a profile."""

    ACCEPTED = "Accepted"
    INVALID = "Invalid"
    """The object is wrong by itself."""
    TOO_MANY_PROFILES = "TooManyProfiles"
    TOO_MANY_NAMES = "TooManyNames"
    """All accepted profiles together would list too many resource names."""
    TOO_MANY_VERSIONS = "TooManyVersions"
    """Live pods name so many versions that no further one can be kept."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The acceptance of an object.

    Attributes:
        version: The content hash of its version in force: of an earlier one where the present one is
            not accepted; empty where there is none.
        message: The reason it is not accepted; empty if it is.
        fix: The remedy, as an instruction; empty where it is accepted.
    """

    reason: AcceptedReason
    version: str = ""
    message: str = ""
    fix: str = ""

    @property
    def is_accepted(self) -> bool:
        """Return True if the present version of the object is in force."""
        return self.reason is AcceptedReason.ACCEPTED


class ProfilePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The profiles to publish, and the verdict on each object by its name."""

    published: PublishedProfiles
    verdicts: Mapping[str, Verdict]


def read_object(document: DeviceTranslationProfile) -> ProfileObject:
    """Read an object; its spec may be anything that passed its schema, or an older schema."""
    metadata = document.metadata
    return read_spec(
        document.spec, metadata.name, metadata.creation_timestamp or "", metadata.generation
    )


def read_spec(
    spec: Mapping[str, Any], name: str, created: str = "", generation: int = 0
) -> ProfileObject:
    """Read the spec of an object."""
    profile, findings = check_spec(name, spec)
    return ProfileObject(
        name=name, created=created, generation=generation, profile=profile, findings=findings
    )


def plan_profiles(
    objects: Iterable[ProfileObject],
    *,
    known_versions: Mapping[str, Profile] = {},
    before: PublishedProfiles = PublishedProfiles(),  # noqa: B008 - a frozen value
    used_versions: Collection[Version] = (),
    retained: Collection[str] = (),
) -> ProfilePlan:
    """Return the profiles in force, and the versions that are kept.

    Args:
        objects: All of the cluster.
        known_versions: Content hash to further versions that are kept once live pods name them: those
            of the package and of files, since the next version of the package may have others.
        before: The profiles that are published now.
        used_versions: The versions that live pods name.
        retained: Content hashes to keep although no pod names them, since a process may still use
            them.
    """
    all_versions = {**known_versions, **before.versions}
    needed = {
        version: all_versions[version]
        for driver, version in used_versions
        if version in all_versions and all_versions[version].driver == driver
    }
    needed |= {
        version: before.versions[version] for version in retained if version in before.versions
    }
    ordered = sorted(objects, key=_precedence)
    # What is in force comes first: no new or changed object pushes another one out.
    in_force = {
        object_.name: before.versions[before.in_force[object_.name]]
        for object_ in ordered
        if before.in_force.get(object_.name) in before.versions
    }
    versions = {**needed, **{profile.content_hash: profile for profile in in_force.values()}}
    verdicts: dict[str, Verdict] = {}
    for object_ in ordered:
        verdict = _validate(object_, in_force, versions)
        if verdict.is_accepted and object_.profile is not None:
            in_force[object_.name] = object_.profile
            versions[object_.profile.content_hash] = object_.profile
        stays = in_force.get(object_.name)
        version = stays.content_hash if stays is not None else ""
        verdicts[object_.name] = msgspec.structs.replace(verdict, version=version)
    return ProfilePlan(
        published=PublishedProfiles(
            in_force={name: profile.content_hash for name, profile in in_force.items()},
            versions={**needed, **{profile.content_hash: profile for profile in in_force.values()}},
        ),
        verdicts=verdicts,
    )


def _precedence(object_: ProfileObject) -> tuple[bool, str, str]:
    return not object_.created, object_.created, object_.name


_REMOVE: Final = "delete DeviceTranslationProfiles that no pod needs"


def _validate(
    object_: ProfileObject, in_force: Mapping[str, Profile], versions: Mapping[str, Profile]
) -> Verdict:
    """Return the verdict about an object: its present version can be in force, or a reason against it.

    Args:
        in_force: Name of an object to its profile.
        versions: The versions to keep, by content hash.
    """
    profile = object_.profile
    fault = next((finding for finding in object_.findings if finding.is_error), None)
    if profile is None or fault is not None:
        return _invalid_verdict(fault)
    others = [other for name, other in in_force.items() if name != object_.name]
    if len(others) >= MAX_PROFILES:
        return Verdict(
            reason=AcceptedReason.TOO_MANY_PROFILES,
            message=f"{len(others)} other profiles are in force, which is the most",
            fix=_REMOVE,
        )
    names = [name for other in (*others, profile) for name in other.resource_names()]
    characters = sum(map(len, names))
    if len(names) > MAX_NAMES or characters > MAX_NAME_CHARACTERS:
        return Verdict(
            reason=AcceptedReason.TOO_MANY_NAMES,
            message=f"with those of other profiles there would be {len(names)} resource names of "
            f"{characters} characters; there may be {MAX_NAMES} of {MAX_NAME_CHARACTERS}",
            fix=f"list names that begin alike as one that ends in *, or {_REMOVE}",
        )
    if profile.content_hash not in versions:
        return _validate_version(profile, versions)
    return Verdict(reason=AcceptedReason.ACCEPTED)


def _invalid_verdict(fault: Finding | None) -> Verdict:
    if fault is None:
        return Verdict(reason=AcceptedReason.INVALID)
    place = "" if fault.path.is_root else f"{fault.path}: "
    return Verdict(reason=AcceptedReason.INVALID, message=f"{place}{fault.message}", fix=fault.fix)


def _validate_version(profile: Profile, versions: Mapping[str, Profile]) -> Verdict:
    """Return the verdict about keeping one more version."""
    size = sum(map(_size, versions.values()))
    if len(versions) >= MAX_VERSIONS or size + _size(profile) > MAX_VERSION_BYTES:
        return Verdict(
            reason=AcceptedReason.TOO_MANY_VERSIONS,
            message=f"{len(versions)} versions of profiles with {size} bytes are in use; at most "
            f"{MAX_VERSIONS} with {MAX_VERSION_BYTES} are kept",
            fix="recreate the pods of old versions, or edit profiles less often",
        )
    return Verdict(reason=AcceptedReason.ACCEPTED)


def _size(profile: Profile) -> int:
    return len(canonical_content(profile))
