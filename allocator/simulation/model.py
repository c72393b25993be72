"""The input, the options and the result of a simulation, as values."""

from collections.abc import Callable, Mapping

import msgspec

from allocator.explain.failure import Explain, Failure, NodeResult
from allocator.explain.node import explain_node
from allocator.explain.trace import PlacementTrace
from allocator.model.plan import Budget
from allocator.pods.claims import Name
from allocator.search.search import DEFAULT_BUDGET
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from allocator.strategies.strategy import Strategy
from kube.api.core import Pod
from kube.api.resource import (
    AllocationResult,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)


class SimulationInput(msgspec.Struct, frozen=True, kw_only=True):
    """The objects to be placed on a cluster. Every object has its namespace.

    Attributes:
        pods: To be placed, in order; none is bound yet.
        claims: To be placed, in order; those that pods refer to are placed with them.
        known: All claims by namespace and name, allocated or not, including those above.
        templates: By namespace and name.
        classes: By name.
        extended_resources: Name of an extended resource to name of the class that maps it.
    """

    pods: tuple[Pod, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    known: Mapping[Name, ResourceClaim] = msgspec.field(default_factory=dict)
    templates: Mapping[Name, ResourceClaimTemplate] = msgspec.field(default_factory=dict)
    classes: Mapping[str, DeviceClass] = msgspec.field(default_factory=dict)
    extended_resources: Mapping[str, str] = msgspec.field(default_factory=dict)


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a simulation: its strategy and what it explains.

    Attributes:
        strategy: Overrides those of pods and classes; None for theirs.
        weights: Of the capacities in loads.
        budget: Of each search.
        explain: Returns why claims do not fit a node.
        explained_failures: How many failures are explained, beside the last.
        closest_fits: For how many failures the closest fit is computed; each may take two seconds.
        traces: How many placements are traced; each takes some milliseconds for each class of nodes.
        progress: Called after each pod and claim with how many are done.
        stops: Called before each; if true, it and the rest are not tried, and not in the result.
    """

    strategy: Strategy | None = None
    weights: CapacityWeights = NO_WEIGHTS
    budget: Budget = DEFAULT_BUDGET
    explain: Explain = explain_node
    explained_failures: int = 0
    closest_fits: int = 0
    traces: int = 0
    progress: Callable[[int], None] = lambda _position: None
    stops: Callable[[], bool] = lambda: False


class PlacedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The result for a claim.

    Attributes:
        node: To which its allocation is local; None without an allocation or where it is not local.
        allocation: As in `status.allocation`, without a timestamp; None when it was not placed.
    """

    namespace: str
    name: str
    node: str | None = None
    allocation: AllocationResult | None = None


class PlacedPod(msgspec.Struct, frozen=True, kw_only=True):
    """The result for a pod; `node` is None when it fits none."""

    namespace: str
    name: str
    node: str | None = None


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a simulation.

    Attributes:
        claims: All that were to be placed, in the order in which they were tried.
        pods: All that were to be placed, in order.
        nodes: By name, the results for the last pod or claim that was not placed.
        error: The first that ended an attempt on all nodes.
        uses: Names of the claims of each pod that was placed, in order.
        failures: In order; `nodes` is about the last of them.
        notes: Further remarks for people.
        traces: Of the first placements, in order.
    """

    claims: tuple[PlacedClaim, ...] = ()
    pods: tuple[PlacedPod, ...] = ()
    nodes: tuple[NodeResult, ...] = ()
    error: str | None = None
    uses: Mapping[Name, tuple[str, ...]] = msgspec.field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    traces: tuple[PlacementTrace, ...] = ()

    @property
    def all_placed(self) -> bool:
        """Return whether every pod has a node, and every claim its devices."""
        return (
            self.error is None
            and all(pod.node is not None for pod in self.pods)
            and all(claim.allocation is not None for claim in self.claims)
        )
