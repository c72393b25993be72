"""The contract of a strategy: a preference among devices and among nodes.

A strategy has two levels: the order in which the devices of a node are tried, and the score of a
node that fits. It rejects nothing, so it never changes a verdict.
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.model.selectors import DeviceField
from allocator.model.usage import Usage
from allocator.strategies.capacity_weights import CapacityWeights
from allocator.strategies.pod_kinds import PodKind


class Strategy(Hashable, Protocol):
    """A preference among devices and nodes, without state.

    Laws (tests/property/test_strategy_laws.py): `order` is a permutation of the positions; both
    levels depend only on capacities, counters, usage and the attributes in `fields`, and never on
    names of nodes, pools and devices. So nodes of one equivalence class get the same answer.

    Attributes:
        name: The name in annotations, classes and settings.
        fields: Attributes that it reads. Counters, usage and the capacities of devices that can be
            shared are part of every equivalence class anyway.
        weights: The weights of capacities in loads.
        reads_capacities: It also reads the capacities of devices that cannot be shared.
        kinds: The usual pods that it values nodes by; empty if it knows none.
    """

    name: str
    fields: tuple[DeviceField, ...]
    reads_capacities: bool
    weights: CapacityWeights
    kinds: tuple[PodKind, ...]

    def order(
        self, node: NodeDevices, usage: Usage, pending: PendingClaims
    ) -> Sequence[int] | None:
        """Return all positions in order of preference; None keeps upstream's order.

        The order is computed once, before the search, so it does not depend on the devices that
        earlier requests of the same attempt get.
        """
        ...

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return the score of a node that gets `plan`, from 0 to 100."""
        ...
