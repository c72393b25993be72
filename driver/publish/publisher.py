"""Keeps the node's ResourceSlices as they are planned.

The kubelet deletes all slices of its node when it starts, and those of a driver soon after it has lost
the connection. So the driver follows its own slices, and writes what is missing or otherwise. Of several
instances on one node only one publishes; the next takes over when that one ends.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from driver.model.health import Effect, health_taints
from driver.node.checkpoint_file import CheckpointFile
from driver.node.lock import file_lock
from driver.plan.driver_taints import merge_taints, use_taints
from driver.plan.slices import (
    PlannedPool,
    Publication,
    Writes,
    plan_pools,
    plan_writes,
    slice_document,
)
from driver.prepare.current import CurrentNode
from driver.prepare.metrics import DriverMetrics
from kube.api.core import Node
from kube.api.meta import decode
from kube.api.resource import ResourceSlice
from kube.api.urls import NODES, RESOURCE_SLICES
from kube.client.client import Client, PatchType
from kube.collections.backoff import Backoff
from kube.errors import KubeError, NotFound
from kube.logs import get_logger
from kube.names import NAME
from kube.runtime.informers import InformerFactory
from kube.runtime.stores import Key

FIELD_MANAGER: Final = f"{NAME}-driver"
BACKOFF: Final = Backoff(initial_s=0.2, max_s=30.0)
WRITES_AT_ONCE: Final = 4
"""Slices that are written at the same time: as many as help a node with thousands of devices."""
SETTLE_S: Final = 0.02
"""Seconds between a change and its publication, so that changes that come together are written
together."""

log = get_logger()


def project_slice(raw: bytes) -> ResourceSlice:
    """Project a slice to the form that is compared with the plan."""
    return decode(raw, ResourceSlice)


class Publisher:
    """Publishes the devices of the node."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        current: CurrentNode,
        checkpoint: CheckpointFile,
        metrics: DriverMetrics,
        *,
        publication: Publication,
        lock: Path,
        effects: Mapping[str, Effect] = {},
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Subscribe to the node's slices.

        Args:
            publication: The owner and the form of the slices; the node's UID is read before they
                are written.
            effects: Kind of a fault to the effect of its taint, where it is not the usual one.
            lock: The file of the lock that the publishing instance holds.
            jitter: Uniform from 0 to 1.
        """
        self._client = client
        self._current = current
        self._checkpoint = checkpoint
        self._metrics = metrics
        self._publication = publication
        self._lock = lock
        self._effects = effects
        self._jitter = jitter
        self._changed = asyncio.Event()
        self._problem = "not yet published"
        self._selector = f"spec.driver={publication.driver},spec.nodeName={publication.node}"
        self._published = informers.subscribe(
            RESOURCE_SLICES,
            project_slice,
            field_selector=self._selector,
            handlers=(self._slice_changed,),
        )
        current.on_change(self._changed.set)

    def problem(self) -> str:
        """Return the reason the published slices are not the planned ones; empty when it is."""
        return self._problem

    async def run(self) -> None:
        """Publish until cancelled; waits while another instance on the node publishes."""
        self._problem = ""  # Another instance may be at it; then this one has nothing to do.
        async with file_lock(self._lock, timeout_s=None):
            self._problem = "not yet published"
            await self._published.synced.wait()
            failures = 0
            while True:
                self._changed.clear()
                try:
                    await self._publish()
                    failures, self._problem = 0, ""
                except (KubeError, OSError) as error:
                    failures, self._problem = failures + 1, f"cannot publish: {error}"
                    self._metrics.wrote("failed")
                    log.warning("slices.failed", error=str(error), failures=failures)
                    await asyncio.sleep(BACKOFF.delay_s(failures, self._jitter()))
                    continue
                await self._changed.wait()
                await asyncio.sleep(SETTLE_S)

    def _slice_changed(
        self, _key: Key, _old: ResourceSlice | None, _new: ResourceSlice | None
    ) -> None:
        self._changed.set()

    async def _publish(self) -> None:
        """Write the planned slices if the published ones differ.

        Raises:
            KubeError: A call failed; what was written so far is no whole pool, or the planned one.
            OSError: The checkpoint cannot be read.
        """
        if self._publication.node_uid and not self._plan_writes(self._published.store.values()):
            return
        # What is followed may be old, and a generation that is already there must not be used again.
        node = await self._client.get(NODES, self._publication.node, Node)
        self._publication = msgspec.structs.replace(self._publication, node_uid=node.metadata.uid)
        slices = await self._client.list(
            RESOURCE_SLICES, ResourceSlice, field_selector=self._selector
        )
        await self._write(self._plan_writes(slices.items), slices.items)

    def _plan_writes(self, published_slices: Iterable[ResourceSlice]) -> Writes:
        return plan_writes(self._plan(), published_slices)

    def _plan(self) -> tuple[PlannedPool, ...]:
        node = self._current.state()
        in_use = use_taints(
            node,
            self._checkpoint.load(),
            self._current.released_claims,
            contested_devices=self._current.contested_devices,
            is_state_known=not self._checkpoint.set_aside(),
        )
        taints = merge_taints(in_use, health_taints(self._current.faults, self._effects))
        names = {device.name for device in node.inventory.devices()}
        taint_counts = Counter(
            taint.key for name, several in taints.items() if name in names for taint in several
        )
        self._metrics.show_devices(len(node.devices), taint_counts)
        return plan_pools(self._publication, node.inventory, taints)

    async def _write(self, writes: Writes, published_slices: tuple[ResourceSlice, ...]) -> None:
        versions = {
            slice_.metadata.name: slice_.metadata.resource_version for slice_ in published_slices
        }
        # No order of them makes a mixture whole: slices of one pool share a generation.
        for start in range(0, len(writes.to_apply), WRITES_AT_ONCE):
            await self._apply_all(writes.to_apply[start : start + WRITES_AT_ONCE], versions)
        for slice_ in writes.to_delete:
            await self._delete(slice_)
            self._metrics.wrote("deleted")
        if writes:
            log.info("slices.written", applied=len(writes.to_apply), deleted=len(writes.to_delete))

    async def _apply_all(
        self, slices: Iterable[ResourceSlice], versions: Mapping[str, str]
    ) -> None:
        """Apply some slices at once, and return when all of them were answered.

        Raises:
            KubeError: The first failure; the others may have been written.
        """
        calls = (self._apply(slice_, versions.get(slice_.metadata.name)) for slice_ in slices)
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _apply(self, slice_: ResourceSlice, version: str | None) -> None:
        document = slice_document(slice_)
        if version is not None:
            document["metadata"]["resourceVersion"] = version
        await self._client.patch(
            RESOURCE_SLICES,
            slice_.metadata.name,
            document,
            PatchType.APPLY,
            msgspec.Raw,
            field_manager=FIELD_MANAGER,
            force=True,
        )
        self._metrics.wrote("applied")

    async def _delete(self, slice_: ResourceSlice) -> None:
        try:
            await self._client.delete(
                RESOURCE_SLICES, slice_.metadata.name, uid=slice_.metadata.uid
            )
        except NotFound:
            return
