"""CompactFirst: fill what is in use before anything else is touched, on both levels.

Devices: the fullest first; devices that are equally full in upstream's order.

Nodes: the load once the plan is carried out, in percent.

=====================================================  ==============  =====
devices of the node, of which one more is taken        load after      score
=====================================================  ==============  =====
4 GPUs, none in use                                    1 of 4          25
4 GPUs, 2 in use                                       3 of 4          75
8 GPUs, 2 in use                                       3 of 8          37
2 shared GPUs of 80Gi, 40Gi in use, 20Gi more          60Gi of 160Gi   37
=====================================================  ==============  =====

Load is defined in `allocator.strategies.load`. Where requests have alternatives, an earlier one
outweighs it (`allocator.strategies.alternatives`).

Source: the names and the two levels are tensor-fusion's (PlacementMode CompactFirst); that a node
counts by its mean and not by its sum, so that big nodes do not win by size, is its plugin's way.
"""

from collections.abc import Sequence
from typing import Final

from allocator.core.inventory import Place
from allocator.core.model import Asked, NodeDevices, Plan, Usage
from allocator.strategies.alternatives import ranked
from allocator.strategies.load import FULL, device_loads, load_after


class CompactFirst:
    """Full devices first, full nodes first."""

    name = "CompactFirst"
    places: tuple[Place, ...] = ()
    weighs = False

    def order(self, node: NodeDevices, usage: Usage, _asked: Asked) -> Sequence[int] | None:
        """Return the fullest devices first; None where all are equally full."""
        loads = device_loads(node, usage)
        if not any(loads):
            return None
        return sorted(range(len(loads)), key=[-load for load in loads].__getitem__)

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return the node's load after the plan, in percent."""
        return ranked(plan, 100 * load_after(node, usage, plan) // FULL)


COMPACT_FIRST: Final = CompactFirst()
