"""The greedy placement: one member after the other, on the node that the arrangement prefers.

Unlike upstream's, it chooses the devices of all members of a node together.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final

from allocator.groups.feasibility import CandidateNode, Feasibility, NodeLoad
from allocator.groups.kinds import Counts
from allocator.groups.model import Arrangement
from kube.cel.scope import current_scope

NODES_PER_STEP: Final = 8
"""Nodes on which one more member is tried in a step, where that takes no search."""
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
    placement = {
        name: list(own)
        for name, own in earlier.items()
        if name in by_name and feasibility.fits(by_name[name], own)
    }
    loads = {name: feasibility.load(by_name[name], tuple(own)) for name, own in placement.items()}
    numbers = before + Counter({name: sum(own) for name, own in placement.items()})
    for kind, count in enumerate(counts):
        # What does not fit beside some members does not fit beside more of them.
        full: set[str] = set()
        full_classes: set[Hashable] = set()
        for _ in range(count - sum(own[kind] for own in placement.values())):
            used_nodes: Sequence[CandidateNode] = ()
            if arrangement is not Arrangement.FIRST_FIT:
                used_names = numbers.keys() & positions.keys()
                used_nodes = [
                    by_name[name] for name in sorted(used_names, key=positions.__getitem__)
                ]
            order = _order(nodes, used_nodes, numbers, full, arrangement)
            name = _first(
                order, kind, loads, feasibility, full=full, limit=limit, full_classes=full_classes
            )
            if name is None:
                break
            placement.setdefault(name, [0] * len(counts))[kind] += 1
            numbers[name] += 1
    return {name: tuple(own) for name, own in placement.items()}


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


def _first(
    nodes: Iterable[CandidateNode],
    kind: int,
    loads: dict[str, NodeLoad],
    feasibility: Feasibility,
    *,
    limit: int,
    full: set[str],
    full_classes: set[Hashable],
) -> str | None:
    """Place one more member on the first node with room, and return that; None for none within the limit.

    Args:
        full: Nodes without room for it, with the members that are there.
        full_classes: The keys of nodes without room for it even if they have no members.
    """
    before = len(full)
    for node in nodes:
        if feasibility.steps > limit:
            break
        load = loads.get(node.name)
        if load is not None or node.key not in full_classes:
            load_with_member = feasibility.with_member(node, load or feasibility.empty(node), kind)
            if load_with_member is not None:
                loads[node.name] = load_with_member
                return node.name
            if load is None:
                full_classes.add(node.key)
        full.add(node.name)
        if (len(full) - before) % NODES_PER_STEP == 0:
            current_scope().meter.count(1)
    return None
