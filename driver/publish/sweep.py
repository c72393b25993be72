"""Finds claims that are prepared here and that the API server no longer holds.

Each is read by its name now and then; no node follows all claims of a cluster. Their devices are tainted
until the kubelet has ended the containers and unprepares the claim. A claim that was never completed is
unprepared right away: no container ever had its devices.
"""

import asyncio

import msgspec

from driver.model.record import Record, State
from driver.node.checkpoint_file import CheckpointFile
from driver.node.lock import LockTimeout
from driver.plan.driver_taints import is_released
from driver.plan.prepare import Refusal, read_claim
from driver.prepare.current import CurrentNode
from driver.prepare.preparer import Preparer
from kube.api.urls import RESOURCE_CLAIMS
from kube.client.client import Client
from kube.errors import KubeError, NotFound
from kube.logs import get_logger

log = get_logger()


class ClaimSweep:
    """A periodic comparison of prepared claims with allocated ones."""

    def __init__(
        self,
        client: Client,
        current: CurrentNode,
        checkpoint: CheckpointFile,
        preparer: Preparer,
        *,
        period_s: float,
    ) -> None:
        """Initialize the sweep.

        Args:
            period_s: The minimum time between two reads of one claim, in seconds.
        """
        self._client = client
        self._current = current
        self._checkpoint = checkpoint
        self._preparer = preparer
        self._period_s = period_s

    async def run(self) -> None:
        """Look at one claim after the other; ends only by cancellation."""
        while True:
            try:
                await self._sweep()
            except (OSError, LockTimeout) as error:
                log.warning("sweep.failed", error=str(error))
                await asyncio.sleep(self._period_s)

    async def _sweep(self) -> None:
        """Look at all claims that are prepared now, evenly over one period."""
        claims = self._checkpoint.load().claims
        self._current.set_released(self._current.released_claims & claims.keys())
        if not claims:
            await asyncio.sleep(self._period_s)
        for record in claims.values():
            await self._inspect(record)
            await asyncio.sleep(self._period_s / len(claims))

    async def _inspect(self, record: Record) -> None:
        try:
            is_gone = await self._is_released(record)
        except KubeError as error:
            log.warning("claim.not_read", claim=record.name, error=str(error))
            return  # As before, until it can be read.
        if is_gone and record.state is State.STARTED:
            await self._preparer.unprepare_unfinished([record.uid])
        released_claims = self._current.released_claims
        if is_gone and record.uid not in released_claims and self._is_prepared(record.uid):
            fields = {"claim": f"{record.namespace}/{record.name}", "uid": record.uid}
            log.warning("claim.released_while_prepared", **fields)
            self._current.set_released(released_claims | {record.uid})
        elif not is_gone:
            self._current.set_released(released_claims - {record.uid})

    async def _is_released(self, record: Record) -> bool:
        try:
            raw = await self._client.get(
                RESOURCE_CLAIMS, record.name, msgspec.Raw, namespace=record.namespace
            )
        except NotFound:
            return True
        claim = read_claim(bytes(raw))
        return not isinstance(claim, Refusal) and is_released(record, claim)

    def _is_prepared(self, uid: str) -> bool:
        """Return True if the kubelet has not unprepared it meanwhile."""
        return uid in self._checkpoint.load().claims
