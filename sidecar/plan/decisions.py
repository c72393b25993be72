"""The nodes on which a pod's claims can be allocated, and the devices: functions of pod and snapshot.

Source of the verdicts: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources.
Unlike upstream, a pod that fits nowhere is rejected once and not on every node, and victims are
considered: ADR 6.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.cluster.ranking import Limits, RankedNodes
from allocator.model.outcome import AttemptFailed, BudgetExhausted
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.model.usage import Usage, with_claim, without_claim
from allocator.pods.claims import PodClaims, allocation_of
from allocator.pods.node_eligibility import is_for
from allocator.search.results import allocation, share_ids
from allocator.strategies import registry
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.core import Node, Pod
from kube.api.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from kube.errors import FieldError
from sidecar.plan.binding import Binding, binding_state
from sidecar.plan.pod_claims import find_claims
from sidecar.plan.rejections import Code, Rejection, failed_rejection, unresolvable, unschedulable
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.writes import consumers
from sidecar.protocol import MAX_NODES, ScoredNode

NODE_STEPS: Final = 20_000
"""Steps of the search on one node: with 10 to 30 us a step up to half a second, in which no other pod is
answered. What is cut off there counts as not fitting."""
ANSWER_LIMITS: Final = Limits(nodes=128, searches=64, steps=2_000)
"""The cost of one part of an answer about a request that was not asked for before, some 20 ms."""
ENOUGH_NODES: Final = MAX_NODES // 2
"""Nodes that fit, beside which an answer looks for few others if those can be no better."""
FURTHER_LIMITS: Final = Limits(nodes=8, searches=2, steps=250)
"""The cost of looking for these, about a millisecond: nodes that are not known are found out about over
several answers."""
MAX_PARTS: Final = 60
ANSWER_STEPS: Final = 50_000
"""Parts of an answer while no node fits, and their steps: about a second. What was searched is remembered, so
that the next answer goes on from there."""
_KNOWN_ONLY: Final = Limits(nodes=0, searches=0, steps=0)

_NEVER: Final = "Never"


class NoDevicesNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """The pod is none of ours."""


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes for a pod, best first.

    Attributes:
        complete: No further node fits.
    """

    nodes: tuple[ScoredNode, ...]
    complete: bool


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The allocations that a pod's open claims get on one node, in their order."""

    allocations: tuple[tuple[ResourceClaim, AllocationResult], ...]


def find_nodes(
    pod: Pod,
    snapshot: Snapshot,
    *,
    all_nodes: bool = False,
    keeps_nominations: bool = True,
    limits: Limits = ANSWER_LIMITS,
    max_parts: int = MAX_PARTS,
) -> Fits | NoDevicesNeeded | Rejection:
    """Return the nodes that have the devices for a pod.

    Args:
        all_nodes: Return all, and not only the best.
        keeps_nominations: Leave the devices to pods that are as important and nominated for a node:
            others were evicted for them.
        limits: Cost of a part of the answer.
        max_parts: Parts while no node fits.
    """
    claims = find_claims(pod, snapshot.claims, snapshot.extended_resources)
    if isinstance(claims, Rejection):
        return claims
    if not claims.open and not claims.held:
        return NoDevicesNeeded()
    if binding_state(claims.held) is Binding.FAILED:
        return unresolvable(Code.BINDING_FAILED, "a driver could not make a device ready")
    if not claims.open:
        nodes = tuple(ScoredNode(name=node) for node in _eligible_nodes(pod, claims.held, snapshot))
        return _best(nodes, all_nodes=all_nodes) if nodes else _no_eligible_node(claims)
    pending = _resolve(claims.open, snapshot)
    if isinstance(pending, Rejection):
        return pending
    strategy = choose_strategy(pod, claims.open, snapshot)
    rivals = nominated_rivals(pod, snapshot) if keeps_nominations else ()
    return _Question(pod, claims, pending, strategy, snapshot, rivals=rivals).answer(
        limits, max_parts, all_nodes=all_nodes
    )


def place(
    pod: Pod, node: str, snapshot: Snapshot, *, usage: Usage | None = None
) -> Placement | Rejection:
    """Return the devices that a pod's claims get on one node.

    Args:
        usage: Other usage than there is.
    """
    claims = find_claims(pod, snapshot.claims, snapshot.extended_resources)
    if isinstance(claims, Rejection):
        return claims
    known_node = snapshot.cluster.nodes.get(node)
    if known_node is None or not _are_available(claims.held, known_node):
        return unschedulable(
            Code.CLAIM_NOT_AVAILABLE, "an allocated ResourceClaim cannot be used on the node"
        )
    if not claims.open:
        return Placement(allocations=())
    pending = _resolve(claims.open, snapshot)
    if isinstance(pending, Rejection):
        return pending
    strategy = choose_strategy(pod, claims.open, snapshot)
    try:
        outcome = snapshot.cluster.verdict(
            pending, node, strategy=strategy, budget=Budget(steps=NODE_STEPS), usage=usage
        )
        if isinstance(outcome, Plan):
            if not _is_owned(outcome, snapshot.drivers):
                return _not_owned()
            return _placement(outcome, pending, snapshot)
    except AttemptFailed as error:
        return _attempt_failed(error)
    if isinstance(outcome, BudgetExhausted):
        return failed_rejection(Code.BUDGET_EXHAUSTED, "the search for devices was cut off")
    return unschedulable(Code.NO_DEVICES, "the node has no free devices for the ResourceClaims")


def fits_with(
    pod: Pod,
    node: str,
    snapshot: Snapshot,
    *,
    removed_pods: Iterable[str],
    added_pods: Iterable[str],
) -> Placement | Rejection:
    """Return the devices that a pod gets on a node while other pods are taken to be gone or there.

    A claim that a removed pod shares with one that stays frees nothing.

    Args:
        removed_pods: UIDs of pods on the node.
        added_pods: UIDs of pods that are nominated for the node.
    """
    removed_uids = frozenset(removed_pods)
    features = snapshot.cluster.options.features
    usage = snapshot.cluster.usage
    names = {name for uid in removed_uids for name in snapshot.claims_of.get(uid, ())}
    for name in sorted(names):
        claim = snapshot.claims.get(name)
        if claim is not None and {consumer.uid for consumer in consumers(claim)} <= removed_uids:
            usage = without_claim(usage, claim, features)
    for uid in added_pods:
        nominated_pod = snapshot.pods.get(uid)
        if nominated_pod is not None and uid != pod.metadata.uid:
            usage = with_pod(usage, nominated_pod, node, snapshot)
    return place(pod, node, snapshot, usage=usage)


def with_pod(usage: Usage, pod: Pod, node: str, snapshot: Snapshot) -> Usage:
    """Return the usage with a pod on a node; the same if it needs no more devices, or gets none."""
    placement = place(pod, node, snapshot, usage=usage)
    if isinstance(placement, Placement):
        for claim, result in placement.allocations:
            allocated_claim = with_allocation(claim, result)
            usage = with_claim(usage, allocated_claim, snapshot.cluster.options.features)
    return usage


def with_allocation(claim: ResourceClaim, result: AllocationResult) -> ResourceClaim:
    """Return a claim that is allocated."""
    status = claim.status or ResourceClaimStatus()
    return replace(claim, status=replace(status, allocation=result))


def choose_strategy(pod: Pod, claims: Sequence[ResourceClaim], snapshot: Snapshot) -> Strategy:
    """Return the strategy of pod, class or settings; an unknown name is the default's."""
    names = dict.fromkeys(name for claim in claims for name in _class_names(claim))
    annotations = {
        name: device_class.metadata.annotations or {}
        for name in names
        if (device_class := snapshot.classes.get(name)) is not None
    }
    name = registry.choose_strategy(pod.annotations, annotations, snapshot.default_strategy)
    strategy = name if isinstance(name, FieldError) else registry.find_strategy(name)
    if isinstance(strategy, FieldError):
        return FIRST_FIT
    return registry.with_weights(strategy, snapshot.weights)


class _Question:
    """One pod with open claims, asked about all nodes."""

    def __init__(
        self,
        pod: Pod,
        claims: PodClaims,
        pending: PendingClaims,
        strategy: Strategy,
        snapshot: Snapshot,
        *,
        rivals: Sequence[Pod],
    ) -> None:
        self._pod = pod
        self._rivals = rivals
        self._claims = claims
        self._pending = pending
        self._strategy = strategy
        self._snapshot = snapshot
        # Upstream's score is that of the chosen alternatives alone.
        has_alternatives = any(
            request.parent is not None
            for requests in pending.requests
            for alternatives in requests
            for request in alternatives
        )
        self._highest_score = 100 if has_alternatives else 0
        self._not_owned = self._has_ineligible = False
        self._is_eligible = snapshot.eligible_nodes.of(pod)
        # Of a hundred nodes in an answer most share a plan.
        self._owned: dict[int, bool] = {}

    def answer(self, limits: Limits, max_parts: int, *, all_nodes: bool) -> Fits | Rejection:
        """Return the nodes that fit, or why none does."""
        limit = None if all_nodes else MAX_NODES
        try:
            ranked_nodes = self._rank(limit, _KNOWN_ONLY)
            if all_nodes or not self._is_settled(ranked_nodes, MAX_NODES):
                has_enough = not all_nodes and self._is_settled(ranked_nodes, ENOUGH_NODES)
                part = FURTHER_LIMITS if has_enough else limits
                ranked_nodes = self._search(limit, part, max_parts, all_nodes=all_nodes)
        except AttemptFailed as error:
            return _attempt_failed(error)
        if ranked_nodes.nodes:
            nodes = tuple(ScoredNode(name=name, score=score) for name, score in ranked_nodes.nodes)
            kept_nodes = self._kept_nodes(nodes)
            nodes = tuple(node for node in nodes if node.name not in kept_nodes)
            if nodes:
                return Fits(nodes=nodes, complete=ranked_nodes.complete)
            if not all_nodes and not ranked_nodes.complete:
                return self.answer(limits, max_parts, all_nodes=True)
            if ranked_nodes.is_known:
                return self._by_victims(
                    Code.NO_DEVICES, "free devices are kept for pods that others were evicted for"
                )
        if not ranked_nodes.is_known:
            return failed_rejection(
                Code.BUDGET_EXHAUSTED, "the search for devices goes on with the next attempt"
            )
        return self._rejection(ranked_nodes)

    def _kept_nodes(self, nodes: Iterable[ScoredNode]) -> frozenset[str]:
        """Return the nodes that have no devices beside those of nominated pods, as far as is known soon."""
        if not self._rivals:
            return frozenset()
        cluster = self._snapshot.cluster
        usage = cluster.usage
        for rival in self._rivals:
            status = rival.status
            if status is not None and status.nominated_node_name in cluster.nodes:
                usage = with_pod(usage, rival, status.nominated_node_name, self._snapshot)
        pools = {
            pool for pool, use in usage.pools.items() if use is not cluster.usage.pools.get(pool)
        }
        limit = cluster.costs.steps + ANSWER_STEPS
        return frozenset(
            node.name
            for node in nodes
            if any(pool.id in pools for pool in cluster.node_devices(node.name).pools)
            and (
                cluster.costs.steps > limit
                or isinstance(place(self._pod, node.name, self._snapshot, usage=usage), Rejection)
            )
        )

    def _search(
        self, limit: int | None, limits: Limits, max_parts: int, *, all_nodes: bool
    ) -> RankedNodes:
        """Return the nodes after at least one part of the search, more while none fits."""
        ranked_nodes = self._rank(limit, limits)
        steps = ranked_nodes.steps
        for _ in range(max_parts - 1):
            is_enough = ranked_nodes.nodes and not all_nodes
            if ranked_nodes.is_known or is_enough or steps > ANSWER_STEPS:
                break
            ranked_nodes = self._rank(limit, limits)
            steps += ranked_nodes.steps
        return ranked_nodes

    def _rank(self, limit: int | None, limits: Limits) -> RankedNodes:
        return self._snapshot.cluster.rank_nodes(
            self._pending,
            strategy=self._strategy,
            budget=Budget(steps=NODE_STEPS),
            limit=limit,
            accepts=self._accepts,
            may_use=self._may_use,
            limits=limits,
        )

    def _accepts(self, name: str, plan: Plan) -> bool:
        """Return whether the pod gets a node that has devices for it."""
        is_owned = self._owned.get(id(plan))
        if is_owned is None:
            is_owned = self._owned[id(plan)] = _is_owned(plan, self._snapshot.drivers)
        if not is_owned:
            self._not_owned = True
            return False
        is_eligible = self._may_use(name)
        self._has_ineligible |= not is_eligible
        return is_eligible

    def _may_use(self, name: str) -> bool:
        """Return whether the pod may use a node, whatever devices it has."""
        node = self._snapshot.cluster.nodes[name]
        return self._is_eligible(node) and _are_available(self._claims.held, node)

    def _is_settled(self, ranked_nodes: RankedNodes, count: int) -> bool:
        """Return whether there are so many nodes, and others cannot be better; or no others."""
        if ranked_nodes.is_known:
            return True
        if self._strategy is not FIRST_FIT or len(ranked_nodes.nodes) < count:
            return False
        return all(score >= self._highest_score for _, score in ranked_nodes.nodes)

    def _rejection(self, ranked_nodes: RankedNodes) -> Rejection:
        if self._not_owned and not self._has_ineligible:
            return _not_owned()
        if ranked_nodes.cut_off:
            return unresolvable(Code.BUDGET_EXHAUSTED, "the search for devices was cut off")
        if self._has_ineligible:
            return self._by_victims(
                Code.NO_ELIGIBLE_NODE,
                "devices are free on nodes that the pod may not use "
                "(node selector, affinity, taints, or a ResourceClaim that is allocated elsewhere)",
            )
        return self._by_victims(
            Code.NO_DEVICES, "no node has free devices for the pod's ResourceClaims"
        )

    def _by_victims(self, code: Code, message: str) -> Rejection:
        """Return a rejection that says whether preemption could help."""
        if could_preempt(self._pod, self._snapshot):
            return unschedulable(code, message)
        return unresolvable(code, message)


def nominated_rivals(pod: Pod, snapshot: Snapshot) -> Sequence[Pod]:
    """Return the nominated pods whose devices a pod must leave alone, the most important first.

    Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/runtime, addGENominatedPods: those of
    equal priority count, too.
    """
    priority = pod.spec.priority or 0
    rivals = [
        nominated_pod
        for uid, nominated_pod in snapshot.nominated.items()
        if uid != pod.metadata.uid and (nominated_pod.spec.priority or 0) >= priority
    ]
    return sorted(rivals, key=lambda rival: (-(rival.spec.priority or 0), rival.metadata.uid))


def could_preempt(pod: Pod, snapshot: Snapshot) -> bool:
    """Return whether some pod of lower priority has devices, and this one may preempt it."""
    if pod.spec.preemption_policy == _NEVER or snapshot.lowest_priority is None:
        return False
    return snapshot.lowest_priority < (pod.spec.priority or 0)


def _resolve(claims: Sequence[ResourceClaim], snapshot: Snapshot) -> PendingClaims | Rejection:
    try:
        return snapshot.cluster.resolve(claims)
    except AttemptFailed as error:
        return _attempt_failed(error)


def _placement(plan: Plan, pending: PendingClaims, snapshot: Snapshot) -> Placement:
    features = snapshot.cluster.options.features
    return Placement(
        allocations=tuple(
            (claim, allocation(plan, index, pending, features, share_ids(claim.metadata.uid)))
            for index, claim in enumerate(pending.claims)
        )
    )


def _eligible_nodes(
    pod: Pod, allocated_claims: Sequence[ResourceClaim], snapshot: Snapshot
) -> Iterator[str]:
    is_eligible = snapshot.eligible_nodes.of(pod)
    return (
        name
        for name, node in snapshot.cluster.nodes.items()
        if is_eligible(node) and _are_available(allocated_claims, node)
    )


def _are_available(allocated_claims: Iterable[ResourceClaim], node: Node) -> bool:
    return all(_is_available(claim, node) for claim in allocated_claims)


def _is_available(claim: ResourceClaim, node: Node) -> bool:
    """Return whether an allocated claim can be used on a node."""
    result = allocation_of(claim)
    if result is None or result.node_selector is None:
        return True
    return is_for(result.node_selector, node)


def _best(nodes: tuple[ScoredNode, ...], *, all_nodes: bool) -> Fits:
    ranked_nodes = sorted(nodes, key=lambda node: (-node.score, node.name))
    if all_nodes or len(ranked_nodes) <= MAX_NODES:
        return Fits(nodes=tuple(ranked_nodes), complete=True)
    return Fits(nodes=tuple(ranked_nodes[:MAX_NODES]), complete=False)


def _no_eligible_node(claims: PodClaims) -> Rejection:
    names = sorted(claim.metadata.name for claim in claims.held)
    return unresolvable(
        Code.CLAIM_NOT_AVAILABLE,
        f"no node that the pod may use has its allocated ResourceClaim {names[0]}"
        if len(names) == 1
        else "no node that the pod may use has all its allocated ResourceClaims",
    )


def _is_owned(plan: Plan, drivers: frozenset[str]) -> bool:
    return all(choice.device.id.driver in drivers for choices in plan.choices for choice in choices)


def _not_owned() -> Rejection:
    return unresolvable(
        Code.DRIVER_NOT_OWNED,
        "the devices belong to a driver that this scheduler does not own, or whose fence is open; "
        "`drawbridge bridge status` says which",
    )


def _attempt_failed(error: AttemptFailed) -> Rejection:
    return unresolvable(Code.ATTEMPT_FAILED, str(error))


def _class_names(claim: ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests or ():
        for alternative in (request.exactly, *(request.first_available or ())):
            if alternative is not None:
                yield alternative.device_class_name
