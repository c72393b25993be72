"""The cluster as the sidecar sees it: what the API says, and what is promised beyond that.

The event loop changes claims and holds; changes of the devices in use wait in a batch until the next
answer, which applies them on its own thread.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name, allocation_of
from clusterstate.cluster_cache import ClusterCache
from clusterstate.kinds import Kind
from clusterstate.projections import RESOURCES
from kube.api.core import Node, Pod
from kube.api.ownership import owned_drivers, project_ownership
from kube.api.resource import AllocationResult, ResourceClaim
from kube.api.urls import ALLOCATOR_OWNERSHIPS, PODS, RESOURCE_CLAIMS
from kube.runtime.informers import InformerFactory, Subscription, unsynced_resources, wait_synced
from sidecar.consumers import ConsumerIndex
from sidecar.plan import ledger
from sidecar.plan.ledger import Hold, Step
from sidecar.plan.snapshot import Snapshot
from sidecar.projections import INVENTORY, project_claim, project_pod

OPTIONAL: Final = frozenset({Kind.TAINT_RULE, Kind.POLICY})
"""Kinds that a cluster may not serve."""


class ClusterState:
    """Claims, pods, inventory and holds.

    Attributes:
        claims: As the API has them, never behind what a write returned.
        holds: UID of a claim to what is promised to it.
        consumers: Pods, and the claims that are reserved for them.
        on_end: Called with the UID of each pod that was bound or deleted.
    """

    def __init__(
        self,
        informers: InformerFactory,
        features: Features,
        *,
        uniform_config_drivers: frozenset[str] = frozenset(),
        drivers: frozenset[str],
        default_strategy: str,
    ) -> None:
        """Subscribe to what decides about devices.

        Args:
            drivers: Those whose devices may be given, beside those of the AllocatorOwnership.
        """
        self.claims: Final = informers.subscribe(
            RESOURCE_CLAIMS, project_claim, handlers=[self._claim_changed]
        )
        self._pods: Final = informers.subscribe(PODS, project_pod, handlers=[self._pod_changed])
        self._inventory: Final[Mapping[Kind, Subscription[Any]]] = {
            kind: informers.subscribe(
                RESOURCES[kind], projection, handlers=[self._inventory_changed(kind)]
            )
            for kind, projection in INVENTORY.items()
        }
        self._ownerships: Final = informers.subscribe(
            ALLOCATOR_OWNERSHIPS, project_ownership, handlers=[self._ownership_changed]
        )
        self._owned_drivers: frozenset[str] = frozenset()
        self._required: Final[tuple[Subscription[Any], ...]] = (
            self.claims,
            self._pods,
            *(
                subscription
                for kind, subscription in self._inventory.items()
                if kind not in OPTIONAL
            ),
        )
        self.holds: Final[dict[str, Hold]] = {}
        self.consumers: Final = ConsumerIndex(self.claims.store)
        self._uid_by_name: dict[Name, str] = {}
        self._features = features
        self._uniform_config_drivers = uniform_config_drivers
        self._cache = ClusterCache(features, uniform_config_drivers)
        self._changes: dict[Kind, dict[Name, Any]] = {}
        self._drivers = drivers
        self._default_strategy = default_strategy
        self.on_end: Callable[[str], None] = lambda _: None

    def check(self) -> str:
        """Return the resources whose first lists are not complete; empty when all are."""
        return unsynced_resources(self._required)

    async def wait_synced(self) -> None:
        """Return once the first lists are complete."""
        await wait_synced(self._required)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod with claims by its name."""
        return self._pods.store.get((namespace, name))

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Return all nodes by name."""
        return {name: node for (_, name), node in self._inventory[Kind.NODE].store.items()}

    def node(self, name: str) -> Node | None:
        """Return a node by its name."""
        node: Node | None = self._inventory[Kind.NODE].store.get(("", name))
        return node

    @property
    def drivers(self) -> frozenset[str]:
        """Return the drivers whose devices may be given, now."""
        return self._drivers | self._owned_drivers

    def owns(self, claim: ResourceClaim) -> bool:
        """Return whether all devices of a claim are of drivers that may be given."""
        allocation, drivers = allocation_of(claim), self.drivers
        results = (allocation.devices.results if allocation is not None else None) or ()
        return all(result.driver in drivers for result in results)

    def hold_of(self, claim: ResourceClaim) -> Hold | None:
        """Return the hold on a claim."""
        return self.holds.get(claim.metadata.uid)

    # --- holds ------------------------------------------------------------------------------------

    def reserve(self, claim: ResourceClaim, allocation: AllocationResult, pod: str) -> None:
        """Promise devices to a claim for a pod."""
        self._put(ledger.reserve(self.hold_of(claim), claim, allocation, pod))

    def join(self, claim: ResourceClaim, pod: str) -> None:
        """Let a pod share what is promised to a claim."""
        hold = self.hold_of(claim)
        if hold is not None:
            self._put(ledger.reserve(hold, claim, hold.allocation, pod))

    def unreserve(self, pod: str) -> None:
        """Take back what is promised for a pod, as far as no write of it can land."""
        for hold in [hold for hold in self.holds.values() if pod in hold.pods]:
            self._replace(hold, ledger.unreserve(hold, pod))

    def change(self, uid: str, transition: Callable[[Hold], Hold | None]) -> None:
        """Apply a transition of the ledger to a hold, if there is one."""
        hold = self.holds.get(uid)
        if hold is not None:
            self._replace(hold, transition(hold))

    def holds_in(self, step: Step) -> tuple[Hold, ...]:
        """Return the holds that are at one step."""
        return tuple(hold for hold in self.holds.values() if hold.step is step)

    # --- answers ----------------------------------------------------------------------------------

    def take_changes(self) -> Mapping[Kind, Mapping[Name, Any]]:
        """Return the changes since the last call."""
        changes, self._changes = self._changes, {}
        return changes

    def snapshot(self, changes: Mapping[Kind, Mapping[Name, Any]]) -> Snapshot:
        """Apply changes and return the snapshot, which is valid until the next call.

        Args:
            changes: Of `take_changes`.
        """
        self._cache.apply(changes)
        return Snapshot(
            cluster=self._cache.cluster,
            claims=self._cache.claims,
            classes=self._cache.classes,
            extended_resources=self._cache.extended_resources,
            pods=self.consumers.pods,
            claims_of=self.consumers.claims_of,
            lowest_priority=self.consumers.lowest_priority,
            drivers=self.drivers,
            default_strategy=self._default_strategy,
        )

    def rebuild(self) -> None:
        """Begin the view of the devices anew, which may be wrong after a bug."""
        self._cache = ClusterCache(self._features, self._uniform_config_drivers)
        self._changes = {
            kind: dict(subscription.store) for kind, subscription in self._inventory.items()
        }
        for name in self.claims.store:
            self._queue_claim(name)

    # --- changes ----------------------------------------------------------------------------------

    def _claim_changed(
        self, key: Name, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> None:
        self.consumers.replace_claim(key, old, new)
        uid = self._uid_by_name.get(key)
        hold = self.holds.get(uid) if uid is not None else None
        if hold is not None:
            self._replace(hold, ledger.observe(hold, new))
        self._queue_claim(key)

    def _pod_changed(self, _key: Name, old: Pod | None, new: Pod | None) -> None:
        self.consumers.replace_pod(old, new)
        was_bound = old is not None and bool(old.spec.node_name)
        if new is None and old is not None:
            self.on_end(old.metadata.uid)
        elif new is not None and new.spec.node_name and not was_bound:
            self.on_end(new.metadata.uid)

    def _ownership_changed(self, *_: object) -> None:
        self._owned_drivers = owned_drivers(self._ownerships.store.values())

    def _inventory_changed(self, kind: Kind) -> Callable[[Name, Any, Any], None]:
        def mark_changed(key: Name, old: object, new: object) -> None:
            if old != new:  # Most changes are of fields that are not projected.
                self._changes.setdefault(kind, {})[key] = new

        return mark_changed

    def _put(self, hold: Hold) -> None:
        self.holds[hold.uid] = hold
        self._uid_by_name[hold.name] = hold.uid
        self._queue_claim(hold.name)

    def _replace(self, old: Hold, new: Hold | None) -> None:
        if new is not None:
            self._put(new)
            return
        self.holds.pop(old.uid, None)
        if self._uid_by_name.get(old.name) == old.uid:
            del self._uid_by_name[old.name]
        self._queue_claim(old.name)

    def _queue_claim(self, name: Name) -> None:
        """Queue a claim with the devices that are promised to it."""
        claim = self.claims.store.get(name)
        effective = None
        if claim is not None:
            effective = ledger.with_hold(claim, self.hold_of(claim))
        self._changes.setdefault(Kind.CLAIM, {})[name] = effective
