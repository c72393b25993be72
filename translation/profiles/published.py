"""The profiles of a cluster as its processes read them: those in force, and the versions kept.

The controllers write them into one ConfigMap, and every process reads that, so all agree on what is in
force. A version is stored under its content hash, by which translated pods name it: what does not have
the hash of its key is ignored, so nobody can put other content under a name that pods use.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from findings.text import printable
from kube.api.translation_profile import HASH_LENGTH
from translation.profiles.profile import (
    Profile,
    canonical_content,
    profile_of,
)

IN_FORCE: Final = "in-force"
"""The key of the drivers and the hashes of their profiles; each other key is a hash."""
_HASH: Final = re.compile(rf"[0-9a-f]{{{HASH_LENGTH}}}", re.ASCII)
_MAX_FAULT: Final = 200


class PublishedProfiles(msgspec.Struct, frozen=True, kw_only=True):
    """The profiles of the objects of a cluster.

    Attributes:
        in_force: Driver to the content hash of its profile, for drivers with an accepted object.
        versions: Content hash to profile: those in force, and those that live pods name.
        faults: The reasons that parts of the text are ignored.
    """

    in_force: Mapping[str, str] = {}
    versions: Mapping[str, Profile] = {}
    faults: tuple[str, ...] = ()

    def profiles(self) -> Mapping[str, Profile]:
        """Return driver to profile, for the drivers with an accepted object."""
        return {driver: self.versions[version] for driver, version in self.in_force.items()}

    def is_same(self, other: "PublishedProfiles") -> bool:
        """Return True if both have the same profiles: hashes stand for contents."""
        return (
            self.in_force == other.in_force
            and self.versions.keys() == other.versions.keys()
            and self.faults == other.faults
        )


def decode_published(data: Mapping[str, str]) -> PublishedProfiles:
    """Decode the data of the ConfigMap; entries that are not valid are ignored."""
    faults: list[str] = []
    versions: dict[str, Profile] = {}
    for key, text in sorted(data.items()):
        if _HASH.fullmatch(key):
            profile = _decode_version(key, text, faults)
            if profile is not None:
                versions[key] = profile
        elif key != IN_FORCE:
            faults.append(_cut(f"{key} is neither {IN_FORCE} nor a hash"))
    in_force = dict(_decode_in_force(data.get(IN_FORCE, "{}"), versions, faults))
    return PublishedProfiles(in_force=in_force, versions=versions, faults=tuple(faults))


def _decode_version(key: str, text: str, faults: list[str]) -> Profile | None:
    try:
        profile = profile_of(msgspec.json.decode(text))
    except (ValueError, RecursionError) as fault:
        faults.append(_cut(f"{key} is not a profile: {fault}"))
        return None
    if profile.content_hash != key:
        faults.append(f"the profile under {key} has the hash {profile.content_hash}")
        return None
    return profile


def _decode_in_force(
    text: str, versions: Mapping[str, Profile], faults: list[str]
) -> Iterator[tuple[str, str]]:
    try:
        hashes = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError) as fault:
        faults.append(_cut(f"{IN_FORCE} is not readable: {fault}"))
        return
    for driver, version in sorted(hashes.items()):
        if version in versions and versions[version].driver == driver:
            yield driver, version
        else:
            faults.append(_cut(f"there is no version {version} of the profile of {driver}"))


def _cut(fault: str) -> str:
    return printable(fault[:_MAX_FAULT])


def encode_published(published_profiles: PublishedProfiles) -> Mapping[str, str]:
    """Return the data of the ConfigMap."""
    return {
        IN_FORCE: msgspec.json.encode(published_profiles.in_force, order="sorted").decode(),
        **{
            version: canonical_content(profile).decode()
            for version, profile in sorted(published_profiles.versions.items())
        },
    }


def is_hash(text: str) -> bool:
    """Return True if a text has the form of a content hash."""
    return _HASH.fullmatch(text) is not None
