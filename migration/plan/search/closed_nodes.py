"""Nodes that keep their pods and take no others, each with its reason. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from migration.assessment.outcomes import AssessedWorkload
from migration.plan.model.plan import Held
from migration.plan.search.unmovable import Unmovable
from migration.plan.stage.stage import PodKey, Stage

_OUT_OF_USE: Final = "not ready, or two systems hand out its devices"
_UNKNOWN_DEVICES: Final = (
    "nothing here moves some of its pods, so that it is not known which of its devices these have"
)
_STAYS: Final = "pods on it never move"


def full_nodes(
    unmovable: Mapping[str, Unmovable],
    nodes_of: Mapping[str, Iterable[str]],
    not_counted: Collection[str],
) -> frozenset[str]:
    """Return the nodes of workloads that never move, and leave an unknown part of the devices there.

    Args:
        unmovable: Workload, as `Kind/namespace/name`, to the reason that it never moves.
        nodes_of: The same workloads to the nodes of their pods.
        not_counted: Workloads whose devices are not counted.
    """
    return frozenset(
        node
        for name, entry in unmovable.items()
        if not entry.leaves_room or name in not_counted
        for node in nodes_of[name]
    )


def unknown_nodes(
    workloads: Iterable[AssessedWorkload],
    nodes_of: Mapping[str, Sequence[str]],
    counted: Collection[PodKey],
) -> frozenset[str]:
    """Return the nodes with pods of unknown devices: they would be rejected, or nothing here translates them.

    Args:
        workloads: The cluster's workloads.
        nodes_of: Workload, as `Kind/namespace/name`, to the nodes of its pods, in the order of their numbers.
        counted: The pods without a translation whose devices are known.
    """
    return frozenset(
        node
        for workload in workloads
        if workload.result is None
        for number, node in enumerate(nodes_of.get(workload.key.reference, ()))
        if node and PodKey(workload.key.reference, number) not in counted
    )


def closed_reasons(
    stage: Stage, unmoved: Collection[str], held_entries: Iterable[Held]
) -> Mapping[str, str]:
    """Return each node that keeps its pods and takes no others to the reason.

    Args:
        stage: The stage with these nodes.
        unmoved: Those with pods whose devices are unknown.
        held_entries: The objects that are held for workloads that never move, among them the other nodes.
    """
    reasons = {entry.object.removeprefix("Node//"): entry.reason for entry in held_entries}
    return {
        name: _OUT_OF_USE
        if name in stage.unready
        else _UNKNOWN_DEVICES
        if name in unmoved
        else reasons.get(name, _STAYS)
        for name in stage.closed
    }
