"""The devices that are kept for nominated pods, since others were evicted for them, and for groups that wait for long.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/runtime, RunFilterPluginsWithNominatedPods.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from allocator.cluster.search_budget import SearchBudget
from allocator.model.devices import PoolId
from allocator.model.requests import PendingClaims
from allocator.pods.claims import Name, PodClaims, allocation_of, claim_name
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from sidecar.commit.writes import consumers
from sidecar.model.rejections import Rejection
from sidecar.plan.occupancy import Keep, Occupancy, with_kept, without_claims
from sidecar.plan.placement import NODE_STEPS, Placement, place, resolve, with_placement
from sidecar.plan.pod_claims import find_placeable_claims
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.tenant_budget import shared_accounts, tenant_budget

RIVAL_STEPS: Final = 2_000
"""Steps of the search for the devices of a nominated pod, some 40 ms. Where that is not enough, none are
kept: whoever writes a claim that is hard to search would keep others from a node."""
RESERVED_STEPS: Final = NODE_STEPS
"""Steps of all searches that place a pod beside reserved pods."""


def keeps_against(pod: Pod, snapshot: Snapshot) -> Sequence[Keep]:
    """Return the devices of groups that a pod by itself must leave alone, but on the node that it is nominated for.

    Those of more important groups, and of equal ones: they have waited for long.
    """
    return [keep for keep in snapshot.keeps if keep.priority >= priority_of(pod)]


def keeps_on(pod: Pod, node: str, snapshot: Snapshot) -> Sequence[Keep]:
    """Return the devices of groups that a pod by itself must leave alone if it gets a node.

    On the node that it is nominated for there are none: it gets what the pods release that were evicted for it there.
    """
    return () if node == nominated_node(pod) else keeps_against(pod, snapshot)


def with_keeps(
    occupancy: Occupancy, keeps: Sequence[Keep], nodes: Iterable[str], snapshot: Snapshot
) -> Occupancy:
    """Return the occupancy with the devices of some nodes that are kept for groups."""
    if not keeps:
        return occupancy
    pools = {pool for node in nodes for pool in pools_of(node, snapshot)}
    features = snapshot.cluster.options.features
    return with_kept(occupancy, keeps, features, snapshot.quotas, pools=pools)


def nominated_rivals(pod: Pod, snapshot: Snapshot) -> Sequence[Pod]:
    """Return the nominated pods with devices that a pod must leave alone, the most important first.

    Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/runtime, addGENominatedPods: those of
    equal priority count, too.
    """
    rivals = [
        nominated_pod
        for uid, nominated_pod in snapshot.nominated.items()
        if uid != pod.metadata.uid
        and priority_of(nominated_pod) >= priority_of(pod)
        and nominated_node(nominated_pod) in snapshot.cluster.nodes
    ]
    return by_importance(rivals)


def rivals_near(pod: Pod, nodes: Iterable[str], snapshot: Snapshot) -> Sequence[Pod]:
    """Return those rivals of a pod that share its budget, or a pool with one of these nodes."""
    rivals = nominated_rivals(pod, snapshot)
    if not rivals:
        return ()
    pools = {pool for node in nodes for pool in pools_of(node, snapshot)}
    payers = {rival.metadata.uid for rival in _with_shared_budget(pod, rivals, snapshot)}
    return [
        rival
        for rival in rivals
        if rival.metadata.uid in payers
        or not pools.isdisjoint(pools_of(nominated_node(rival), snapshot))
    ]


def _with_shared_budget(pod: Pod, rivals: Iterable[Pod], snapshot: Snapshot) -> Sequence[Pod]:
    """Return those rivals of a pod that share its budget; none of them if it lasts for all with any devices."""
    quotas, namespace = snapshot.quotas, pod.metadata.namespace
    tenant = None if quotas is None else tenant_budget(namespace, quotas, snapshot, None)
    if tenant is None:
        return ()
    accounts = frozenset(tenant.accounts)
    payers = [
        rival
        for rival in rivals
        if not accounts.isdisjoint(shared_accounts(rival.metadata.namespace, snapshot))
    ]
    claims: dict[Name, ResourceClaim] = {}
    for payer in [pod, *payers] if payers else ():
        pod_claims = find_placeable_claims(payer, snapshot)
        if isinstance(pod_claims, PodClaims):
            claims |= {claim_name(claim): claim for claim in pod_claims.open}
    pending = resolve(tuple(claims.values()), snapshot)
    return () if isinstance(pending, PendingClaims) and tenant.is_ample(pending) else payers


def with_rivals(
    occupancy: Occupancy, rivals: Iterable[Pod], snapshot: Snapshot, budget: SearchBudget
) -> tuple[Occupancy, frozenset[str]]:
    """Return the occupancy with nominated pods on their nodes, and the nodes of those that it was too late for."""
    unknown_nodes: set[str] = set()
    for rival in rivals:
        node = nominated_node(rival)
        if budget.is_spent:
            unknown_nodes.add(node)
        else:
            occupancy = with_nominated(occupancy, rival, node, snapshot, budget)
    return occupancy, frozenset(unknown_nodes)


def with_nominated(
    occupancy: Occupancy, pod: Pod, node: str, snapshot: Snapshot, budget: SearchBudget
) -> Occupancy:
    """Return the occupancy with a nominated pod on a node; the same if it needs no devices, or gets none."""
    placement = nominated_placement(occupancy, pod, node, snapshot, budget)
    if placement is None:
        return occupancy
    return with_placement(occupancy, placement, snapshot)


def nominated_placement(
    occupancy: Occupancy, pod: Pod, node: str, snapshot: Snapshot, budget: SearchBudget
) -> Placement | None:
    """Return the devices that are kept for a nominated pod on a node; None if there are none.

    While its victims end, it does not fit yet. Then it is placed as if they were gone, so that what it
    takes of the free devices is kept, too. What is left to a tenant may be less until they are gone.
    """
    steps = min(RIVAL_STEPS, budget.left)
    placement = place(pod, node, snapshot, occupancy=occupancy, steps=steps)
    if not isinstance(placement, Placement):
        claims = ending_claims(pod, node, snapshot)
        if not claims:
            return None
        freed_occupancy = without_claims(occupancy, claims, snapshot.cluster.options.features)
        steps = min(RIVAL_STEPS, budget.left)
        placement = place(pod, node, snapshot, occupancy=freed_occupancy, steps=steps)
    return placement if isinstance(placement, Placement) else None


def place_beside_rivals(pod: Pod, node: str, snapshot: Snapshot) -> Placement | Rejection:
    """Return the devices that a reserved pod gets on its node: others than are kept there, if it can."""
    rivals, keeps = rivals_near(pod, [node], snapshot), keeps_on(pod, node, snapshot)
    if rivals or keeps:
        budget = SearchBudget(snapshot.cluster.costs, RESERVED_STEPS)
        occupancy, _ = with_rivals(snapshot.occupancy, rivals, snapshot, budget)
        occupancy = with_keeps(occupancy, keeps, [node], snapshot)
        placement = place(pod, node, snapshot, occupancy=occupancy, steps=budget.left)
        if isinstance(placement, Placement):
            return placement
    return place(pod, node, snapshot)


def ending_claims(pod: Pod, node: str, snapshot: Snapshot) -> list[ResourceClaim]:
    """Return the claims with devices of a node that end without another victim.

    Those of pods that are gone, and of less important pods that terminate on the node.
    """
    terminating_uids = {
        uid
        for uid, terminating_pod in snapshot.terminating.items()
        if terminating_pod.spec.node_name == node
        and priority_of(terminating_pod) < priority_of(pod)
    }
    names: set[Name] = set(snapshot.releasing)
    for uid in terminating_uids:
        names |= snapshot.claims_of.get(uid, frozenset())
    pools = pools_of(node, snapshot) if names else frozenset()
    claims = (snapshot.claims.get(name) for name in sorted(names))
    return [
        claim
        for claim in claims
        if claim is not None
        and uses_pools(claim, pools)
        and (claim_name(claim) in snapshot.releasing or _is_only_for(claim, terminating_uids))
    ]


def pools_of(node: str, snapshot: Snapshot) -> frozenset[PoolId]:
    """Return the pools with devices for a node; none for a node that is gone, or not known yet."""
    if node not in snapshot.cluster.nodes:
        return frozenset()
    return frozenset(pool.id for pool in snapshot.cluster.node_devices(node).pools)


def uses_pools(claim: ResourceClaim, pools: Collection[PoolId]) -> bool:
    """Return True if a claim has a device of one of these pools."""
    allocation = allocation_of(claim)
    results = (allocation.devices.results if allocation is not None else None) or ()
    return any(PoolId(result.driver, result.pool) in pools for result in results)


def nominated_node(pod: Pod) -> str:
    """Return the node that a pod is nominated for; empty if it is for none."""
    return pod.status.nominated_node_name if pod.status is not None else ""


def priority_of(pod: Pod) -> int:
    """Return the priority of a pod."""
    return pod.spec.priority or 0


def by_importance(pods: Iterable[Pod]) -> Sequence[Pod]:
    """Return pods, the most important first."""
    return sorted(pods, key=lambda pod: (-priority_of(pod), pod.metadata.uid))


def _is_only_for(claim: ResourceClaim, uids: Collection[str]) -> bool:
    return all(consumer.uid in uids for consumer in consumers(claim))
