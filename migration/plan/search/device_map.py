"""The use of devices before, during and after each wave, for the page of a plan. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from allocator.nodes.node_resources import NodeResources
from migration.plan.search.moments import Attempt, Moment
from migration.plan.stage.other_pods import PodName
from migration.plan.stage.stage import PodKey
from migration.plan.stage.stage_allocator import Placement


class NodeState(StrEnum):
    """The system that hands out the devices of a node."""

    PLUGIN = "device plugin"
    DRAINED = "drained"
    DRA = "DRA driver"


class NodeUse(NamedTuple):
    """The devices of a node at a moment."""

    state: NodeState
    in_use: int
    devices: int


class Course(StrEnum):
    """The course of pods on a node that is drained."""

    MOVES = "moves"
    """They are evicted, and their controller creates them again on other nodes."""
    BOUND = "bound"
    """They are evicted, and wait until their node is back, since a PersistentVolume of theirs stays there."""
    ASKS = "asks"
    """They ask not to be evicted, and never end by themselves: a person decides."""
    ENDS = "ends"
    """They run to their end, and a script waits for that."""
    STAYS = "stays"
    """They belong to a DaemonSet, which creates them again there once the node has changed."""
    BY_HAND = "by hand"
    """Nothing creates them again: a person deletes them first, and creates them again afterwards."""


class Leaving(NamedTuple):
    """Pods of a workload, as `Kind/namespace/name`, that a wave takes from its nodes; no number counts those without devices."""

    workload: str
    pods: int
    course: Course
    has_devices: bool = True

    @property
    def is_evicted(self) -> bool:
        """Return True if a drain evicts the pods by itself."""
        return self.course in {Course.MOVES, Course.BOUND}


class WaveDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A wave with the use of devices around it.

    Attributes:
        evicted: Workload, as `Kind/namespace/name`, to the number of its pods that leave.
        placed: Workload to the number of its pods that have a node before the wave.
        before: Node to its use; of all nodes with devices, as the two others.
        during: While the nodes of the wave are drained.
        leaving: The pods of its nodes with their course, those without devices too that are waited for or asked about.
        others: The pods without devices that it evicts, in order.
        places: Pod to its node after the wave.
        starting: Pod without a node today to the one that it gets with the wave.
        resources: Node to its CPU and memory before the wave, and while its nodes are drained.
        resources_after: Node to them after the wave.
        other_places: Pod without devices that a drain has moved to its node after the wave; empty without one.
    """

    evicted: Mapping[str, int]
    placed: Mapping[str, int] = {}
    before: Mapping[str, NodeUse]
    during: Mapping[str, NodeUse]
    after: Mapping[str, NodeUse]
    leaving: tuple[Leaving, ...] = ()
    others: tuple[PodName, ...] = ()
    places: Mapping[PodKey, str] = {}
    starting: Mapping[PodKey, str] = {}
    resources: tuple[Mapping[str, NodeResources], ...] = ()
    resources_after: Mapping[str, NodeResources] = {}
    other_places: Mapping[PodName, str] = {}


def wave_details(
    moment: Moment, attempt: Attempt, devices: Mapping[str, int], others: Iterable[PodName]
) -> WaveDetails:
    """Return the details of a wave.

    Args:
        moment: The moment before the wave.
        devices: Node to the number of its devices.
        others: The pods without devices that it evicts.
    """
    names = frozenset(entry.node.name for entry in attempt.nodes)
    switched = moment.stage.switched
    during = attempt.during or moment.placement
    return WaveDetails(
        evicted=Counter(
            key.workload for key, node in sorted(moment.placement.nodes.items()) if node in names
        ),
        placed=Counter(key.workload for key in moment.placement.nodes),
        before=_uses(moment.placement, devices, switched),
        during=_uses(during, devices, switched, names),
        after=_uses(attempt.after, devices, switched | names),
        others=tuple(sorted(others)),
        places=attempt.after.nodes,
        starting={
            key: node
            for key, node in sorted(attempt.after.nodes.items())
            if key in moment.pending and key not in moment.placement.nodes
        },
        resources=(moment.placement.resources, during.resources),
        resources_after=attempt.after.resources,
        other_places=attempt.after.others,
    )


def _uses(
    placement: Placement,
    devices: Mapping[str, int],
    switched: Collection[str],
    drained: Collection[str] = (),
) -> dict[str, NodeUse]:
    def state_of(name: str) -> NodeState:
        if name in drained:
            return NodeState.DRAINED
        return NodeState.DRA if name in switched else NodeState.PLUGIN

    return {
        name: NodeUse(state_of(name), placement.in_use.get(name, 0), number)
        for name, number in sorted(devices.items())
    }
