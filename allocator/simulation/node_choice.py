"""The best node for a pod or claim that fits several, by its strategy and its scheduler's profile."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from allocator.cluster.verdicts import ClassVerdict, Verdicts
from allocator.explain.trace import Evaluated
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.nodes.pod_requests import PodRequest
from allocator.nodes.scoring import ScoringProfile, score_resources
from allocator.pods.claims import pod_name
from allocator.simulation.attempt import BestNode, PlacementAttempt, class_names
from allocator.simulation.best_verdicts import best_verdicts
from allocator.simulation.model import SimulationInput, SimulationOptions
from allocator.simulation.placements import Placements
from allocator.simulation.quotas import HeldBack, NodesWithinQuota
from allocator.strategies import registry
from allocator.strategies.by_node_pool import PoolStrategies, by_node_pool
from allocator.strategies.capacity_weights import CapacityWeights
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.core import Pod
from kube.api.resource import DeviceClass, ResourceClaim
from kube.errors import FieldError
from kube.names import DEFAULT_SCHEDULER_NAME


class NodeChoice:
    """Chooses the nodes of a simulation.

    Attributes:
        notes: Remarks for people on strategies, in order.
    """

    def __init__(
        self, state: Placements, objects: SimulationInput, options: SimulationOptions
    ) -> None:
        """Begin without notes.

        Args:
            state: The placements so far.
        """
        self.notes: dict[str, None] = {}
        self._state = state
        self._objects = objects
        self._options = options

    def strategy(self, pod: Pod | None, claims: Iterable[ResourceClaim]) -> Strategy:
        """Return the strategy: of the call, of the pod, of a class, of pools of nodes, or the default."""
        options = self._options
        if options.strategy is not None:
            return registry.with_weights(options.strategy, options.weights)
        classes, pools = self._objects.classes, options.pool_strategies
        strategy, note = _named_strategy(pod, claims, classes, pools, options.weights)
        self.notes |= {note: None} if note else {}
        return strategy

    def best(
        self,
        attempt: PlacementAttempt,
        nodes: Mapping[frozenset[str], Collection[str]],
        evaluated: list[Evaluated],
    ) -> BestNode | HeldBack | None:
        """Return the best node, if any, or the reason that a quota keeps the pod from all; verdicts go to `evaluated`.

        Args:
            nodes: Extended resources that a claim has to provide, to the nodes where that is so.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        best: BestNode | None = None
        held_back: HeldBack | None = None
        for resources, names in nodes.items():
            claims = (*attempt.claims.open, *self._state.extended_claims(attempt, resources))
            pending = self._state.cluster.resolve(claims)
            strategy = self.strategy(attempt.pod, claims)
            verdicts = best_verdicts(
                self._state.cluster, pending, strategy, self._options.budget, names
            )
            evaluated.append(Evaluated(verdicts=verdicts, pending=pending, strategy=strategy))
            within = self._nodes_within_quota(attempt.pod, pending, strategy)
            profile = self._profile_of(attempt.pod)
            ranked = self._ranked(attempt.request, verdicts, strategy, profile)
            if within is not None:
                first = _first_within(ranked, within)
            else:
                candidates = (
                    ranked if profile is not None else _first_of_classes(verdicts, strategy)
                )
                first = min(candidates, default=None)
            if first is None:
                if held_back is None and within is not None:
                    held_back = within.held_back()
            elif best is None or (first.negative_rank, first.node) < (-best.rank, best.node):
                node = first.node
                plan = verdicts.plan(node) if within is None else within.plan(node)
                assert plan is not None
                best = BestNode(rank=-first.negative_rank, node=node, plan=plan, pending=pending)
        return best or held_back

    def _nodes_within_quota(
        self, pod: Pod | None, pending: PendingClaims, strategy: Strategy
    ) -> NodesWithinQuota | None:
        quotas = self._objects.quotas
        if quotas is None or pod is None:
            return None
        cluster, budget = self._state.cluster, self._options.budget
        return quotas.nodes_within(pod, pending, strategy, cluster, budget)

    def _profile_of(self, pod: Pod | None) -> ScoringProfile | None:
        """Return the profile of a pod's scheduler; None if it is not known."""
        if pod is None:
            return None
        return self._options.profiles.get(pod.spec.scheduler_name or DEFAULT_SCHEDULER_NAME)

    def _ranked(
        self,
        request: PodRequest | None,
        verdicts: Verdicts,
        strategy: Strategy,
        profile: ScoringProfile | None,
    ) -> Iterator["_RankedNode"]:
        """Yield each node with devices; the least one is the best, of equal ones the first by name."""
        for verdict, plan in _with_devices(verdicts):
            for name in verdict.nodes:
                rank = _score(verdict, strategy)
                if profile is not None and request is not None:
                    rank *= profile.strategy_weight or 0
                    rank += score_resources(request, self._state.ledger.of(name), profile)
                yield _RankedNode(-rank, name, plan)


def _first_of_classes(verdicts: Verdicts, strategy: Strategy) -> Iterator["_RankedNode"]:
    """Yield the first node by name of each class with devices; all nodes of a class have one rank."""
    for verdict, plan in _with_devices(verdicts):
        if (name := min(verdict.nodes, default=None)) is not None:
            yield _RankedNode(-_score(verdict, strategy), name, plan)


def _with_devices(verdicts: Verdicts) -> Iterator[tuple[ClassVerdict, Plan]]:
    """Yield the verdicts of the classes with devices, with their plans."""
    for verdict in verdicts.classes:
        plan = verdict.outcome
        if isinstance(plan, Plan):
            yield verdict, plan


def _score(verdict: ClassVerdict, strategy: Strategy) -> int:
    return 0 if strategy is FIRST_FIT else verdict.score


def _first_within(
    ranked: Iterable["_RankedNode"], within: NodesWithinQuota
) -> "_RankedNode | None":
    """Return the best node that has devices within a quota; each may cost a search, so the best come first."""
    # All plans live until the end, since the nodes within a quota know a plan by its identity.
    return next((entry for entry in sorted(ranked) if within.has(entry.node, entry.plan)), None)


class _RankedNode(NamedTuple):
    """A node that has devices, in order of preference.

    Attributes:
        plan: The plan of a node of its class.
    """

    negative_rank: int
    node: str
    plan: Plan


def _named_strategy(
    pod: Pod | None,
    claims: Iterable[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    pools: PoolStrategies,
    weights: CapacityWeights,
) -> tuple[Strategy, str]:
    """Return the strategy of a pod, a class or pools of nodes, and a note; it is empty if all is well."""
    names = dict.fromkeys(name for claim in claims for name in class_names(claim))
    annotations = {
        name: classes[name].metadata.annotations or {} for name in names if name in classes
    }
    name = registry.requested_strategy(pod.annotations if pod is not None else {}, annotations)
    if name is None:
        return by_node_pool(FIRST_FIT, pools, weights), ""
    strategy = name if isinstance(name, FieldError) else registry.find_strategy(name)
    if not isinstance(strategy, FieldError):
        return registry.with_weights(strategy, weights), ""
    title = f"Pod {pod.metadata.namespace}/{pod_name(pod)}: " if pod is not None else ""
    note = (
        f"{title}{strategy.path}: {strategy.message}, so {registry.DEFAULT} is used; "
        f"use {strategy.fix}"
    )
    return FIRST_FIT, note
