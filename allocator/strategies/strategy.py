"""What a strategy shows to whoever allocates.

A strategy has two levels: the order in which the devices of a node are tried, and the score of a
node that fits. It never says no, so it never changes a verdict.
"""

from collections.abc import Sequence
from typing import Protocol

from allocator.core.inventory import Place
from allocator.core.model import Asked, NodeDevices, Plan, Usage


class Strategy(Protocol):
    """One way to prefer devices and nodes; holds no state.

    Laws (tests/property/test_strategy_laws.py): `order` is a permutation of the positions; both
    levels depend only on what nodes that look alike have in common: capacities, counters, usage
    and the attributes at `places`; names of nodes, pools and devices never count.

    Attributes:
        name: As an annotation, a class and the configuration write it.
        places: Attributes that it looks at, so that nodes which look alike can share a verdict.
            Counters, usage and capacities of devices that can be shared tell nodes apart anyway.
        weighs: It looks at capacities of devices that cannot be shared, too.
    """

    name: str
    places: tuple[Place, ...]
    weighs: bool

    def order(self, node: NodeDevices, usage: Usage, asked: Asked) -> Sequence[int] | None:
        """Return all positions in order of preference; None keeps upstream's order.

        The order is made once, before the search: it does not know which devices earlier requests
        of the same attempt take.
        """
        ...

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return how good a node is on which `plan` would be carried out, from 0 to 100."""
        ...
