"""The resources of nodes at a stage, without the amounts of Koordinator's colocation that leave with koordlet. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest
from migration.plan.stage.stage import PodKey, Stage

Leaving = Callable[[Mapping[str, Mapping[str, str]]], frozenset[str]]
"""A function from the labels that switches give to nodes, to the nodes that lose amounts with theirs."""


class Colocated:
    """The amounts that leave nodes with their switch, and the pods that request them."""

    def __init__(
        self,
        names: Collection[str],
        leaving: Leaving,
        requests: Mapping[PodKey, PodRequest],
        resources: Mapping[str, NodeResources],
    ) -> None:
        """Take the pods and the nodes of a cluster.

        Args:
            names: The resources that may leave.
            leaving: Returns the nodes that lose them.
            requests: The requests of all pods.
            resources: The resources of the nodes today.
        """
        self._names, self._leaving, self._today = frozenset(names), leaving, resources
        self._requested = {
            key: own
            for key, request in requests.items()
            if (own := {name: n for name, n in request.amounts.scalars.items() if name in names})
        }

    @property
    def pods(self) -> frozenset[PodKey]:
        """Return the pods that request such amounts."""
        return frozenset(self._requested)

    def resources(
        self, stage: Stage, resources: Mapping[str, NodeResources]
    ) -> Mapping[str, NodeResources]:
        """Return the resources of nodes at a stage.

        Args:
            stage: The stage.
            resources: The same with all that the nodes offer today.
        """
        names = self._leaving(stage.labels) & stage.switched & resources.keys()
        if not names:
            return resources
        return {**resources, **{name: self._without(resources[name]) for name in names}}

    def lacking(self, stage: Stage, workload: str, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return the amounts that a pod of a workload requests, and that none of some nodes offers once all are switched.

        Args:
            stage: A stage with the labels of all switches.
            workload: The workload, as `Kind/namespace/name`.
            nodes: The nodes.
        """
        own = {key: amounts for key, amounts in self._requested.items() if key.workload == workload}
        leaving = self._leaving(stage.labels) if own else frozenset()
        offered = [
            resources.allocatable.scalars
            for name in nodes
            if name not in leaving
            and (resources := self._today.get(name)) is not None
            and resources.allocatable is not None
        ]
        lacking = {
            name
            for amounts in own.values()
            for name, amount in amounts.items()
            if not any(scalars.get(name, 0) >= amount for scalars in offered)
        }
        return tuple(sorted(lacking))

    def _without(self, resources: NodeResources) -> NodeResources:
        allocatable = resources.allocatable
        if allocatable is None:
            return resources
        scalars = {
            name: amount for name, amount in allocatable.scalars.items() if name not in self._names
        }
        return msgspec.structs.replace(
            resources, allocatable=msgspec.structs.replace(allocatable, scalars=scalars)
        )
