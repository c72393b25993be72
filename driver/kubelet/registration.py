"""The registration service: identifies the driver to the kubelet, and receives the outcome."""

from pathlib import Path
from typing import Final

import grpc

from driver.kubelet.api import pluginregistration_v1_pb2 as api
from driver.kubelet.servers import service
from kube.logs import get_logger

DRA_PLUGIN: Final = "DRAPlugin"
SUPPORTED: Final = ("v1.DRAPlugin", "v1.DRAResourceHealth")
"""The supported services. The kubelet uses the first of each kind that it knows."""

log = get_logger()


class Registration:
    """The registration with the kubelet, and its answer."""

    def __init__(self, driver: str, endpoint: Path) -> None:
        """Initialize the service.

        Args:
            driver: The driver's name.
            endpoint: The socket of its services.
        """
        self._driver = driver
        self._endpoint = endpoint
        self._problem = "the kubelet has not asked yet"

    def service(self) -> grpc.GenericRpcHandler:
        """Return the gRPC service."""
        return service(
            api.DESCRIPTOR.services_by_name["Registration"],
            unary={"GetInfo": self._info, "NotifyRegistrationStatus": self._notify},
        )

    def problem(self) -> str:
        """Return the reason the driver is not registered; empty when it is."""
        return self._problem

    async def _info(self, _request: api.InfoRequest) -> api.PluginInfo:
        return api.PluginInfo(
            type=DRA_PLUGIN,
            name=self._driver,
            endpoint=str(self._endpoint),
            supported_versions=SUPPORTED,
        )

    async def _notify(self, status: api.RegistrationStatus) -> api.RegistrationStatusResponse:
        if status.plugin_registered:
            self._problem = ""
            log.info("kubelet.registered")
        else:
            self._problem = f"the kubelet refused: {status.error}"
            log.error("kubelet.refused", error=status.error)
        return api.RegistrationStatusResponse()
