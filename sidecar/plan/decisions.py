"""Where a pod's claims can be allocated, and with which devices: functions of pod and snapshot.

Source of the verdicts: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources.
Unlike upstream, a pod that fits nowhere is rejected once and not on every node, and victims are
considered: ADR 6.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.model.outcome import AttemptFailed, BudgetExhausted
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.model.usage import Usage, with_claim, without_claim
from allocator.pods.claims import PodClaims, allocation_of
from allocator.pods.node_eligibility import is_for, node_rejection
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
from sidecar.plan.rejections import Code, Rejection, failed, unresolvable, unschedulable
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.writes import consumers
from sidecar.protocol import MAX_NODES, ScoredNode

NODE_STEPS: Final = 100_000
"""Steps of the search on one node."""
QUESTION_STEPS: Final = 400_000
"""Steps of all searches for one answer. What was searched is remembered, so that the next answer goes
on from there."""

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
    steps: int = QUESTION_STEPS,
) -> Fits | NoDevicesNeeded | Rejection:
    """Return the nodes that have the devices for a pod.

    Args:
        all_nodes: Return all, and not only the best.
        steps: Maximum cost of searches that nobody has made before.
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
    return _Question(pod, claims, pending, strategy, snapshot).answer(steps, all_nodes=all_nodes)


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
    known = snapshot.cluster.nodes.get(node)
    if known is None or not all(_is_available(claim, known) for claim in claims.held):
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
        return failed(Code.BUDGET_EXHAUSTED, "the search for devices was cut off")
    return unschedulable(Code.NO_DEVICES, "the node has no free devices for the ResourceClaims")


def fits_with(
    pod: Pod, node: str, snapshot: Snapshot, *, removed: Iterable[str], added: Iterable[str]
) -> Placement | Rejection:
    """Return the devices that a pod gets on a node while other pods are taken to be gone or there.

    A claim that a removed pod shares with one that stays frees nothing.

    Args:
        removed: UIDs of pods on the node.
        added: UIDs of pods that are nominated for the node.
    """
    gone = frozenset(removed)
    features = snapshot.cluster.options.features
    usage = snapshot.cluster.usage
    for claim in snapshot.claims.values():
        users = {consumer.uid for consumer in consumers(claim)}
        if users and users <= gone:
            usage = without_claim(usage, claim, features)
    for uid in added:
        nominated = snapshot.pods.get(uid)
        if nominated is None or uid == pod.metadata.uid:
            continue
        placement = place(nominated, node, snapshot, usage=usage)
        if isinstance(placement, Placement):
            for claim, result in placement.allocations:
                usage = with_claim(usage, with_allocation(claim, result), features)
    return place(pod, node, snapshot, usage=usage)


def with_allocation(claim: ResourceClaim, result: AllocationResult) -> ResourceClaim:
    """Return a claim that is allocated."""
    status = claim.status or ResourceClaimStatus()
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(status, allocation=result))


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
    return FIRST_FIT if isinstance(strategy, FieldError) else strategy


class _Question:
    """One pod with open claims, asked about all nodes."""

    def __init__(
        self,
        pod: Pod,
        claims: PodClaims,
        pending: PendingClaims,
        strategy: Strategy,
        snapshot: Snapshot,
    ) -> None:
        self._pod = pod
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
        self._rejected_nodes = 0
        self._cut_off = False
        self._not_owned = False

    def answer(self, steps: int, *, all_nodes: bool) -> Fits | Rejection:
        """Return the nodes that fit, or why none does."""
        fitting: list[ScoredNode] = []
        is_complete = True
        budget = Budget(steps=NODE_STEPS)
        verdicts = self._snapshot.cluster.class_verdicts(
            self._pending, strategy=self._strategy, budget=budget
        )
        try:
            for verdict in verdicts:
                steps -= verdict.steps
                if isinstance(verdict.outcome, Plan):
                    fitting += self._nodes_of(verdict.outcome, verdict.nodes, verdict.score)
                self._cut_off |= isinstance(verdict.outcome, BudgetExhausted)
                is_spent = steps <= 0 and verdict.steps
                if is_spent or (self._is_settled(fitting) and not all_nodes):
                    is_complete = False
                    break
        except AttemptFailed as error:
            return _attempt_failed(error)
        if fitting:
            best = _best(tuple(fitting), all_nodes=all_nodes)
            return msgspec.structs.replace(best, complete=best.complete and is_complete)
        if not is_complete:
            return failed(
                Code.BUDGET_EXHAUSTED, "the search for devices goes on with the next attempt"
            )
        return self._rejection()

    def _nodes_of(self, plan: Plan, names: Iterable[str], score: int) -> Iterator[ScoredNode]:
        """Yield those nodes of a class that the pod may use."""
        if not _is_owned(plan, self._snapshot.drivers):
            self._not_owned = True
            return
        for name in names:
            if _is_eligible(self._pod, self._snapshot.cluster.nodes[name], self._claims.held):
                yield ScoredNode(name=name, score=score)
            else:
                self._rejected_nodes += 1

    def _is_settled(self, fitting: Sequence[ScoredNode]) -> bool:
        """Return whether further nodes cannot be better than those that there are."""
        if self._strategy is not FIRST_FIT or len(fitting) < MAX_NODES:
            return False
        return sum(node.score >= self._highest_score for node in fitting) >= MAX_NODES

    def _rejection(self) -> Rejection:
        if self._not_owned and not self._rejected_nodes:
            return _not_owned()
        if self._cut_off:
            return unresolvable(Code.BUDGET_EXHAUSTED, "the search for devices was cut off")
        if self._rejected_nodes:
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


def could_preempt(pod: Pod, snapshot: Snapshot) -> bool:
    """Return whether some pod of lower priority has devices, and this one may preempt it."""
    if pod.spec.preemption_policy == _NEVER:
        return False
    priority = pod.spec.priority or 0
    return any((other.spec.priority or 0) < priority for other in _pods_with_devices(snapshot))


def _pods_with_devices(snapshot: Snapshot) -> Iterator[Pod]:
    for claim in snapshot.claims.values():
        if allocation_of(claim) is not None:
            for consumer in consumers(claim):
                pod = snapshot.pods.get(consumer.uid)
                if pod is not None:
                    yield pod


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


def _eligible_nodes(pod: Pod, held: Sequence[ResourceClaim], snapshot: Snapshot) -> Iterator[str]:
    nodes: Mapping[str, Node] = snapshot.cluster.nodes
    return (name for name, node in nodes.items() if _is_eligible(pod, node, held))


def _is_eligible(pod: Pod, node: Node, held: Sequence[ResourceClaim]) -> bool:
    return node_rejection(pod, node) is None and all(_is_available(claim, node) for claim in held)


def _is_available(claim: ResourceClaim, node: Node) -> bool:
    """Return whether an allocated claim can be used on a node."""
    result = allocation_of(claim)
    if result is None or result.node_selector is None:
        return True
    return is_for(result.node_selector, node)


def _best(nodes: tuple[ScoredNode, ...], *, all_nodes: bool) -> Fits:
    ranked = sorted(nodes, key=lambda node: (-node.score, node.name))
    if all_nodes or len(ranked) <= MAX_NODES:
        return Fits(nodes=tuple(ranked), complete=True)
    return Fits(nodes=tuple(ranked[:MAX_NODES]), complete=False)


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
        Code.DRIVER_NOT_OWNED, "the devices belong to a driver that this scheduler does not own"
    )


def _attempt_failed(error: AttemptFailed) -> Rejection:
    return unresolvable(Code.ATTEMPT_FAILED, str(error))


def _class_names(claim: ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests or ():
        for alternative in (request.exactly, *(request.first_available or ())):
            if alternative is not None:
                yield alternative.device_class_name
