"""Reports in the status of claims that their devices are ready, with their network data.

Best effort: nothing waits for it, and what fails is tried again a few times, then left. The API server
forgets the entries of devices that are no longer allocated.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from driver.model.record import State
from driver.plan.prepare import Preparation, PreparedDevice
from kube.api.urls import RESOURCE_CLAIMS
from kube.client.client import Client, PatchType
from kube.collections.backoff import Backoff
from kube.errors import KubeError, NotFound
from kube.logs import get_logger
from kube.names import NAME

READY: Final = "Ready"
ATTEMPTS: Final = 5
MAX_WAITING: Final = 1024
BACKOFF: Final = Backoff(initial_s=0.5, max_s=30.0)

log = get_logger()


class DeviceStatus:
    """Writes `status.devices` of claims that were prepared, one after the other."""

    def __init__(
        self,
        client: Client,
        driver: str,
        now: Callable[[], datetime],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Initialize the reporter.

        Args:
            driver: The driver's name.
            now: The wall clock, in UTC.
            jitter: Uniform from 0 to 1.
        """
        self._client = client
        self._driver = driver
        self._now = now
        self._jitter = jitter
        self._waiting: asyncio.Queue[Preparation] = asyncio.Queue(MAX_WAITING)

    def add(self, preparation: Preparation) -> None:
        """Have the status of a claim written, soon; one that was prepared before has it already."""
        if preparation.record.state is State.STARTED and not self._waiting.full():
            self._waiting.put_nowait(preparation)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            preparation = await self._waiting.get()
            for attempt in range(1, ATTEMPTS + 1):
                if await self._write(preparation):
                    break
                await asyncio.sleep(BACKOFF.delay_s(attempt, self._jitter()))

    async def _write(self, preparation: Preparation) -> bool:
        """Write one status; return True if there is nothing more to do."""
        record = preparation.record
        document = status_document(self._driver, preparation, self._now())
        try:
            await self._client.patch(
                RESOURCE_CLAIMS,
                record.name,
                document,
                PatchType.APPLY,
                msgspec.Raw,
                namespace=record.namespace,
                subresource="status",
                field_manager=f"{NAME}-driver/{self._driver}",
                force=True,
            )
        except NotFound:
            return True
        except KubeError as error:
            fields = {"claim": f"{record.namespace}/{record.name}", "error": str(error)}
            log.warning("status.failed", **fields)
            return False
        return True


def status_document(driver: str, preparation: Preparation, now: datetime) -> dict[str, Any]:
    """Return the document to apply to a claim; its uid keeps it from another claim of that name."""
    record = preparation.record
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": record.name, "namespace": record.namespace, "uid": record.uid},
        "status": {"devices": [_entry(driver, device, now) for device in preparation.devices]},
    }


def _entry(driver: str, device: PreparedDevice, now: datetime) -> dict[str, Any]:
    result = device.result
    entry: dict[str, Any] = {
        "driver": driver,
        "pool": result.pool,
        "device": result.device,
        "conditions": [
            {
                "type": READY,
                "status": "True",
                "reason": "Prepared",
                "message": "",
                "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        ],
    }
    if result.share_id is not None:
        entry["shareID"] = result.share_id
    if device.device.network is not None:
        entry["networkData"] = msgspec.to_builtins(device.device.network)
    return entry
