"""CompactFirst: fill devices and nodes in use before any others, on both levels.

Devices: the fullest first; devices that are equally full in upstream's order.

Nodes: the load after the plan, in percent.

=====================================================  ==============  =====
devices of the node, one more of which is allocated    load after      score
=====================================================  ==============  =====
4 GPUs, none in use                                    1 of 4          25
4 GPUs, 2 in use                                       3 of 4          75
8 GPUs, 2 in use                                       3 of 8          37
2 shared GPUs of 80Gi, 40Gi in use, 20Gi more          60Gi of 160Gi   37
=====================================================  ==============  =====

Load is defined in `allocator.strategies.load`. Where requests have alternatives, an earlier one
outweighs it (`allocator.strategies.alternatives`).

Source: the names and the two levels are those of tensor-fusion (PlacementMode CompactFirst). Like
its plugin, score a node by its mean load and not by the sum, so that big nodes do not win by size.
"""

from collections.abc import Sequence
from typing import Final

from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.model.selectors import DeviceField
from allocator.model.usage import Usage
from allocator.strategies.alternatives import rank_score
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from allocator.strategies.load import FULL, device_loads, load_after
from allocator.strategies.pod_kinds import PodKind


class CompactFirst:
    """Full devices first, full nodes first."""

    name = "CompactFirst"
    fields: tuple[DeviceField, ...] = ()
    reads_capacities = False
    kinds: tuple[PodKind, ...] = ()

    def __init__(self, weights: CapacityWeights = NO_WEIGHTS) -> None:
        """Count capacities by weights."""
        self.weights = weights

    def order(
        self, node: NodeDevices, usage: Usage, _pending: PendingClaims
    ) -> Sequence[int] | None:
        """Return the fullest devices first; None if all are equally full."""
        loads = device_loads(node, usage, self.weights)
        if not any(loads):
            return None
        return sorted(range(len(loads)), key=[-load for load in loads].__getitem__)

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return the node's load after the plan, in percent."""
        return rank_score(plan, 100 * load_after(node, usage, plan, self.weights) // FULL)


COMPACT_FIRST: Final = CompactFirst()
