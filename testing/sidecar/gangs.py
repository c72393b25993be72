"""The gangs of a schedule as the cluster has them: pods that come and go, minimums that change, nodes that are lost."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from allocator.pods.claims import Name
from kube.api.core import Node
from kube.api.meta import ObjectMeta


class Gang(NamedTuple):
    """Pods that are bound together.

    Attributes:
        min_count: The minimum at first.
        pods: The claims of each.
        shared: The claim that may be reserved for the gang.
    """

    name: str
    min_count: int
    pods: Mapping[str, tuple[str, ...]]
    shared: str = ""

    def claims(self, pod: str) -> tuple[Name, ...]:
        """Return the claims of a pod."""
        return tuple(("default", name) for name in self.pods[_place(pod)])


GANGS: Final = (
    Gang("a", 3, {"a0": ("a0", "a"), "a1": ("a",), "a2": ("a",)}, shared="a"),
    Gang("b", 2, {"b0": ("b0",), "b1": ("b1",), "b2": ("b2",)}),
)
NODES: Final[Mapping[str, Node]] = {
    name: Node(metadata=ObjectMeta(name=name)) for name in ("node-1", "node-2")
}


def gang_of(pod: str) -> Gang:
    """Return the gang of a pod."""
    return next(gang for gang in GANGS if _place(pod) in gang.pods)


class GangObjects:
    """The pods and PodGroups at the API server, and the nodes.

    Attributes:
        minimums: Gang to the number of pods that it needs.
        nodes: The nodes that exist.
        generations: Gang to the number of times that it was created anew.
    """

    def __init__(self) -> None:
        """Begin with all pods and nodes."""
        self.minimums = {gang.name: gang.min_count for gang in GANGS}
        self.nodes = frozenset(NODES)
        self.generations = dict.fromkeys(self.minimums, 0)
        self._numbers = dict.fromkeys((place for gang in GANGS for place in gang.pods), 0)
        self._absent: set[str] = set()

    def pods(self, gang: Gang) -> list[str]:
        """Return the pods of a gang that exist; one that comes for another has a new name."""
        return [
            f"{place}.{self._numbers[place]}" for place in gang.pods if place not in self._absent
        ]

    def absent(self, gang: Gang) -> Sequence[str]:
        """Return the pods of a gang that may come yet, without their numbers."""
        return [place for place in gang.pods if place in self._absent]

    def delete(self, pod: str) -> tuple[Name, ...]:
        """Delete a pod; return the claims that are deleted with it."""
        self._absent.add(_place(pod))
        gang = gang_of(pod)
        return tuple(name for name in gang.claims(pod) if name[1] != gang.shared)

    def create(self, place: str) -> tuple[Name, ...]:
        """Create a pod in the place of a deleted one; return the claims that are created with it."""
        self._absent.discard(place)
        self._numbers[place] += 1
        gang = gang_of(place)
        return tuple(name for name in gang.claims(place) if name[1] != gang.shared)

    def renew(self, gang: Gang, late: Collection[str]) -> None:
        """Delete a gang, and create it anew with its first minimum; some of its pods come later."""
        self.generations[gang.name] += 1
        self.minimums[gang.name] = gang.min_count
        for place in gang.pods:
            self._numbers[place] += 1
        self._absent.difference_update(gang.pods)
        self._absent.update(late)


def _place(pod: str) -> str:
    return pod.partition(".")[0]
