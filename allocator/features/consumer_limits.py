"""Limits of how many claims may use a device, or the devices of one node, at a time.

Not of Kubernetes: the API lets a device be shared for as long as its capacities last, and a driver may
serve fewer claims than that. A device that is not shared has one consumer. Admin access is none.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

import msgspec

from allocator.model.constraint import RemainingDemand
from allocator.model.devices import NodeDevices
from allocator.model.outcome import Reason, RejectionReason
from allocator.model.requests import Request
from allocator.model.usage import DeviceUse, Usage
from kube.api.ownership import OwnedDriver

_UNLIMITED: Final = 1 << 30
_NO_DRIVER: Final = -1


class ConsumerLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one driver; 0 for none.

    Attributes:
        per_device: Consumers of one device.
        per_node: Consumers of all devices of a node, each as often as it uses one.
    """

    per_device: int = 0
    per_node: int = 0


def consumer_limits(drivers: Iterable[OwnedDriver]) -> Mapping[str, ConsumerLimit]:
    """Return the limits of the drivers that have any."""
    return {
        driver.name: ConsumerLimit(
            per_device=driver.max_consumers_per_device, per_node=driver.max_consumers_per_node
        )
        for driver in drivers
        if driver.max_consumers_per_device or driver.max_consumers_per_node
    }


def build_constraint(
    node: NodeDevices, usage: Usage, limits: Mapping[str, ConsumerLimit]
) -> "ConsumerLimits | None":
    """Return the constraint on a node; None where no driver is limited."""
    if not limits or not any(pool.id.driver in limits for pool in node.pools):
        return None
    return ConsumerLimits(node, usage, limits)


class ConsumerLimits:
    """Limits on the consumers that each device, and each driver on the node, may still get."""

    def __init__(
        self, node: NodeDevices, usage: Usage, limits: Mapping[str, ConsumerLimit]
    ) -> None:
        self._limits = tuple(limits.values())
        numbers = {driver: number for number, driver in enumerate(limits)}
        self._names = tuple(limits)
        # By position: number of its driver, and what is left of the device.
        self._driver_at: list[int] = []
        self._left_on_device: list[int] = []
        self._left_on_node = [limit.per_node or _UNLIMITED for limit in self._limits]
        uses = [usage.pools.get(pool.id) for pool in node.pools]
        for pool, device in zip(node.pool_of, node.devices, strict=True):
            number = numbers.get(device.id.driver, _NO_DRIVER)
            pool_use = uses[pool]
            use = pool_use.get(device.id.device) if pool_use else None
            count = 0 if use is None else consumer_count(use)
            self._driver_at.append(number)
            if number == _NO_DRIVER:
                self._left_on_device.append(_UNLIMITED)
                continue
            self._left_on_node[number] -= count
            self._left_on_device.append((self._limits[number].per_device or _UNLIMITED) - count)

    def equivalence_key(self, position: int) -> Hashable:
        """Return the driver of a device and how many consumers it may still get."""
        return self._driver_at[position], self._left_on_device[position]

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:
        """Count one more consumer, if device and node may have one."""
        number = self._driver_at[position]
        if number == _NO_DRIVER or request.admin:
            return True
        if self._left_on_device[position] <= 0 or self._left_on_node[number] <= 0:
            return False
        self._left_on_device[position] -= 1
        self._left_on_node[number] -= 1
        return True

    def remove(self, request: Request, position: int, *, further_share: bool) -> None:
        """Count one consumer less."""
        number = self._driver_at[position]
        if number != _NO_DRIVER and not request.admin:
            self._left_on_device[position] += 1
            self._left_on_node[number] += 1

    def state_key(self) -> Hashable:
        """Return the number of consumers that each device and the node may still get."""
        return tuple(self._left_on_device), tuple(self._left_on_node)

    def residual_key(self, remaining: RemainingDemand) -> Hashable:
        """Return the state key without the devices that the remaining requests cannot get."""
        return (
            tuple(
                [
                    left
                    for position, left in enumerate(self._left_on_device)
                    if remaining.positions >> position & 1
                ]
            ),
            tuple(self._left_on_node),
        )

    def rejection(
        self, request: Request, position: int, *, further_share: bool
    ) -> RejectionReason | None:
        """Return the limit that keeps a consumer away."""
        number = self._driver_at[position]
        if number == _NO_DRIVER or request.admin:
            return None
        limit, name = self._limits[number], self._names[number]
        if self._left_on_device[position] <= 0:
            return _rejection("consumers", limit.per_device, f"the limit of {name} per device")
        if self._left_on_node[number] <= 0:
            return _rejection(
                "consumers on the node", limit.per_node, f"the limit of {name} per node"
            )
        return None


def consumer_count(use: DeviceUse) -> int:
    """Return the number of a device's consumers."""
    return int(use.exclusive) + len(use.share_ids)


def _rejection(subject: str, limit: int, remark: str) -> RejectionReason:
    return RejectionReason(
        reason=Reason.CONSUMER_LIMIT, verb="have", subject=subject, value=str(limit), remark=remark
    )
