"""The greedy placement: one member after the other, on the node that the arrangement prefers.

Unlike upstream's, it chooses the devices of all members of a node together.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final

from allocator.groups.feasibility import CandidateNode, Feasibility
from allocator.groups.kinds import Counts
from allocator.groups.model import Arrangement

NOBODY: Final[Counter[str]] = Counter()
NOTHING_PLACED: Final[Mapping[str, Counts]] = MappingProxyType({})


def place_greedily(
    nodes: Sequence[CandidateNode],
    counts: Counts,
    feasibility: Feasibility,
    *,
    arrangement: Arrangement,
    limit: int,
    earlier: Mapping[str, Counts] = NOTHING_PLACED,
    before: Counter[str] = NOBODY,
) -> Mapping[str, Counts]:
    """Return node to members of each kind, of a placement that is found without looking back.

    Args:
        nodes: The nodes in order of preference, none of them linked.
        counts: Members of each kind, in order.
        feasibility: The answers about single nodes.
        arrangement: The preference among nodes.
        limit: The cost at which it stops.
        earlier: A placement that is kept as far as it still holds.
        before: Node to the number of members that are there already.
    """
    by_name = {node.name: node for node in nodes}
    positions = {name: position for position, name in enumerate(by_name)}
    loads = {
        name: load
        for name, load in earlier.items()
        if name in by_name and feasibility.fits(by_name[name], load)
    }
    for kind, count in enumerate(counts):
        # What does not fit beside some members does not fit beside more of them.
        full: set[str] = set()
        for _ in range(count - sum(load[kind] for load in loads.values())):
            numbers = _numbers(loads, before)
            used_nodes = [
                by_name[name]
                for name in sorted(numbers.keys() & positions.keys(), key=positions.__getitem__)
            ]
            for node in _order(nodes, used_nodes, numbers, full, arrangement):
                if feasibility.steps > limit:
                    return loads
                load = _with_one(loads.get(node.name, (0,) * len(counts)), kind)
                if feasibility.fits(node, load):
                    loads[node.name] = load
                    break
                full.add(node.name)
            else:
                break
    return loads


def in_order_of_preference(
    nodes: Sequence[CandidateNode],
    counts: Counts,
    feasibility: Feasibility,
    *,
    arrangement: Arrangement,
    limit: int,
) -> tuple[CandidateNode, ...]:
    """Return the nodes in the order of their use: by name, or roomiest first.

    Arguments as of `place_greedily`. Beyond the limit no further node is looked at, and counts as full.
    """
    if arrangement is Arrangement.FIRST_FIT:
        return tuple(nodes)

    def room(node: CandidateNode) -> int:
        return sum(
            feasibility.most(node, kind, count)
            for kind, count in enumerate(counts)
            if node.options[kind] >= 0 and feasibility.steps <= limit
        )

    rooms = {node.name: room(node) for node in nodes}
    return tuple(sorted(nodes, key=lambda node: (-rooms[node.name], node.name)))


def _order(
    nodes: Sequence[CandidateNode],
    used_nodes: Sequence[CandidateNode],
    numbers: Mapping[str, int],
    full: set[str],
    arrangement: Arrangement,
) -> Iterator[CandidateNode]:
    """Yield the nodes that are not full, one after the other, since mostly the first ones are enough."""
    if arrangement is Arrangement.FIRST_FIT:
        return (node for node in nodes if node.name not in full)
    used = (node for node in used_nodes if node.name not in full)
    unused = (node for node in nodes if node.name not in full and node.name not in numbers)
    if arrangement is Arrangement.PACKED:
        return chain(used, unused)
    return chain(unused, sorted(used, key=lambda node: numbers[node.name]))


def _numbers(loads: Mapping[str, Counts], before: Counter[str]) -> Mapping[str, int]:
    """Return the number of members on each node that has some."""
    return before + Counter({node: sum(counts) for node, counts in loads.items()})


def _with_one(counts: Counts, kind: int) -> Counts:
    return tuple([count + (index == kind) for index, count in enumerate(counts)])
