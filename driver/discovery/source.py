"""The interface of a source of devices."""

from collections.abc import Callable
from typing import Protocol

from driver.model.inventory import Inventory


class DeviceSource(Protocol):
    """Finds out the devices of the node, and follows their changes."""

    def discover(self) -> Inventory:
        """Return the devices that the node has at the start.

        Raises:
            ConfigError: They cannot be known; the driver does not start.
        """
        ...

    async def run(self, on_change: Callable[[Inventory], None]) -> None:
        """Call a function whenever the devices are others; ends only by cancellation."""
        ...

    def problem(self) -> str:
        """Return the present problem of the source; empty without one."""
        ...
