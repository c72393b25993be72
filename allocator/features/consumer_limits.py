"""Limits of the number of claims that use a device, or the devices of one node, at a time.

Not of Kubernetes: the API lets a device be shared for as long as its capacities last, and a driver may
serve fewer claims than that. Each device in the allocation of a claim is a use, so that a claim with two
shares has two; what is promised counts as what is allocated. A device that is not shared has one use.
Admin access is none.

A driver may have other limits on a pool of nodes. The first pool that selects a node counts, and is known
from when the node is laid out: it is part of what makes nodes different.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

import msgspec

from allocator.model.constraint import RemainingDemand
from allocator.model.devices import NodeDevices
from allocator.model.outcome import Reason, RejectionReason, Verb
from allocator.model.requests import Request
from allocator.model.usage import DeviceUse, Usage
from kube.api.meta import LabelSelector
from kube.api.ownership import OwnedDriver, node_pools

_UNLIMITED: Final = 1 << 30
_NO_DRIVER: Final = -1


class NodePoolLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one driver on the nodes of a pool; 0 for none.

    Attributes:
        name: The pool's name, for messages.
        node_selector: The nodes of the pool, but for those of earlier pools.
        per_device: Consumers of one device.
        per_node: Consumers of all devices of a node, each as often as it uses one.
    """

    name: str
    node_selector: LabelSelector
    per_device: int = 0
    per_node: int = 0


class ConsumerLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one driver; 0 for none.

    Attributes:
        per_device: Consumers of one device.
        per_node: Consumers of all devices of a node, each as often as it uses one.
        pools: Nodes with limits of their own, which need not limit anything; the first pool that
            selects a node counts.
    """

    per_device: int = 0
    per_node: int = 0
    pools: tuple[NodePoolLimit, ...] = ()


def consumer_limits(drivers: Iterable[OwnedDriver]) -> Mapping[str, ConsumerLimit]:
    """Return the limits of the drivers that have limits or pools of nodes."""
    return {
        driver.name: ConsumerLimit(
            per_device=driver.max_consumers_per_device,
            per_node=driver.max_consumers_per_node,
            pools=tuple(
                NodePoolLimit(
                    name=pool.name,
                    node_selector=pool.node_selector,
                    per_device=pool.max_consumers_per_device or 0,
                    per_node=pool.max_consumers_per_node or 0,
                )
                for pool in node_pools(driver)
            ),
        )
        for driver in drivers
        if driver.max_consumers_per_device or driver.max_consumers_per_node or driver.pools
    }


def assigned_pools(limits: Mapping[str, ConsumerLimit], node: NodeDevices) -> Mapping[str, int]:
    """Return the value of `NodeDevices.node_pools` for a node: the first pool of each of its drivers."""
    assigned: dict[str, int] = {}
    for driver in dict.fromkeys(pool.id.driver for pool in node.pools):
        limit = limits.get(driver)
        for index, pool in enumerate(limit.pools if limit is not None else ()):
            if pool.node_selector.matches(node.labels):
                assigned[driver] = index
                break
    return assigned


def build_constraint(
    node: NodeDevices, usage: Usage, limits: Mapping[str, ConsumerLimit]
) -> "ConsumerLimits | None":
    """Return the constraint on a node; None if no driver is limited."""
    limits_here: dict[str, _Limit] = {}
    for pool in node.pools if limits else ():
        limit = limits.get(pool.id.driver)
        if limit is not None:
            limit_here = limit_on(node, pool.id.driver, limit)
            if limit_here.per_device or limit_here.per_node:
                limits_here[pool.id.driver] = limit_here
    return ConsumerLimits(node, usage, limits_here) if limits_here else None


def limit_on(node: NodeDevices, driver: str, limit: ConsumerLimit) -> ConsumerLimit | NodePoolLimit:
    """Return the limits of a driver on a node: those of its pool, or else the driver's."""
    index = node.node_pools.get(driver)
    return limit if index is None else limit.pools[index]


_Limit = ConsumerLimit | NodePoolLimit


class ConsumerLimits:
    """Limits on the consumers that each device, and each driver on the node, may still get."""

    def __init__(self, node: NodeDevices, usage: Usage, limits: Mapping[str, _Limit]) -> None:
        """Count the consumers.

        Args:
            limits: Driver to its limits on this node.
        """
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
        self._left_at_first = tuple(self._left_on_device)
        # Devices in use that a pool of this node alone publishes no more, or not now, count there as before.
        for node_pool, pool_use in zip(node.pools, uses, strict=True):
            number = numbers.get(node_pool.id.driver, _NO_DRIVER)
            is_local = not (node_pool.names_no_node or node_pool.elsewhere)
            if number != _NO_DRIVER and pool_use and is_local:
                published_names = {device.id.device for device in node_pool.devices}
                self._left_on_node[number] -= sum(
                    consumer_count(use)
                    for name, use in pool_use.items()
                    if name not in published_names
                )

    def equivalence_key(self, position: int) -> Hashable:
        """Return the driver of a device and the number of consumers it may get."""
        return self._driver_at[position], self._left_at_first[position]

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
        place = f" in pool {limit.name}" if isinstance(limit, NodePoolLimit) else ""
        if self._left_on_device[position] <= 0:
            return _rejection(
                "consumers", limit.per_device, f"the limit of {name} per device{place}"
            )
        if self._left_on_node[number] <= 0:
            return _rejection(
                "consumers on the node", limit.per_node, f"the limit of {name} per node{place}"
            )
        return None


def consumer_count(use: DeviceUse) -> int:
    """Return the number of a device's consumers."""
    return int(use.exclusive) + len(use.share_ids)


def _rejection(subject: str, limit: int, remark: str) -> RejectionReason:
    return RejectionReason(
        reason=Reason.CONSUMER_LIMIT,
        verb=Verb.HAVE,
        subject=subject,
        value=str(limit),
        remark=remark,
    )
