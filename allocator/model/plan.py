"""The result of a successful search, and the budget of a search."""

from collections.abc import Mapping

import msgspec

from allocator.model.devices import PublishedDevice
from allocator.model.requests import Request
from kube.quantity import Quantity


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One chosen device, or share of a device.

    Attributes:
        request: The request, or alternative, that it serves.
        device: The device.
        consumed: Consumption of each capacity by the share; None for a dedicated device.
    """

    request: Request
    device: PublishedDevice
    consumed: Mapping[str, Quantity] | None = None

    @property
    def is_share(self) -> bool:
        """True if the device gets a share id, even if it consumes nothing."""
        return self.consumed is not None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that the claims get on one node.

    Attributes:
        choices: The choices per claim, in order of choice: requests in order, devices in search
            order.
        alternatives: The index of the chosen alternative, per claim and top-level request.
        steps: Cost of the search.
    """

    node: str
    choices: tuple[tuple[Choice, ...], ...]
    alternatives: tuple[tuple[int, ...], ...]
    steps: int = 0


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum cost of one attempt on one node, in steps and never in seconds.

    Attributes:
        steps: Devices tried; evaluating a selector counts by its CEL cost. 200,000 steps take half a
            second to some seconds. Upstream has a deadline of 10 s instead.
    """

    steps: int = 200_000
