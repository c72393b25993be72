"""The resources of nodes without their pods."""

from collections.abc import Mapping
from typing import NamedTuple

from allocator.nodes.node_resources import (
    NodeResources,
    node_resources,
    with_unnamed_resources,
)
from kube.api.core import Node


class _Counted(NamedTuple):
    """A node, and its resources."""

    node: Node
    resources: NodeResources


class IdleResources:
    """The resources of nodes, counted once for each version of a node."""

    def __init__(self) -> None:
        self._counted: dict[str, _Counted] = {}

    def of(self, nodes: Mapping[str, Node]) -> Mapping[str, NodeResources]:
        """Return node to its resources; those that are gone are forgotten.

        Args:
            nodes: The nodes by name.
        """
        self._counted = {
            name: counted
            if (counted := self._counted.get(name)) is not None and counted.node is node
            else _Counted(node, node_resources(with_unnamed_resources(node)))
            for name, node in nodes.items()
        }
        return {name: counted.resources for name, counted in self._counted.items()}
