"""The status of a DeviceTranslationProfile: conditions, keys, classes, devices and conflicts. Pure.

Source: docs/profiles.md; meta/v1 Condition.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from findings.text import join_names, printable, shorten
from kube.api.policy import Condition
from kube.api.translation_profile import (
    MAX_LISTED_CONFLICTS,
    MAX_LISTED_KEYS,
    DeviceTranslationProfile,
    DeviceTranslationProfileStatus,
    KeyConflict,
    PublishedKind,
)
from translation.cluster.profile_conflicts import classes_of, find_conflicts, served_names
from translation.cluster.snapshot import TranslationOptions
from translation.model.intents import DeviceKind
from translation.profiles.objects import AcceptedReason, Verdict
from translation.profiles.profile import Profile

MAX_MESSAGE: Final = 1024
MAX_LISTED: Final = 5
"""Names in a message."""


class ConditionType(StrEnum):
    """The type of a condition; the text under each is the meaning of status True."""

    ACCEPTED = "Accepted"
    """The present spec is in force."""
    DEVICES_FOUND = "DevicesFound"
    """The cluster has its classes, and devices of each of its kinds."""
    NO_CONFLICTS = "NoConflicts"
    """It serves every resource name that it lists."""


class ConditionReason(StrEnum):
    """The reason of a condition other than Accepted; Accepted has `AcceptedReason`."""

    DEVICES_PUBLISHED = "DevicesPublished"
    CLASS_MISSING = "ClassMissing"
    """A DeviceClass does not exist."""
    NO_DEVICES = "NoDevices"
    """Some kind of device is not published."""
    SERVES_ITS_NAMES = "ServesItsNames"
    NAMES_SERVED_ELSEWHERE = "NamesServedElsewhere"
    NOT_ACCEPTED = "NotAccepted"


class ProfileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of the cluster that a status is about.

    Attributes:
        profiles: Driver to the profile in force.
        classes: Names of DeviceClasses.
        slices: The number of ResourceSlices of the driver.
        devices: Kind to the number of published devices.
        replaces: The profile that this one replaces: `shipped`, `file`, or empty.
        kept_versions: Versions of the driver's profile that are kept.
    """

    profiles: Mapping[str, Profile]
    classes: Collection[str] = frozenset()
    slices: int = 0
    devices: Mapping[DeviceKind, int] = {}
    replaces: str = ""
    kept_versions: int = 0


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """A condition without its time."""

    type: ConditionType
    is_true: bool
    reason: str
    message: str


def build_status(
    document: DeviceTranslationProfile,
    verdict: Verdict,
    facts: ProfileFacts,
    options: TranslationOptions,
    now: str,
) -> DeviceTranslationProfileStatus:
    """Return the status of a profile.

    Args:
        document: The profile as stored: a condition keeps its time while its status is the same.
        now: RFC 3339, in whole seconds.
    """
    profile = facts.profiles.get(document.metadata.name) if verdict.version else None
    conflicts = find_conflicts(profile, facts.profiles, options) if profile is not None else ()
    keys = served_names(profile, facts.profiles, options) if profile is not None else ()
    kinds = tuple(_published_kinds(profile, facts)) if profile is not None else ()
    states = (
        _accepted(verdict),
        _devices_found(profile, kinds, facts),
        _no_conflicts(profile, conflicts),
    )
    generation = document.metadata.generation
    return DeviceTranslationProfileStatus(
        observed_generation=generation,
        conditions=tuple(_condition(state, document.status, generation, now) for state in states),
        version=verdict.version,
        replaces=facts.replaces if profile is not None else "",
        keys=keys[:MAX_LISTED_KEYS] or None,
        key_count=len(keys),
        kinds=kinds or None,
        slices=facts.slices,
        devices=sum(kind.devices for kind in kinds),
        conflicts=tuple(map(_bounded_conflict, conflicts[:MAX_LISTED_CONFLICTS])) or None,
        conflict_count=len(conflicts),
        kept_versions=facts.kept_versions,
    )


def _condition(
    state: _State,
    before: DeviceTranslationProfileStatus | None,
    generation: int,
    now: str,
) -> Condition:
    status = "True" if state.is_true else "False"
    since = next(
        (
            condition.last_transition_time
            for condition in (before.conditions if before is not None else None) or ()
            if condition.type == state.type and condition.status == status
        ),
        None,
    )
    return Condition(
        type=state.type.value,
        status=status,
        reason=state.reason,
        message=shorten(printable(state.message), MAX_MESSAGE),
        last_transition_time=since or now,
        observed_generation=generation,
    )


def _accepted(verdict: Verdict) -> _State:
    if verdict.is_accepted:
        message = f"in force, as version {verdict.version}"
    else:
        stays = (
            f"version {verdict.version} stays in force"
            if verdict.version
            else "nothing of it is in force"
        )
        fix = f"; {verdict.fix}" if verdict.fix else ""
        message = f"{verdict.message}; {stays}{fix}"
    return _State(
        type=ConditionType.ACCEPTED,
        is_true=verdict.is_accepted,
        reason=verdict.reason.value,
        message=message,
    )


def _published_kinds(profile: Profile, facts: ProfileFacts) -> Iterator[PublishedKind]:
    for kind, device in sorted(profile.devices.items()):
        yield PublishedKind(
            kind=kind.value,
            class_name=device.class_name,
            class_exists=device.class_name in facts.classes,
            devices=facts.devices.get(kind, 0),
        )


def _devices_found(
    profile: Profile | None, kinds: Collection[PublishedKind], facts: ProfileFacts
) -> _State:
    type_ = ConditionType.DEVICES_FOUND
    if profile is None:
        return _not_in_force(type_)
    missing = {
        name
        for device in profile.devices.values()
        for name in classes_of(device)
        if name not in facts.classes
    }
    if missing:
        return _State(
            type=type_,
            is_true=False,
            reason=ConditionReason.CLASS_MISSING.value,
            message=f"the cluster has no DeviceClass {_list(missing)}; create it, or install the driver, "
            "which may bring it",
        )
    empty = [kind.kind for kind in kinds if not kind.devices]
    if empty:
        message = (
            f"{facts.slices} ResourceSlices of {profile.driver} have no device of kind {_list(empty)}; "
            "see where the driver runs, and the attributes under where"
        )
        return _State(
            type=type_, is_true=False, reason=ConditionReason.NO_DEVICES.value, message=message
        )
    number = sum(kind.devices for kind in kinds)
    return _State(
        type=type_,
        is_true=True,
        reason=ConditionReason.DEVICES_PUBLISHED.value,
        message=f"{number} devices in {facts.slices} ResourceSlices",
    )


def _no_conflicts(profile: Profile | None, conflicts: Collection[KeyConflict]) -> _State:
    type_ = ConditionType.NO_CONFLICTS
    if profile is None:
        return _not_in_force(type_)
    if not conflicts:
        message = "it serves every resource name that it lists"
        return _State(
            type=type_,
            is_true=True,
            reason=ConditionReason.SERVES_ITS_NAMES.value,
            message=message,
        )
    words = "; ".join(
        f"{conflict.key}: {conflict.message}" for conflict in [*conflicts][:MAX_LISTED]
    )
    more = len(conflicts) - MAX_LISTED
    return _State(
        type=type_,
        is_true=False,
        reason=ConditionReason.NAMES_SERVED_ELSEWHERE.value,
        message=f"{words}; and {more} more" if more > 0 else words,
    )


def _not_in_force(type_: ConditionType) -> _State:
    reason = ConditionReason.NOT_ACCEPTED.value
    return _State(type=type_, is_true=False, reason=reason, message="the profile is not in force")


def _list(names: Collection[str]) -> str:
    return join_names(sorted(names), MAX_LISTED)


def _bounded_conflict(conflict: KeyConflict) -> KeyConflict:
    return msgspec.structs.replace(conflict, message=shorten(conflict.message, MAX_MESSAGE))


REASONS: Final = (*AcceptedReason, *ConditionReason)
"""Every reason of a condition."""
