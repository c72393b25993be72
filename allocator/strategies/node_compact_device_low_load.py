"""NodeCompactDeviceLowLoad: pack nodes, spread devices inside them.

Devices: as LowLoadFirst. Nodes: as CompactFirst. Whole nodes stay free (for scaling down, or for
jobs that need one), while co-located pods on one card interfere as little as possible.

==============================================  =======================  ====================
inventory                                       node                     device
==============================================  =======================  ====================
node-1: gpu-0 idle, gpu-1 half used             node-1: load after 1/2   gpu-0: idle
node-2: gpu-0 idle, gpu-1 idle                  (node-2: load 1/4)
==============================================  =======================  ====================

(Half a GPU is requested.)

Source: tensor-fusion's default (NodeCompactGPULowLoad); HAMi's defaults mean the same.
"""

from collections.abc import Sequence
from typing import Final

from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.model.selectors import DeviceField
from allocator.model.usage import Usage
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from allocator.strategies.compact_first import CompactFirst
from allocator.strategies.low_load_first import LowLoadFirst
from allocator.strategies.pod_kinds import PodKind


class NodeCompactDeviceLowLoad:
    """Empty devices first, full nodes first."""

    name = "NodeCompactDeviceLowLoad"
    fields: tuple[DeviceField, ...] = ()
    reads_capacities = False
    kinds: tuple[PodKind, ...] = ()

    def __init__(self, weights: CapacityWeights = NO_WEIGHTS) -> None:
        """Count capacities by weights."""
        self.weights = weights
        self._devices = LowLoadFirst(weights)
        self._nodes = CompactFirst(weights)

    def order(
        self, node: NodeDevices, usage: Usage, pending: PendingClaims
    ) -> Sequence[int] | None:
        """Return the emptiest devices first."""
        return self._devices.order(node, usage, pending)

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return the node's load after the plan, in percent."""
        return self._nodes.score(node, usage, plan)


NODE_COMPACT_DEVICE_LOW_LOAD: Final = NodeCompactDeviceLowLoad()
