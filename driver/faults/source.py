"""The interface of a source of faults."""

from collections.abc import Mapping
from typing import Protocol

from driver.model.health import Fault


class FaultSource(Protocol):
    """A source of the present faults of devices."""

    def read(self) -> Mapping[str, Fault]:
        """Return device to its fault; healthy devices are left out.

        Names of devices that the node does not have do no harm.
        """
        ...
