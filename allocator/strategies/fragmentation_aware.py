"""FragmentationAware: keep room for the pods that usually come, devices and CPU together.

The potential of a node is the sum of the devices that pods of each usual kind could still get there,
each kind by its weight: its slots, bounded by the node's CPU and memory, times its share of a device.
A plan costs the potential before it minus that after it, and the node that loses least is best.

Of two GPUs, one free and one half in use, and pods that usually want a whole GPU (weight 600) or half of
one (weight 400), half a GPU costs:

======================  =====================================================  ======
the share goes to       potential lost                                         lost
======================  =====================================================  ======
the GPU half in use     one half less: 400 x 0.5                               200
the free GPU            one whole and one half less: 600 x 1 + 400 x 0.5       800
======================  =====================================================  ======

Devices: the same potential of each device by itself, the least lost first, then the fullest.

Nodes: `loss` counts the CPU and memory that the caller knows, as the bridge does. `score` knows neither, and rates the devices
alone: 100 where nothing is lost, 50 where what is lost is what the plan takes.

Without kinds the usual pod is one that wants a whole device.

Source: after Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent" (USENIX ATC 2023), which places where the fragments grow least, weighted by the usual
tasks. Unlike there, a node's CPU and memory bound how many pods of a kind count, and not only whether one does.
"""

from collections.abc import Sequence
from typing import Final

from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.model.selectors import DeviceField
from allocator.model.usage import DeviceUse, Usage
from allocator.nodes.headroom import Headroom
from allocator.strategies.alternatives import rank_score
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from allocator.strategies.load import consuming_choices, device_loads, own_load, usage_after
from allocator.strategies.pod_kinds import (
    MAX_KINDS,
    DeviceDemand,
    KindSlots,
    KindTable,
    PodKind,
    fields_of,
    potential,
)

_WHOLE_DEVICE: Final = (PodKind(demands=(DeviceDemand(),), weight=1000),)


class FragmentationAware:
    """The least potential lost first, on both levels."""

    name = "FragmentationAware"
    reads_capacities = True

    def __init__(
        self, kinds: Sequence[PodKind] = (), weights: CapacityWeights = NO_WEIGHTS
    ) -> None:
        """Value nodes by kinds of pods.

        Args:
            kinds: The usual kinds, the most frequent first; those after `MAX_KINDS`, those without
                devices, and those whose selectors may read any attribute are left out.
            weights: Weights of capacities in loads.
        """
        self.kinds = tuple(
            kind for kind in kinds if kind.demands and fields_of((kind,)) is not None
        )[:MAX_KINDS]
        self.weights = weights
        self.fields: tuple[DeviceField, ...] = fields_of(self.kinds) or ()
        self.table = KindTable(self.kinds or _WHOLE_DEVICE, weights)

    def order(
        self, node: NodeDevices, usage: Usage, pending: PendingClaims
    ) -> Sequence[int] | None:
        """Return the devices that lose the least first; None if that is upstream's order."""
        losses = self.table.device_losses(node, usage, pending)
        loads = device_loads(node, usage, self.weights)
        keys = [(loss, -load) for loss, load in zip(losses, loads, strict=True)]
        if len(set(keys)) < 2:
            return None
        return sorted(range(len(keys)), key=keys.__getitem__)

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return the score of a node with unknown CPU and memory."""
        before = potential(self.slots(node, usage), None, None)
        after = potential(self.slots(node, usage_after(node, usage, plan)), None, None)
        devices = self.devices_of(node, plan)
        if not devices:
            return rank_score(plan, 100)
        return rank_score(plan, 100 * devices // (devices + max(0, before - after)))

    def without_score(self) -> "FragmentationAware":
        """Return the strategy without scores, for callers that rank nodes by `loss`."""
        return _Unscored(self)

    def slots(self, node: NodeDevices, usage: Usage) -> tuple[KindSlots, ...]:
        """Return the slots of the usual kinds on a node."""
        return self.table.slots(node, usage)

    def devices_of(self, node: NodeDevices, plan: Plan) -> int:
        """Return the devices that a plan takes, in millionths, by the weight of all kinds."""
        total = 0
        for choice in consuming_choices(plan):
            use = DeviceUse(exclusive=True)
            if choice.consumed is not None:
                use = DeviceUse(share_ids=frozenset({""}), capacity=choice.consumed)
            weights = self.weights.weights_on(node, choice.device.id.driver)
            total += own_load(choice.device.device, use, weights)
        return total * self.table.total_weight

    def loss(
        self,
        before: Sequence[KindSlots],
        after: Sequence[KindSlots],
        headroom: Headroom,
        headroom_after: Headroom,
    ) -> int:
        """Return the potential that a pod costs on a node with known CPU and memory.

        Args:
            before: Slots of the node.
            after: Slots after the pod's plan; `before` for a pod without devices.
            headroom: CPU and memory that the node has left.
            headroom_after: CPU and memory that it has left after the pod.
        """
        return potential(before, headroom.cpu_milli, headroom.memory) - potential(
            after, headroom_after.cpu_milli, headroom_after.memory
        )


class _Unscored(FragmentationAware):
    """The strategy without its score."""

    def __init__(self, scored: FragmentationAware) -> None:
        self.kinds, self.weights, self.fields = scored.kinds, scored.weights, scored.fields
        self.table = scored.table

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:  # noqa: ARG002
        """Return 0."""
        return 0


FRAGMENTATION_AWARE: Final = FragmentationAware()
