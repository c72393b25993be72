"""The devices that are kept for nominated pods, since others were evicted for them, and for groups that wait for long.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/runtime, RunFilterPluginsWithNominatedPods.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Final

from msgspec.structs import replace

from allocator.model.devices import DeviceId, PoolId
from allocator.model.feature_gates import Features
from allocator.model.requests import PendingClaims
from allocator.pods.claims import Name, PodClaims, allocation_of, claim_name
from kube.api.core import Pod
from kube.api.resource import DeviceRequestAllocationResult, ResourceClaim
from kube.quantity import Quantity
from sidecar.commit.writes import consumers
from sidecar.model.rejections import Rejection
from sidecar.plan.occupancy import (
    Keep,
    Occupancy,
    charges_of,
    with_kept,
    with_use,
    without_claims,
)
from sidecar.plan.placement import (
    NODE_STEPS,
    Placement,
    place,
    resolve,
    with_allocation,
    with_placement,
)
from sidecar.plan.pod_claims import find_placeable_claims
from sidecar.plan.search_budget import SearchBudget
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
    pod: Pod,
    occupancy: Occupancy,
    rivals: Iterable[Pod],
    snapshot: Snapshot,
    budget: SearchBudget,
) -> tuple[Occupancy, frozenset[str]]:
    """Return the occupancy with the devices kept from a pod, and the nodes of nominated pods not reached in time."""
    kept_for_pods = KeptForPods(occupancy, snapshot, awaits_victims=is_nominated(pod))
    unknown_nodes: set[str] = set()
    for rival in rivals:
        node = nominated_node(rival)
        if budget.is_spent:
            unknown_nodes.add(node)
        else:
            kept_for_pods.add(rival, node, budget)
    return kept_for_pods.occupancy, frozenset(unknown_nodes)


class KeptForPods:
    """The devices and amounts kept for nominated pods, one after the other.

    While the victims of a pod end, it does not fit yet. Then it is placed as if they were gone, and what it takes
    beside their devices and charges is kept. They have the rest: nobody else gets it meanwhile.

    Attributes:
        occupancy: The use now, and what is kept.
        later_occupancy: The use once the pods have replaced their victims; the same if none of them end.
    """

    def __init__(self, occupancy: Occupancy, snapshot: Snapshot, *, awaits_victims: bool) -> None:
        """Begin without a nominated pod.

        Args:
            awaits_victims: Pods whose victims end wait for them also where they fit now. Among nominated pods each
                would otherwise keep the same free device from all others until the last victim has ended.
        """
        self.occupancy = occupancy
        self.later_occupancy = occupancy
        self._snapshot = snapshot
        self._features = snapshot.cluster.options.features
        self._awaits_victims = awaits_victims
        self._released = occupancy.released
        self._endings = EndingClaims(snapshot)
        # By ending claim: what it frees and no pod has taken yet, of accounts and of shared devices.
        self._freed: dict[Name, dict[Hashable, int]] = {}
        self._freed_devices: set[DeviceId] = set()

    @property
    def has_later(self) -> bool:
        """Return True if victims of the pods end."""
        return self.later_occupancy is not self.occupancy

    def add(self, pod: Pod, node: str, budget: SearchBudget) -> Sequence[ResourceClaim]:
        """Keep the devices of a pod on its node; none if it gets none, or not in time.

        Returns:
            The pod's claims with the devices that are kept.
        """
        ending = [
            claim
            for claim in self._endings.of(pod, node)
            if claim_name(claim) not in self._released
        ]
        if not (ending and self._awaits_victims):
            placement = self._place(pod, node, self.occupancy, budget)
            if placement is not None:
                return self._keep(placement, self.later_occupancy, ())
        if not (ending or self.has_later):
            return ()
        begun = [claim for claim in ending if claim_name(claim) not in self._freed]
        freed_occupancy = without_claims(self.later_occupancy, begun, self._features)
        placement = self._place(pod, node, freed_occupancy, budget)
        if placement is None:
            return ()
        devices = {device for claim in ending for device, _ in _uses(claim, self._features)}
        if ending and not _is_on(placement, devices):
            # It leaves free devices to others where those that end are enough.
            preferring = self._place(pod, node, freed_occupancy, budget, devices)
            placement = preferring or placement
        for claim in begun:
            self._free(claim)
        if not ending:
            # It gets what the victims of others leave. Nobody else does before these end.
            self.later_occupancy = with_placement(freed_occupancy, placement, self._snapshot)
            return ()
        return self._keep(placement, freed_occupancy, [claim_name(claim) for claim in ending])

    def _place(
        self,
        pod: Pod,
        node: str,
        occupancy: Occupancy,
        budget: SearchBudget,
        preferred: Collection[DeviceId] = (),
    ) -> Placement | None:
        steps = min(RIVAL_STEPS, budget.left)
        placement = place(
            pod, node, self._snapshot, occupancy=occupancy, steps=steps, preferred=preferred
        )
        return placement if isinstance(placement, Placement) else None

    def _free(self, claim: ResourceClaim) -> None:
        """Count the devices and amounts of a claim as freed."""
        quotas, name = self._snapshot.quotas, claim_name(claim)
        entry = None if quotas is None else quotas.ledger.get(name)
        charges = () if entry is None else entry.charges.items()
        freed = dict[Hashable, int](charges)
        for device, consumed in _uses(claim, self._features):
            if consumed is None:
                self._freed_devices.add(device)
            for capacity, amount in (consumed or {}).items():
                key = (device, capacity)
                freed[key] = freed.get(key, 0) + amount.nanos
        self._freed[name] = freed

    def _keep(
        self, placement: Placement, later_occupancy: Occupancy, ending: Sequence[Name]
    ) -> Sequence[ResourceClaim]:
        """Place a pod later, and keep its devices and charges beside those of ending claims."""
        snapshot = self._snapshot
        if later_occupancy is self.occupancy:
            self.occupancy = self.later_occupancy = with_placement(
                later_occupancy, placement, snapshot
            )
            return list(starmap(with_allocation, placement.allocations))
        self.later_occupancy = with_placement(later_occupancy, placement, snapshot)
        kept_claims: list[ResourceClaim] = []
        for claim, result in placement.allocations:
            charges = charges_of(with_allocation(claim, result), snapshot.quotas)
            charges = {
                account: nanos
                for account, amount in charges.items()
                if (nanos := self._beyond(account, amount, ending))
            }
            results = tuple(
                self._kept_result(device, ending)
                for device in result.devices.results or ()
                # Whoever uses it alone has it until its end.
                if _device_id(device) not in self._freed_devices
            )
            kept_devices = replace(result.devices, results=results)
            kept_claim = with_allocation(claim, replace(result, devices=kept_devices))
            kept_claims.append(kept_claim)
            self.occupancy = with_use(self.occupancy, kept_claim, charges, self._features)
        return kept_claims

    def _kept_result(
        self, result: DeviceRequestAllocationResult, ending: Sequence[Name]
    ) -> DeviceRequestAllocationResult:
        """Return a share without the capacity of ending shares on its device."""
        if not result.share_id or not result.consumed_capacity:
            return result
        device = _device_id(result)
        consumed = {
            name: Quantity.from_nanos(
                self._beyond((device, name), amount.nanos, ending), amount.format
            )
            for name, amount in result.consumed_capacity.items()
        }
        return replace(result, consumed_capacity=consumed)

    def _beyond(self, key: Hashable, amount: int, ending: Sequence[Name]) -> int:
        """Return the part of an amount beyond ending claims, and take the other part from them."""
        for name in ending:
            freed = self._freed[name]
            covered = min(amount, freed.get(key, 0))
            if covered:
                freed[key] -= covered
                amount -= covered
        return amount


def place_beside_rivals(pod: Pod, node: str, snapshot: Snapshot) -> Placement | Rejection:
    """Return the devices that a reserved pod gets on its node: others than are kept there, if it can."""
    rivals, keeps = rivals_near(pod, [node], snapshot), keeps_on(pod, node, snapshot)
    if rivals or keeps:
        budget = SearchBudget(snapshot.cluster.costs, RESERVED_STEPS)
        occupancy, _ = with_rivals(pod, snapshot.occupancy, rivals, snapshot, budget)
        occupancy = with_keeps(occupancy, keeps, [node], snapshot)
        placement = place(pod, node, snapshot, occupancy=occupancy, steps=budget.left)
        if isinstance(placement, Placement):
            return placement
    return place(pod, node, snapshot)


def ending_claims(pod: Pod, node: str, snapshot: Snapshot) -> list[ResourceClaim]:
    """Return the claims with devices of a node that end without another victim.

    Those of pods that are gone, and of less important pods that terminate on the node.
    """
    return EndingClaims(snapshot).of(pod, node)


class EndingClaims:
    """The claims to be released without another victim."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Find the pods that terminate on each node."""
        self._snapshot = snapshot
        self._terminating: dict[str, list[Pod]] = {}
        for pod in snapshot.terminating.values():
            self._terminating.setdefault(pod.spec.node_name or "", []).append(pod)

    def of(self, pod: Pod, node: str) -> list[ResourceClaim]:
        """Return those with devices of a node: of gone pods, and of less important ones terminating there."""
        snapshot = self._snapshot
        terminating_uids = {
            other.metadata.uid
            for other in self._terminating.get(node, ())
            if priority_of(other) < priority_of(pod)
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


def is_nominated(pod: Pod) -> bool:
    """Return True if others were evicted for a pod."""
    return bool(nominated_node(pod))


def priority_of(pod: Pod) -> int:
    """Return the priority of a pod."""
    return pod.spec.priority or 0


def by_importance(pods: Iterable[Pod]) -> Sequence[Pod]:
    """Return pods, the most important first."""
    return sorted(pods, key=lambda pod: (-priority_of(pod), pod.metadata.uid))


def _is_only_for(claim: ResourceClaim, uids: Collection[str]) -> bool:
    return all(consumer.uid in uids for consumer in consumers(claim))


def _uses(
    claim: ResourceClaim, features: Features
) -> Iterator[tuple[DeviceId, Mapping[str, Quantity] | None]]:
    """Yield the devices of a claim, each with the capacity of its share; None for one that it uses alone."""
    allocation = allocation_of(claim)
    for result in (allocation.devices.results if allocation is not None else None) or ():
        if not result.admin_access:
            is_share = features.consumable_capacity and result.share_id
            yield _device_id(result), (result.consumed_capacity or {}) if is_share else None


def _is_on(placement: Placement, devices: Collection[DeviceId]) -> bool:
    return all(
        _device_id(result) in devices
        for _, allocation in placement.allocations
        for result in allocation.devices.results or ()
    )


def _device_id(result: DeviceRequestAllocationResult) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)
