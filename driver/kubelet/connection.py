"""The driver as the kubelet meets it: sockets, and the services on them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import grpc

from driver.kubelet.registration import Registration
from driver.kubelet.servers import serving
from driver.kubelet.sockets import Sockets, abandoned_sockets
from kube.logs import get_logger

log = get_logger()


class KubeletConnection:
    """Serves the kubelet until cancelled."""

    def __init__(
        self,
        driver: str,
        sockets: Sockets,
        services: Sequence[grpc.GenericRpcHandler],
        *,
        on_settled: Callable[[], Awaitable[None]],
        ending: Callable[[], None],
    ) -> None:
        """Initialize the connection.

        Args:
            driver: The driver's name.
            sockets: The paths of the sockets to serve on.
            services: The gRPC services that the kubelet calls once the driver is registered.
            on_settled: Returns when the driver knows what it needs to answer.
            ending: Called before the servers stop.
        """
        self._driver = driver
        self._sockets = sockets
        self._services = services
        self._on_settled = on_settled
        self._ending = ending
        self._registration = Registration(driver, sockets.service)

    def problem(self) -> str:
        """Return the reason the kubelet does not call the driver; empty when it does."""
        return self._registration.problem()

    async def run(self) -> None:
        """Serve until cancelled; then notify the kubelet first, and finish calls in progress."""
        await asyncio.to_thread(self._remove_abandoned)
        await self._on_settled()
        async with (
            serving(self._sockets.service, *self._services),
            serving(self._sockets.registration, self._registration.service()),
        ):
            log.info("kubelet.awaited", registration=str(self._sockets.registration))
            try:
                await asyncio.Event().wait()
            finally:
                self._ending()

    def _remove_abandoned(self) -> None:
        """Remove sockets of instances that were killed; the kubelet would try them again and again."""
        registry, folder = self._sockets.registration.parent, self._sockets.service.parent
        for path in (
            *abandoned_sockets(registry, f"{self._driver}-"),
            *abandoned_sockets(folder, "dra-"),
        ):
            _remove(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    log.info("socket.removed", path=str(path))
