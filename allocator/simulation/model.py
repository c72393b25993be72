"""The input, the options and the result of a simulation, as values."""

from collections.abc import Callable, Collection, Mapping

import msgspec

from allocator.declarations.collect import PodGroups
from allocator.explain.failure import Explain, Failure, NodeResult
from allocator.explain.node import explain_node
from allocator.explain.trace import PlacementTrace
from allocator.groups.model import GROUP_BUDGET
from allocator.model.plan import Budget
from allocator.nodes.node_resources import NodeResources
from allocator.nodes.scoring import ScoringProfile
from allocator.pods.claims import Name
from allocator.search.search import DEFAULT_BUDGET
from allocator.simulation.quotas import HeldBack, Quotas
from allocator.strategies.by_node_pool import NO_POOL_STRATEGIES, PoolStrategies
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
        pods: The pods to be placed, in order; none is bound yet.
        claims: The claims to be placed, in order; those that pods refer to are placed with them.
        known: All claims by namespace and name, allocated or not, including those above.
        templates: The claim templates by namespace and name.
        classes: The DeviceClasses by name.
        extended_resources: Name of an extended resource to name of the class that maps it.
        resources: Node to its CPU, memory and other counted resources, with the pods that run there;
            None where only devices count.
        groups: The groups of the pods; a group is placed with its first pod.
        quotas: The quotas of the pods' namespaces, charged with each pod in turn; None without any.
    """

    pods: tuple[Pod, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    known: Mapping[Name, ResourceClaim] = msgspec.field(default_factory=dict)
    templates: Mapping[Name, ResourceClaimTemplate] = msgspec.field(default_factory=dict)
    classes: Mapping[str, DeviceClass] = msgspec.field(default_factory=dict)
    extended_resources: Mapping[str, str] = msgspec.field(default_factory=dict)
    resources: Mapping[str, NodeResources] | None = None
    groups: PodGroups = PodGroups()
    quotas: Quotas | None = None


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a simulation: its strategy, limits and explanations.

    Attributes:
        strategy: Overrides those of pods, classes and pools of nodes; None for theirs.
        pool_strategies: The strategies of pools of nodes for pods that name none.
        weights: The weights of capacities in loads.
        profiles: schedulerName to how that scheduler scores the resources of nodes; a pod of another
            one takes the first node by name, or by its strategy's score.
        budget: The budget of each search.
        group_budget: The budget of the decision about each group.
        explain: A function that returns the reasons why claims do not fit a node.
        explained_failures: The number of failures that are explained, beside the last.
        explained_title: The title of a further failure that is explained, with its closest fits; empty for none.
        closest_fits: The number of failures with a computed closest fit; each may take two seconds.
        traces: The number of traced placements; each takes some milliseconds for each class of
            nodes.
        named_nodes_only: A pod that names its nodes is tried on these alone, and nothing is told of others.
        nodes: The nodes that pods are tried on, and nothing is told of others; None for all.
        progress: A function that is called after each pod and claim with the number of those done.
        stops: A function that is called before each; if true, it and the rest are not tried, and
            not in the result.
    """

    strategy: Strategy | None = None
    pool_strategies: PoolStrategies = NO_POOL_STRATEGIES
    weights: CapacityWeights = NO_WEIGHTS
    profiles: Mapping[str, ScoringProfile] = msgspec.field(default_factory=dict)
    budget: Budget = DEFAULT_BUDGET
    group_budget: Budget = GROUP_BUDGET
    explain: Explain = explain_node
    explained_failures: int = 0
    explained_title: str = ""
    closest_fits: int = 0
    traces: int = 0
    named_nodes_only: bool = False
    nodes: Collection[str] | None = None
    progress: Callable[[int], None] = lambda _position: None
    stops: Callable[[], bool] = lambda: False


class PlacedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The result for a claim.

    Attributes:
        node: The node that its allocation is local to; None without an allocation or where it is
            not local.
        allocation: The `status.allocation` without a timestamp; None when it was not placed.
        reason: The reason it was rejected before any node was tried; absent if it was not.
    """

    namespace: str
    name: str
    node: str | None = None
    allocation: AllocationResult | None = None
    reason: str | msgspec.UnsetType = msgspec.UNSET


class PlacedPod(msgspec.Struct, frozen=True, kw_only=True):
    """The result for a pod.

    Attributes:
        node: The node that it gets; None when it fits none, or is rejected.
        reason: The reason it was rejected, or kept waiting by a quota, before any node was tried; absent
            if it was not.
        waits: True if it is created, and waits for that reason; absent otherwise.
    """

    namespace: str
    name: str
    node: str | None = None
    reason: str | msgspec.UnsetType = msgspec.UNSET
    waits: bool | msgspec.UnsetType = msgspec.UNSET


class PlacedGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result for a group of pods.

    Attributes:
        kind: The API that declares it, for people: `PodGroup`.
        min_count: The number of pods that it needs; 0 where that is not known.
        running: Pods of it that had a node before.
        pods: Names of its other pods, in order.
        placed: The number of those that are placed now.
        score: The agreement of the placement with the strategy, from 0 to 100; 0 with FirstFit.
        code: The code of the reason why it is not placed: a `Reason`, or the code of a finding; empty if it is.
        reason: The same reason as a sentence.
    """

    kind: str
    namespace: str
    name: str
    min_count: int
    running: int
    pods: tuple[str, ...]
    placed: int = 0
    score: int = 0
    code: str = ""
    reason: str = ""

    @property
    def title(self) -> str:
        """The group in titles: `PodGroup namespace/name`."""
        return f"{self.kind} {self.namespace}/{self.name}"


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a simulation.

    Attributes:
        claims: The claims that were to be placed, in the order of the attempts.
        pods: The pods that were to be placed, in order.
        nodes: The results by node name for the last pod or claim that was not placed.
        error: The first error that ended an attempt on all nodes.
        uses: Names of the claims of each pod that was placed, in order.
        failures: The failures, in order; `nodes` is about the last of them.
        notes: Further remarks for people.
        traces: The traces of the first placements, in order.
        resources: The nodes' resources afterwards; None where only devices count.
        groups: The groups of the pods, in order.
        held_back: The pods that a quota keeps from being tried.
    """

    claims: tuple[PlacedClaim, ...] = ()
    pods: tuple[PlacedPod, ...] = ()
    nodes: tuple[NodeResult, ...] = ()
    error: str | None = None
    uses: Mapping[Name, tuple[str, ...]] = msgspec.field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    traces: tuple[PlacementTrace, ...] = ()
    resources: Mapping[str, NodeResources] | None = None
    groups: tuple[PlacedGroup, ...] = ()
    held_back: Mapping[Name, HeldBack] = msgspec.field(default_factory=dict)

    @property
    def all_placed(self) -> bool:
        """Return True if every pod has a node, and every claim its devices."""
        return (
            self.error is None
            and all(pod.node is not None for pod in self.pods)
            and all(claim.allocation is not None for claim in self.claims)
        )
