"""Prepares and unprepares claims: reads them, decides, and changes the node step by step.

No state is kept between calls but the checkpoint, so that the kubelet may ask any process of the driver
on this node. Whatever is done for a claim is done while the lock is held, in this order: Started in the
checkpoint, the CDI spec, Completed in the checkpoint. All claims of one call share the two writes. A
process that dies in between leaves what the next call for the claim completes, or undoes.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from driver.model.names import is_subdomain, is_uid
from driver.model.record import State
from driver.model.steps import Step, StepHook
from driver.node.cdi_folder import CdiFolder
from driver.node.checkpoint_file import CheckpointFile
from driver.node.lock import LockTimeout, file_lock, run_to_end
from driver.plan.cdi import cdi_spec
from driver.plan.checkpoint import Checkpoint
from driver.plan.driver_taints import taken_devices
from driver.plan.prepare import (
    NodeState,
    Preparation,
    Refusal,
    RefusalReason,
    allocated_names,
    prepare_claims,
    read_claim,
    restore,
)
from driver.prepare.current import CurrentNode
from kube.api.resource import ResourceClaim
from kube.api.urls import RESOURCE_CLAIMS
from kube.client.client import Client
from kube.errors import KubeError, NotFound

MAX_READS: Final = 32
"""Claims that a call reads at once, so that many of them do not keep other calls waiting."""


class ClaimRef(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str


class Preparer:
    """Serves both calls of the kubelet."""

    def __init__(
        self,
        client: Client,
        current: CurrentNode,
        checkpoint: CheckpointFile,
        specs: CdiFolder,
        *,
        boot_id: str,
        lock: Path,
        lock_timeout_s: float,
        at_step: StepHook,
    ) -> None:
        """Initialize the preparer.

        Args:
            boot_id: The ID of the present boot.
            lock: The file that stands for the lock.
            lock_timeout_s: The maximum wait for the lock, in seconds.
            at_step: Called after each step.
        """
        self._client = client
        self._current = current
        self._checkpoint = checkpoint
        self._specs = specs
        self._boot_id = boot_id
        self._lock = lock
        self._lock_timeout_s = lock_timeout_s
        self._at_step = at_step

    async def recover(self) -> None:
        """Bring checkpoint and specs together, after a restart or a reboot.

        Raises:
            OSError: The folders of the driver cannot be written.
            LockTimeout: Another process of the driver hangs.
        """
        async with file_lock(self._lock, timeout_s=self._lock_timeout_s):
            await run_to_end(partial(self._recover, self._current.state()))

    async def prepare(self, refs: Collection[ClaimRef]) -> Mapping[str, Preparation | Refusal]:
        """Prepare claims, and return the outcomes by UID."""
        claims: dict[str, ResourceClaim] = {}
        refusals: dict[str, Preparation | Refusal] = {}
        for uid, claim in (await self._read_claims(refs)).items():
            if isinstance(claim, Refusal):
                refusals[uid] = claim
            else:
                claims[uid] = claim
        self._at_step(Step.CLAIMS_READ)
        if not claims:
            return refusals
        try:
            async with file_lock(self._lock, timeout_s=self._lock_timeout_s):
                work = partial(self._prepare, claims, self._current.state())
                outcomes = await run_to_end(work)
        except (OSError, LockTimeout) as error:
            return refusals | {
                uid: _failure(error, allocated_names(claim, self._current.driver))
                for uid, claim in claims.items()
            }
        conflicts = (outcome for outcome in outcomes.values() if isinstance(outcome, Refusal))
        devices = {name for conflict in conflicts for name in conflict.contested}
        self._current.set_contested(self._current.contested_devices | devices)
        return {**refusals, **outcomes}

    async def unprepare(self, refs: Collection[ClaimRef]) -> Mapping[str, str]:
        """Undo the preparation of claims, and return the errors by UID; "" means success.

        Claims that are not prepared need nothing.
        """
        uids = {ref.uid for ref in refs if is_uid(ref.uid)}
        outcomes = {ref.uid: "" if ref.uid in uids else "it is no uid of a claim" for ref in refs}
        try:
            async with file_lock(self._lock, timeout_s=self._lock_timeout_s):
                rest = await run_to_end(partial(self._unprepare, uids))
        except (OSError, LockTimeout) as error:
            return outcomes | dict.fromkeys(uids, _failure(error).message)
        self._current.set_released(self._current.released_claims - uids)
        await self._settle_contested(rest)
        return outcomes

    async def unprepare_unfinished(self, uids: Collection[str]) -> None:
        """Undo claims that were never completed, so that no container has ever had their devices.

        Raises:
            OSError: The disk is full, read-only or broken.
            LockTimeout: Another process of the driver hangs.
        """
        async with file_lock(self._lock, timeout_s=self._lock_timeout_s):
            await run_to_end(partial(self._unprepare_unfinished, uids))

    async def _settle_contested(self, checkpoint: Checkpoint) -> None:
        """Forget contested devices that are free now, so that the next claim may use them."""
        contested_devices = self._current.contested_devices
        if contested_devices:
            node = self._current.state()
            unavailable = await asyncio.to_thread(
                lambda: frozenset(taken_devices(node, checkpoint, contested_devices))
            )
            self._current.set_contested(
                self._current.contested_devices - (contested_devices - unavailable)
            )

    # --- reading --------------------------------------------------------------------------------

    async def _read_claims(self, refs: Iterable[ClaimRef]) -> Mapping[str, ResourceClaim | Refusal]:
        """Return claims by uid; of two names for one uid the last one counts."""
        free_reads = asyncio.Semaphore(MAX_READS)

        async def read_when_free(ref: ClaimRef) -> ResourceClaim | Refusal:
            async with free_reads:
                return await self._read(ref)

        by_uid = {ref.uid: ref for ref in refs}
        async with asyncio.TaskGroup() as group:
            tasks = {uid: group.create_task(read_when_free(ref)) for uid, ref in by_uid.items()}
        return {uid: task.result() for uid, task in tasks.items()}

    async def _read(self, ref: ClaimRef) -> ResourceClaim | Refusal:
        if not (is_uid(ref.uid) and is_subdomain(ref.name) and is_subdomain(ref.namespace)):
            message = "its uid, name or namespace is none"
            return Refusal(reason=RefusalReason.CLAIM_GONE, message=message)
        try:
            raw = await self._client.get(
                RESOURCE_CLAIMS, ref.name, msgspec.Raw, namespace=ref.namespace
            )
        except NotFound:
            message = "the claim does not exist (any more)"
            return Refusal(reason=RefusalReason.CLAIM_GONE, message=message)
        except KubeError as error:
            message = f"the claim cannot be read: {error}"
            return Refusal(reason=RefusalReason.API_SERVER, message=message)
        return read_claim(bytes(raw))

    # --- under the lock, in a thread ------------------------------------------------------------

    def _prepare(
        self, claims: Mapping[str, ResourceClaim], node: NodeState
    ) -> Mapping[str, Preparation | Refusal]:
        before = checkpoint = self._checkpoint.load()
        aside = self._checkpoint.set_aside()
        outcomes: dict[str, Preparation | Refusal] = {}
        if aside:
            unknown = {uid for uid in claims if uid not in before.claims}
            outcomes |= dict.fromkeys(unknown, _state_unknown(aside[0]))
            claims = {uid: claim for uid, claim in claims.items() if uid not in unknown}
        outcomes |= prepare_claims(claims, node, before)
        for outcome in outcomes.values():
            if isinstance(outcome, Preparation):
                checkpoint = checkpoint.with_record(outcome.record)
        if checkpoint.claims.keys() != before.claims.keys():
            self._checkpoint.store(checkpoint)
            self._at_step(Step.STARTED_WRITTEN)
        return self._complete(outcomes, checkpoint)

    def _complete(
        self, outcomes: Mapping[str, Preparation | Refusal], checkpoint: Checkpoint
    ) -> Mapping[str, Preparation | Refusal]:
        """Write the specs of claims that are in the checkpoint, then that they are there."""
        before, finished_outcomes, is_changed = checkpoint, dict(outcomes), False
        for uid, outcome in outcomes.items():
            if not isinstance(outcome, Preparation):
                continue
            try:
                is_changed |= self._write_spec(outcome)
            except OSError as error:
                finished_outcomes[uid] = _failure(error, outcome.record.device_names())
                continue
            if outcome.record.state is not State.COMPLETED:
                checkpoint = checkpoint.with_record(outcome.record.as_completed())
        if is_changed:
            self._specs.sync()
        if checkpoint is not before:
            self._checkpoint.store(checkpoint)
            self._at_step(Step.COMPLETED_WRITTEN)
        return finished_outcomes

    def _write_spec(self, preparation: Preparation) -> bool:
        """Write the spec of a claim and return True if it was not there."""
        spec = cdi_spec(self._current.driver, preparation, self._boot_id)
        uid, is_changed = preparation.record.uid, True
        if preparation.record.state is State.COMPLETED:
            is_changed = self._specs.restore(uid, spec)
        else:
            self._specs.write(uid, spec)
        self._at_step(Step.SPEC_WRITTEN)
        return is_changed

    def _unprepare(self, uids: Collection[str]) -> Checkpoint:
        """Undo claims, and return the claims that stay prepared."""
        checkpoint = rest = self._checkpoint.load()
        is_changed = False
        for uid in uids:
            is_changed |= self._specs.remove(uid)
            self._at_step(Step.SPEC_REMOVED)
            if uid in checkpoint.claims:
                rest = rest.without(uid)
        if is_changed:
            self._specs.sync()
        if rest is not checkpoint:
            self._checkpoint.store(rest)
            self._at_step(Step.RECORD_REMOVED)
        return rest

    def _unprepare_unfinished(self, uids: Collection[str]) -> None:
        claims = self._checkpoint.load().claims
        self._unprepare(
            [uid for uid in uids if uid in claims and claims[uid].state is State.STARTED]
        )

    def _recover(self, node: NodeState) -> None:
        boots, is_changed = self._specs.boots(), False
        self._checkpoint.recover(boots)
        claims = self._checkpoint.load().claims
        if not self._checkpoint.set_aside():
            for uid in boots.keys() - claims.keys():
                is_changed |= self._specs.remove(uid)
        for record in claims.values():
            preparation = restore(record, node)
            if record.state is State.COMPLETED and isinstance(preparation, Preparation):
                is_changed |= self._write_spec(preparation)
        if is_changed:
            self._specs.sync()


def _failure(error: OSError | LockTimeout, failing: tuple[str, ...] = ()) -> Refusal:
    why = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        why = f"{error.filename}: {error.strerror}"
    message = f"the driver cannot do it now: {why}"
    return Refusal(reason=RefusalReason.NODE, message=message, failing=failing)


def _state_unknown(aside: Path) -> Refusal:
    message = (
        f"nobody knows which devices are in use here, because {aside} cannot be read;"
        " drain and reboot the node, or drain it and remove the file"
    )
    return Refusal(reason=RefusalReason.STATE_UNKNOWN, message=message)
