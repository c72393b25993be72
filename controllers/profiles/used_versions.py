"""The versions of driver profiles that a live pod names in its translation record. Pure.

The record is untrusted: only what has the form of a version is read, and a version that nobody has
means nothing.
"""

from typing import Final

import msgspec

from kube.api.core import FINISHED_PHASES, Pod
from kube.api.meta import decode
from kube.names import REQUEST_ANNOTATION
from translation.profiles.objects import Version
from translation.profiles.published import is_hash
from translation.record.record import MAX_BYTES

MAX_PROFILES: Final = 32
"""The largest number of profiles of one pod; it has one for each vocabulary that owns keys of
it."""


class _UsedProfile(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    hash: str = ""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a record of any translation version."""

    profiles: tuple[_UsedProfile, ...] = ()


def project_used_versions(raw: bytes) -> frozenset[Version] | None:
    """Project a pod to the versions that its record names; None without any.

    Most pods of a cluster are left out by their text, without decoding.
    """
    if REQUEST_ANNOTATION.encode() not in raw:
        return None
    pod = decode(raw, Pod)
    phase = pod.status.phase if pod.status else ""
    text = pod.annotations.get(REQUEST_ANNOTATION, "")
    if phase in FINISHED_PHASES or not text or len(text) > MAX_BYTES:
        return None
    try:
        record = msgspec.json.decode(text, type=_Record)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return (
        frozenset(
            (profile.name, profile.hash)
            for profile in record.profiles[:MAX_PROFILES]
            if is_hash(profile.hash)
        )
        or None
    )
