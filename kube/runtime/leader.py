"""Leader election on a Lease: of several replicas at most one works at a time.

A holder renews; who waits takes the Lease when it has seen no renewal for as long as the Lease
says. That is measured from when the waiter saw the Lease change, on its own monotonic clock, so
clocks that disagree do no harm. The holder stops working when its renewals have failed for the
renew deadline, which is shorter. Each write carries the resourceVersion that it was decided on.

Source: client-go tools/leaderelection, whose Lease this is compatible with. Unlike the elector
of `kubernetes.aio`: every failure is a failed renewal, every call is bounded, the work is
cancelled when the Lease is lost, and the Lease is given back on shutdown. An annotation of the Lease
says whether all writes of the holder had ended by then, so that the next one need not wait for them.

What it cannot do: a process that is frozen, or a write that was delayed, may still come late. Writes
that must not be made twice need a fence of their own.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from kube.api import meta
from kube.api.urls import Resource
from kube.client.client import Client, PatchType
from kube.errors import ConfigError, DrawbridgeError, KubeError, NotFound
from kube.logs import get_logger
from kube.names import GROUP

HANDED_OVER: Final = f"{GROUP}/handed-over"
"""Annotation of a Lease: its leaseTransitions when a holder gave it back after its last write had
ended. Of an earlier term it means nothing."""
LEASES: Final = Resource(group="coordination.k8s.io", version="v1", plural="leases")

log = get_logger()


class LeaseLost(DrawbridgeError):
    """Another process may hold the Lease, and this one must not stand again under its identity."""


class LeaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The Lease, our identity, and the times of the election.

    Attributes:
        namespace: The Lease's namespace.
        name: The Lease's name.
        identity: Ours; no two processes may share it (host name and a random part). The second term of a process
            has another, with `_2` after it: a write of the first that is late must not pass for one of the second.
        lease_s: Whole seconds after which others may take a Lease that is not renewed.
        renew_deadline_s: The time that a holder works on without a renewal; below `lease_s`.
        retry_s: The time between two attempts; below `renew_deadline_s`.
        ends_with_lease: True if a process that has lost the Lease never stands again. For processes
            whose writes are fenced by their identity: a late write from before would pass the
            fence.
    """

    namespace: str
    name: str
    identity: str
    lease_s: int = 15
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0
    ends_with_lease: bool = False

    def __post_init__(self) -> None:
        """Refuse times that let two lead at once."""
        if not self.lease_s > self.renew_deadline_s > self.retry_s > 0:
            raise ConfigError(
                f"a lease of {self.lease_s} s must be longer than its renew deadline of "
                f"{self.renew_deadline_s} s, and that longer than the retry of {self.retry_s} s"
            )
        if not self.identity:
            raise ConfigError("a leader needs an identity")

    @property
    def call_timeout_s(self) -> float:
        """The bound of one attempt: half the renew deadline, so that a second one fits in."""
        return self.renew_deadline_s / 2


class LeaseSpec(meta.ApiStruct, frozen=True, kw_only=True):
    """Source: coordination/v1 LeaseSpec."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(meta.ApiStruct, frozen=True, kw_only=True):
    """Source: coordination/v1 Lease."""

    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class Step(StrEnum):
    """A step that a candidate takes about a Lease."""

    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def next_step(lease: Lease | None, identity: str, unchanged_s: float, lease_s: int) -> Step:
    """Return the next step about a Lease.

    Args:
        lease: The Lease as just read; None if there is none.
        identity: Ours.
        unchanged_s: The time for which we have watched this very version of it.
        lease_s: The duration to assume where the Lease names none.
    """
    if lease is None or not lease.spec.holder_identity:
        return Step.TAKE
    if lease.spec.holder_identity == identity:
        return Step.RENEW
    if unchanged_s >= (lease.spec.lease_duration_seconds or lease_s):
        return Step.TAKE
    return Step.WAIT


def is_handed_over(lease: Lease | None) -> bool:
    """Return True if the last holder gave a Lease back, and no write of it can be under way.

    Not of a Lease that was deleted, or emptied by hand: its holder may live.
    """
    if lease is None or lease.spec.holder_identity:
        return False
    mark = (lease.metadata.annotations or {}).get(HANDED_OVER)
    return mark == str(lease.spec.lease_transitions or 0)


def pause_s(retry_s: float, remaining_s: float, jitter: float) -> float:
    """Return the pause before a candidate's next attempt, in seconds.

    It comes when the Lease runs out, and not up to a whole period later. The pause is spread, so that
    candidates do not all come at once when a holder dies.

    Args:
        retry_s: The time between two attempts.
        remaining_s: The time until the Lease runs out; 0 if it has.
        jitter: A random number from 0 to 1.
    """
    pause = remaining_s if 0 < remaining_s < retry_s else retry_s
    return pause + 0.2 * jitter * min(pause, retry_s)


def lease_document(
    lease: Lease | None, identity: str, lease_s: int, wall_s: float
) -> dict[str, Any]:
    """Return the spec that makes a Lease ours, or keeps it so.

    Args:
        lease: The Lease as it is; None if there is none.
        identity: Ours.
        lease_s: Its duration.
        wall_s: Now, in seconds since 1970.
    """
    now = _micro_time(wall_s)
    spec: dict[str, Any] = {
        "holderIdentity": identity,
        "leaseDurationSeconds": lease_s,
        "renewTime": now,
    }
    lease_spec = lease.spec if lease else LeaseSpec()
    if lease_spec.holder_identity != identity:
        spec["acquireTime"] = now
        spec["leaseTransitions"] = (lease_spec.lease_transitions or 0) + (1 if lease else 0)
    return spec


def _micro_time(wall_s: float) -> str:
    """Return a meta/v1 MicroTime.

    >>> _micro_time(0.25)
    '1970-01-01T00:00:00.250000Z'
    """
    text = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


async def _nothing_to_drain() -> bool:
    """Promise nothing about writes."""
    return False


def _no_notes() -> Mapping[str, str | None]:
    """Leave the annotations as they are."""
    return {}


class Leader:
    """One candidate; `run` does its work while it holds the Lease.

    Attributes:
        leading: True while the work may run.
        is_successor: True if no write of the holder before can be under way.
        found_notes: The annotations of the Lease when it was taken.
    """

    def __init__(
        self,
        client: Client,
        settings: LeaderSettings,
        *,
        wall_clock: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        drain: Callable[[], Awaitable[bool]] = _nothing_to_drain,
        notes: Callable[[], Mapping[str, str | None]] = _no_notes,
    ) -> None:
        """Store the client, the Lease and the candidate's functions; no call is made before `run`.

        Args:
            client: An open client.
            settings: The Lease and its times.
            wall_clock: Seconds since 1970, only for what people read in the Lease.
            clock: Monotonic seconds; all decisions use it.
            jitter: Uniform from 0 to 1.
            drain: Called before the Lease is given back, when the work has ended. Returns whether no
                write under this identity can be under way, and waits for a moment until that is so.
            notes: Annotations that each write of ours leaves in the Lease for the next holder; None
                removes one.
        """
        self._client = client
        self._settings = settings
        self._terms = 1
        self._wall_clock = wall_clock
        self._clock = clock
        self._jitter = jitter
        self._drain = drain
        self._notes = notes
        self._seen_version = ""
        self._seen_at = -math.inf
        self._expires_at = -math.inf
        self._may_hold = False
        self.leading = False
        self.is_successor = False
        self.found_notes: Mapping[str, str] = {}

    @property
    def identity(self) -> str:
        """The holder that the Lease names in this term, or in the next one while this process does not lead."""
        identity = self._settings.identity
        return identity if self._terms == 1 else f"{identity}_{self._terms}"

    async def run(self, lead: Callable[[], Awaitable[object]]) -> None:
        """Wait for the Lease, then run `lead` until it returns or the Lease is lost; repeat.

        Returns when `lead` returns, and raises what it raises (in an ExceptionGroup), or LeaseLost
        where the settings say so. When the
        Lease is lost, `lead` is cancelled and has ended before we stand again. In every case
        the Lease is given back if it is still ours, so that the next one need not wait.
        """
        try:
            while True:
                renewed_at = await self._acquire()
                log.info("lease.acquired", **self._labels())
                if await self._led(lead, renewed_at):
                    return
                log.warning("lease.lost", **self._labels())
                if self._settings.ends_with_lease:
                    raise LeaseLost(f"the Lease {self._settings.name} was lost")
                self._terms += 1
        finally:
            self.leading = False
            await self._release()

    async def _acquire(self) -> float:
        """Return the time of the attempt that got us the Lease."""
        while True:
            began = self._clock()
            if await self._attempt(self._settings.call_timeout_s) in {Step.TAKE, Step.RENEW}:
                self.leading = True
                return began
            await asyncio.sleep(
                pause_s(self._settings.retry_s, self._remaining_s(), self._jitter())
            )

    def _remaining_s(self) -> float:
        """Return the time until the last observed holder may be replaced; 0 without one."""
        return max(0.0, self._expires_at - self._clock())

    async def _led(self, lead: Callable[[], Awaitable[object]], renewed_at: float) -> bool:
        """Run the work beside the renewals; return True if the work ended first."""

        async def work() -> None:
            await lead()

        async with asyncio.TaskGroup() as group:
            working = group.create_task(work())
            renewing = group.create_task(self._renewed_until_lost(renewed_at))
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            self.leading = False
            has_ended = working.done()
            working.cancel()
            renewing.cancel()
        return has_ended

    async def _renewed_until_lost(self, renewed_at: float) -> None:
        """Renew until somebody else holds the Lease, or the deadline has passed."""
        settings = self._settings
        while (remaining_s := renewed_at + settings.renew_deadline_s - self._clock()) > 0:
            await asyncio.sleep(min(settings.retry_s, remaining_s))
            began = self._clock()
            remaining_s = renewed_at + settings.renew_deadline_s - began
            if remaining_s <= 0:
                return
            step = await self._attempt(min(settings.call_timeout_s, remaining_s))
            if step is Step.WAIT:
                return
            if step is not None:
                renewed_at = began

    async def _attempt(self, timeout_s: float) -> Step | None:
        """Read the Lease, decide and write it; None if that failed for any reason."""
        try:
            async with asyncio.timeout(timeout_s):
                lease = await self._read()
                step = next_step(
                    lease,
                    self.identity,
                    self._clock() - self._seen_at,
                    self._settings.lease_s,
                )
                # A write that seems to fail may have been made: until we see another holder.
                self._may_hold = step is not Step.WAIT
                if step is Step.TAKE:
                    self.is_successor = is_handed_over(lease)
                    self.found_notes = (lease.metadata.annotations if lease else None) or {}
                if self._may_hold:
                    spec = lease_document(
                        lease, self.identity, self._settings.lease_s, self._wall_clock()
                    )
                    await self._write(lease, spec, self._notes() if self.leading else {})
                return step
        except (KubeError, TimeoutError) as error:
            log.warning("lease.failed", **self._labels(), error=str(error) or "timed out")
            return None

    async def _read(self) -> Lease | None:
        """Return the Lease, and note when this version of it was first seen."""
        settings = self._settings
        try:
            lease = await self._client.get(
                LEASES, settings.name, Lease, namespace=settings.namespace
            )
        except NotFound:
            return None
        if lease.metadata.resource_version != self._seen_version:
            self._seen_version = lease.metadata.resource_version
            self._seen_at = self._clock()
        duration_s = lease.spec.lease_duration_seconds or settings.lease_s
        self._expires_at = self._seen_at + duration_s
        return lease

    async def _write(
        self, lease: Lease | None, spec: dict[str, Any], annotations: Mapping[str, str | None]
    ) -> None:
        """Write the Lease, if nobody else has since it was read."""
        settings = self._settings
        if lease is None:
            document = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": settings.name, "namespace": settings.namespace},
                "spec": spec,
            }
            await self._client.create(LEASES, document, Lease, namespace=settings.namespace)
            return
        metadata: dict[str, Any] = {"resourceVersion": lease.metadata.resource_version}
        if annotations:
            metadata["annotations"] = dict(annotations)
        patch = {"metadata": metadata, "spec": spec}
        await self._client.patch(
            LEASES,
            settings.name,
            patch,
            PatchType.MERGE,
            Lease,
            namespace=settings.namespace,
        )

    async def _release(self) -> None:
        """Give the Lease back, if it may be ours and the API server can be reached."""
        if not self._may_hold:
            return
        is_drained = await self._drain()
        try:
            async with asyncio.timeout(self._settings.call_timeout_s):
                lease = await self._read()
                if lease is None or lease.spec.holder_identity != self.identity:
                    return
                spec = {"holderIdentity": None, "renewTime": _micro_time(self._wall_clock())}
                mark = {HANDED_OVER: str(lease.spec.lease_transitions or 0)}
                await self._write(lease, spec, {**self._notes(), **(mark if is_drained else {})})
        except (KubeError, TimeoutError) as error:
            log.warning("lease.not_released", **self._labels(), error=str(error) or "timed out")

    def _labels(self) -> dict[str, str]:
        settings = self._settings
        return {"lease": f"{settings.namespace}/{settings.name}", "identity": self.identity}
