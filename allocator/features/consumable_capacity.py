"""Consumable capacity: the consumption of a request, checked against availability (KEP-5075).

A dedicated device has to be large enough; on a device that allows multiple allocations each share
consumes part of every capacity. `allocator.model.consumption` computes the amounts.

Source: k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/consumable_capacity.go.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from allocator.model.constraint import RemainingDemand
from allocator.model.consumption import Consumption, capacity_consumption
from allocator.model.devices import NodeDevices, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed, Reason, RejectionReason, Verb
from allocator.model.requests import Request
from allocator.model.usage import DeviceUse, PoolUse, Usage
from kube.api.resource import DeviceCapacity
from kube.quantity import Format, Quantity, format_amount

_MAX_INT64: Final = 2**63 - 1

_NODES: Final = 8192
_SHAPES: Final = 1 << 16
_ANSWERS: Final = 1 << 10
_NOT_IN_USE: Final[PoolUse] = {}
_Needs = tuple[tuple[int, int], ...]
"""Index of a capacity to nano-units, for each capacity of a device."""

_NEVER: Final[_Needs] = ((-1, -1),)
"""The needs of a request that the device cannot meet, even unused."""


class Shape(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The part of a device that matters here; one object for all devices that are alike.

    Attributes:
        shareable: The device allows multiple allocations.
        capacity: Capacities, sorted by key.
    """

    shareable: bool
    capacity: Mapping[str, DeviceCapacity]


def build_constraint(
    node: NodeDevices, usage: Usage, requests: Sequence[Request], features: Features
) -> "CapacityConstraint | None":
    """Build the constraint of an attempt; None if no amount can matter."""
    if not features.consumable_capacity:
        return None
    if not any(request.capacity for request in requests) and not _limits_capacity(node):
        # A request without amounts consumes all of a dedicated device, which always suffices,
        # unless shares are in use from when the device allowed multiple allocations.
        in_use = (usage.pools.get(pool.id, _NOT_IN_USE) for pool in node.pools)
        if not any(use.capacity is not None for pool in in_use for use in pool.values()):
            return None
    return CapacityConstraint(node, usage, features)


@lru_cache(maxsize=_NODES)
def _limits_capacity(node: NodeDevices) -> bool:
    """Return True if the amounts of a device can matter to a request without amounts."""
    for device in node.devices:
        if device.device.allow_multiple_allocations:
            return True
        for capacity in (device.device.capacity or {}).values():
            if capacity.request_policy is not None or capacity.value.nanos < 0:
                return True
    return False


class CapacityConstraint:
    """The available capacity of a node's devices."""

    def __init__(self, node: NodeDevices, usage: Usage, features: Features) -> None:
        """Subtract the capacity in use."""
        self._devices = node.devices
        self._fractional = features.fractional_capacity_range
        self._shapes = [device_shape(device) for device in node.devices]
        self._shareable = [shape.shareable for shape in self._shapes]
        self._positions_of: dict[Shape, int] = {}
        for position, shape in enumerate(self._shapes):
            self._positions_of[shape] = self._positions_of.get(shape, 0) | 1 << position
        uses = [usage.pools.get(pool.id, _NOT_IN_USE) for pool in node.pools]
        # Nano-units by capacity, in order of the keys; constant for dedicated devices.
        self._available = [
            _available(shape, uses[pool].get(device.id.device))
            for shape, device, pool in zip(self._shapes, node.devices, node.pool_of, strict=True)
        ]
        self._changing = [
            available
            for available, shareable in zip(self._available, self._shareable, strict=True)
            if shareable
        ]
        self._remaining: dict[RemainingDemand, list[list[int]]] = {}
        self._needs: dict[Request, list[_Needs | None]] = {}
        ids: dict[Hashable, int] = {}
        self._keys = [
            ids.setdefault((shape, tuple(available)), len(ids))
            for shape, available in zip(self._shapes, self._available, strict=True)
        ]

    def consumption_at(self, request: Request, position: int) -> Consumption | RejectionReason:
        """Return the consumption of a request, or the reason the device cannot serve it even if unused.

        Mode All leaves such devices out of its list.

        Raises:
            AttemptFailed: See `consumption`.
        """
        try:
            return self._consumption(request, self._shapes[position])
        except AttemptFailed as error:
            raise AttemptFailed(self._message(request, position, error)) from error

    def find_unsuitable(self, request: Request, positions: int) -> tuple[int, Mapping[int, str]]:
        """Return a mask of the devices that cannot serve a request, and errors by position.

        Args:
            request: The request.
            positions: Mask of the devices to check.
        """
        unsuitable, errors = 0, {}
        for shape, positions_of_shape in self._positions_of.items():
            here = positions_of_shape & positions
            try:
                if here and isinstance(self._consumption(request, shape), RejectionReason):
                    unsuitable |= here
            except AttemptFailed as error:
                for position in range(here.bit_length()):
                    if here >> position & 1:
                        errors[position] = self._message(request, position, error)
        return unsuitable, errors

    def consumed_capacity(self, request: Request, position: int) -> Mapping[str, Quantity] | None:
        """Return the consumed capacity in the result of a share; None for a dedicated device."""
        if not self._shareable[position]:
            return None
        consumed_amounts = self.consumption_at(request, position)
        return consumed_amounts.amounts if isinstance(consumed_amounts, Consumption) else None

    def share_amounts(self, request: Request, position: int) -> tuple[int, ...]:
        """Return the nano-units that a share consumes of each capacity, in order of the keys."""
        consumed_amounts = self.consumption_at(request, position)
        if isinstance(consumed_amounts, RejectionReason):
            return (0,) * len(self._available[position])
        return tuple([amount.nanos for amount in consumed_amounts.amounts.values()])

    def max_shares(self, position: int, amounts: Sequence[int]) -> int:
        """Return the number of such shares that fit; unlimited if they consume nothing.

        Args:
            position: Position of the device.
            amounts: Nano-units of each capacity, in order of the keys.
        """
        counts = [
            max(0, available) // nanos
            for available, nanos in zip(self._available[position], amounts, strict=True)
            if nanos > 0
        ]
        return min(counts, default=_MAX_INT64)

    def equivalence_key(self, position: int) -> Hashable:
        """Return a number for a device's capacities, their policies and the available amounts."""
        return self._keys[position]

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:
        """Consume capacity of a device if enough of each is available.

        Raises:
            AttemptFailed: See `consumption`.
        """
        row = self._needs.get(request)
        needs = row[position] if row is not None else None
        if needs is None:
            needs = self._compute_needs(request, position)
        if needs is _NEVER:
            return False
        available = self._available[position]
        for index, nanos in needs:
            if available[index] < nanos:
                return False
        if self._shareable[position]:
            for index, nanos in needs:
                available[index] -= nanos
        return True

    def remove(self, request: Request, position: int, *, further_share: bool) -> None:
        """Release the consumption of the latest `add`."""
        if self._shareable[position]:
            available, needs = self._available[position], self._needs[request][position]
            for index, nanos in needs or ():
                available[index] += nanos

    def state_key(self) -> Hashable:
        """Return the available amounts of devices that can be shared."""
        return tuple([tuple(available) for available in self._changing])

    def residual_key(self, remaining: RemainingDemand) -> Hashable:
        """Return the available amounts of the remaining devices that can be shared."""
        rows = self._remaining.get(remaining)
        if rows is None:
            rows = self._remaining[remaining] = [
                available
                for position, (available, shareable) in enumerate(
                    zip(self._available, self._shareable, strict=True)
                )
                if shareable and remaining.positions >> position & 1
            ]
        return tuple([tuple(available) for available in rows])

    def rejection(
        self, request: Request, position: int, *, further_share: bool
    ) -> RejectionReason | None:
        """Return the first capacity that is not available in the requested amount.

        Raises:
            AttemptFailed: See `consumption`.
        """
        consumed_amounts = self.consumption_at(request, position)
        if isinstance(consumed_amounts, RejectionReason):
            return consumed_amounts
        for available, (name, amount) in zip(
            self._available[position], consumed_amounts.amounts.items(), strict=True
        ):
            if amount.nanos > available:
                total = self._shapes[position].capacity[name].value
                rest = Quantity.from_nanos(max(available, 0), total.format)
                return RejectionReason(
                    reason=Reason.CAPACITY,
                    verb=Verb.HAVE,
                    subject=name,
                    value=f"{format_amount(rest)} of {format_amount(total)} left",
                    remark=f"< {format_amount(amount)}",
                )
        return None

    def _message(self, request: Request, position: int, error: AttemptFailed) -> str:
        device = self._devices[position].id
        return f"request {request.full_name}: checking capacity for device {device}: {error}"

    def _consumption(self, request: Request, shape: Shape) -> Consumption | RejectionReason:
        # Not by request: it has the user's selectors, and a cache would keep them.
        capacity = request.capacity
        amounts = None if capacity is None else tuple(capacity.items())
        formats = tuple([amount.format for _, amount in amounts or ()])
        return _cached_consumption(amounts, formats, shape, fractional=self._fractional)

    def _compute_needs(self, request: Request, position: int) -> _Needs:
        consumed_amounts = self.consumption_at(request, position)
        needs = _NEVER
        if isinstance(consumed_amounts, Consumption):
            needs = tuple(
                [
                    (index, amount.nanos)
                    for index, amount in enumerate(consumed_amounts.amounts.values())
                ]
            )
        self._needs.setdefault(request, [None] * len(self._devices))[position] = needs
        return needs


@lru_cache(maxsize=_SHAPES)
def device_shape(published_device: PublishedDevice) -> Shape:
    """Return the part of a device that matters here, from a cache."""
    device = published_device.device
    capacity = tuple(sorted((device.capacity or {}).items(), key=_name))
    # Equal amounts may have different formats, which results show.
    formats = tuple(
        amount.format
        for _, device_capacity in capacity
        for amount in _possible_amounts(device_capacity)
    )
    return _shape(device.allow_multiple_allocations or False, capacity, formats)


@lru_cache(maxsize=_SHAPES)
def _shape(
    shareable: bool,  # noqa: FBT001
    capacity: tuple[tuple[str, DeviceCapacity], ...],
    _formats: tuple[Format, ...],
) -> Shape:
    return Shape(shareable=shareable, capacity=dict(capacity))


@lru_cache(maxsize=_ANSWERS)
def _cached_consumption(
    amounts: tuple[tuple[str, Quantity], ...] | None,
    _formats: tuple[Format, ...],
    shape: Shape,
    *,
    fractional: bool,
) -> Consumption | RejectionReason:
    requested = None if amounts is None else dict(amounts)
    return capacity_consumption(requested, shape.capacity, fractional=fractional)


def _available(shape: Shape, use: DeviceUse | None) -> list[int]:
    """Return the available amount of each capacity, in nano-units."""
    in_use = (use.capacity if use is not None else None) or {}
    return [
        capacity.value.nanos - (in_use[name].nanos if name in in_use else 0)
        for name, capacity in shape.capacity.items()
    ]


def _name(item: tuple[str, DeviceCapacity]) -> str:
    return item[0]


def _possible_amounts(capacity: DeviceCapacity) -> Iterator[Quantity]:
    """Yield every amount with a format that a share of the capacity may have."""
    yield capacity.value
    policy = capacity.request_policy
    if policy is not None:
        range_ = policy.valid_range
        bounds = (range_.min, range_.max, range_.step) if range_ is not None else ()
        for amount in (policy.default, *(policy.valid_values or ()), *bounds):
            if amount is not None:
                yield amount
