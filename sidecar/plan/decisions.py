"""The nodes for a pod's claims: functions of pod and snapshot that answer PreFilter and Filter.

Source of the verdicts: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources.
Unlike upstream, a pod that fits nowhere is rejected once and not on every node, and victims are
considered: ADR 6.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from allocator.cluster.preference import Preference
from allocator.cluster.ranking import Limits, RankedNodes
from allocator.cluster.search_budget import ANSWER_STEPS, SearchBudget
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.pods.claims import PodClaims
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from kube.cel.scope import AnswersPending, metered
from quotas.device_quotas.affordable_nodes import (
    AffordableNodes,
    Excesses,
    OverBudget,
    TenantBudget,
    closest,
    is_owned,
)
from sidecar.commit.binding import binding_rejection, binding_state
from sidecar.model.protocol import MAX_NODES, ResourceRequests, ScoredNode, Verdict
from sidecar.model.rejections import (
    Code,
    Rejection,
    unfinished,
    unresolvable,
    unschedulable,
    with_message,
)
from sidecar.plan.nominations import (
    keeps_against,
    nominated_node,
    nominated_rivals,
    pools_of,
    priority_of,
    with_keeps,
    with_rivals,
)
from sidecar.plan.occupancy import Keep, Occupancy
from sidecar.plan.placement import (
    NODE_STEPS,
    Placement,
    are_available,
    attempt_failed,
    budget_for,
    choose_strategy,
    not_owned,
    place_or_excesses,
    resolve,
)
from sidecar.plan.pod_claims import find_placeable_claims
from sidecar.plan.room import with_ranks
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.tenant_budget import (
    has_victims,
    over_budget,
    tenant_budget,
    tenant_namespaces,
)

ANSWER_LIMITS: Final = Limits(nodes=128, searches=64, steps=2_000)
"""The cost of one part of an answer about a request that was not asked for before, some 20 ms."""
ENOUGH_NODES: Final = MAX_NODES // 2
"""Nodes that fit, beside which an answer looks for few others if those can be no better."""
FURTHER_LIMITS: Final = Limits(nodes=8, searches=2, steps=250)
"""The cost of looking for these, about a millisecond: nodes that are not known are found out about over
several answers."""
TURN_PARTS: Final = 4
"""Parts of an answer while nodes fit, where they are taken in turn and the hundred are not complete."""
MAX_PARTS: Final = 60
"""Parts of an answer while no node fits."""
EVALUATING: Final = "the selectors of the pod's ResourceClaims are being evaluated"
SEARCHING: Final = "the search for devices goes on with the next attempt"
KEPT_FOR_GROUP: Final = (
    "free devices are kept for a group of pods that has waited for long; the pod gets devices beside them, or when "
    "the group has its own"
)
KEPT_FOR_PODS: Final = "free devices are kept for pods that others were evicted for"
KEPT_OF_BUDGET: Final = "what is kept for pods that others were evicted for, and for groups, counts"
_KNOWN_ONLY: Final = Limits(nodes=0, searches=0, steps=0)

_NEVER: Final = "Never"


class NoDevicesNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """The pod is none of ours."""


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes for a pod, best first.

    Attributes:
        complete: No further node fits and has the CPU and memory, as far as that is known.
        is_settled: Nothing that is not known yet could change the answer.
    """

    nodes: tuple[ScoredNode, ...]
    complete: bool
    is_settled: bool = True


Outcome = Fits | NoDevicesNeeded | Rejection


def find_nodes(
    pod: Pod,
    snapshot: Snapshot,
    *,
    all_nodes: bool = False,
    keeps_nominations: bool = True,
    requests: ResourceRequests | None = None,
    occupancy: Occupancy | None = None,
    limits: Limits = ANSWER_LIMITS,
    max_parts: int = MAX_PARTS,
) -> Outcome:
    """Return the nodes that have the devices for a pod.

    Args:
        all_nodes: Return all, and not only the best.
        keeps_nominations: Leave the devices to pods that are as important and nominated for a node:
            others were evicted for them.
        requests: The pod's requests beside devices: nodes that have as much left come first. None if they
            is not known.
        occupancy: Other amounts of tenants in use than there are; its devices do not count.
        limits: Cost of a part of the answer.
        max_parts: Parts while no node fits.
    """
    claims = find_placeable_claims(pod, snapshot)
    if isinstance(claims, Rejection):
        return claims
    if not claims.open and not claims.held:
        return NoDevicesNeeded()
    if pod.spec.scheduling_group:
        return unresolvable(
            Code.POD_GROUP,
            "the pod is in a schedulingGroup, and this scheduler schedules it by itself; set the feature gate "
            "GenericWorkload of the scheduler and of the API server",
        )
    binding = binding_state(claims.held, cutoff=snapshot.binding_cutoff)
    rejection = binding_rejection(binding) if binding.is_hopeless else None
    if rejection is not None:
        return unresolvable(rejection.code, rejection.message)
    if not claims.open:
        names = sorted(_eligible_nodes(pod, claims.held, snapshot))
        preference, _ = snapshot.room.preference(requests, FIRST_FIT)
        return (
            _first(names, preference, all_nodes=all_nodes) if names else _no_eligible_node(claims)
        )
    pending = resolve(claims.open, snapshot)
    if isinstance(pending, Rejection):
        return pending
    strategy = choose_strategy(pod, claims.open, snapshot)
    rivals = nominated_rivals(pod, snapshot) if keeps_nominations else ()
    keeps = keeps_against(pod, snapshot) if keeps_nominations else ()
    with metered(ANSWER_STEPS):
        quotas, namespace = snapshot.quotas, pod.metadata.namespace
        tenant = None if quotas is None else tenant_budget(namespace, quotas, snapshot, occupancy)
        question = _Question(
            pod,
            claims,
            pending,
            strategy,
            snapshot,
            rivals=rivals,
            keeps=keeps,
            requests=requests,
            tenant=tenant,
        )
        return question.answer(limits, max_parts, all_nodes=all_nodes)


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
        keeps: Sequence[Keep],
        requests: ResourceRequests | None,
        tenant: TenantBudget | None,
    ) -> None:
        self._pod = pod
        self._tenant = tenant
        self._rivals = rivals
        self._keeps = keeps
        self._claims = claims
        self._pending = pending
        metadata = pod.metadata
        self._preference, self._strategy = snapshot.room.preference(
            requests,
            strategy,
            pod=f"{metadata.namespace}/{metadata.name}",
            names=snapshot.cluster.names,
        )
        self._snapshot = snapshot
        # Upstream's score is that of the chosen alternatives alone.
        has_alternatives = any(
            request.parent is not None
            for requests in pending.requests
            for alternatives in requests
            for request in alternatives
        )
        self._highest_score = 100 if has_alternatives else 0
        self._is_in_turn = strategy is FIRST_FIT and not has_alternatives
        self._not_owned = self._has_ineligible = False
        self._is_eligible = snapshot.eligible_nodes.of(pod)
        # Of a hundred nodes in an answer most share a plan.
        self._owned: dict[int, bool] = {}
        self._budget = SearchBudget(snapshot.cluster.costs, ANSWER_STEPS)
        # Far below its limits, as most tenants are, no node is charged.
        self._affordable = (
            None
            if tenant is None or tenant.is_ample(pending)
            else AffordableNodes(
                *(pending, strategy, snapshot.cluster, tenant),
                drivers=snapshot.drivers,
                answer_budget=self._budget,
                node_budget=budget_for(strategy, NODE_STEPS),
            )
        )

    def answer(self, limits: Limits, max_parts: int, *, all_nodes: bool) -> Fits | Rejection:
        """Return the nodes that fit, or the reason none does."""
        limit = None if all_nodes else MAX_NODES
        try:
            ranked_nodes = self._rank(limit, _KNOWN_ONLY)
            if all_nodes or not self._is_settled(ranked_nodes, MAX_NODES):
                has_enough = not all_nodes and self._is_settled(ranked_nodes, ENOUGH_NODES)
                part = FURTHER_LIMITS if has_enough else limits
                ranked_nodes = self._search(limit, part, max_parts, all_nodes=all_nodes)
        except AttemptFailed as error:
            return attempt_failed(error)
        if ranked_nodes.nodes:
            nodes = tuple(ScoredNode(name=name, score=score) for name, score in ranked_nodes.nodes)
            left_nodes, rejection = self._beside_kept(nodes)
            if rejection is None:
                is_complete = ranked_nodes.complete and not self._is_cut_off()
                is_settled = self._is_settled(ranked_nodes, MAX_NODES)
                return Fits(nodes=left_nodes, complete=is_complete, is_settled=is_settled)
            if not all_nodes and not ranked_nodes.complete:
                return self.answer(limits, max_parts, all_nodes=True)
            if ranked_nodes.is_known:
                return rejection
        if not ranked_nodes.is_known:
            is_pending = isinstance(ranked_nodes.interruption, AnswersPending)
            return unfinished(EVALUATING if is_pending else SEARCHING)
        return self._rejection(ranked_nodes)

    def _beside_kept(
        self, nodes: tuple[ScoredNode, ...]
    ) -> tuple[tuple[ScoredNode, ...], Rejection | None]:
        """Return the nodes with devices beside those that are kept for others, or the reason there are none."""
        excesses: Excesses | None = None
        if self._rivals:
            nodes, excesses = self._left_nodes(nodes)
            if not nodes:
                return (), self._without_nodes(excesses, Code.NO_DEVICES, KEPT_FOR_PODS)
        if self._keeps:
            nodes, excesses = self._left_nodes(nodes, self._keeps)
            if not nodes:
                return (), self._without_nodes(excesses, Code.KEPT_FOR_GROUP, KEPT_FOR_GROUP)
        return nodes, None

    def _without_nodes(self, excesses: Excesses | None, code: Code, message: str) -> Rejection:
        """Return that devices are kept for others, or, if it is for that alone, that too much of the budget is."""
        if excesses is None:
            return self._by_victims(code, message)
        rejection = quota_rejection(self._pod, excesses, self._snapshot)
        return with_message(rejection, f"{rejection.message}; {KEPT_OF_BUDGET}")

    def _left_nodes(
        self, nodes: tuple[ScoredNode, ...], keeps: Sequence[Keep] = ()
    ) -> tuple[tuple[ScoredNode, ...], Excesses | None]:
        """Return the nodes that have devices beside those that are kept, as far as is known soon.

        Args:
            keeps: The devices kept for groups, beside those kept for nominated pods. With them the pod's nominated
                node is left as it is.

        Returns:
            Beside the nodes the limits that the pod exceeds, if it is for them alone that none is left.
        """
        cluster, budget = self._snapshot.cluster, self._budget
        occupancy, unknown_nodes = with_rivals(
            self._snapshot.occupancy, self._rivals, self._snapshot, budget
        )
        names = [node.name for node in nodes]
        occupancy = with_keeps(occupancy, keeps, names, self._snapshot)
        pools = {
            pool
            for pool, use in occupancy.usage.pools.items()
            if use is not cluster.usage.pools.get(pool)
        }
        shares_budget = self._tenant is not None and not occupancy.charged.keys().isdisjoint(
            self._tenant.accounts
        )

        over_budget: list[OverBudget] = []

        def is_kept(node: str) -> bool:
            if keeps and node == nominated_node(self._pod):
                return False
            if not shares_budget and pools.isdisjoint(pools_of(node, self._snapshot)):
                return node in unknown_nodes
            steps = min(NODE_STEPS, budget.left)
            outcome = place_or_excesses(
                self._pod, node, self._snapshot, occupancy=occupancy, steps=steps
            )
            if isinstance(outcome, OverBudget):
                over_budget.append(outcome)
            return not isinstance(outcome, Placement)

        left_nodes = tuple(node for node in nodes if not is_kept(node.name))
        excesses: Excesses | None = None
        if len(over_budget) == len(nodes):
            for outcome in over_budget:
                excesses = closest(excesses, outcome.excesses)
        return left_nodes, excesses

    def _search(
        self, limit: int | None, limits: Limits, max_parts: int, *, all_nodes: bool
    ) -> RankedNodes:
        """Return the nodes after at least one part of the search, more while none fits."""
        ranked_nodes = self._rank(limit, limits)
        for part in range(1, max_parts):
            is_enough = ranked_nodes.preferred and not all_nodes
            if self._is_in_turn and part < TURN_PARTS and not all_nodes:
                is_enough = ranked_nodes.is_settled
            is_over = self._budget.is_spent or ranked_nodes.interruption is not None
            if ranked_nodes.is_known or is_enough or is_over:
                break
            ranked_nodes = self._rank(limit, limits)
        return ranked_nodes

    def _rank(self, limit: int | None, limits: Limits) -> RankedNodes:
        ranked_nodes = self._snapshot.cluster.rank_nodes(
            self._pending,
            strategy=self._strategy,
            budget=budget_for(self._strategy, NODE_STEPS),
            limit=limit,
            accepts=self._accepts,
            may_use=self._may_use,
            preference=self._preference,
            limits=limits,
        )
        return with_ranks(ranked_nodes, self._preference)

    def _accepts(self, name: str, plan: Plan) -> bool:
        """Return True if the pod gets a node that has devices for it."""
        may_take = self._owned.get(id(plan))
        if may_take is None:
            may_take = self._owned[id(plan)] = is_owned(plan, self._snapshot.drivers)
        if not may_take:
            self._not_owned = True
            return False
        if not self._may_use(name):
            self._has_ineligible = True
            return False
        return self._affordable is None or self._affordable.has(name, plan)

    def _may_use(self, name: str) -> bool:
        """Return True if the pod may use a node, without regard to free devices."""
        node = self._snapshot.cluster.nodes[name]
        return self._is_eligible(node) and are_available(self._claims.held, node)

    def _is_settled(self, ranked_nodes: RankedNodes, count: int) -> bool:
        """Return True if there are so many nodes, and others cannot be better; or no others."""
        if ranked_nodes.is_known or (self._is_in_turn and ranked_nodes.is_settled):
            return True
        if self._is_in_turn or self._strategy is not FIRST_FIT or ranked_nodes.preferred < count:
            return False
        best_nodes = ranked_nodes.nodes[: ranked_nodes.preferred]
        return all(score >= self._highest_score for _, score in best_nodes)

    def _rejection(self, ranked_nodes: RankedNodes) -> Rejection:
        excesses = None if self._affordable is None else self._affordable.excesses
        if excesses is not None and not self._is_cut_off():
            return quota_rejection(self._pod, excesses, self._snapshot)
        if self._not_owned and not self._has_ineligible:
            return self._not_owned_rejection()
        if ranked_nodes.cut_off or self._is_cut_off():
            return self._by_victims(Code.BUDGET_EXHAUSTED, "the search for devices was cut off")
        if self._has_ineligible:
            return self._by_victims(
                Code.NO_ELIGIBLE_NODE,
                "devices are free on nodes that the pod may not use "
                "(node selector, affinity, taints, or a ResourceClaim that is allocated elsewhere)",
            )
        return self._by_victims(
            Code.NO_DEVICES, "no node has free devices for the pod's ResourceClaims"
        )

    def _is_cut_off(self) -> bool:
        """Return True if some node was not searched for a plan that the tenant can pay."""
        return self._affordable is not None and self._affordable.is_cut_off

    def _not_owned_rejection(self) -> Rejection:
        """Return that devices are free of other drivers only; owned ones may be in use by victims."""
        rejection = not_owned()
        if could_preempt(self._pod, self._snapshot) and self._sees_owned_pool():
            return unschedulable(rejection.code, rejection.message)
        return rejection

    def _sees_owned_pool(self) -> bool:
        """Return True if a node that the pod may use has devices of an owned driver."""
        drivers = self._snapshot.drivers
        return bool(drivers) and any(
            pool.driver in drivers
            for name in self._snapshot.cluster.nodes
            if self._may_use(name)
            for pool in pools_of(name, self._snapshot)
        )

    def _by_victims(self, code: Code, message: str) -> Rejection:
        """Return a rejection that preemption could help with or not."""
        if could_preempt(self._pod, self._snapshot):
            return unschedulable(code, message)
        return unresolvable(code, message)


def quota_rejection(pod: Pod, excesses: Excesses, snapshot: Snapshot) -> Rejection:
    """Return that the tenant has too little left; only victims of the same tenant could help."""
    rejection = over_budget(excesses)
    if rejection.verdict is Verdict.UNSCHEDULABLE and not (
        could_preempt(pod, snapshot)
        and has_victims(pod, tenant_namespaces(excesses, snapshot), snapshot)
    ):
        return unresolvable(rejection.code, rejection.message)
    return rejection


def could_preempt(pod: Pod, snapshot: Snapshot) -> bool:
    """Return True if some pod of lower priority has devices, and this one may preempt it."""
    if pod.spec.preemption_policy == _NEVER or snapshot.lowest_priority is None:
        return False
    return snapshot.lowest_priority < priority_of(pod)


def _eligible_nodes(
    pod: Pod, allocated_claims: Sequence[ResourceClaim], snapshot: Snapshot
) -> Iterator[str]:
    is_eligible = snapshot.eligible_nodes.of(pod)
    return (
        name
        for name, node in snapshot.cluster.nodes.items()
        if is_eligible(node) and are_available(allocated_claims, node)
    )


def _first(names: Sequence[str], preference: Preference | None, *, all_nodes: bool) -> Fits:
    """Return the first of some nodes, those with room before others."""
    others: list[str] = []
    if preference is not None:
        others = [name for name in names if not preference.prefers(name)]
        names = [name for name in names if preference.prefers(name)]
    limit = None if all_nodes else MAX_NODES
    first_names = [*names, *others][:limit]
    return Fits(
        nodes=tuple(ScoredNode(name=name) for name in first_names),
        complete=len(names) <= len(first_names),
    )


def _no_eligible_node(claims: PodClaims) -> Rejection:
    names = sorted(claim.metadata.name for claim in claims.held)
    return unresolvable(
        Code.CLAIM_NOT_AVAILABLE,
        f"no node that the pod may use has its allocated ResourceClaim {names[0]}"
        if len(names) == 1
        else "no node that the pod may use has all its allocated ResourceClaims",
    )
