"""Bounds on the sums of amounts, such as the rest of a tenant's budget.

Not of Kubernetes. A bound never turns a later no into a yes: amounts are not negative.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from allocator.model.amount_bound import AmountBound, Counted, capacity_amount
from allocator.model.constraint import RemainingDemand
from allocator.model.devices import NodeDevices
from allocator.model.outcome import AttemptFailed, Reason, RejectionReason, Verb
from allocator.model.requests import Request
from kube.quantity import Quantity

T = TypeVar("T")

_EXCEEDED: Final = RejectionReason(
    reason=Reason.QUOTA, verb=Verb.EXCEED, subject="what is left of a quota"
)


class Shares(Protocol):
    """The consumption of shares, as the allocator's constraint on capacities knows it."""

    def consumed_capacity(self, request: Request, position: int) -> Mapping[str, Quantity] | None:
        """Return the consumed capacity in the result of a share; None for a dedicated device.

        Raises:
            AttemptFailed: It cannot be computed.
        """
        ...


class AmountBounds:
    """Several bounds, each with the sums so far."""

    def __init__(
        self,
        node: NodeDevices,
        bounds: Iterable[AmountBound],
        requests: Sequence[Request],
        capacity: Shares | None,
    ) -> None:
        """Begin with sums of nothing.

        Args:
            requests: All requests and alternatives of the attempt.
            capacity: The consumption of shares; None if there are none.
        """
        self._requests = requests
        self._sums = tuple(_Sums(node, bound, capacity) for bound in bounds)

    def equivalence_key(self, position: int) -> Hashable:
        """Return the amount that a device counts for each request."""
        return tuple(
            [sums.amount(request, position) for sums in self._sums for request in self._requests]
        )

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:
        """Add the amount that a device counts to all sums, if none exceeds its bound."""
        if self._exceeds(request, position):
            return False
        for sums in self._sums:
            sums.count(request, position, 1)
        return True

    def remove(self, request: Request, position: int, *, further_share: bool) -> None:
        """Subtract the amount that a device counts from all sums."""
        for sums in self._sums:
            sums.count(request, position, -1)

    def state_key(self) -> Hashable:
        """Return all sums."""
        return tuple([sums.state_key() for sums in self._sums])

    def residual_key(self, remaining: RemainingDemand) -> Hashable:
        """Return the sums without those of claims that have all their devices."""
        return tuple([sums.residual_key(remaining) for sums in self._sums])

    def rejection(
        self, request: Request, position: int, *, further_share: bool
    ) -> RejectionReason | None:
        """Return that a bound would be exceeded."""
        return _EXCEEDED if self._exceeds(request, position) else None

    def _exceeds(self, request: Request, position: int) -> bool:
        return any(sums.would_exceed(request, position) for sums in self._sums)


class _Sums:
    """The sums of one bound."""

    def __init__(self, node: NodeDevices, bound: AmountBound, capacity: Shares | None) -> None:
        self._bound = bound
        self._capacity = capacity
        self._amounts = [bound.amounts.get(device.id) for device in node.devices]
        self._amounts_for: dict[Request, list[int | None]] = {}
        self._total = 0
        # The numbers of counted devices by claim, and by claim and position.
        self._of_claim: Counter[int] = Counter()
        self._of_device: Counter[tuple[int, int]] = Counter()
        # Sums by claim and request, and by claim and position.
        self._by_request: Counter[tuple[int, int]] = Counter()
        self._by_device: Counter[tuple[int, int]] = Counter()

    def amount(self, request: Request, position: int) -> int | None:
        """Return the amount that a device counts for a request; None for one that does not count."""
        amounts = self._amounts_for.get(request)
        if amounts is None:
            amounts = self._amounts_for[request] = [
                self._amount(request, place) for place in range(len(self._amounts))
            ]
        return amounts[position]

    def would_exceed(self, request: Request, position: int) -> bool:
        """Return True if a further device of a request exceeds the bound."""
        amount = self.amount(request, position)
        if amount is None:
            return False
        bound, claim = self._bound, request.claim
        in_total, in_parts = self._increments(amount, claim, position)
        return (
            (in_total > 0 and self._total + in_total > bound.total)
            or _is_above(self._by_request[claim, request.index] + in_parts, bound.per_request)
            or _is_above(self._by_device[claim, position] + in_parts, bound.per_device)
        )

    def count(self, request: Request, position: int, sign: int) -> None:
        """Add a device of a request; with -1 take the latest one back."""
        amount = self.amount(request, position)
        if amount is None:
            return
        claim = request.claim
        if sign < 0:
            _add(self._of_claim, claim, -1)
            _add(self._of_device, (claim, position), -1)
        in_total, in_parts = self._increments(amount, claim, position)
        self._total += sign * in_total
        _add(self._by_request, (claim, request.index), sign * in_parts)
        _add(self._by_device, (claim, position), sign * in_parts)
        if sign > 0:
            _add(self._of_claim, claim, 1)
            _add(self._of_device, (claim, position), 1)

    def state_key(self) -> Hashable:
        """Return the state."""
        return (
            self._total,
            frozenset(self._of_device.items()),
            frozenset(self._by_request.items()),
            frozenset(self._by_device.items()),
        )

    def residual_key(self, remaining: RemainingDemand) -> Hashable:
        """Return the part of the state that counts for the remaining requests."""
        claim, index = remaining.claim, remaining.index
        return (
            self._total,
            frozenset([number for number in self._of_claim if number >= claim]),
            frozenset(
                [
                    (place, self._by_device[place])
                    for place in self._of_device
                    if place[0] >= claim and remaining.positions >> place[1] & 1
                ]
            ),
            frozenset([item for item in self._by_request.items() if item[0] >= (claim, index)]),
        )

    def _increments(self, amount: int, claim: int, position: int) -> tuple[int, int]:
        """Return the increments by one more device: of the total, and of the sums of request and device."""
        match self._bound.counted:
            case Counted.EACH_TIME:
                return amount, amount
            case Counted.ONCE_PER_DEVICE:
                first = 0 if self._of_device[claim, position] else amount
                return first, first
            case Counted.ONCE_PER_CLAIM:
                return 0 if self._of_claim[claim] else amount, amount

    def _amount(self, request: Request, position: int) -> int | None:
        bound, amount = self._bound, self._amounts[position]
        if amount is None or request.admin:
            return None
        if bound.classes and request.device_class.metadata.name not in bound.classes:
            return None
        if bound.capacity is None or self._capacity is None:
            return amount
        try:
            consumed_amounts = self._capacity.consumed_capacity(request, position)
        except AttemptFailed:
            return amount  # The search fails where it comes to this device, and not before.
        if consumed_amounts is None:
            return amount
        return capacity_amount(consumed_amounts, bound.capacity, bound.driver)


def _is_above(amount: int, most: int | None) -> bool:
    return most is not None and amount > most


def _add(counter: Counter[T], key: T, amount: int) -> None:
    """Add to a counter without an entry for zero."""
    value = counter[key] + amount
    if value:
        counter[key] = value
    else:
        counter.pop(key, None)
