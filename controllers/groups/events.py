"""Events about pods of gangs that cannot be scheduled, or not as they say."""

from enum import StrEnum
from typing import Final

from allocator.groups.model import MAX_MEMBERS
from controllers.groups.gangs import GangPod
from kube.api.events import Event, ObjectReference

ACTION: Final = "Adopt"


class EventReason(StrEnum):
    """The reason of an event about a pod of a gang."""

    NO_MINIMUM = "GangMinimumUnknown"
    MINIMUM_DIFFERS = "GangMinimumDiffers"
    NOT_CREATED = "PodGroupNotCreated"


def unknown_minimum(pod: GangPod) -> Event:
    """Return the event of a pod with a gang that needs an unknown number of pods."""
    return _event(
        pod,
        EventReason.NO_MINIMUM,
        f"{pod.gang} waits: neither its pods nor a PodGroup of its own scheduler say how many pods it needs, "
        f"from 1 to {MAX_MEMBERS}; write the number on its pods, or create that PodGroup",
    )


def other_minimum(pod: GangPod, group: str, minimum: int) -> Event:
    """Return the event of a pod that declares another minimum than its PodGroup has."""
    return _event(
        pod,
        EventReason.MINIMUM_DIFFERS,
        f"the pod says that {pod.gang} needs {pod.min_count} pods, and PodGroup {group} needs {minimum}, as "
        "the first pod of it says; write one number on all of them",
    )


def other_minimum_of_object(pod: GangPod, group: str, minimum: int, of_object: int | None) -> Event:
    """Return the event of a pod of a gang with a PodGroup of its own scheduler that names another minimum."""
    return _event(
        pod,
        EventReason.MINIMUM_DIFFERS,
        f"minMember of the PodGroup of {pod.gang} is {of_object}, and PodGroup {group} needs {minimum} pods, "
        "as it was created; write one number on all pods and into minMember",
    )


def not_created(pod: GangPod, group: str, reason: str) -> Event:
    """Return the event of a pod with a PodGroup that the API server rejects."""
    return _event(
        pod, EventReason.NOT_CREATED, f"PodGroup {group} of {pod.gang} cannot be created: {reason}"
    )


def _event(pod: GangPod, reason: EventReason, note: str) -> Event:
    return Event(
        regarding=ObjectReference.of("v1", "Pod", pod.metadata),
        reason=reason,
        action=ACTION,
        note=note,
        type="Warning",
        identity=reason,
    )
