"""TopologyPacked: devices near each other, and whole PCIe roots kept free.

Devices: if one PCIe root can serve all requests of the attempt (GPUs *and* NICs, of all claims), the
root with the least free load left over comes first. Otherwise NUMA nodes are ordered in this way,
and inside a NUMA node the root that serves most comes first, until one root can serve the rest; of
several such roots, again the one with the least left over. Under one root the fullest device comes
first.

===============================  ===========  ==================================================
free GPUs under roots a, b, c    requested    order of roots
===============================  ===========  ==================================================
2, 1, 2                          1            b (nothing left over), a, c
2, 1, 2                          2            a, c, b
2, 1, 2                          3            a (serves 2), b (serves the rest exactly), c
===============================  ===========  ==================================================

Nodes: 60 for closeness, 30 for unbroken roots, 10 for load:

* closeness: over all pairs of chosen devices, 1 under one root, 1/2 on one NUMA node, else 0;
  1 for a single device;
* unbroken: of the roots with a chosen device, the share of those that were in use before or are full
  after the plan (only devices of the plan's drivers count);
* the load of CompactFirst.

=====================================================  =========  ========  =====  =====
plan on a node of roots with two GPUs each             closeness  unbroken  load   score
=====================================================  =========  ========  =====  =====
1 GPU, the other GPU of its root in use; 4 GPUs        1          1         2/4    95
1 GPU of a free root; 4 GPUs, none in use              1          0         1/4    62
2 GPUs of one free root; 4 GPUs, none in use           1          1         2/4    95
2 GPUs of two free roots of one NUMA node; 4 GPUs      1/2        0         2/4    35
=====================================================  =========  ========  =====  =====

The strategy is a preference: devices that must be near each other need `matchAttribute`. Devices
with an unknown place come last, and if no place is known, the order is that of CompactFirst.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from allocator.model.devices import NodeDevices, Pool
from allocator.model.plan import Plan
from allocator.model.requests import Expression, PendingClaims
from allocator.model.selectors import DeviceField, selector_chain
from allocator.model.usage import Usage
from allocator.strategies.alternatives import rank_score
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from allocator.strategies.compact_first import CompactFirst
from allocator.strategies.load import (
    FULL,
    consuming_choices,
    device_loads,
    drivers_of,
    node_load,
    usage_after,
)
from allocator.strategies.pod_kinds import PodKind
from allocator.strategies.topology import NUMA_NODE, PCIE_ROOT, NodeTopology, node_topology

_CLOSE: Final = 60
_UNBROKEN: Final = 30
_LOAD: Final = 10

_MATCHES: Final = 16384

Demand = dict[int, int]
"""Mask of suitable devices to the number of them that is requested."""


class TopologyPacked:
    """Near devices first; nodes with near devices first."""

    name = "TopologyPacked"
    fields: tuple[DeviceField, ...] = (PCIE_ROOT, NUMA_NODE)
    reads_capacities = False
    kinds: tuple[PodKind, ...] = ()

    def __init__(self, weights: CapacityWeights = NO_WEIGHTS) -> None:
        """Count capacities by weights."""
        self.weights = weights
        self._elsewhere = CompactFirst(weights)

    def order(
        self, node: NodeDevices, usage: Usage, pending: PendingClaims
    ) -> Sequence[int] | None:
        """Return devices root by root, in the order that the module describes."""
        topology = node_topology(node)
        if topology is None:
            return self._elsewhere.order(node, usage, pending)
        loads = device_loads(node, usage, self.weights)
        demand = _demand(node, pending, loads)
        free_loads = [FULL - load for load in loads]
        ranks: dict[int, int] = {}
        for rank, place in enumerate(_order_places(topology, demand, free_loads)):
            for position in topology.members[place]:
                ranks.setdefault(position, rank)
        keys = [(ranks.get(at, len(loads)), -load) for at, load in enumerate(loads)]
        return sorted(range(len(keys)), key=keys.__getitem__)

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return the weighted sum of closeness, unbroken roots and load."""
        after = usage_after(node, usage, plan)
        topology = node_topology(node)
        closeness = unbroken_score = FULL
        if topology is not None:
            positions = [node.positions[choice.device.id] for choice in consuming_choices(plan)]
            closeness = _closeness(topology, positions)
            unbroken_score = _unbroken_score(topology, node, positions, usage, after)
        load = node_load(node, after, drivers_of(plan), self.weights)
        return rank_score(
            plan, (_CLOSE * closeness + _UNBROKEN * unbroken_score + _LOAD * load) // FULL
        )


TOPOLOGY_PACKED: Final = TopologyPacked()


# --- order ----------------------------------------------------------------------------------------


def _demand(node: NodeDevices, pending: PendingClaims, loads: Sequence[int]) -> Demand:
    """Return the requested devices: of each request the first alternative with enough devices.

    Requests for the same devices are added up. Requests with mode All or admin access are left
    out, since they have no choice.
    """
    not_full = sum(1 << position for position, load in enumerate(loads) if load < FULL)
    demand: Demand = {}
    masks: dict[tuple[Expression, ...], int] = {}
    for alternatives in chain.from_iterable(pending.requests):
        for request in alternatives:
            if request.all_devices or request.admin:
                break
            mask = masks.get(request.expressions)
            if mask is None:
                selected_positions = _selected_positions(node, request.expressions)
                mask = masks[request.expressions] = selected_positions & not_full
            if mask.bit_count() >= request.count:
                demand[mask] = demand.get(mask, 0) + request.count
                break
    return demand


def _selected_positions(node: NodeDevices, expressions: tuple[Expression, ...]) -> int:
    is_long = selector_chain(expressions).is_long
    # Cached names would keep long selectors in memory.
    select = _select_names if is_long else _cached_names
    names = [select(pool, expressions) for pool in node.pools]
    mask, bit = 0, 1
    for pool, device in zip(node.pool_of, node.devices, strict=True):
        if device.id.device in names[pool]:
            mask |= bit
        bit <<= 1
    return mask


def _select_names(pool: Pool, expressions: tuple[Expression, ...]) -> frozenset[str]:
    """Return the devices of a pool that the selectors select; a failing selector selects none."""
    verdict = selector_chain(expressions).verdict
    return frozenset(device.id.device for device in pool.devices if verdict(device) is True)


_cached_names = lru_cache(maxsize=_MATCHES)(_select_names)


def _order_places(
    topology: NodeTopology, demand: Demand, free_loads: Sequence[int]
) -> Iterable[int]:
    """Yield the places of a node in order, as masks of positions."""
    requested_mask = 0
    for mask in demand:
        requested_mask |= mask
    roots, numa_nodes = topology.roots, topology.numa_nodes
    free = {
        place: sum([free_loads[at] for at in members if requested_mask >> at & 1])
        for place, members in topology.members.items()
    }
    if any(_serves_all(root, demand) for root in roots):
        yield from _order_by_service(roots, demand, free)
        return
    under_roots = sum(roots)
    for numa_node in _order_by_service(numa_nodes, demand, free):
        roots_here = [root for root in roots if root & numa_node]
        for root in _order_by_service(roots_here, demand, free):
            demand = _subtract(demand, root)
            yield root
        demand = _subtract(demand, numa_node & ~under_roots)
        yield numa_node
    on_numa_nodes = sum(numa_nodes)
    yield from _order_by_service([root for root in roots if not root & on_numa_nodes], demand, free)


def _order_by_service(places: Sequence[int], demand: Demand, free: Mapping[int, int]) -> list[int]:
    """Return places, those that serve most first, until one can serve the rest.

    Of equally good places, and of those that are not needed, the one with the least free load is
    first.
    """
    waiting = sorted(places, key=free.__getitem__)
    ordered_places: list[int] = []
    while waiting and any(demand.values()):
        best = next((place for place in waiting if _serves_all(place, demand)), None)
        if best is None:
            served_counts = [_served_by(place, demand) for place in waiting]
            best = waiting[served_counts.index(max(served_counts))]
        waiting.remove(best)
        ordered_places.append(best)
        demand = _subtract(demand, best)
    return ordered_places + waiting


def _served_by(place: int, demand: Demand) -> int:
    return sum([min((mask & place).bit_count(), count) for mask, count in demand.items()])


def _serves_all(place: int, demand: Demand) -> bool:
    return all((mask & place).bit_count() >= count for mask, count in demand.items())


def _subtract(demand: Demand, place: int) -> Demand:
    """Return the demand that a place cannot serve."""
    return {mask: max(0, count - (mask & place).bit_count()) for mask, count in demand.items()}


# --- score ----------------------------------------------------------------------------------------


def _closeness(topology: NodeTopology, chosen_positions: Sequence[int]) -> int:
    """Return the mean closeness over all pairs of devices, of `FULL`."""
    pairs = len(chosen_positions) * (len(chosen_positions) - 1) // 2
    if not pairs:
        return FULL
    near = _count_pairs([topology.root_at[at] for at in chosen_positions])
    near += _count_pairs([topology.numa_at[at] for at in chosen_positions])
    return near * FULL // (2 * pairs)


def _count_pairs(places: Sequence[int]) -> int:
    """Return the number of pairs at one place."""
    return sum([count * (count - 1) // 2 for count in Counter(places).values()])


def _unbroken_score(
    topology: NodeTopology,
    node: NodeDevices,
    chosen_positions: Sequence[int],
    before: Usage,
    after: Usage,
) -> int:
    """Return the share of the chosen roots that were in use before or are full after, of `FULL`."""
    roots = {topology.root_at[at] for at in chosen_positions}.intersection(topology.roots)
    if not roots:
        return FULL
    drivers = {node.devices[position].id.driver for position in chosen_positions}
    loads, loads_after = device_loads(node, before), device_loads(node, after)
    broken_count = 0
    for root in roots:
        members = [at for at in topology.members[root] if node.devices[at].id.driver in drivers]
        was_free = not any(loads[at] for at in members)
        is_full = all(loads_after[at] == FULL for at in members)
        broken_count += was_free and not is_full
    return (len(roots) - broken_count) * FULL // len(roots)
