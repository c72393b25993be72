"""Preemption for devices: the placements that become possible without some pods.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/preemption, whose dry run asks about one node
after the other, on 16 nodes at a time, and once more for each victim that it would spare.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from allocator.cluster.search_budget import SearchBudget
from allocator.model.devices import PoolId
from allocator.pods.claims import Name, allocation_of, claim_name
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from sidecar.commit.writes import consumers
from sidecar.model.rejections import Rejection
from sidecar.plan.nominations import (
    RIVAL_STEPS,
    by_importance,
    ending_claims,
    keeps_against,
    keeps_on,
    nominated_node,
    pools_of,
    priority_of,
    rivals_near,
    with_keeps,
    with_nominated,
    with_rivals,
)
from sidecar.plan.occupancy import Occupancy, without_claims
from sidecar.plan.placement import Placement, place, with_placement
from sidecar.plan.pod_claims import find_placeable_claims
from sidecar.plan.snapshot import Snapshot

FILTER_STEPS: Final = 2_000
"""Steps of one answer in a dry run, some 40 ms: 16 that come at once wait for each other for 0.3 to 1 s,
while the scheduler gives up on the sidecar after three seconds. What is cut off counts as not fitting."""
DRY_RUN_STEPS: Final = 50_000
"""Steps of all answers about one attempt, as many as one answer of PreFilter may take: the scheduler
schedules no other pod meanwhile."""
LATE_FILTER_STEPS: Final = 200
"""Steps of one answer once these are spent. Claims that are not hard to search need fewer."""
RELEASE_STEPS: Final = 20_000
RELEASE_NODES: Final = 64
"""The cost of finding out whether a release helps; nodes that are not reached count as not helped."""


class DryRunBudget:
    """The steps that the answers of Filter about one attempt of a pod may take.

    Attributes:
        has_victims: True once pods were taken to be gone. From then on the scheduler looks for victims, and
            not for a place of now.
    """

    def __init__(self) -> None:
        """Begin with all steps left."""
        self._left = DRY_RUN_STEPS
        self.has_victims = False

    @property
    def next_steps(self) -> int:
        """The steps of the next answer."""
        return max(LATE_FILTER_STEPS, min(FILTER_STEPS, self._left))

    def spend(self, steps: int) -> None:
        """Take the steps of an answer."""
        self._left = max(0, self._left - steps)


def fits_with(
    pod: Pod,
    node: str,
    snapshot: Snapshot,
    *,
    removed_pods: Iterable[str],
    added_pods: Iterable[str],
    dry_run: DryRunBudget,
) -> Placement | Rejection:
    """Return the devices that a pod gets on a node while other pods are taken to be gone or there.

    Args:
        removed_pods: UIDs of pods on the node.
        added_pods: UIDs of pods that are nominated for the node.
        dry_run: Bounds the answer, and takes what it costs.
    """
    costs = snapshot.cluster.costs
    steps_before, budget = costs.steps, SearchBudget(costs, dry_run.next_steps)
    removed_uids = frozenset(removed_pods)
    added_uids = [uid for uid in added_pods if uid != pod.metadata.uid]
    dry_run.has_victims |= bool(removed_uids)
    # Upstream adds the pods that are nominated for this node. What others keep of a shared pool or budget is not free
    # either.
    rivals = [
        rival
        for rival in rivals_near(pod, [node], snapshot)
        if nominated_node(rival) != node
        and rival.metadata.uid not in removed_uids.union(added_uids)
    ]
    nodes = {rival.metadata.uid: nominated_node(rival) for rival in rivals}
    added = [added_pod for added_pod in map(snapshot.pods.get, added_uids) if added_pod is not None]
    occupancy = snapshot.occupancy
    waiting: Sequence[Pod] = rivals
    if dry_run.has_victims:
        least_priority = max(map(priority_of, added), default=None)
        occupancy, waiting = _with_served_rivals(rivals, least_priority, snapshot, budget)
    freed = freed_claims(removed_uids, snapshot)
    occupancy = without_claims(occupancy, freed, snapshot.cluster.options.features)
    # The most important pod chooses first, since it gets devices before the others. One that the budget does not last
    # for leaves no steps for the pod itself, which then counts as not fitting.
    for nominated_pod in by_importance([*added, *waiting]):
        target = nodes.get(nominated_pod.metadata.uid, node)
        occupancy = with_nominated(occupancy, nominated_pod, target, snapshot, budget)
    # A victim whose devices are kept for a group would be evicted for nothing.
    occupancy = with_keeps(occupancy, keeps_on(pod, node, snapshot), [node], snapshot)
    try:
        return place(pod, node, snapshot, occupancy=occupancy, steps=budget.left)
    finally:
        # Nominated pods count, too: their searches also delay the scheduler.
        dry_run.spend(costs.steps - steps_before)


def _with_served_rivals(
    rivals: Sequence[Pod], least_priority: int | None, snapshot: Snapshot, budget: SearchBudget
) -> tuple[Occupancy, Sequence[Pod]]:
    """Return the use once nominated pods have replaced their own victims, and the pods that still wait then.

    Without it they would take the devices of a further victim although others come to them, and a budget
    would be charged for them and for their victims.

    Args:
        rivals: The pods, the most important first.
        least_priority: The priority below which pods wait, since a more important one has to choose first; None
            if none waits so far.
    """
    occupancy, features = snapshot.occupancy, snapshot.cluster.options.features
    waiting: list[Pod] = []
    for rival in rivals:
        node = nominated_node(rival)
        if least_priority is None or priority_of(rival) >= least_priority:
            ending = ending_claims(rival, node, snapshot)
            freed_occupancy = without_claims(occupancy, ending, features)
            steps = min(RIVAL_STEPS, budget.left)
            placement = place(rival, node, snapshot, occupancy=freed_occupancy, steps=steps)
            if isinstance(placement, Placement):
                # What ends and is not for it is free as well: its release is waited for, without a victim.
                occupancy = with_placement(freed_occupancy, placement, snapshot)
                continue
            # It may get what the victims of the dry run leave, before the less important ones.
            least_priority = priority_of(rival)
        waiting.append(rival)
    return occupancy, waiting


def freed_claims(
    removed_pods: Iterable[str], snapshot: Snapshot, *, of: Iterable[str] | None = None
) -> Sequence[ResourceClaim]:
    """Return the claims that are free without some pods, given by their UIDs.

    A claim that a removed pod shares with one that stays frees nothing.

    Args:
        of: Those of the pods whose claims are returned; None for all.
    """
    removed_uids = frozenset(removed_pods)
    users = removed_uids if of is None else of
    names = {name for uid in users for name in snapshot.claims_of.get(uid, ())}
    claims = (snapshot.claims.get(name) for name in sorted(names))
    return [
        claim
        for claim in claims
        # A shared claim is freed only if all of its consumers are removed.
        if claim is not None and {consumer.uid for consumer in consumers(claim)} <= removed_uids
    ]


def freed_claims_of_nodes(
    nodes: Iterable[str], removed_pods: Iterable[str], snapshot: Snapshot
) -> Sequence[ResourceClaim]:
    """Return those claims that are free without some pods and have devices that these nodes see.

    They are found by the devices: thousands of pods may be taken to be gone.
    """
    removed_uids, cluster = frozenset(removed_pods), snapshot.cluster
    uses = (
        cluster.usage.of(device.id)
        for node in nodes
        if node in cluster.nodes
        for device in cluster.node_devices(node).devices
    )
    names = {
        (consumer.namespace, consumer.claim)
        for use in uses
        if use is not None
        for consumer in use.consumers
    }
    claims = (snapshot.claims.get(name) for name in sorted(names))
    return [
        claim
        for claim in claims
        if claim is not None
        and (uids := {consumer.uid for consumer in consumers(claim)})
        and uids <= removed_uids
    ]


def awaited_claims(pod: Pod, snapshot: Snapshot) -> frozenset[Name]:
    """Return claims being released that leave a node for the pod then; empty if none do.

    While there are such claims, a victim would be evicted for nothing. On the node that the pod is nominated
    for those of terminating pods count, too: the scheduler may have seen the end of a victim before us.
    Claims whose devices other pods are nominated for do not count.
    """
    claims = find_placeable_claims(pod, snapshot)
    if isinstance(claims, Rejection) or not claims.open:
        return frozenset()
    ending = released_claims(pod, snapshot)
    nodes = _nodes_of(pod, ending, snapshot)
    if not nodes:
        return frozenset()
    budget = SearchBudget(snapshot.cluster.costs, RELEASE_STEPS)
    rivals = rivals_near(pod, nodes, snapshot)
    features = snapshot.cluster.options.features
    occupancy, _ = with_rivals(snapshot.occupancy, rivals, snapshot, budget)
    freed_occupancy = without_claims(snapshot.occupancy, ending.values(), features)
    freed_occupancy, _ = with_rivals(freed_occupancy, rivals, snapshot, budget)
    keeps = keeps_against(pod, snapshot)
    # On the node that the pod is nominated for nothing is kept from it.
    own_occupancies = (occupancy, freed_occupancy)
    occupancies = tuple(with_keeps(use, keeps, nodes, snapshot) for use in own_occupancies)

    def fits(node: str, *, is_freed: bool) -> bool:
        uses = own_occupancies if node == nominated_node(pod) else occupancies
        steps = min(FILTER_STEPS, budget.left)
        placement = place(pod, node, snapshot, occupancy=uses[is_freed], steps=steps)
        return isinstance(placement, Placement)

    for node, names in nodes.items():
        # If the pod fits without the release, it waits for something other than devices.
        if fits(node, is_freed=True) and not fits(node, is_freed=False):
            return names
    return frozenset()


def released_claims(pod: Pod, snapshot: Snapshot) -> Mapping[Name, ResourceClaim]:
    """Return the claims that are released without a further victim, and have a device that may be given."""
    claims = [
        claim
        for name in sorted(snapshot.releasing)
        if (claim := snapshot.claims.get(name)) is not None
    ]
    if nominated_node(pod) in snapshot.cluster.nodes:
        claims += ending_claims(pod, nominated_node(pod), snapshot)
    return {
        claim_name(claim): claim
        for claim in claims
        if any(pool.driver in snapshot.drivers for pool in _pools_of_claim(claim))
    }


def _nodes_of(
    pod: Pod, released_claims: Mapping[Name, ResourceClaim], snapshot: Snapshot
) -> Mapping[str, frozenset[Name]]:
    """Return the nodes that the pod may use to the claims with devices for them.

    The node that the pod is nominated for comes first, then they go by name.
    """
    claims_of_pool: dict[PoolId, set[Name]] = {}
    for name, claim in released_claims.items():
        for pool in _pools_of_claim(claim):
            claims_of_pool.setdefault(pool, set()).add(name)
    if not claims_of_pool:
        return {}
    is_eligible = snapshot.eligible_nodes.of(pod)
    nodes: dict[str, frozenset[Name]] = {}
    for node_name in _nominated_first(pod, snapshot.cluster.nodes):
        if len(nodes) == RELEASE_NODES:
            break
        pools = pools_of(node_name, snapshot) & claims_of_pool.keys()
        if pools and is_eligible(snapshot.cluster.nodes[node_name]):
            nodes[node_name] = frozenset(name for pool in pools for name in claims_of_pool[pool])
    return nodes


def _nominated_first(pod: Pod, nodes: Iterable[str]) -> Sequence[str]:
    nominated = nominated_node(pod)
    return sorted(nodes, key=lambda name: (name != nominated, name))


def _pools_of_claim(claim: ResourceClaim) -> Iterator[PoolId]:
    allocation = allocation_of(claim)
    for result in (allocation.devices.results if allocation is not None else None) or ():
        yield PoolId(result.driver, result.pool)
