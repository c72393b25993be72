"""The facts beside devices that a caller knows of nodes, and the order of nodes that follows.

A preference rejects nothing: nodes that are not preferred come after those that are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from zlib import crc32

from allocator.cluster.verdicts import NodePlans
from allocator.nodes.headroom import Headroom


class Preference(Protocol):
    """An order among nodes."""

    @property
    def start(self) -> str:
        """The first name among nodes of equal score; names before it come last. Empty for the first name."""
        ...

    def prefers(self, name: str) -> bool:
        """Return True if a node comes before the others."""
        ...

    def order(self, plans: NodePlans) -> Iterable[tuple[str, int]] | None:
        """Return the nodes with devices and their scores, best first; None for the strategy's.

        Args:
            plans: The verdicts that are known. While the question stays the same, so do the
                mappings, which change with the cluster.
        """
        ...


def start_of(pod: str, names: Sequence[str]) -> str:
    """Return the node that FirstFit tries first for a pod.

    It rotates with the name of the pod, so that it needs no state: it is the same for every replica, after a restart,
    and in a replay.

    Args:
        pod: Namespace and name of the pod.
        names: All nodes, sorted.

    >>> [start_of(f"team-a/pod-{number}", ("node-a", "node-b", "node-c")) for number in range(4)]
    ['node-a', 'node-c', 'node-a', 'node-a']
    """
    return names[crc32(pod.encode()) % len(names)] if names else ""


class RoomFirst:
    """The nodes with CPU, memory and a place for a pod come first; the strategy decides the rest."""

    def __init__(
        self, cpu_milli: int, memory: int, headroom: Mapping[str, Headroom], start: str = ""
    ) -> None:
        """Prefer nodes for one pod.

        Args:
            cpu_milli: CPU that the pod requests, in thousandths of a core.
            memory: Memory that it requests, in bytes.
            headroom: Node to what it has left; nodes of which that is not known are preferred.
            start: The name with which nodes of equal score begin.
        """
        self.start = start
        self.cpu_milli = cpu_milli
        self.memory = memory
        self._headroom = headroom

    def prefers(self, name: str) -> bool:
        """Return True if a node has room for the pod, as far as is known."""
        headroom = self._headroom.get(name)
        return headroom is None or headroom.takes(self.cpu_milli, self.memory)

    def order(self, plans: NodePlans) -> Iterable[tuple[str, int]] | None:  # noqa: ARG002
        """Return None: the strategy orders the nodes."""
        return None
