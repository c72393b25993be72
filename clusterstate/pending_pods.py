"""The scheduler's condition of a pod that has no node."""

from typing import Final

from kube.api.core import Pod

_UNSCHEDULABLE: Final = frozenset({"Unschedulable", "SchedulerError"})
"""The second where an attempt ended with an error, such as a selector that fails."""


def is_unschedulable(pod: Pod) -> bool:
    """Return whether the scheduler has tried to place the pod, and found no node or failed."""
    return any(
        condition.type == "PodScheduled"
        and condition.status == "False"
        and condition.reason in _UNSCHEDULABLE
        for condition in (pod.status.conditions if pod.status is not None else None) or ()
    )


def is_gated(pod: Pod) -> bool:
    """Return whether scheduling gates hold the pod back from the scheduler."""
    return any(
        condition.type == "PodScheduled" and condition.reason == "SchedulingGated"
        for condition in (pod.status.conditions if pod.status is not None else None) or ()
    )
