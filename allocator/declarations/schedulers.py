"""The schedulers that place pods by each kind of group; others ignore its declaration."""

from collections.abc import Mapping
from typing import Final

from allocator.declarations.model import GroupSystem
from kube.names import DEFAULT_SCHEDULER_NAME

_SYSTEMS: Final[Mapping[str, frozenset[GroupSystem]]] = {
    "": frozenset({GroupSystem.KUBERNETES}),
    DEFAULT_SCHEDULER_NAME: frozenset({GroupSystem.KUBERNETES}),
    "koord-scheduler": frozenset({GroupSystem.KOORDINATOR}),
    "volcano": frozenset({GroupSystem.VOLCANO}),
    "kai-scheduler": frozenset({GroupSystem.KAI}),
    "runai-scheduler": frozenset({GroupSystem.KAI}),
}
"""The schedulerName that a project's own charts give to its scheduler, to the groups that this scheduler reads."""


def may_read_groups(scheduler: str, system: GroupSystem, bridge_scheduler: str) -> bool:
    """Return False if a scheduler is known to ignore the groups of a system.

    The bridge reads all of them. So may a scheduler with another name, such as a kube-scheduler with the
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
