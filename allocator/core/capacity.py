"""Amounts of a device: what a request consumes of them and whether enough is left (KEP-5075).

The check is of every device. On a dedicated one it only asks whether the device is large enough;
of one that allows multiple allocations each share takes its part of every capacity.

Source: k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/consumable_capacity.go.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from allocator.core.model import (
    DeviceUse,
    Features,
    NodeDevices,
    PoolUse,
    PublishedDevice,
    Request,
    Usage,
)
from allocator.core.outcome import AttemptFailed, Reason, Refusal
from allocator.core.tracker import Ahead
from kube.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceCapacity,
)
from kube.quantity import Quantity, readable

_NANOS: Final = 10**9
_MILLIS: Final = 10**6
"""Nano-units in a thousandth."""
_MAX_INT64: Final = 2**63 - 1

_NODES: Final = 8192
_SHAPES: Final = 1 << 16
_ANSWERS: Final = 1 << 12
_NOT_IN_USE: Final[PoolUse] = {}
_Needs = tuple[tuple[int, int], ...]
"""Index of a capacity to nano-units, for each capacity of a device."""

_NEVER: Final[_Needs] = ((-1, -1),)
"""Stands for the needs of a request that no use of the device leaves room for."""


class Consumption(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a request takes of a device.

    Attributes:
        amounts: Of *every* capacity of the device, asked for or not, zero included; by key, sorted.
    """

    amounts: Mapping[str, Quantity]


class Shape(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All that is looked at here of a device; one object for all devices that are alike.

    Attributes:
        shared: Whether it allows multiple allocations.
        capacity: By key, sorted.
    """

    shared: bool
    capacity: Mapping[str, DeviceCapacity]


# --- what a request consumes ----------------------------------------------------------------------


def consumption(
    asked: Mapping[str, Quantity] | None, device: Device, features: Features
) -> Consumption | Refusal:
    """Return what a request consumes of a device, or why no such device will ever do.

    Raises:
        AttemptFailed: An amount is negative, or beyond the arithmetic of the device's range. That
            is broken data and no mismatch that another device could heal.
    """
    fractional = features.fractional_capacity_range
    return _consumption(asked, device.capacity or {}, fractional=fractional)


def _consumption(
    asked: Mapping[str, Quantity] | None,
    capacity: Mapping[str, DeviceCapacity],
    *,
    fractional: bool,
) -> Consumption | Refusal:
    asked = asked or {}
    for name in sorted(asked):
        # Keys are compared as they are written: no driver's domain is added or taken away.
        if name not in capacity:
            return Refusal(reason=Reason.NO_SUCH_CAPACITY, detail=f"it has no capacity {name}")
    # What is fatal comes before what only rules this device out, whatever the order of the keys.
    amounts = {
        name: _consumed(name, asked.get(name), each, fractional=fractional)
        for name, each in sorted(capacity.items())
    }
    for name, amount in amounts.items():
        total = capacity[name].value
        refusal = _violation(name, amount, capacity[name].request_policy, fractional=fractional)
        if refusal is not None:
            return refusal
        if amount > total:
            return Refusal(
                reason=Reason.CAPACITY, detail=f"{name} {readable(total)} below {readable(amount)}"
            )
    return Consumption(amounts=amounts)


def _consumed(
    name: str, asked: Quantity | None, capacity: DeviceCapacity, *, fractional: bool
) -> Quantity:
    """Return the amount that a share takes of one capacity.

    Source: calculateConsumedCapacity.
    """
    policy = capacity.request_policy
    if asked is None:
        # "If no requestPolicy, return capacity value": silence takes everything.
        default = policy.default if policy is not None else None
        amount = capacity.value if default is None else default
    elif policy is None:
        amount = asked
    elif policy.valid_range is not None and policy.valid_range.min is not None:
        amount = _in_range(name, asked, policy.valid_range, fractional=fractional)
    else:
        # The first of the valid values, which ascend, that is enough. If none is, the amount as
        # asked: it then violates the policy.
        valid = policy.valid_values or ()
        amount = next((each for each in valid if asked <= each), asked)
    if amount.nanos < 0:
        raise AttemptFailed(f"capacity {name}: capacity value is negative")
    return amount


def _in_range(
    name: str, asked: Quantity, range_: CapacityRequestPolicyRange, *, fractional: bool
) -> Quantity:
    """Return an amount raised to the minimum, then to the next step from there.

    The result is written as the step is. Source: roundUpRange.
    """
    assert range_.min is not None
    if asked < range_.min:
        return range_.min
    if range_.step is None:
        return asked
    exact = _is_exact_in_thousandths(range_, fractional=fractional)
    unit = _MILLIS if exact else _NANOS
    if exact and _thousandths(asked) is None:
        raise _not_representable(name, f"{asked} is no number of thousandths")
    if not exact and asked.nanos > _MAX_INT64 * _NANOS:
        raise _not_representable(name, f"{asked} is beyond 64 bits")
    start, step = _units(range_.min, unit), _step(name, range_.step, unit)
    if exact and start < 0:
        # Upstream's guard against overflow overflows itself.
        raise _not_representable(name, f"minimum {range_.min} is negative")
    rounded = start + -(-(_units(asked, unit) - start) // step) * step
    if rounded > _MAX_INT64:
        raise _not_representable(name, f"{asked} rounded up to the next step is beyond 64 bits")
    return Quantity.from_nanos(rounded * unit, range_.step.format)


def _violation(
    name: str, amount: Quantity, policy: CapacityRequestPolicy | None, *, fractional: bool
) -> Refusal | None:
    """Return how an amount violates the policy that it was rounded by.

    Source: violatesPolicy.
    """
    if policy is None or _is_identical(amount, policy.default):
        return None
    if policy.valid_range is not None:
        return _out_of_range(name, amount, policy.valid_range, fractional=fractional)
    if policy.valid_values and amount not in policy.valid_values:
        largest = policy.valid_values[-1]
        told = f"the largest is {readable(largest)}"
        detail = f"{name} {readable(amount)} is not a valid value, {told}"
        return Refusal(reason=Reason.NOT_A_VALID_VALUE, detail=detail)
    return None


def _out_of_range(
    name: str, amount: Quantity, range_: CapacityRequestPolicyRange, *, fractional: bool
) -> Refusal | None:
    if range_.max is not None and amount > range_.max:
        detail = f"{name} {readable(amount)} above the maximum {readable(range_.max)}"
        return Refusal(reason=Reason.ABOVE_MAXIMUM, detail=detail)
    if range_.step is None or range_.min is None:
        return None
    exact = _is_exact_in_thousandths(range_, fractional=fractional)
    unit = _MILLIS if exact else _NANOS
    step = _step(name, range_.step, unit)
    is_step = not (_units(amount, unit) - _units(range_.min, unit)) % step
    if is_step and not (exact and _thousandths(amount) is None):
        return None
    detail = f"{name} {amount} is not {range_.min} plus steps of {range_.step}"
    return Refusal(reason=Reason.NOT_A_STEP, detail=detail)


def _is_identical(amount: Quantity, default: Quantity | None) -> bool:
    """Return whether an amount is the default as it is written: upstream compares with ==.

    It matters only for a default that violates its own policy, which the API server refuses.
    Unlike upstream's, the answer does not depend on whether Go keeps the amount in 64 bits.
    """
    return default is not None and amount == default and amount.format == default.format


def _is_exact_in_thousandths(range_: CapacityRequestPolicyRange, *, fractional: bool) -> bool:
    """Return whether steps are counted in thousandths, and not in whole numbers rounded up.

    The KEP wants this of ranges that have a fraction; upstream's useMilli does not look for one.
    """
    bounds = (range_.min, range_.max, range_.step)
    return fractional and all(each is None or _thousandths(each) is not None for each in bounds)


def _thousandths(amount: Quantity) -> int | None:
    """Return an amount in thousandths; None when it has a finer part or exceeds 64 bits."""
    whole, rest = divmod(amount.nanos, _MILLIS)
    return whole if not rest and abs(whole) <= _MAX_INT64 else None


def _units(amount: Quantity, unit: int) -> int:
    """Return an amount in whole units, rounded away from zero as upstream's Value()."""
    return -(-amount.nanos // unit) if amount.nanos >= 0 else amount.nanos // unit


def _step(name: str, step: Quantity, unit: int) -> int:
    """Return a step in whole units; the API server accepts positive ones only."""
    if step.nanos <= 0:
        raise _not_representable(name, f"step {step} is not positive")
    return _units(step, unit)


def _not_representable(name: str, why: str) -> AttemptFailed:
    return AttemptFailed(
        f"capacity {name}: capacity request cannot be represented in the device's range arithmetic:"
        f" {why}"
    )


# --- whether enough is left -----------------------------------------------------------------------


def tracker(
    node: NodeDevices, usage: Usage, requests: Sequence[Request], features: Features
) -> "Capacity | None":
    """Return the tracker of an attempt; None when no amount has a say in it."""
    if not features.consumable_capacity:
        return None
    if not any(each.capacity for each in requests) and not _is_restrained(node):
        # Silence takes all of a dedicated device, and its own amount is always enough of it,
        # unless shares of it are still in use from when it allowed them.
        in_use = (usage.pools.get(pool.id, _NOT_IN_USE) for pool in node.pools)
        if not any(use.capacity is not None for pool in in_use for use in pool.values()):
            return None
    return Capacity(node, usage, features)


@lru_cache(maxsize=_NODES)
def _is_restrained(node: NodeDevices) -> bool:
    """Return whether amounts of some device can matter to a request that asks for none."""
    return any(
        each.device.allow_multiple_allocations
        or any(
            one.request_policy is not None or one.value.nanos < 0
            for one in (each.device.capacity or {}).values()
        )
        for each in node.devices
    )


class Capacity:
    """What is left of the capacities of a node's devices."""

    def __init__(self, node: NodeDevices, usage: Usage, features: Features) -> None:
        """Take off what is in use."""
        self._devices = node.devices
        self._fractional = features.fractional_capacity_range
        self._shapes = [shape(each) for each in node.devices]
        self._shared = [each.shared for each in self._shapes]
        self._alike: dict[Shape, int] = {}
        for position, each in enumerate(self._shapes):
            self._alike[each] = self._alike.get(each, 0) | 1 << position
        uses = [usage.pools.get(pool.id, _NOT_IN_USE) for pool in node.pools]
        # Nano-units by key, sorted; of dedicated devices they never change.
        self._room = [
            _room(of, uses[pool].get(each.id.device))
            for of, each, pool in zip(self._shapes, node.devices, node.pool_of, strict=True)
        ]
        self._changing = [
            room for room, shared in zip(self._room, self._shared, strict=True) if shared
        ]
        self._ahead: dict[Ahead, list[list[int]]] = {}
        self._needs: dict[Request, list[_Needs | None]] = {}
        numbers: dict[Hashable, int] = {}
        self._sees = [
            numbers.setdefault((each, tuple(room)), len(numbers))
            for each, room in zip(self._shapes, self._room, strict=True)
        ]

    def static(self, request: Request, position: int) -> Consumption | Refusal:
        """Return what a request takes of a device, or why it never will do, whoever uses it.

        The refusals of this are what mode All leaves out of its list.

        Raises:
            AttemptFailed: See `consumption`.
        """
        try:
            return _answer(request, self._shapes[position], fractional=self._fractional)
        except AttemptFailed as error:
            raise AttemptFailed(self._message(request, position, error)) from error

    def unsuited(self, request: Request, positions: int) -> tuple[int, Mapping[int, str]]:
        """Return which of the devices will never do, and those that cannot be judged, with why.

        Args:
            positions: A mask of those in question.
        """
        short, broken = 0, {}
        for of, alike in self._alike.items():
            here = alike & positions
            try:
                if here and isinstance(_answer(request, of, fractional=self._fractional), Refusal):
                    short |= here
            except AttemptFailed as error:
                for position in range(here.bit_length()):
                    if here >> position & 1:
                        broken[position] = self._message(request, position, error)
        return short, broken

    def consumed(self, request: Request, position: int) -> Mapping[str, Quantity] | None:
        """Return what the result says that a share consumes; None for a dedicated device."""
        if not self._shared[position]:
            return None
        answer = self.static(request, position)
        return answer.amounts if isinstance(answer, Consumption) else None

    def amounts(self, request: Request, position: int) -> tuple[int, ...]:
        """Return the nano-units that a share takes of each capacity, by key; static() told them."""
        answer = self.static(request, position)
        if isinstance(answer, Refusal):
            return (0,) * len(self._room[position])
        return tuple([each.nanos for each in answer.amounts.values()])

    def shares(self, position: int, amounts: Sequence[int]) -> int:
        """Return how many shares of such amounts there is room for; as good as any if of nothing.

        Args:
            amounts: Nano-units of each capacity, by key.
        """
        room = self._room[position]
        counts = [
            max(0, left) // nanos for left, nanos in zip(room, amounts, strict=True) if nanos > 0
        ]
        return min(counts, default=_MAX_INT64)

    def sees(self, position: int) -> Hashable:
        """Return the capacities of a device, their policies and what is in use, as a number."""
        return self._sees[position]

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:  # noqa: ARG002
        """Take what a request consumes of a device, if there is enough of everything.

        Raises:
            AttemptFailed: See `consumption`.
        """
        row = self._needs.get(request)
        needs = row[position] if row is not None else None
        if needs is None:
            needs = self._needed(request, position)
        if needs is _NEVER:
            return False
        room = self._room[position]
        for index, nanos in needs:
            if room[index] < nanos:
                return False
        if self._shared[position]:
            for index, nanos in needs:
                room[index] -= nanos
        return True

    def undo(self, request: Request, position: int, *, further_share: bool) -> None:  # noqa: ARG002
        """Give back what the latest `add` took."""
        if self._shared[position]:
            room, needs = self._room[position], self._needs[request][position]
            for index, nanos in needs or ():
                room[index] += nanos

    def state(self) -> Hashable:
        """Return what is left of devices that can be shared."""
        return tuple([tuple(room) for room in self._changing])

    def outlook(self, ahead: Ahead) -> Hashable:
        """Return what is left of the devices ahead that can be shared."""
        rooms = self._ahead.get(ahead)
        if rooms is None:
            rooms = self._ahead[ahead] = [
                room
                for position, (room, shared) in enumerate(
                    zip(self._room, self._shared, strict=True)
                )
                if shared and ahead.positions >> position & 1
            ]
        return tuple([tuple(room) for room in rooms])

    def refusal(self, request: Request, position: int, *, further_share: bool) -> Refusal | None:  # noqa: ARG002
        """Return which capacity has too little left.

        Raises:
            AttemptFailed: See `consumption`.
        """
        answer = self.static(request, position)
        if isinstance(answer, Refusal):
            return answer
        for left, (name, amount) in zip(self._room[position], answer.amounts.items(), strict=True):
            if amount.nanos > left:
                total = self._shapes[position].capacity[name].value
                remains = Quantity.from_nanos(max(left, 0), total.format)
                left_of_it = f"{readable(remains)} of {readable(total)} left"
                detail = f"{name}: {left_of_it}, {readable(amount)} needed"
                return Refusal(reason=Reason.CAPACITY, detail=detail)
        return None

    def _message(self, request: Request, position: int, error: AttemptFailed) -> str:
        device = self._devices[position].id
        return f"request {request.full_name}: checking capacity for device {device}: {error}"

    def _needed(self, request: Request, position: int) -> _Needs:
        answer = self.static(request, position)
        needs = _NEVER
        if isinstance(answer, Consumption):
            needs = tuple([(i, each.nanos) for i, each in enumerate(answer.amounts.values())])
        self._needs.setdefault(request, [None] * len(self._devices))[position] = needs
        return needs


@lru_cache(maxsize=_SHAPES)
def shape(published: PublishedDevice) -> Shape:
    """Return what matters here of a device."""
    device = published.device
    capacity = tuple(sorted((device.capacity or {}).items(), key=_key))
    # Equal amounts may be written in different families, which results show.
    written = tuple(amount.format for _, each in capacity for amount in _amounts(each))
    return _shape(device.allow_multiple_allocations or False, capacity, written)


@lru_cache(maxsize=_SHAPES)
def _shape(
    shared: bool,  # noqa: FBT001
    capacity: tuple[tuple[str, DeviceCapacity], ...],
    _written: tuple[str, ...],
) -> Shape:
    return Shape(shared=shared, capacity=dict(capacity))


@lru_cache(maxsize=_ANSWERS)
def _answer(request: Request, of: Shape, *, fractional: bool) -> Consumption | Refusal:
    return _consumption(request.capacity, of.capacity, fractional=fractional)


def _room(of: Shape, use: DeviceUse | None) -> list[int]:
    """Return what is left of each capacity, in nano-units."""
    in_use = (use.capacity if use is not None else None) or {}
    return [
        each.value.nanos - (in_use[name].nanos if name in in_use else 0)
        for name, each in of.capacity.items()
    ]


def _key(item: tuple[str, DeviceCapacity]) -> str:
    return item[0]


def _amounts(capacity: DeviceCapacity) -> Iterator[Quantity]:
    """Yield the amounts that a share of the capacity can be written as."""
    yield capacity.value
    policy = capacity.request_policy
    if policy is not None:
        range_ = policy.valid_range
        bounds = (range_.min, range_.max, range_.step) if range_ is not None else ()
        for each in (policy.default, *(policy.valid_values or ()), *bounds):
            if each is not None:
                yield each
