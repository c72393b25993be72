"""The schedulers that place pods by each kind of group; others ignore its declaration."""

from collections.abc import Mapping, Sequence
from typing import Final

from allocator.declarations.model import Declaration, GroupSystem, Reading
from allocator.declarations.read import OWN_SYSTEMS, read_declaration
from kube.api.core import Pod
from kube.names import DEFAULT_SCHEDULER_NAME

_OF_KUBE_SCHEDULER: Final = frozenset({"", DEFAULT_SCHEDULER_NAME})
_SYSTEMS: Final[Mapping[str, frozenset[GroupSystem]]] = {
    **dict.fromkeys(_OF_KUBE_SCHEDULER, frozenset({GroupSystem.KUBERNETES})),
    **{scheduler: frozenset({system}) for scheduler, system in OWN_SYSTEMS.items()},
}
"""The schedulerName of a scheduler to the groups that it reads."""


def may_read_groups(scheduler: str, system: GroupSystem, bridge_scheduler: str) -> bool:
    """Return False if a scheduler is known to ignore the groups of a system.

    For the bridge the webhook makes PodGroups of all of them. Any other name may be that of a kube-scheduler with the
    coscheduling plugin.

    Args:
        scheduler: The pod's schedulerName.
        bridge_scheduler: schedulerName of the bridge.

    >>> may_read_groups("default-scheduler", GroupSystem.KOORDINATOR, "drawbridge-scheduler")
    False
    """
    if scheduler == bridge_scheduler:
        return True
    systems = _SYSTEMS.get(scheduler)
    return systems is None or system in systems


def without_ignored_groups(
    pods: Sequence[Pod], bridge_scheduler: str, *, are_adopted: bool
) -> tuple[Pod, ...]:
    """Return pods, less those of groups unknown to their scheduler.

    Args:
        bridge_scheduler: schedulerName of the bridge.
        are_adopted: The pods are new, so that gangs with a pod of the bridge become PodGroups. Of other pods the
            bridge reads Kubernetes' own field alone.
    """
    readings = [read_declaration(pod) for pod in pods]
    adopted = {
        reading.group
        for pod, reading in zip(pods, readings, strict=True)
        if are_adopted and isinstance(reading, Declaration)
        if pod.spec.scheduler_name == bridge_scheduler
    }

    def is_read(pod: Pod, reading: Reading) -> bool:
        name = pod.spec.scheduler_name
        # The bridge is a kube-scheduler, and reads no other words itself.
        scheduler = "" if name == bridge_scheduler and not are_adopted else name
        is_kube_scheduler = scheduler in _OF_KUBE_SCHEDULER
        if isinstance(reading, Declaration):
            system = reading.group.system
            follows = is_kube_scheduler and reading.group in adopted
            return follows or may_read_groups(scheduler, system, bridge_scheduler)
        return reading is None or bool(pod.spec.scheduling_group) or not is_kube_scheduler

    return tuple(pod for pod, reading in zip(pods, readings, strict=True) if is_read(pod, reading))
