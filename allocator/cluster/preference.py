"""What a caller knows of nodes beside their devices, and which of them come first for that.

A preference rejects nothing: nodes that are not preferred come after those that are.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from allocator.cluster.verdicts import NodePlans
from allocator.nodes.headroom import Headroom


class Preference(Protocol):
    """An order among nodes."""

    def prefers(self, name: str) -> bool:
        """Return whether a node comes before the others."""
        ...

    def order(self, plans: NodePlans) -> Iterable[tuple[str, int]] | None:
        """Return the nodes with devices and their scores, best first; None for the strategy's.

        Args:
            plans: The verdicts that are known. While the question stays the same, so do the
                mappings, which change with the cluster.
        """
        ...


class RoomFirst:
    """The nodes with CPU, memory and a place for a pod come first; the strategy decides the rest."""

    def __init__(self, cpu_milli: int, memory: int, headroom: Mapping[str, Headroom]) -> None:
        """Prefer nodes for one pod.

        Args:
            cpu_milli: CPU that the pod requests, in thousandths of a core.
            memory: Memory that it requests, in bytes.
            headroom: Node to what it has left; nodes of which that is not known are preferred.
        """
        self.cpu_milli = cpu_milli
        self.memory = memory
        self._headroom = headroom

    def prefers(self, name: str) -> bool:
        """Return whether a node has room for the pod, as far as is known."""
        headroom = self._headroom.get(name)
        return headroom is None or headroom.takes(self.cpu_milli, self.memory)

    def order(self, plans: NodePlans) -> Iterable[tuple[str, int]] | None:  # noqa: ARG002
        """Return None: the strategy orders the nodes."""
        return None
