"""Writes of the leader, under its name: bounded in number and in time, with turns of namespaces.

Every write names its field manager, `drawbridge/<holder of the Lease>`, by which a policy of the API
server tells the leader's writes from those of a process that no longer leads.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

import msgspec

from allocator.pods.claims import Name
from kube.api.resource import ResourceClaim
from kube.api.urls import ALLOCATOR_OWNERSHIPS, RESOURCE_CLAIMS, Resource
from kube.client.client import Client, PatchType
from kube.errors import KubeError
from kube.names import FIELD_MANAGER_PREFIX
from process.fairness.turns import Turns
from sidecar.commit.pending_writes import DecidedOn, PendingWrites, decided_on, version_of
from sidecar.commit.writes import LOCKED, Outcome, Patch, outcome_of


class LeaderWriter:
    """Patches claims and the status of the AllocatorOwnership, and reads them from a quorum."""

    def __init__(
        self,
        client: Client,
        *,
        identity: str,
        timeout_s: float,
        max_in_flight: int,
        may_write: Callable[[], bool],
        find_claim: Callable[[Name], ResourceClaim | None],
    ) -> None:
        """Begin without a write.

        Args:
            identity: Identity in the Lease.
            timeout_s: The timeout of each write, in the API server, too.
            max_in_flight: The number of writes at a time; half of them for one namespace.
            may_write: Asked before each write; false once a renewal of the Lease is late.
            find_claim: Returns a claim as it is seen, no older than for any write; None once it is gone.
        """
        self._client = client
        self._field_manager = f"{FIELD_MANAGER_PREFIX}{identity}"
        self._timeout_s = timeout_s
        # A namespace with many claims neither delays the writes of others nor keeps the API server busy
        # with as many requests as all together may make.
        self._turns = Turns(max_in_flight, per_tenant=ceil(max_in_flight / 2))
        self._may_write = may_write
        self._find_claim = find_claim
        self._pending = PendingWrites()
        self._ended = asyncio.Event()

    async def drain(self) -> bool:
        """Wait until each write is answered or given up; return True if none can be made any more.

        Called when no write may begin.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                while self._pending.has_calls:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            return False
        self._pending.forget_settled(self._version_of_claim)
        return self._pending.are_over

    async def patch(self, name: Name, patch: Patch, *, status: bool) -> bytes:
        """Patch a claim, or its status, and return it as stored.

        Raises:
            KubeError: It was refused, or there was no answer; `writes.outcome_of` says which.
        """
        return await self._patch(RESOURCE_CLAIMS, name, patch, "status" if status else "")

    async def read(self, name: Name) -> bytes:
        """Return a claim from a quorum.

        Raises:
            NotFound: It does not exist.
            KubeError: There was no answer.
        """
        return await self._read(RESOURCE_CLAIMS, name)

    async def patch_ownership(self, name: str, patch: Patch) -> bytes:
        """Patch the status of an AllocatorOwnership, and return it as stored.

        Raises:
            KubeError: As for a claim.
        """
        return await self._patch(ALLOCATOR_OWNERSHIPS, ("", name), patch, "status")

    async def read_ownership(self, name: str) -> bytes:
        """Return an AllocatorOwnership from a quorum.

        Raises:
            KubeError: As for a claim.
        """
        return await self._read(ALLOCATOR_OWNERSHIPS, ("", name))

    async def _patch(self, resource: Resource, key: Name, patch: Patch, subresource: str) -> bytes:
        """Make a write, and count it as one that the next leader has to wait for."""
        namespace, name = key
        async with self._turns.take(namespace):
            if not self._may_write():
                raise KubeError("this process does not hold the Lease any more", status=LOCKED)
            is_claim = resource == RESOURCE_CLAIMS
            with self._counted_write(key, decided_on(patch) if is_claim else None):
                return bytes(
                    await self._client.patch(
                        resource,
                        name,
                        patch,
                        PatchType.MERGE,
                        msgspec.Raw,
                        namespace=namespace,
                        subresource=subresource,
                        field_manager=self._field_manager,
                        timeout_s=self._timeout_s,
                    )
                )

    async def _read(self, resource: Resource, key: Name) -> bytes:
        namespace, name = key
        return bytes(await self._client.get(resource, name, msgspec.Raw, namespace=namespace))

    @contextmanager
    def _counted_write(self, name: Name, version: DecidedOn | None) -> Iterator[None]:
        key = (name, "" if version is None else version.uid)
        self._pending.begin(key)
        outcome: Outcome | None = Outcome.UNKNOWN  # Also when it is cancelled.
        try:
            yield
            outcome = None
        except KubeError as error:
            outcome = outcome_of(error)
            raise
        finally:
            self._pending.end(key, outcome, version)
            if self._pending.has_many_doubts:
                self._pending.forget_settled(self._version_of_claim)
            self._ended.set()

    def _version_of_claim(self, name: Name) -> DecidedOn | None:
        claim = self._find_claim(name)
        return None if claim is None else version_of(claim)
