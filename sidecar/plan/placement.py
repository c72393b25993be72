"""The devices that a pod's claims get on one node, with other claims than there are if wanted.

Source of the verdicts: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.model.outcome import AttemptFailed, BudgetExhausted
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.pods.claims import allocation_of
from allocator.pods.node_eligibility import is_for
from allocator.search.results import allocation, share_ids
from allocator.strategies import registry
from allocator.strategies.by_node_pool import by_node_pool
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.fragmentation_aware import FragmentationAware
from allocator.strategies.strategy import Strategy
from kube.api.core import Node, Pod
from kube.api.resource import AllocationResult, ResourceClaim, ResourceClaimStatus
from kube.cel.scope import AnswersPending, BudgetSpent, evaluating, metered
from kube.errors import FieldError
from quotas.device_quotas.affordable_nodes import OverBudget, find_plan, is_owned
from sidecar.model.rejections import Code, Rejection, failed_rejection, unresolvable, unschedulable
from sidecar.plan.occupancy import Occupancy, with_allocated
from sidecar.plan.pod_claims import find_placeable_claims
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.tenant_budget import over_budget, tenant_budget

NODE_STEPS: Final = 20_000
"""Steps of the search on one node: with 10 to 30 us a step up to half a second, in which no other pod is
answered. What is cut off there counts as not fitting."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The allocations that a pod's open claims get on one node, in their order."""

    allocations: tuple[tuple[ResourceClaim, AllocationResult], ...]


def place(
    pod: Pod,
    node: str,
    snapshot: Snapshot,
    *,
    occupancy: Occupancy | None = None,
    steps: int = NODE_STEPS,
) -> Placement | Rejection:
    """Return the devices that a pod's claims get on one node.

    Args:
        occupancy: Other devices in use, and amounts of tenants, than there are.
        steps: The number of steps after which the search is cut off.
    """
    outcome = place_or_excesses(pod, node, snapshot, occupancy=occupancy, steps=steps)
    return over_budget(outcome.excesses) if isinstance(outcome, OverBudget) else outcome


def place_or_excesses(
    pod: Pod,
    node: str,
    snapshot: Snapshot,
    *,
    occupancy: Occupancy | None,
    steps: int,
) -> Placement | OverBudget | Rejection:
    """Return the devices that a pod's claims get on one node, or that they exceed the budget of its tenant.

    Args:
        occupancy: Other devices in use, and amounts of tenants, than there are.
        steps: The number of steps after which the search is cut off.
    """
    claims = find_placeable_claims(pod, snapshot)
    if isinstance(claims, Rejection):
        return claims
    known_node = snapshot.cluster.nodes.get(node)
    if known_node is None or not are_available(claims.held, known_node):
        return unschedulable(
            Code.CLAIM_NOT_AVAILABLE, "an allocated ResourceClaim cannot be used on the node"
        )
    if not claims.open:
        return Placement(allocations=())
    return (
        _cut_off()
        if steps <= 0
        else _place_open(pod, claims.open, node, snapshot, occupancy, steps=steps)
    )


def _place_open(
    pod: Pod,
    claims: Sequence[ResourceClaim],
    node: str,
    snapshot: Snapshot,
    occupancy: Occupancy | None,
    *,
    steps: int,
) -> Placement | OverBudget | Rejection:
    pending = resolve(claims, snapshot)
    if isinstance(pending, Rejection):
        return pending
    strategy = choose_strategy(pod, claims, snapshot)
    budget = budget_for(strategy, steps)
    quotas, namespace = snapshot.quotas, pod.metadata.namespace
    try:
        # What has to be evaluated first is another pod's to wait for, where this one is a rival.
        with evaluating(tenant=namespace), metered(steps):
            outcome = find_plan(
                pending,
                node,
                snapshot.cluster,
                drivers=snapshot.drivers,
                strategy=strategy,
                budget=budget,
                usage=None if occupancy is None else occupancy.usage,
                tenant=None
                if quotas is None
                else tenant_budget(namespace, quotas, snapshot, occupancy),
            )
        if isinstance(outcome, OverBudget):
            return outcome
        if isinstance(outcome, Plan):
            if not is_owned(outcome, snapshot.drivers):
                return not_owned()
            return _placement(outcome, pending, snapshot)
    except AttemptFailed as error:
        return attempt_failed(error)
    except (AnswersPending, BudgetSpent):
        return _cut_off()
    if isinstance(outcome, BudgetExhausted):
        return _cut_off()
    return unschedulable(Code.NO_DEVICES, "the node has no free devices for the ResourceClaims")


def with_placement(occupancy: Occupancy, placement: Placement, snapshot: Snapshot) -> Occupancy:
    """Return the occupancy with the allocations of a placement."""
    features = snapshot.cluster.options.features
    for claim, result in placement.allocations:
        allocated_claim = with_allocation(claim, result)
        occupancy = with_allocated(occupancy, allocated_claim, features, snapshot.quotas)
    return occupancy


def with_allocation(claim: ResourceClaim, result: AllocationResult) -> ResourceClaim:
    """Return a claim that is allocated."""
    status = claim.status or ResourceClaimStatus()
    return replace(claim, status=replace(status, allocation=result))


def choose_strategy(pod: Pod, claims: Sequence[ResourceClaim], snapshot: Snapshot) -> Strategy:
    """Return the strategy of pod, class, pool of nodes or settings; an unknown name is the default's."""
    names = dict.fromkeys(name for claim in claims for name in _class_names(claim))
    annotations = {
        name: device_class.metadata.annotations or {}
        for name in names
        if (device_class := snapshot.classes.get(name)) is not None
    }
    name = registry.requested_strategy(pod.annotations, annotations)
    if name is not None:
        return _find_strategy(name, snapshot)
    default = _find_strategy(snapshot.default_strategy, snapshot)
    return by_node_pool(default, snapshot.pool_strategies, snapshot.weights, snapshot.room.strategy)


def _find_strategy(name: str | FieldError, snapshot: Snapshot) -> Strategy:
    strategy = name if isinstance(name, FieldError) else registry.find_strategy(name)
    if isinstance(strategy, FieldError):
        return FIRST_FIT
    if isinstance(strategy, FragmentationAware):
        return snapshot.room.strategy
    return registry.with_weights(strategy, snapshot.weights)


def budget_for(strategy: Strategy, steps: int) -> Budget:
    """Return the budget of a search that may take so many steps in all.

    One in another order than upstream's that exhausts its budget is repeated in upstream's order.
    """
    return Budget(steps=steps if strategy is FIRST_FIT else steps // 2)


def resolve(claims: Sequence[ResourceClaim], snapshot: Snapshot) -> PendingClaims | Rejection:
    """Resolve claims into requests."""
    try:
        return snapshot.cluster.resolve(claims)
    except AttemptFailed as error:
        return attempt_failed(error)


def are_available(allocated_claims: Iterable[ResourceClaim], node: Node) -> bool:
    """Return True if allocated claims can be used on a node."""
    return all(_is_available(claim, node) for claim in allocated_claims)


def not_owned() -> Rejection:
    """Return the rejection of a pod that would get devices of another driver."""
    return unresolvable(
        Code.DRIVER_NOT_OWNED,
        "the devices belong to a driver that this scheduler does not own, or whose fence is open; "
        "`drawbridge bridge status` says which",
    )


def attempt_failed(error: AttemptFailed) -> Rejection:
    """Return the rejection of a pod with claims that cannot be evaluated."""
    return unresolvable(Code.ATTEMPT_FAILED, str(error))


def _cut_off() -> Rejection:
    return failed_rejection(Code.BUDGET_EXHAUSTED, "the search for devices was cut off")


def _placement(plan: Plan, pending: PendingClaims, snapshot: Snapshot) -> Placement:
    features = snapshot.cluster.options.features
    return Placement(
        allocations=tuple(
            (claim, allocation(plan, index, pending, features, share_ids(share_seed(claim))))
            for index, claim in enumerate(pending.claims)
        )
    )


def share_seed(claim: ResourceClaim) -> str:
    """Return the seed of the IDs of a claim's shares: other IDs for each allocation of the claim.

    A share of an earlier allocation may be held back, and counts beside the new one. The version of a
    claim changes with its deallocation.
    """
    return f"{claim.metadata.uid}/{claim.metadata.resource_version}"


def _is_available(claim: ResourceClaim, node: Node) -> bool:
    result = allocation_of(claim)
    if result is None or result.node_selector is None:
        return True
    return is_for(result.node_selector, node)


def _class_names(claim: ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests or ():
        for alternative in (request.exactly, *(request.first_available or ())):
            if alternative is not None:
                yield alternative.device_class_name
