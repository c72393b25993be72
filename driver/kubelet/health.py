"""The health service: a stream of how the devices are, for the status of pods.

The kubelet takes a device for unknown when it hears nothing of it for longer than the driver said, so
the whole list is sent again and again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final

import grpc

from driver.current import CurrentNode
from driver.kubelet.api import dra_health_v1_pb2 as api
from driver.kubelet.servers import service

PERIOD_S: Final = 30.0
TIMEOUT_S: Final = 90
"""Silence after which the kubelet no longer trusts what it heard."""


class Health:
    """Tells that devices which the source of devices knows are well."""

    def __init__(self, current: CurrentNode, now: Callable[[], datetime]) -> None:
        """Remember what to tell.

        Args:
            now: The wall clock.
        """
        self._current = current
        self._now = now
        self._changed = asyncio.Event()
        current.on_change(self._changed.set)

    def service(self) -> grpc.GenericRpcHandler:
        """Return it as a gRPC service."""
        return service(
            api.DESCRIPTOR.services_by_name["DRAResourceHealth"],
            streams={"NodeWatchResources": self._watch},
        )

    async def _watch(
        self, _request: api.NodeWatchResourcesRequest
    ) -> AsyncIterator[api.NodeWatchResourcesResponse]:
        while True:
            self._changed.clear()
            yield self._report()
            try:
                await asyncio.wait_for(self._changed.wait(), PERIOD_S)
            except TimeoutError:
                continue

    def _report(self) -> api.NodeWatchResourcesResponse:
        node = self._current.state()
        return api.NodeWatchResourcesResponse(
            devices=[
                api.DeviceHealth(
                    device=api.DeviceIdentifier(pool_name=pool, device_name=name),
                    health=api.HEALTHY,
                    last_updated_time=int(self._now().timestamp()),
                    health_check_timeout_seconds=TIMEOUT_S,
                )
                for pool, name in node.devices
            ]
        )
