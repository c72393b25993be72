"""TopologyPacked: devices that work together near each other; whole PCIe roots kept free.

Devices: if one PCIe root has all that the attempt asks for (GPUs *and* NICs, of all claims), the
root on which least is left over comes first. Else NUMA nodes are taken in that way, and inside a
NUMA node the root that serves most, until one root has all the rest, of which again the one with
least left over. Under one root the fullest device comes first.

===============================  ===========  ==================================================
free GPUs under roots a, b, c    asked        order of roots
===============================  ===========  ==================================================
2, 1, 2                          1            b (nothing left over), a, c
2, 1, 2                          2            a, c, b
2, 1, 2                          3            a (serves 2), b (has the rest exactly), c
===============================  ===========  ==================================================

Nodes: 60 for closeness, 30 for roots that are not broken open, 10 for load:

* closeness: over all pairs of chosen devices, 1 under one root, 1/2 on one NUMA node, else 0;
  a single device is as close as can be;
* of the roots that are touched, the share of those that were in use before or are full after
  (only devices of drivers that the plan uses count);
* the load of CompactFirst.

=====================================================  =========  ========  =====  =====
plan on a node of roots with two GPUs each             closeness  unbroken  load   score
=====================================================  =========  ========  =====  =====
1 GPU, its neighbour in use; 4 GPUs                    1          1         2/4    95
1 GPU of a free root; 4 GPUs, none in use              1          0         1/4    62
2 GPUs of one free root; 4 GPUs, none in use           1          1         2/4    95
2 GPUs of two free roots of one NUMA node; 4 GPUs      1/2        0         2/4    35
=====================================================  =========  ========  =====  =====

It prefers and never forbids: what has to be together says so with `matchAttribute`. Devices that
do not say where they are come last, and where none says, devices are ordered as by CompactFirst.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from allocator.core.inventory import Place
from allocator.core.inventory import chain as selectors
from allocator.core.model import Asked, Expression, NodeDevices, Plan, Pool, Usage
from allocator.strategies.alternatives import ranked
from allocator.strategies.compact_first import COMPACT_FIRST
from allocator.strategies.load import FULL, carried_out, device_loads, drivers_of, held, node_load
from allocator.strategies.topology import NUMA_NODE, PCIE_ROOT, Layout, layout

_CLOSE: Final = 60
_UNBROKEN: Final = 30
_LOAD: Final = 10

_MATCHES: Final = 16384

Demand = dict[int, int]
"""Mask of the devices that will do to how many are wanted."""


class TopologyPacked:
    """Near devices first, nodes where they are near."""

    name = "TopologyPacked"
    places: tuple[Place, ...] = (PCIE_ROOT, NUMA_NODE)
    weighs = False

    def order(self, node: NodeDevices, usage: Usage, asked: Asked) -> Sequence[int] | None:
        """Return devices root by root, as the module says."""
        where = layout(node)
        if where is None:
            return COMPACT_FIRST.order(node, usage, asked)
        loads = device_loads(node, usage)
        demand = _demand(node, asked, loads)
        turns: dict[int, int] = {}
        for turn, place in enumerate(_places(where, demand, [FULL - load for load in loads])):
            for position in where.members[place]:
                turns.setdefault(position, turn)
        keys = [(turns.get(at, len(loads)), -load) for at, load in enumerate(loads)]
        return sorted(range(len(keys)), key=keys.__getitem__)

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return how near the plan's devices are, how few roots it opens, how full it leaves."""
        after = carried_out(node, usage, plan)
        where = layout(node)
        closeness = unbroken = FULL
        if where is not None:
            taken = [node.positions[choice.device.id] for choice in held(plan)]
            closeness = _closeness(where, taken)
            unbroken = _unbroken(where, node, taken, usage, after)
        load = node_load(node, after, drivers_of(plan))
        return ranked(plan, (_CLOSE * closeness + _UNBROKEN * unbroken + _LOAD * load) // FULL)


TOPOLOGY_PACKED: Final = TopologyPacked()


# --- order ----------------------------------------------------------------------------------------


def _demand(node: NodeDevices, asked: Asked, loads: Sequence[int]) -> Demand:
    """Return which devices are wanted: of each request the first alternative that has enough.

    Requests that the same devices serve are one; mode All and admin access have no choice to make.
    """
    has_room = sum(1 << position for position, load in enumerate(loads) if load < FULL)
    demand: Demand = {}
    masks: dict[tuple[Expression, ...], int] = {}
    for alternatives in chain.from_iterable(asked.requests):
        for request in alternatives:
            if request.all_devices or request.admin:
                break
            mask = masks.get(request.expressions)
            if mask is None:
                mask = masks[request.expressions] = _matching(node, request.expressions) & has_room
            if mask.bit_count() >= request.count:
                demand[mask] = demand.get(mask, 0) + request.count
                break
    return demand


def _matching(node: NodeDevices, expressions: tuple[Expression, ...]) -> int:
    names = [_selected(pool, expressions) for pool in node.pools]
    mask, bit = 0, 1
    for pool, published in zip(node.pool_of, node.devices, strict=True):
        if published.id.device in names[pool]:
            mask |= bit
        bit <<= 1
    return mask


@lru_cache(maxsize=_MATCHES)
def _selected(pool: Pool, expressions: tuple[Expression, ...]) -> frozenset[str]:
    """Return which devices of a pool the selectors select; one that fails selects nothing."""
    verdict = selectors(expressions).verdict
    return frozenset(each.id.device for each in pool.devices if verdict(each) is True)


def _places(where: Layout, demand: Demand, room: Sequence[int]) -> Iterable[int]:
    """Yield the places of a node in order, as masks of positions."""
    wanted = 0
    for mask in demand:
        wanted |= mask
    roots, numa_nodes = where.roots, where.numa_nodes
    rooms = {
        place: sum([room[at] for at in members if wanted >> at & 1])
        for place, members in where.members.items()
    }
    if any(_holds(root, demand) for root in roots):
        yield from _sequence(roots, demand, rooms)
        return
    below = sum(roots)
    for numa in _sequence(numa_nodes, demand, rooms):
        for root in _sequence([root for root in roots if root & numa], demand, rooms):
            demand = _without(demand, root)
            yield root
        demand = _without(demand, numa & ~below)
        yield numa
    on_some = sum(numa_nodes)
    yield from _sequence([root for root in roots if not root & on_some], demand, rooms)


def _sequence(places: Sequence[int], demand: Demand, rooms: Mapping[int, int]) -> list[int]:
    """Return places, those that serve most first, until one has all the rest.

    Of places that are equally good, and of those that nobody needs, the one with least room.
    """
    waiting = sorted(places, key=rooms.__getitem__)
    ordered: list[int] = []
    while waiting and any(demand.values()):
        best = next((place for place in waiting if _holds(place, demand)), None)
        if best is None:
            served = [_served(place, demand) for place in waiting]
            best = waiting[served.index(max(served))]
        waiting.remove(best)
        ordered.append(best)
        demand = _without(demand, best)
    return ordered + waiting


def _served(place: int, demand: Demand) -> int:
    return sum([min((mask & place).bit_count(), count) for mask, count in demand.items()])


def _holds(place: int, demand: Demand) -> bool:
    return all((mask & place).bit_count() >= count for mask, count in demand.items())


def _without(demand: Demand, place: int) -> Demand:
    """Return what a place leaves to be served."""
    return {mask: max(0, count - (mask & place).bit_count()) for mask, count in demand.items()}


# --- score ----------------------------------------------------------------------------------------


def _closeness(where: Layout, taken: Sequence[int]) -> int:
    """Return how near each other devices are: the mean over pairs, of `FULL`."""
    pairs = len(taken) * (len(taken) - 1) // 2
    if not pairs:
        return FULL
    near = _together([where.root_at[at] for at in taken])
    near += _together([where.numa_at[at] for at in taken])
    return near * FULL // (2 * pairs)


def _together(places: Sequence[int]) -> int:
    """Return how many pairs are at one place."""
    return sum([count * (count - 1) // 2 for count in Counter(places).values()])


def _unbroken(
    where: Layout, node: NodeDevices, taken: Sequence[int], before: Usage, after: Usage
) -> int:
    """Return which share of the touched roots was in use before or is full after, of `FULL`."""
    touched = {where.root_at[at] for at in taken}.intersection(where.roots)
    if not touched:
        return FULL
    drivers = {node.devices[position].id.driver for position in taken}
    loads, loads_after = device_loads(node, before), device_loads(node, after)
    broken = 0
    for root in touched:
        members = [at for at in where.members[root] if node.devices[at].id.driver in drivers]
        was_free = not any(loads[at] for at in members)
        is_full = all(loads_after[at] == FULL for at in members)
        broken += was_free and not is_full
    return (len(touched) - broken) * FULL // len(touched)
