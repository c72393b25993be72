"""The health service: a stream of the devices' health, for the status of pods.

The kubelet takes a device for unknown when it hears nothing of it for longer than the driver said, so
the whole list is sent again and again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Final

import grpc

from driver.kubelet.api import dra_health_v1_pb2 as api
from driver.kubelet.servers import service
from driver.model.health import Effect, Fault, effect_of
from driver.prepare.current import CurrentNode

PERIOD_S: Final = 30.0
TIMEOUT_S: Final = 90
"""Silence after which the kubelet no longer trusts what it heard."""
MAX_MESSAGE: Final = 1024
"""Bytes that the kubelet takes."""


class Health:
    """Tells the health of all devices of the node."""

    def __init__(
        self,
        current: CurrentNode,
        now: Callable[[], datetime],
        effects: Mapping[str, Effect] = {},
    ) -> None:
        """Initialize the health service.

        Args:
            now: The wall clock.
            effects: Kind of a fault to its effect, where it is not the usual one.
        """
        self._current = current
        self._effects = effects
        self._now = now
        self._changed = asyncio.Event()
        self._is_ended = False
        current.on_change(self._changed.set)

    def service(self) -> grpc.GenericRpcHandler:
        """Return the gRPC service."""
        return service(
            api.DESCRIPTOR.services_by_name["DRAResourceHealth"],
            streams={"NodeWatchResources": self._watch},
        )

    def end(self) -> None:
        """End all streams; they would otherwise hold up the end of the server."""
        self._is_ended = True
        self._changed.set()

    async def _watch(
        self, _request: api.NodeWatchResourcesRequest
    ) -> AsyncIterator[api.NodeWatchResourcesResponse]:
        while not self._is_ended:
            self._changed.clear()
            yield self._report()
            try:
                await asyncio.wait_for(self._changed.wait(), PERIOD_S)
            except TimeoutError:
                continue

    def _report(self) -> api.NodeWatchResourcesResponse:
        now_s = int(self._now().timestamp())
        faults = self._current.faults
        devices = []
        for pool, name in self._current.state().devices:
            fault, _ = faults.get(name, (None, None))
            health, message = health_status(fault, self._effects)
            devices.append(
                api.DeviceHealth(
                    device=api.DeviceIdentifier(pool_name=pool, device_name=name),
                    health=health,
                    message=message,
                    last_updated_time=now_s,
                    health_check_timeout_seconds=TIMEOUT_S,
                )
            )
        return api.NodeWatchResourcesResponse(devices=devices)


def health_status(
    fault: Fault | None, effects: Mapping[str, Effect]
) -> tuple[api.HealthStatus, str]:
    """Return the health of a device for the kubelet; a fault without effect leaves it unknown."""
    if fault is None:
        return api.HEALTHY, ""
    message = f"{fault.kind}: {fault.message}" if fault.message else fault.kind
    short = message.encode()[:MAX_MESSAGE].decode(errors="ignore")
    if effect_of(fault.kind, effects) is Effect.NONE:
        return api.UNKNOWN, short
    return api.UNHEALTHY, short
