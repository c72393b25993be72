"""LowLoadFirst: spread over devices and over nodes.

Devices: the emptiest first. Among devices that are equally full the first partition of every piece
of hardware comes before the second of any, so that two partitions come from two cards; else in
upstream's order.

Nodes: what is left once the plan is carried out, in percent.

=====================================================  ==============  =====
devices of the node, of which one more is taken        load after      score
=====================================================  ==============  =====
4 GPUs, none in use                                    1 of 4          75
4 GPUs, 2 in use                                       3 of 4          25
8 GPUs, 2 in use                                       3 of 8          62
=====================================================  ==============  =====

Two requests of one pod that could share one device may well get the same, since the order is made
before the search. Who must not have that writes `distinctAttribute`.
"""

from collections.abc import Sequence
from typing import Final

from allocator.core.inventory import Place
from allocator.core.model import Asked, NodeDevices, Plan, Usage
from allocator.strategies.alternatives import ranked
from allocator.strategies.load import FULL, device_loads, hardware, load_after


class LowLoadFirst:
    """Empty devices first, empty nodes first."""

    name = "LowLoadFirst"
    places: tuple[Place, ...] = ()
    weighs = False

    def order(self, node: NodeDevices, usage: Usage, _asked: Asked) -> Sequence[int] | None:
        """Return the emptiest devices first; None where that is upstream's order."""
        return emptiest_first(node, usage)

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return what the plan leaves of the node, in percent."""
        return ranked(plan, 100 * (FULL - load_after(node, usage, plan)) // FULL)


LOW_LOAD_FIRST: Final = LowLoadFirst()


def emptiest_first(node: NodeDevices, usage: Usage) -> Sequence[int] | None:
    """Return positions by load, then by turns; None where that is upstream's order."""
    loads = device_loads(node, usage)
    turns = _turns(node)
    if turns is None:
        if not any(loads):
            return None
        return sorted(range(len(loads)), key=loads.__getitem__)
    keys = list(zip(loads, turns, strict=True))
    return sorted(range(len(keys)), key=keys.__getitem__)


def _turns(node: NodeDevices) -> list[int] | None:
    """Return how many devices of the same hardware come before each; None without partitions."""
    made_of = [hardware(pool) for pool in node.pools]
    if not any(each.sets for each in made_of):
        return None
    seen: dict[tuple[int, tuple[int, ...]], int] = {}
    turns = []
    for pool, published in zip(node.pool_of, node.devices, strict=True):
        sets = made_of[pool].cut_from.get(published.id.device)
        if sets is None:
            turns.append(0)
            continue
        turn = seen.get((pool, sets), 0)
        seen[pool, sets] = turn + 1
        turns.append(turn)
    return turns
