"""The interface of a source of faults."""

from collections.abc import Mapping
from typing import Protocol

from driver.model.health import Fault


class FaultSource(Protocol):
    """Finds out what is wrong with devices at the moment."""

    def read(self) -> Mapping[str, Fault]:
        """Return device to its fault; healthy devices are left out.

        Names of devices that the node does not have do no harm.
        """
        ...
