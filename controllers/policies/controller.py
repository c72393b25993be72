"""The controller of DeviceCompatibilityPolicies: keeps their status and events.

It follows policies, slices and claims. A pool is inspected again when one of its slices or of its
allocations changes, and changes that come in quick succession are inspected together. A status is
written when it differs. `status` and `conditions` decide its content, `events` the events.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec

from allocator.model.devices import PoolId
from allocator.model.scheduler_support import SchedulerSupport
from allocator.pods.claims import allocation_of, consuming_pods
from clusterstate.projections import (
    project_claim,
    project_policy_with_status,
    project_slice,
)
from clusterstate.settings import ValidationSettings
from controllers.model.parts import Parts
from controllers.model.settings import ControllerSettings
from controllers.policies.events import conflict_events, policy_events
from controllers.policies.status import (
    PolicyReport,
    differs_in_more_than_counts,
    pool_of,
    usage_of,
)
from kube.api.events import ObjectReference
from kube.api.meta import rfc3339, status_patch
from kube.api.ownership import AllocatorOwnership, owned_drivers, project_ownership
from kube.api.policy import (
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicyStatus,
    effective_policies,
)
from kube.api.resource import ResourceClaim, ResourceSlice
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    DEVICE_COMPATIBILITY_POLICIES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kube.client.client import Client, PatchType
from kube.errors import Conflict, NotFound
from kube.logs import get_logger
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder
from kube.runtime.informers import InformerFactory
from process.running.leader_election import Work

MAX_TURN_S: Final = 0.01
"""The time after which other tasks of the event loop get their turn; a Lease has to be renewed
meanwhile."""
IDLE_FACTOR: Final = 9.0
"""Work on slices is followed by a pause of so many times the CPU time that it took."""
MAX_PAUSE_S: Final = 30.0
MAX_CONFLICT_EVENTS: Final = 100
"""The largest number of conflict events about one version of one policy."""

Key = tuple[str, str]
T = TypeVar("T")

log = get_logger()


# --- objects by pool ------------------------------------------------------------------------------


def pools_of_slice(resource_slice: ResourceSlice) -> frozenset[PoolId]:
    """Return the pool that a slice is of."""
    return frozenset((PoolId(resource_slice.spec.driver, resource_slice.spec.pool.name),))


def pools_of_claim(claim: ResourceClaim) -> frozenset[PoolId]:
    """Return the pools of the devices that are allocated to a claim."""
    allocation = allocation_of(claim)
    results = allocation.devices.results if allocation is not None else None
    return frozenset(PoolId(result.driver, result.pool) for result in results or ())


class PoolIndex(Generic[T]):
    """Objects by the pools that they are about."""

    def __init__(self, pools_of: Callable[[T], frozenset[PoolId]]) -> None:
        self._pools_of = pools_of
        self._objects: dict[PoolId, dict[Key, T]] = {}

    def replace(self, key: Key, old: T | None, new: T | None) -> frozenset[PoolId]:
        """Replace an object, and return the pools that it was or is about."""
        before = self._pools_of(old) if old is not None else frozenset[PoolId]()
        after = self._pools_of(new) if new is not None else frozenset[PoolId]()
        for pool in before - after:
            del self._objects[pool][key]
            if not self._objects[pool]:
                del self._objects[pool]
        if new is not None:
            for pool in after:
                self._objects.setdefault(pool, {})[key] = new
        return before | after

    def objects_of(self, pool: PoolId) -> list[T]:
        """Return the objects of a pool, by key."""
        objects = self._objects.get(pool, {})
        return [objects[key] for key in sorted(objects)]

    def pools(self, driver: str) -> Iterator[PoolId]:
        """Yield the pools of a driver."""
        return (pool for pool in self._objects if pool.driver == driver)


# --- the controller -------------------------------------------------------------------------------


class _PolicyState:
    """One policy as the controller knows it.

    Attributes:
        report: The report of the policy's present spec.
        stored: Its status as far as known, which may be newer than the watch's.
        version: The resourceVersion of that status, where we wrote it.
        written_s: The time of the status's last write, by the monotonic clock.
        in_force: Name and uid of the policy in force for the driver.
        changed_pools: The pools of its driver, to be inspected again.
        is_outdated: Something that the status depends on has changed.
        recorded: Uids of claims and pods that had an event.
        told: The identities of events about the policy itself.
    """

    def __init__(
        self,
        policy: DeviceCompatibilityPolicy,
        uniform_config_drivers: Collection[str],
        support: SchedulerSupport,
    ) -> None:
        self.report = PolicyReport(policy, uniform_config_drivers, support)
        self.stored = policy.status
        self.version = 0
        self.written_s = float("-inf")
        self.in_force = ("", "")
        self.changed_pools: set[PoolId] = set()
        self.is_outdated = True
        self.recorded: set[str] = set()
        self.told: set[str] = set()

    @property
    def policy(self) -> DeviceCompatibilityPolicy:
        return self.report.policy.source

    def take_over(self, before: "_PolicyState") -> None:
        """Keep the known part of the status from an older spec of the same policy."""
        self.written_s = before.written_s
        if before.version > int(self.policy.metadata.resource_version):
            self.stored, self.version = before.stored, before.version


class PolicyController:
    """Keeps the status of policies; the leader runs it.

    Attributes:
        controllers: The controllers to be run; their keys are names of policies.
        inspected: The number of pools that were inspected.
    """

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        recorder: EventRecorder,
        settings: ControllerSettings,
        *,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        validation: ValidationSettings = ValidationSettings(),  # noqa: B008 - a frozen value
    ) -> None:
        """Subscribe to policies, slices and claims.

        Args:
            validation: The behavior of the cluster's drivers and schedulers.
            now: The wall clock, for conditions.
            clock: Monotonic seconds.
        """
        self._client = client
        self._recorder = recorder
        self._validation = validation
        self._support = validation.scheduler_support()
        self._ownerships = informers.subscribe(
            ALLOCATOR_OWNERSHIPS, project_ownership, handlers=[self._ownership_changed]
        )
        self._settings = settings
        self._now = now
        self._clock = clock
        self._policies = informers.subscribe(
            DEVICE_COMPATIBILITY_POLICIES,
            project_policy_with_status,
            handlers=[self._policy_changed],
        )
        self._slices = informers.subscribe(
            RESOURCE_SLICES, project_slice, handlers=[self._slice_changed]
        )
        self._claims = informers.subscribe(
            RESOURCE_CLAIMS, project_claim, handlers=[self._claim_changed]
        )
        self._slices_by_pool = PoolIndex(pools_of_slice)
        self._claims_by_pool = PoolIndex(pools_of_claim)
        self._states: dict[str, _PolicyState] = {}
        self._busy_s = 0.0
        self._idle_until_s = float("-inf")
        self.inspected = 0
        self._controller: Controller[str] = Controller(
            "policies",
            self._reconcile,
            subscriptions=(self._policies, self._slices, self._claims),
            backoff=settings.backoff(),
        )
        self.controllers: Final = (self._controller,)

    # --- changes ----------------------------------------------------------------------------------

    def _policy_changed(
        self,
        key: Key,
        old: DeviceCompatibilityPolicy | None,
        new: DeviceCompatibilityPolicy | None,
    ) -> None:
        _, name = key
        state = self._states.get(name)
        if new is None:
            self._states.pop(name, None)
            self._queue_all()
        elif state is None or old is None or not _has_same_spec(old, new):
            self._states[name] = _PolicyState(
                new, self._validation.uniform_config_drivers, self._support
            )
            if state is not None and state.policy.metadata.uid == new.metadata.uid:
                self._states[name].take_over(state)
            self._queue_all()
        elif state.stored != new.status and state.version <= int(new.metadata.resource_version):
            state.stored = new.status
            state.is_outdated = True
            self._controller.queue.add(name)

    def _ownership_changed(
        self, _key: Key, _old: AllocatorOwnership | None, _new: AllocatorOwnership | None
    ) -> None:
        """Report again on the policies of drivers that got or lost the bridge."""
        before = self._support.owned_drivers
        drivers_of_bridge = owned_drivers(self._ownerships.store.values())
        self._support = msgspec.structs.replace(self._support, owned_drivers=drivers_of_bridge)
        for name, state in list(self._states.items()):
            if state.policy.spec.driver in before ^ drivers_of_bridge:
                fresh = _PolicyState(
                    state.policy, self._validation.uniform_config_drivers, self._support
                )
                fresh.take_over(state)
                fresh.stored, fresh.version = state.stored, state.version
                self._states[name] = fresh
                self._controller.queue.add(name)

    def _queue_all(self) -> None:
        """Queue all policies: the one in force for a driver may have changed."""
        for name in self._states:
            self._controller.queue.add(name)

    def _slice_changed(
        self, key: Key, old: ResourceSlice | None, new: ResourceSlice | None
    ) -> None:
        if old != new:
            self._queue_pools(self._slices_by_pool.replace(key, old, new))

    def _claim_changed(
        self, key: Key, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> None:
        if old == new:
            return
        pools = self._claims_by_pool.replace(key, old, new)
        if old is None or new is None or allocation_of(old) != allocation_of(new):
            self._queue_pools(pools)
        else:
            self._queue_conflicts(pools)

    def _queue_conflicts(self, pools: frozenset[PoolId]) -> None:
        """Queue the policies with conflicts in these pools: another pod uses a claim of them."""
        for name, state in self._states.items():
            parts = state.report.parts
            if any(parts[pool].conflicts for pool in pools & parts.keys()):
                state.is_outdated = True
                self._controller.queue.add(name)

    def _queue_pools(self, pools: frozenset[PoolId]) -> None:
        """Queue the policies of these pools' drivers, together with further changes in a pause."""
        for name, state in self._states.items():
            changed_pools = {pool for pool in pools if pool.driver == state.policy.spec.driver}
            if changed_pools:
                state.changed_pools |= changed_pools
                self._controller.queue.add_after(name, self._idle_until_s - self._clock())

    # --- reconciliation ---------------------------------------------------------------------------

    async def _reconcile(self, name: str) -> float | None:
        """Bring a policy's status up to date; return when to come back for it."""
        state = self._states.get(name)
        if state is None:
            return None
        self._busy_s = 0.0
        again_s = None
        try:
            await self._inspect_pools(state)
            if self._states.get(name) is state:
                again_s = await self._update(state)
        except (Conflict, NotFound):
            log.debug("policy.gone", policy=name)  # The watch brings what is there instead.
        finally:
            pause_s = min(IDLE_FACTOR * self._busy_s, MAX_PAUSE_S)
            pause_s = max(self._settings.policy_sync_period, pause_s)
            self._idle_until_s = self._clock() + pause_s
        return again_s

    async def _inspect_pools(self, state: _PolicyState) -> None:
        """Inspect the pools of a policy's driver that changed, or were not inspected yet."""
        report = state.report
        published_pools = set(self._slices_by_pool.pools(state.policy.spec.driver))
        for pool in report.parts.keys() - published_pools:
            report.forget(pool)
            state.is_outdated = True
        turn_s = self._clock()
        for pool in sorted(
            state.changed_pools & published_pools | published_pools - report.parts.keys()
        ):
            before = report.parts.get(pool)
            usage = usage_of(self._claims_by_pool.objects_of(pool))
            report.inspect(pool_of(pool, self._slices_by_pool.objects_of(pool)), usage)
            state.changed_pools.discard(pool)
            state.is_outdated |= report.parts[pool] != before
            self.inspected += 1
            if self._clock() - turn_s > MAX_TURN_S:
                self._busy_s += self._clock() - turn_s
                await asyncio.sleep(0)
                turn_s = self._clock()
        state.changed_pools &= published_pools
        self._busy_s += self._clock() - turn_s

    async def _update(self, state: _PolicyState) -> float | None:
        """Write a status that differs, and record events; return when to come back."""
        in_force = effective_policies(self._policies.store.values()).get(
            state.policy.spec.driver, state.policy
        )
        identity = (in_force.metadata.name, in_force.metadata.uid)
        if state.in_force != identity:
            state.in_force = identity
            state.is_outdated = True
        if not state.is_outdated:
            return None
        began_s = self._clock()
        status = state.report.status(state.stored, in_force, rfc3339(self._now()))
        self._busy_s += self._clock() - began_s
        if status != state.stored:
            if not differs_in_more_than_counts(state.stored, status):
                left_s = state.written_s + self._settings.policy_counts_period - self._clock()
                if left_s > 0:
                    return left_s
            await self._write(state, status)
        state.is_outdated = False
        is_in_force = in_force.metadata.name == state.policy.metadata.name
        self._record_events(state, status, is_in_force=is_in_force)
        return None

    async def _write(self, state: _PolicyState, status: DeviceCompatibilityPolicyStatus) -> None:
        name = state.policy.metadata.name
        written_policy = await self._client.patch(
            DEVICE_COMPATIBILITY_POLICIES,
            name,
            status_patch(state.policy.metadata, status),
            PatchType.MERGE,
            DeviceCompatibilityPolicy,
            subresource="status",
        )
        state.stored = written_policy.status
        state.version = int(written_policy.metadata.resource_version)
        state.written_s = self._clock()
        conditions = {condition.type: condition.status for condition in status.conditions or ()}
        log.info("policy.updated", policy=name, summary=status.summary, conditions=conditions)

    # --- events -----------------------------------------------------------------------------------

    def _record_events(
        self, state: _PolicyState, status: DeviceCompatibilityPolicyStatus, *, is_in_force: bool
    ) -> None:
        """Record events about the policy, and about claims and pods that violate it."""
        for event in policy_events(state.policy, status):
            if event.identity not in state.told:
                state.told.add(event.identity)
                self._recorder.record(event)
        if not is_in_force:
            return
        report = state.report
        events = conflict_events(
            report.conflicts(), report.enforcement(), self._objects_of, state.recorded
        )
        for event in events:
            if len(state.recorded) >= MAX_CONFLICT_EVENTS:
                return
            state.recorded.add(event.regarding.uid)
            self._recorder.record(event)

    def _objects_of(self, key: Key) -> Iterator[ObjectReference]:
        """Yield a claim and the pods that it is reserved for; nothing if it is gone."""
        claim = self._claims.store.get(key)
        if claim is None:
            return
        yield ObjectReference.of("resource.k8s.io/v1", "ResourceClaim", claim.metadata)
        yield from consuming_pods(claim)


def _has_same_spec(policy: DeviceCompatibilityPolicy, other: DeviceCompatibilityPolicy) -> bool:
    """Return True if reports of the two are the same."""
    a, b = policy.metadata, other.metadata
    return (a.uid, a.generation) == (b.uid, b.generation) and policy.spec == other.spec


def controller(parts: Parts) -> Work:
    """Return the controller of policies."""
    policies = PolicyController(
        parts.client,
        parts.informers,
        parts.recorder,
        parts.settings.controllers,
        now=parts.now,
        validation=parts.settings.validation,
    )
    return Work(controllers=policies.controllers)
