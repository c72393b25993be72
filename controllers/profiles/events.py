"""The events about a DeviceTranslationProfile: new statements of its conditions. Pure."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from controllers.profiles.status import ConditionReason, ConditionType
from kube.api.events import Event, ObjectReference
from kube.api.policy import Condition
from kube.api.translation_profile import (
    API_VERSION,
    KIND,
    DeviceTranslationProfile,
    DeviceTranslationProfileStatus,
)

ACTION: Final = "Publish"


class EventReason(StrEnum):
    """The reason of an event."""

    PROFILE_ACCEPTED = "ProfileAccepted"
    """The spec is in force."""
    PROFILE_NOT_ACCEPTED = "ProfileNotAccepted"
    """The spec is not in force; an earlier version of it may be."""
    NAMES_SERVED_ELSEWHERE = "NamesServedElsewhere"
    """Other profiles serve names that the profile lists."""


def profile_events(
    document: DeviceTranslationProfile, status: DeviceTranslationProfileStatus
) -> Iterator[Event]:
    """Yield the events about the differences of a new status from the stored one.

    Args:
        document: The profile as stored, with the status before.
    """
    before = _conditions(document.status)
    for type_, condition in _conditions(status).items():
        reason = _reason(condition)
        if reason is None or _content(condition) == _content(before.get(type_)):
            continue
        yield Event(
            regarding=ObjectReference.of(API_VERSION, KIND, document.metadata),
            reason=reason,
            action=ACTION,
            note=condition.message,
            type="Normal" if reason is EventReason.PROFILE_ACCEPTED else "Warning",
        )


def _conditions(status: DeviceTranslationProfileStatus | None) -> dict[str, Condition]:
    conditions = (status.conditions if status is not None else None) or ()
    return {condition.type: condition for condition in conditions}


def _content(condition: Condition | None) -> tuple[str, str, str] | None:
    return None if condition is None else (condition.status, condition.reason, condition.message)


def _reason(condition: Condition) -> EventReason | None:
    """Return the reason of the event about a condition; None if it needs none."""
    if condition.type == ConditionType.ACCEPTED:
        is_accepted = condition.status == "True"
        return EventReason.PROFILE_ACCEPTED if is_accepted else EventReason.PROFILE_NOT_ACCEPTED
    if condition.reason == ConditionReason.NAMES_SERVED_ELSEWHERE:
        return EventReason.NAMES_SERVED_ELSEWHERE
    return None
