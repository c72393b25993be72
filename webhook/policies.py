"""The controller of DeviceCompatibilityPolicies: says in their status what they mean here.

It follows policies, slices and claims. Slices are kept as bytes, and read only for drivers that have
a policy: a pool is looked at again when one of its slices changed, or what is held of it, and what
comes while a look is taken, or soon after, is looked at together. A status is written when it
differs. What is decided is in `policy_status`
and `policy_notices`.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import structlog

from allocator.core.model import PoolId
from kube.api.meta import ApiStruct, ObjectMeta, decode
from kube.api.policy import (
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicyStatus,
    in_force,
)
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from kube.client import Client, PatchType
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.informer import DEFAULTS, Informer, InformerSettings
from webhook.policy_notices import Notice, event_of, notice_of_policy, notices_of_claims
from webhook.policy_status import (
    PolicyReport,
    differs_in_more_than_counts,
    patch_of,
    pool_of,
    usage_of,
)
from webhook.resources import (
    DEVICE_COMPATIBILITY_POLICIES,
    EVENTS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from webhook.settings import ControlSettings

TURN_S: Final = 0.01
"""After which others on the event loop get their turn; a Lease has to be renewed meanwhile."""
IDLE_PART: Final = 9.0
"""A look is followed by a pause of so many times what it cost."""
LONGEST_PAUSE_S: Final = 30.0
MAX_CLAIM_EVENTS: Final = 100
"""Of one version of one policy."""
MAX_EVENT_NAME: Final = 253

Key = tuple[str, str]

log = structlog.get_logger()


# --- what is kept of an object --------------------------------------------------------------------


class _Pool(ApiStruct, frozen=True, kw_only=True):
    name: str


class _SliceSpec(ApiStruct, frozen=True, kw_only=True):
    driver: str
    pool: _Pool


class _SliceHead(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _SliceSpec


class KeptSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A slice as it came, and the pool that it is of: most are of drivers without a policy."""

    pool: PoolId
    raw: bytes

    @property
    def pools(self) -> frozenset[PoolId]:
        """The pool that it is of."""
        return frozenset((self.pool,))


class KeptClaim(msgspec.Struct, frozen=True, kw_only=True):
    """An allocated claim, with nothing but what it holds."""

    claim: ResourceClaim
    pools: frozenset[PoolId]


def kept_slice(raw: bytes) -> KeptSlice:
    """Return what is kept of a ResourceSlice."""
    spec = decode(raw, _SliceHead).spec
    return KeptSlice(pool=PoolId(spec.driver, spec.pool.name), raw=raw)


def kept_claim(raw: bytes) -> KeptClaim | None:
    """Return what is kept of a ResourceClaim; None unless it is allocated."""
    if b'"allocation"' not in raw:
        return None
    found = decode(raw, ResourceClaim)
    allocation = found.status.allocation if found.status is not None else None
    results = allocation.devices.results if allocation is not None else None
    if not results:
        return None
    metadata = found.metadata
    held = AllocationResult(devices=DeviceAllocationResult(results=results))
    return KeptClaim(
        claim=ResourceClaim(
            metadata=ObjectMeta(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid),
            status=ResourceClaimStatus(allocation=held),
        ),
        pools=frozenset(PoolId(one.driver, one.pool) for one in results),
    )


class _Pooled(Protocol):
    @property
    def pools(self) -> frozenset[PoolId]: ...


P = TypeVar("P", bound=_Pooled)


class ByPool(Generic[P]):
    """Objects by the pools that they are about."""

    def __init__(self) -> None:
        self._kept: dict[PoolId, dict[Key, P]] = {}

    def replace(self, key: Key, old: P | None, new: P | None) -> frozenset[PoolId]:
        """Note an object's change, and return the pools that it concerns."""
        before = old.pools if old is not None else frozenset()
        after = new.pools if new is not None else frozenset()
        for pool in before - after:
            del self._kept[pool][key]
            if not self._kept[pool]:
                del self._kept[pool]
        if new is not None:
            for pool in after:
                self._kept.setdefault(pool, {})[key] = new
        return before | after

    def of(self, pool: PoolId) -> list[P]:
        """Return the objects of a pool, by key."""
        kept = self._kept.get(pool, {})
        return [kept[key] for key in sorted(kept)]

    def pools(self, driver: str) -> Iterator[PoolId]:
        """Yield the pools of a driver."""
        return (pool for pool in self._kept if pool.driver == driver)


# --- the controller -------------------------------------------------------------------------------


class _Follower:
    """One policy as it is followed.

    Attributes:
        report: Of its present text.
        stored: Its status as we know it, which may be newer than what the watch has told.
        version: The resourceVersion of that, where we wrote it.
        written_s: When numbers were last written, by the monotonic clock.
        counting: Name and uid of the policy that counts for the driver.
        is_touched: Something that the status depends on has changed.
        failures: In a row.
        told: Uids of claims that were told, and what was told beside the policy.
    """

    def __init__(self, policy: DeviceCompatibilityPolicy) -> None:
        self.report = PolicyReport(policy)
        self.stored = policy.status
        self.version = 0
        self.written_s = float("-inf")
        self.counting = ("", "")
        self.is_touched = True
        self.failures = 0
        self.told: set[str] = set()

    @property
    def policy(self) -> DeviceCompatibilityPolicy:
        return self.report.policy.source

    def take_over(self, before: "_Follower") -> None:
        """Keep what is known of the status from an older text of the same policy."""
        self.written_s = before.written_s
        if before.version > int(self.policy.metadata.resource_version):
            self.stored, self.version = before.stored, before.version


class PolicyController:
    """One process at a time runs it.

    Attributes:
        informers: Name to informer, for metrics.
        looked: How many pools were looked at.
    """

    def __init__(
        self,
        client: Client,
        settings: ControlSettings,
        *,
        identity: str,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        informer_settings: InformerSettings = DEFAULTS,
    ) -> None:
        """Remember what to work with; nothing is asked before `run`.

        Args:
            identity: Of this process, for events.
            now: The wall clock, in UTC, for conditions and events.
            clock: Monotonic seconds.
        """
        self._client = client
        self._settings = settings
        self._identity = identity
        self._now = now
        self._clock = clock
        self._backoff = settings.backoff()
        self._policies = Informer(
            client,
            DEVICE_COMPATIBILITY_POLICIES,
            lambda raw: decode(raw, DeviceCompatibilityPolicy),
            handlers=(self._policy_changed,),
            settings=informer_settings,
        )
        self._slices = Informer(
            client,
            RESOURCE_SLICES,
            kept_slice,
            handlers=(self._slice_changed,),
            settings=informer_settings,
        )
        self._claims = Informer(
            client,
            RESOURCE_CLAIMS,
            kept_claim,
            handlers=(self._claim_changed,),
            settings=informer_settings,
        )
        self.informers: Final[Mapping[str, Informer[Any]]] = {
            "devicecompatibilitypolicies": self._policies,
            "resourceslices": self._slices,
            "allocated resourceclaims": self._claims,
        }
        self.looked = 0
        self._slices_of: ByPool[KeptSlice] = ByPool()
        self._claims_of: ByPool[KeptClaim] = ByPool()
        self._followed: dict[str, _Follower] = {}
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._dirty: set[PoolId] = set()
        self._busy_s = 0.0

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers.values():
                group.create_task(informer.run())
            for informer in self.informers.values():
                await informer.synced.wait()
            log.info("policies.synced", policies=len(self._policies.store))
            while True:
                self._changed.clear()
                self._urgent.clear()
                self._busy_s = 0.0
                due_s = await self._look()
                idle_s = min(IDLE_PART * self._busy_s, LONGEST_PAUSE_S)
                # Slices come in crowds; who changes a policy waits for what it does.
                await _waited(self._urgent, max(self._settings.policy_seconds, idle_s))
                await _waited(self._changed, due_s)

    # --- what changes concern which pools ---------------------------------------------------------

    def _policy_changed(
        self,
        key: Key,
        old: DeviceCompatibilityPolicy | None,
        new: DeviceCompatibilityPolicy | None,
    ) -> None:
        _, name = key
        known = self._followed.get(name)
        if new is None:
            self._followed.pop(name, None)
            self._urgent.set()
        elif known is None or old is None or not _is_same_text(old, new):
            self._followed[name] = _Follower(new)
            if known is not None and known.policy.metadata.uid == new.metadata.uid:
                self._followed[name].take_over(known)
            self._urgent.set()
        elif known.stored != new.status and known.version <= int(new.metadata.resource_version):
            known.stored = new.status
            known.is_touched = True
        else:
            return  # Our own write comes back.
        self._changed.set()

    def _slice_changed(self, key: Key, old: KeptSlice | None, new: KeptSlice | None) -> None:
        self._soil(self._slices_of.replace(key, old, new))

    def _claim_changed(self, key: Key, old: KeptClaim | None, new: KeptClaim | None) -> None:
        if old != new:
            self._soil(self._claims_of.replace(key, old, new))

    def _soil(self, pools: frozenset[PoolId]) -> None:
        drivers = {each.policy.spec.driver for each in self._followed.values()}
        concerned = {pool for pool in pools if pool.driver in drivers}
        if concerned:
            self._dirty |= concerned
            self._changed.set()

    # --- looking ----------------------------------------------------------------------------------

    async def _look(self) -> float | None:
        """Bring all statuses up to date; return after how many seconds to look again in any case."""
        dirty, self._dirty = self._dirty, set()
        counting = in_force(self._policies.store.values())
        waits: list[float] = []
        for name, follower in sorted(self._followed.items()):
            chosen = counting.get(follower.policy.spec.driver, follower.policy)
            try:
                await self._look_at_pools(follower, dirty)
                if self._followed.get(name) is follower:
                    waits.append(await self._judge(follower, chosen))
                follower.failures = 0
            except (Conflict, NotFound):
                pass  # It is gone, or another one; the watch will tell.
            except KubeError as error:
                log.warning("policy.failed", policy=name, error=str(error))
                waits.append(self._pause_s(follower))
            except Exception:  # A bug that one policy meets must not cost pods their templates.
                log.exception("policy.failed", policy=name)
                self._dirty |= dirty
                waits.append(self._pause_s(follower))
        return min((each for each in waits if each > 0), default=None)

    def _pause_s(self, follower: _Follower) -> float:
        follower.failures += 1
        return self._backoff.pause_s(follower.failures)

    async def _judge(self, follower: _Follower, counting: DeviceCompatibilityPolicy) -> float:
        """Tell where something changed; return after how many seconds to come back, 0 for none."""
        named = (counting.metadata.name, counting.metadata.uid)
        if follower.counting != named:
            follower.counting = named
            follower.is_touched = True
        return await self._tell(follower, counting) if follower.is_touched else 0.0

    async def _look_at_pools(self, follower: _Follower, dirty: set[PoolId]) -> None:
        """Look at those pools of a policy's driver that changed, or were not looked at yet."""
        report, driver = follower.report, follower.policy.spec.driver
        published = set(self._slices_of.pools(driver))
        due = {pool for pool in published if pool in dirty or pool not in report.parts}
        for pool in report.parts.keys() - published:
            report.forget(pool)
            follower.is_touched = True
        turn = self._clock()
        for pool in sorted(due):
            slices = _readable(self._slices_of.of(pool))
            usage = usage_of(each.claim for each in self._claims_of.of(pool))
            before = report.parts.get(pool)
            report.look(pool_of(pool, slices), usage)
            self.looked += 1
            follower.is_touched |= report.parts[pool] != before
            if self._clock() - turn > TURN_S:
                self._busy_s += self._clock() - turn
                await asyncio.sleep(0)
                turn = self._clock()
        self._busy_s += self._clock() - turn

    # --- telling ----------------------------------------------------------------------------------

    async def _tell(self, follower: _Follower, counting: DeviceCompatibilityPolicy) -> float:
        """Write a status that differs, and return after how many seconds to come back; 0 for none."""
        began = self._clock()
        stamp = self._now().isoformat(timespec="seconds").replace("+00:00", "Z")
        status = follower.report.status(follower.stored, counting, stamp)
        self._busy_s += self._clock() - began
        if status != follower.stored:
            if not differs_in_more_than_counts(follower.stored, status):
                left_s = follower.written_s + self._settings.policy_counts_seconds - self._clock()
                if left_s > 0:
                    return left_s
            await self._write(follower, status)
        follower.is_touched = False
        is_counting = counting.metadata.name == follower.policy.metadata.name
        await self._tell_beside(follower, status, is_counting=is_counting)
        return 0.0

    async def _write(self, follower: _Follower, status: DeviceCompatibilityPolicyStatus) -> None:
        name = follower.policy.metadata.name
        written = await self._client.patch(
            DEVICE_COMPATIBILITY_POLICIES,
            name,
            patch_of(follower.policy, status),
            PatchType.MERGE,
            DeviceCompatibilityPolicy,
            subresource="status",
        )
        follower.stored = written.status
        follower.version = int(written.metadata.resource_version)
        follower.written_s = self._clock()
        told = {each.type: each.status for each in status.conditions or ()}
        log.info("policy.written", policy=name, summary=status.summary, conditions=told)

    async def _tell_beside(
        self,
        follower: _Follower,
        status: DeviceCompatibilityPolicyStatus,
        *,
        is_counting: bool,
    ) -> None:
        """Tell in events what a status alone would not be seen for; nothing waits for that."""
        about_policy = notice_of_policy(follower.policy, status)
        if about_policy is not None and about_policy.note not in follower.told:
            follower.told.add(about_policy.note)
            await self._report(about_policy)
        if not is_counting:
            return
        found = follower.report.clashes()
        for notice in notices_of_claims(follower.report.policy, found, self._uid, follower.told):
            if len(follower.told) >= MAX_CLAIM_EVENTS:
                return
            follower.told.add(notice.regarding.uid)
            await self._report(notice)

    def _uid(self, claim: Key) -> str:
        """Return a claim's uid; empty when it is gone."""
        kept = self._claims.store.get(claim)
        return kept.claim.metadata.uid if kept is not None else ""

    async def _report(self, notice: Notice) -> None:
        regarding = notice.regarding
        log.warning("policy.reported", reason=notice.reason.value, about=regarding.name)
        # The name derives from what is told, so that a restart does not tell it twice.
        told = f"{regarding.uid}{notice.reason}{notice.note}"
        digest = sha256(told.encode()).hexdigest()[:16]
        event = event_of(
            notice,
            name=f"{regarding.name[: MAX_EVENT_NAME - 17]}.{digest}",
            instance=self._identity,
            time=self._now().isoformat(timespec="microseconds").replace("+00:00", "Z"),
        )
        try:
            await self._client.create(
                EVENTS, event, msgspec.Raw, namespace=event["metadata"]["namespace"]
            )
        except AlreadyExists:
            pass
        except KubeError as error:  # Nothing waits for an event.
            log.warning("event.failed", about=regarding.name, error=str(error))


def _readable(slices: Iterable[KeptSlice]) -> Iterator[ResourceSlice]:
    """Yield slices; without one that cannot be read its pool is incomplete."""
    for each in slices:
        try:
            yield decode(each.raw, ResourceSlice)
        except msgspec.DecodeError as error:
            log.warning("object.unreadable", resource="resourceslices", error=str(error))


async def _waited(event: asyncio.Event, most_s: float | None) -> None:
    """Return when an event is set, or after a time; None waits for ever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await event.wait()


def _is_same_text(one: DeviceCompatibilityPolicy, other: DeviceCompatibilityPolicy) -> bool:
    """Return whether reports of the two say the same."""
    a, b = one.metadata, other.metadata
    return (a.uid, a.generation) == (b.uid, b.generation) and one.spec == other.spec
