"""The sidecar's view of the cluster: the API's objects and the promised allocations.

The event loop changes claims and holds; changes of the devices in use wait in a batch until the next
answer, which applies them.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name, allocation_of, claim_name
from allocator.pods.eligible_nodes import EligibleNodes
from allocator.search.attempt import AllocatorOptions
from allocator.strategies.by_node_pool import NO_POOL_STRATEGIES, pool_strategies
from allocator.strategies.capacity_weights import driver_weights
from clusterstate.cluster_cache import ClusterCache
from clusterstate.kinds import Changes, Kind
from clusterstate.projections import RESOURCES
from kube.api.core import Node, Pod
from kube.api.ownership import (
    OWNERSHIP,
    AllocatorOwnership,
    HeldBackClaim,
    OwnedDriver,
    driver_settings,
    owned_drivers,
)
from kube.api.resource import AllocationResult, ResourceClaim, ResourceSlice
from kube.api.urls import ALLOCATOR_OWNERSHIPS, PODS, RESOURCE_CLAIMS
from kube.names import SCHEDULER_NAME
from kube.runtime.informers import InformerFactory, Subscription, unsynced_resources, wait_synced
from sidecar.commit import ledger
from sidecar.commit.ledger import Hold, Step
from sidecar.commit.writes import consumers
from sidecar.ownership.fence import Fence
from sidecar.ownership.held_back import may_run
from sidecar.plan.snapshot import Snapshot
from sidecar.state.change_feed import ChangeFeed
from sidecar.state.consumers import ConsumerIndex
from sidecar.state.device_view import DeviceView, NextView
from sidecar.state.effective_claims import EffectiveClaims
from sidecar.state.fence_view import FenceView
from sidecar.state.group_members import GroupMembers
from sidecar.state.held_back import HeldBackDevices, HeldBackLimits
from sidecar.state.projections import (
    INVENTORY,
    project_claim,
    project_own_ownership,
    project_pod,
)
from sidecar.state.quota_view import QuotaView, StateChanges

SYNC_PERIOD_S: Final = 0.05
"""Seconds between checks whether an optional resource has been listed, or cannot be."""
OPTIONAL: Final = frozenset({Kind.TAINT_RULE, Kind.POLICY})
"""Kinds that a cluster may not serve."""


class ClusterState:
    """Claims, pods, inventory and holds.

    Attributes:
        claims: The claims as the API has them, never behind the result of a write.
        holds: UID of a claim to what is promised to it.
        consumers: Pods, and the claims that are reserved for them.
        groups: PodGroups and their pods.
        held_back: Devices of pods that were deleted by force.
        quotas: The DeviceQuotas, and what is charged to them.
        features: The gates of allocation.
        now: The wall clock.
        on_begin: Called with each pod with claims that appears.
        on_end: Called with the UID of each pod that was bound or deleted.
        wakeups: The number of times that all waiting pods should be tried again, not only those
            that the change of `version` helps.
        version: Grows with each change of the inventory, of a claim or of what is promised.
        slices_version: Grows with each change of a ResourceSlice.
        inventory_changed: Set with each change of the inventory; `sidecar.answers.view_updates` clears it.
    """

    def __init__(
        self,
        informers: InformerFactory,
        features: Features,
        *,
        uniform_config_drivers: frozenset[str] = frozenset(),
        drivers: frozenset[str],
        default_strategy: str,
        now: Callable[[], datetime],
        held_back_limits: HeldBackLimits,
        binding_timeout_s: float,
        bridge_scheduler: str = SCHEDULER_NAME,
    ) -> None:
        """Subscribe to the objects that decide about devices.

        Args:
            drivers: The drivers whose devices may be given, beside those of the AllocatorOwnership.
            now: The wall clock.
            held_back_limits: The bounds of what is held back.
            binding_timeout_s: Seconds from an allocation that its binding conditions may take.
        """
        self.now: Final = now
        self._binding_timeout = timedelta(seconds=binding_timeout_s)
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
            ALLOCATOR_OWNERSHIPS, project_own_ownership, handlers=[self._ownership_changed]
        )
        self.groups: Final = GroupMembers(informers)
        self._fence_view: Final = FenceView(informers, on_change=self.count_drivers)
        self._optional: Final[tuple[Subscription[Any], ...]] = (
            self._ownerships,
            self.groups.groups,
            *self._fence_view.subscriptions,
            *(self._inventory[kind] for kind in self._inventory if kind in OPTIONAL),
        )
        self._owned_drivers: frozenset[str] = frozenset()
        required = [self._inventory[kind] for kind in self._inventory if kind not in OPTIONAL]
        self._required: Final[tuple[Subscription[Any], ...]] = (self.claims, self._pods, *required)
        self.holds: Final[dict[str, Hold]] = {}
        self.consumers: Final = ConsumerIndex(self.claims.store)
        self._uid_by_name: dict[Name, str] = {}
        self.features: Final = features
        self._view = DeviceView(features, uniform_config_drivers, self._everything)
        self.inventory_changed: Final = asyncio.Event()
        self._eligible_nodes = EligibleNodes()
        self._driver_settings: tuple[OwnedDriver, ...] = ()
        self._drivers = drivers
        self._default_strategy = default_strategy
        self.on_begin: Callable[[Pod], None] = lambda _: None
        self.on_end: Callable[[str], None] = lambda _: None
        self.wakeups = 0
        self._served: frozenset[str] = drivers
        self._has_read_status = False
        self.held_back: Final = HeldBackDevices(
            self.consumers.pods, now=now, limits=held_back_limits, on_change=self._held_back_changed
        )
        self._effective: Final = EffectiveClaims(self.claims.store, self.holds, self.held_back)
        self.quotas: Final = QuotaView(
            informers,
            features,
            classes=self._inventory[Kind.CLASS].store,
            slices=self._inventory[Kind.SLICE].store,
            claims=self._effective,
            bridge_scheduler=bridge_scheduler,
            on_change=self._quotas_changed,
        )
        self.version = self.slices_version = 0

    def check(self) -> str:
        """Return the resources with incomplete first lists; empty when all are complete."""
        # A policy that is not known yet has to be waited for; one that cannot be known, has not.
        optional = [subscription for subscription in self._optional if subscription.is_available]
        return unsynced_resources((*self._required, *optional, *self.quotas.subscriptions))

    async def wait_synced(self) -> None:
        """Return once the first lists are complete that no cluster is without."""
        await wait_synced(self._required)

    async def wait_complete(self) -> None:
        """Return once all first lists are complete, or the API server said that there is no such resource.

        A view without the policies would give what they forbid.
        """
        while self.check():  # noqa: ASYNC110 (an answer 404 is no event)
            await asyncio.sleep(SYNC_PERIOD_S)

    @property
    def ownership(self) -> AllocatorOwnership | None:
        """Return the AllocatorOwnership; None if there is none."""
        return self._ownerships.store.get(("", OWNERSHIP))

    @property
    def binding_cutoff(self) -> datetime:
        """Return the latest time of an allocation with devices that have to be ready by now."""
        return self.now() - self._binding_timeout

    @property
    def driver_settings(self) -> tuple[OwnedDriver, ...]:
        """The owned drivers that have settings; decisions of a large cluster follow within a second."""
        return self._driver_settings

    def put_ownership(self, raw: bytes) -> None:
        """Take the AllocatorOwnership as a write returned it."""
        self._ownerships.put(raw)

    @property
    def fence(self) -> Fence:
        """Return the state of the owned drivers' fence."""
        return self._fence_view.read()

    @property
    def slices(self) -> Mapping[Name, ResourceSlice]:
        """Return all slices."""
        return self._inventory[Kind.SLICE].store

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
        """Return the drivers with devices that may be given, now.

        Without a fence, which can be open, incomplete or silent about a driver, others give its devices, too.
        """
        return self._drivers | self._fence_view.fenced(self._owned_drivers)

    @property
    def unfenced_drivers(self) -> frozenset[str]:
        """Return the owned drivers with devices that are not given for lack of a fence."""
        return self._owned_drivers - self.drivers

    def owns(self, claim: ResourceClaim) -> bool:
        """Return True if all devices of a claim are of drivers that may be given."""
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
        """Add a pod to the hold of a claim, so that it shares the promised devices."""
        hold = self.hold_of(claim)
        if hold is not None:
            self._put(ledger.reserve(hold, claim, hold.allocation, pod))

    def unreserve(self, pod: str) -> None:
        """Release the devices promised for a pod, unless a write of it can still land."""
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

    def take_changes(self) -> StateChanges:
        """Return the changes since the last call; called while no snapshot is in use."""
        if self._view.has_news:
            self.version += 1
        devices = self._view.take_changes(self._driver_settings)
        return StateChanges(devices, self.quotas.take_changes())

    @property
    def allocator_options(self) -> AllocatorOptions:
        """Feature gates and policies in force at the latest snapshot."""
        return self._view.cache.cluster.options

    @property
    def is_behind(self) -> bool:
        """Return True if a further answer would apply known changes, without new ones."""
        return self._view.is_behind

    @property
    def next_view(self) -> NextView | None:
        """The view that is being built under other policies or settings; None for none."""
        return self._view.next_view

    @property
    def applied_settings(self) -> tuple[OwnedDriver, ...]:
        """Settings of the owned drivers, as the view of the devices has them."""
        return self._view.settings

    def is_cheap(self, changes: StateChanges) -> bool:
        """Return True if changes are applied within a few milliseconds."""
        return self._view.cache.is_cheap(changes.devices) and changes.quotas.is_cheap

    def snapshot(self, changes: StateChanges) -> Snapshot:
        """Apply changes and return the snapshot, valid until the next call.

        Args:
            changes: The changes that `take_changes` returned.
        """
        self._view.cache.apply(changes.devices)
        self.quotas.apply(changes.quotas)
        return self._snapshot()

    def snapshot_with(self, claims: Mapping[Name, ResourceClaim]) -> Snapshot:
        """Return a snapshot with promises that are queued as changes, too, on top of the last one."""
        self._view.cache.apply({Kind.CLAIM: claims})
        self.quotas.charge(claims)
        return self._snapshot()

    def _snapshot(self) -> Snapshot:
        cache, settings = self._view.cache, self.applied_settings
        return Snapshot(
            cluster=cache.cluster,
            claims=cache.claims,
            classes=cache.classes,
            extended_resources=cache.extended_resources,
            pods=self.consumers.pods,
            nominated=dict(self.consumers.nominated),
            terminating=dict(self.consumers.terminating),
            claims_of=self.consumers.claims_of,
            releasing=frozenset(self.consumers.releasing),
            lowest_priority=self.consumers.lowest_priority,
            exhausted_namespaces=self.held_back.exhausted_namespaces(
                self.slices, self.slices_version, cache.cluster.nodes
            ),
            drivers=self.drivers,
            quotas=self.quotas.book,
            eligible_nodes=self._eligible_nodes,
            pod_groups=self.groups.groups.store,
            default_strategy=self._default_strategy,
            pool_strategies=pool_strategies(settings) if settings else NO_POOL_STRATEGIES,
            weights=driver_weights(settings),
            binding_cutoff=self.binding_cutoff,
        )

    def claims_in_use(self) -> tuple[ResourceClaim, ...]:
        """Return the claims that count as users of devices: allocated, promised and held ones."""
        return tuple(claim for claim in self._effective.all().values() if claim is not None)

    def rebuild(self) -> None:
        """Begin the view of the devices anew, since it may be wrong after a bug."""
        self._view.rebuild(self._driver_settings)
        self.quotas.rebuild()
        self.version += 1

    def renew_view(self) -> None:
        """Have the selectors of all verdicts asked again."""
        self._view.renew()
        self.version += 1
        self.inventory_changed.set()

    def second_view(self) -> tuple[ClusterCache, ChangeFeed]:
        """Return a view of the devices that is the caller's, and the changes that bring it up to date."""
        return self._view.second_view()

    def end_view(self, feed: ChangeFeed) -> None:
        """Keep no more changes for a view."""
        self._view.end_view(feed)

    def _everything(self) -> Changes:
        """Return all objects that the view of the devices is made of."""
        inventory = {kind: subscription.store for kind, subscription in self._inventory.items()}
        return {**inventory, Kind.CLAIM: self._effective.all()}

    # --- changes ----------------------------------------------------------------------------------

    def _claim_changed(
        self, key: Name, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> None:
        self.consumers.replace_claim(key, old, new)
        hold = self.holds.get(self._uid_by_name.get(key, ""))
        if hold is not None:
            self._replace(hold, ledger.observe(hold, new))
        self._queue_claim(key)
        for claim, is_there in ((old, False), (new, True)):
            if claim is not None:
                self._note_allocation(claim, is_there=is_there)
        if old is not None:
            self._hold_back_of(old, new)

    def _note_allocation(self, claim: ResourceClaim, *, is_there: bool) -> None:
        self._effective.note(claim, is_there=is_there)
        self._queue_held(claim.metadata.uid)

    def _hold_back_of(self, old: ResourceClaim, new: ResourceClaim | None) -> None:
        """Hold back the devices of consumers that left a claim while their containers may run.

        The pod was deleted by force, and we hear of the claim first; or its last phase is to come.
        """
        is_same = new is not None and new.metadata.uid == old.metadata.uid
        left = {user.uid for user in (consumers(new) if is_same and new is not None else ())}
        for consumer in consumers(old):
            users = [] if consumer.uid in left else self.consumers.users(claim_name(old), consumer)
            for pod in filter(may_run, users):
                self.held_back.hold(pod, old, self.slices.values())

    def _pod_changed(self, _key: Name, old: Pod | None, new: Pod | None) -> None:
        is_same = old is not None and new is not None and old.metadata.uid == new.metadata.uid
        gone = None if is_same else old
        if gone is not None:
            claims = self.consumers.used_claims(gone)
            # Only a list puts another pod in the place of one.
            is_hidden = new is not None or self._pods.is_listing
            self.held_back.pod_gone(gone, claims, self.slices.values(), is_hidden=is_hidden)
        if new is not None and not may_run(new):
            self.held_back.pod_ended(new.metadata.uid)
        self.consumers.replace_pod(old, new)
        if gone is not None:
            self.on_end(gone.metadata.uid)
        if new is not None and not is_same:
            self.on_begin(new)
        was_bound = is_same and old is not None and bool(old.spec.node_name)
        if new is not None and new.spec.node_name and not was_bound:
            self.on_end(new.metadata.uid)

    def _ownership_changed(self, *_: object) -> None:
        self.version += 1
        self._owned_drivers = owned_drivers(self._ownerships.store.values())
        self._driver_settings = driver_settings(self._ownerships.store.values())
        self.inventory_changed.set()
        if not self._has_read_status and self.ownership is not None:
            self._has_read_status = True  # Later ones are our own words.
            status = self.ownership.status
            held_claims = (status.held_back if status is not None else None) or ()
            self.held_back.restore(held_claims, self.slices.values())
        self.count_drivers()

    def count_drivers(self) -> None:
        """Have pods that wait tried again if other drivers are served.

        Called now and then, too: a part of the fence that is missing from the first list is no change.
        """
        if self.drivers != self._served:
            self._served = self.drivers
            self.wakeups += 1

    def _held_back_changed(self, held_claim: HeldBackClaim) -> None:
        for name, claim in self._effective.change_held(held_claim).items():
            self._note(Kind.CLAIM, name, claim)
        self.version += 1  # Pods that wait are planned anew; most releases help few of them.

    def _inventory_changed(self, kind: Kind) -> Callable[[Name, Any, Any], None]:
        def mark_changed(key: Name, old: object, new: object) -> None:
            if old != new:  # Most changes are of fields that are not projected.
                self.version += 1
                self._note(kind, key, new)
                self.quotas.put(kind, key, new)
                self.inventory_changed.set()
                if kind is Kind.SLICE:
                    self.slices_version += 1
                if isinstance(new, ResourceSlice):
                    self.held_back.slice_changed(new)

        return mark_changed

    def _quotas_changed(self) -> None:
        self.version += 1
        self.inventory_changed.set()

    def _put(self, hold: Hold) -> None:
        self.holds[hold.uid] = hold
        self._uid_by_name[hold.name] = hold.uid
        self._queue_claim(hold.name)
        self._queue_held(hold.uid)

    def _replace(self, old: Hold, new: Hold | None) -> None:
        if new is not None:
            self._put(new)
            return
        self.holds.pop(old.uid, None)
        if self._uid_by_name.get(old.name) == old.uid:
            del self._uid_by_name[old.name]
        self._queue_claim(old.name)
        self._queue_held(old.uid)

    def _queue_claim(self, name: Name) -> None:
        """Queue a claim with the devices that are promised to it."""
        self.version += 1
        claim = self._effective.find(name)
        self._note(Kind.CLAIM, name, claim)
        self.quotas.put(Kind.CLAIM, name, claim)

    def _queue_held(self, uid: str) -> None:
        """Queue the devices held back of a claim that it has got or lost itself."""
        for name, claim in self._effective.change_held_of(uid).items():
            self._note(Kind.CLAIM, name, claim)

    def _note(self, kind: Kind, name: Name, new: object) -> None:
        self._view.put(kind, name, new)
