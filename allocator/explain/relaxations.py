"""Relaxations of claims: possible changes that make them fit, and the cost of each.

A relaxation is about the count of a request, an amount, a condition of a selector, a taint that is
not tolerated, or a constraint. Its options go from the least change to the most, so that claims that
fit with one option fit with all later ones, unless a request has mode All. Options are taken from
what is published: the amounts that devices have, or have left, and the taints that they bear.

Which change is smallest is a matter of taste. These are the costs, which are added up:

=========================================  ========================================
a lower bound of a selector, or amount     10, and 30 for losing all of it
fewer devices                              10, and 60 for losing all of them
devices by number instead of all           15, and 60 for losing all of them
an amount where none was requested         20, and 30 for losing all of it
another value that a selector requires     20, and 25 for one with nothing in common
a taint tolerated                          20; 35 where it also evicts
a similar attribute in a constraint        20 to 24
a constraint dropped (half of a count: 40)  45
a condition of a selector dropped          50
an amount no longer requested              60
=========================================  ========================================

Classes belong to the cluster, so their selectors stay, and a request keeps its class.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from allocator.explain.constraint_relaxations import find_constraint_relaxations
from allocator.explain.equal_values import EqualValue, find_equal_values
from allocator.explain.partial_amounts import amounts_beside, amounts_within
from allocator.explain.relaxation import Edit, Kind, Option, Relaxation
from allocator.explain.selector import conjuncts, lower_bound, one_line
from allocator.explain.wording import enumerate_names
from allocator.features import device_taints as taints
from allocator.model.devices import NodeDevices
from allocator.model.requests import PendingClaims, Request
from allocator.model.selectors import SelectorChain, selector_chain
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions
from findings.field_path import FieldPath
from findings.text import count_text
from kube.api.resource import (
    MAX_RESULTS,
    CapacityRequirements,
    CelSelector,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
)
from kube.errors import QuantityError
from kube.quantity import Quantity

_MAX_OPTIONS: Final = 48
MAX_TOLERATIONS: Final = 16
"""The maximum number of tolerations of one request (API limit)."""

_AMOUNT, _AMOUNT_LOST, _AMOUNT_DROPPED = 10, 30, 60
_COUNT, _COUNT_LOST, _ALL = 10, 60, 15
_DEFAULT: Final = 20
_VALUE, _VALUE_LOST = 20, 25
_TAINT, _EVICTING_TAINT = 20, 35
_CONDITION: Final = 50

_Exact = ExactDeviceRequest | DeviceSubRequest


def find_relaxations(
    nodes: Sequence[NodeDevices], pending: PendingClaims, usage: Usage, rules: AllocatorOptions
) -> Iterator[Relaxation]:
    """Yield all relaxations of claims, in the order of their requests.

    Args:
        nodes: Their devices limit what can be had.
        pending: The claims.
        usage: Devices that are in use.
    """
    beside = amounts_beside(pending)
    for number, (claim, requests) in enumerate(zip(pending.claims, pending.requests, strict=True)):
        for index, alternatives in enumerate(requests):
            for place, request in enumerate(alternatives):
                yield from _RequestRelaxations(
                    nodes, request, place, usage, rules, beside=beside[number, index]
                ).relaxations()
        yield from find_constraint_relaxations(nodes, number, claim, requests)


def cost_of_fewer(count: int, whole: int) -> int:
    """Return the cost of fewer devices, or of fewer pods of a group, than a whole number."""
    return _COUNT + _COUNT_LOST * (whole - count) // max(whole, 1)


class _RequestRelaxations:
    """Relaxations of one request, or of one of its alternatives."""

    def __init__(
        self,
        nodes: Sequence[NodeDevices],
        request: Request,
        place: int,
        usage: Usage,
        rules: AllocatorOptions,
        *,
        beside: Mapping[str, Collection[int]],
    ) -> None:
        self._request = request
        self._place = place
        self._beside = beside
        self._usage = usage
        self._rules = rules
        class_selectors = class_chain(request)
        self._by_node = [
            [device for device in node.devices if class_selectors.verdict(device) is True]
            for node in nodes
        ]
        self._devices = [device for devices in self._by_node for device in devices]

    def relaxations(self) -> Iterator[Relaxation]:
        """Yield those that have an option."""
        requested_amounts = self._request.capacity or {}
        count = self._field.child("count")
        # With mode All the count alone is not allowed.
        field = None if self._request.all_devices else count
        yield from self._relaxation(Kind.COUNT, self._counts(), field=field)
        for name in sorted(requested_amounts):
            yield from self._relaxation(
                Kind.CAPACITY,
                self._amounts(name, requested_amounts[name]),
                field=self._field.child("capacity", "requests").key(name),
            )
            dropped_amount = self._without_amount(name, requested_amounts[name])
            yield from self._relaxation(Kind.CAPACITY, dropped_amount, may_exclude=True)
        for name in self._shared_capacities(requested_amounts):
            yield from self._relaxation(Kind.CAPACITY, self._defaults(name), may_exclude=True)
        for options in self._tolerations():
            yield from self._relaxation(Kind.TOLERATION, options)
        for options in self._conditions():
            yield from self._relaxation(Kind.SELECTOR, options)

    @property
    def _field(self) -> FieldPath:
        """The field of the request, or of the alternative, below the claim's devices."""
        request = FieldPath.of("requests", self._request.index)
        if self._request.parent:
            return request.child("firstAvailable", self._place)
        return request.child("exactly")

    def _relaxation(
        self,
        kind: Kind,
        options: Sequence[Option],
        *,
        may_exclude: bool = False,
        field: FieldPath | None = None,
    ) -> Iterator[Relaxation]:
        if options:
            request = self._request
            kept_options = tuple(_thin_out(options))
            yield Relaxation(
                request.claim, request.full_name, kind, kept_options, may_exclude, field
            )

    def _counts(self) -> list[Option]:
        request = self._request
        if request.all_devices:
            largest = min(max(map(len, self._by_node), default=0), MAX_RESULTS)
            base, whole = _ALL, largest
        else:
            largest = min(request.count - 1, MAX_RESULTS)
            base, whole = _COUNT, request.count

        def option(count: int) -> Option:
            cost = base - _COUNT + cost_of_fewer(count, whole)
            edit = self._edit(
                lambda exact: replace(exact, allocation_mode="ExactCount", count=count)
            )
            detail = f"request {count_text(count, 'device')}"
            if request.all_devices:
                detail += " with allocationMode ExactCount"
            return Option(cost, detail, edit, Quantity.from_int(count))

        return [option(count) for count in range(largest, 0, -1)]

    def _amounts(self, name: str, requested_amount: Quantity) -> list[Option]:
        return [
            Option(
                _AMOUNT + _lost_amount(amount.nanos, requested_amount.nanos),
                f"request {name} {amount}",
                self._with_amount(name, amount),
                amount,
            )
            for amount in self._smaller(name, requested_amount)
        ]

    def _without_amount(self, name: str, requested_amount: Quantity) -> list[Option]:
        """Return the option to request no amount, if some device does not have the capacity."""
        if all(name in (device.device.capacity or {}) for device in self._devices):
            return []
        edit = self._with_amount(name, None)
        return [Option(_AMOUNT_DROPPED, f"drop the request for {name} {requested_amount}", edit)]

    def _defaults(self, name: str) -> list[Option]:
        """Return amounts in place of the whole capacity, or of its default."""
        whole = max(capacity.value for capacity in self._capacities(name))
        return [
            Option(
                _DEFAULT + _lost_amount(amount.nanos, whole.nanos),
                f"request {name} {amount}",
                self._with_amount(name, amount),
            )
            for amount in self._smaller(name, whole)
        ]

    def _shared_capacities(self, requested_amounts: Mapping[str, Quantity]) -> list[str]:
        if not self._rules.features.consumable_capacity:
            return []
        names = {
            name
            for device in self._devices
            if device.device.allow_multiple_allocations
            for name in device.device.capacity or {}
        }
        return sorted(names - requested_amounts.keys())

    def _capacities(self, name: str) -> list[DeviceCapacity]:
        capacities = (device.device.capacity or {} for device in self._devices)
        return [by_name[name] for by_name in capacities if name in by_name]

    def _smaller(self, name: str, requested_amount: Quantity) -> list[Quantity]:
        """Return smaller amounts that some device has, or has left beside other requests, the largest first."""
        nanos: set[int] = set()
        for device in self._devices:
            capacity = (device.device.capacity or {}).get(name)
            if capacity is None:
                continue
            use = self._usage.of(device.id)
            consumed_amounts = (use.capacity if use is not None else None) or {}
            free_nanos = capacity.value.nanos - (
                consumed_amounts[name].nanos if name in consumed_amounts else 0
            )
            nanos.update(amounts_within(capacity, free_nanos))
            nanos.update(amounts_within(capacity, capacity.value.nanos))
            for other in self._beside.get(name, ()):
                nanos.update(islice(amounts_within(capacity, free_nanos - other), 1))
        return [
            Quantity.from_nanos(amount, requested_amount.format)
            for amount in sorted(nanos, reverse=True)
            if 0 < amount < requested_amount.nanos
        ]

    def _tolerations(self) -> Iterator[list[Option]]:
        """Yield one option for each set of taints that excludes some device."""
        if not self._rules.features.device_taints:
            return
        sets: dict[tuple[DeviceTaint, ...], None] = {}
        for device in self._devices:
            untolerated_taints: list[DeviceTaint] = []
            more_tolerations = list(self._request.tolerations)
            while (taint := taints.find_untolerated(device.device, more_tolerations)) is not None:
                untolerated_taints.append(replace(taint, time_added=None))
                more_tolerations.append(_toleration(taint))
            if untolerated_taints and len(more_tolerations) <= MAX_TOLERATIONS:
                sets[tuple(untolerated_taints)] = None
        for blocking in sorted(sets, key=len):
            cost = sum(_EVICTING_TAINT if _evicts(taint) else _TAINT for taint in blocking)
            tolerations = tuple(map(_toleration, blocking))
            names = enumerate_names([_taint_name(taint) for taint in blocking])
            yield [
                Option(
                    cost,
                    f"let the claim tolerate taint {names}",
                    self._tolerating(tolerations),
                    taints=tuple(taint.key for taint in blocking),
                )
            ]

    def _conditions(self) -> Iterator[list[Option]]:
        """Yield options for each condition of the request's own selectors."""
        own = self._request.expressions[len(self._request.device_class.spec.selectors or ()) :]
        for text in dict.fromkeys(
            part for expression in own for part in conjuncts(expression.text)
        ):
            for equal in find_equal_values(text, self._devices):
                yield [self._requiring(text, equal)]
            options = list(self._bounds(text))
            detail = f"drop selector {one_line(text)}"
            yield [*options, Option(_CONDITION, detail, self._rewording(text, None))]

    def _requiring(self, text: str, equal: EqualValue) -> Option:
        """Return the option that a condition requires another value."""
        before, after = one_line(equal.before), one_line(equal.after)
        return Option(
            _VALUE + round(_VALUE_LOST * equal.distance),
            f"write {after} for {before} in selector {one_line(text)}",
            self._rewording(text, equal.condition),
            value=equal.value,
        )

    def _bounds(self, text: str) -> Iterator[Option]:
        bound = lower_bound(text)
        if bound is None:
            return
        written_bounds: dict[int, str] = {}
        for device in self._devices:
            value = bound.field.value(device.id.driver, device.device)
            if isinstance(value, DeviceCapacity):
                written_bounds[value.value.nanos] = bound.written_like(value.value)
            elif isinstance(value, DeviceAttribute) and value.int_ is not None:
                written_bounds[value.int_] = str(value.int_)
        least = _number(bound.amount, is_quantity=bound.field.is_capacity)
        if least is None:
            return
        for value in sorted(written_bounds, reverse=True):
            if value < least:
                amount = written_bounds[value]
                yield Option(
                    _AMOUNT + _lost_amount(value, least),
                    f"write {amount} for {bound.amount} in selector {one_line(text)}",
                    self._rewording(text, bound.replace_amount(text, amount)),
                )

    # --- edits -----------------------------------------------------------------------------------

    def _edit(self, change: Callable[[_Exact], _Exact]) -> Edit:
        """Return an edit of a claim that changes this request."""
        request, place = self._request, self._place

        def edit_devices(devices: DeviceClaim) -> DeviceClaim:
            requests = list(devices.requests or ())
            requests[request.index] = _with_changed(requests[request.index], place, change)
            return replace(devices, requests=tuple(requests))

        return edit_devices

    def _tolerating(self, added_tolerations: tuple[DeviceToleration, ...]) -> Edit:
        return self._edit(
            lambda exact: replace(
                exact, tolerations=(*(exact.tolerations or ()), *added_tolerations)
            )
        )

    def _with_amount(self, name: str, amount: Quantity | None) -> Edit:
        def change(exact: _Exact) -> _Exact:
            amounts = dict((exact.capacity.requests if exact.capacity else None) or {})
            amounts.pop(name, None)
            if amount is not None:
                amounts[name] = amount
            capacity = CapacityRequirements(requests=amounts) if amounts else None
            return replace(exact, capacity=capacity)

        return self._edit(change)

    def _rewording(self, condition: str, other: str | None) -> Edit:
        """Return an edit that replaces one condition, or drops it."""

        def change(exact: _Exact) -> _Exact:
            selectors = [_reword(selector, condition, other) for selector in exact.selectors or ()]
            return replace(exact, selectors=tuple(filter(None, selectors)) or None)

        return self._edit(change)


def _with_changed(
    request: DeviceRequest, place: int, change: Callable[[_Exact], _Exact]
) -> DeviceRequest:
    """Return a request with one alternative changed, or the only one."""
    if not request.first_available:
        return replace(request, exactly=change(request.exactly or ExactDeviceRequest()))
    alternatives = tuple(
        change(alternative) if number == place else alternative
        for number, alternative in enumerate(request.first_available)
    )
    return replace(request, first_available=alternatives)


def _reword(selector: DeviceSelector, condition: str, other: str | None) -> DeviceSelector | None:
    """Return a selector with one condition replaced, or dropped; None when none is left."""
    parts = conjuncts(selector.cel.expression) if selector.cel is not None else ()
    if condition not in parts:
        return selector
    replaced_parts = [other if part == condition else part for part in parts]
    kept_parts = [part for part in replaced_parts if part is not None]
    # A part that was in parentheses may bind weaker than what joins it now.
    text = (
        kept_parts[0] if len(kept_parts) == 1 else " && ".join(f"({part})" for part in kept_parts)
    )
    return DeviceSelector(cel=CelSelector(expression=text)) if kept_parts else None


def class_chain(request: Request) -> SelectorChain:
    """Return the selectors of the class; no relaxation changes them."""
    return selector_chain(request.expressions[: len(request.device_class.spec.selectors or ())])


def _toleration(taint: DeviceTaint) -> DeviceToleration:
    operator = "Equal" if taint.value else "Exists"
    return DeviceToleration(
        key=taint.key, operator=operator, value=taint.value, effect=taint.effect
    )


def _evicts(taint: DeviceTaint) -> bool:
    return taint.effect == "NoExecute"


def _taint_name(taint: DeviceTaint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _lost_amount(value: int, requested_amount: int) -> int:
    """Return the cost of a smaller amount."""
    if requested_amount <= 0:
        return _AMOUNT_LOST
    return _AMOUNT_LOST * max(requested_amount - value, 0) // requested_amount


def _number(text: str, *, is_quantity: bool) -> int | None:
    """Return a bound as it is compared: nano-units of a quantity, or a whole number."""
    try:
        return Quantity(text).nanos if is_quantity else int(text)
    except (QuantityError, ValueError):
        return None


def _thin_out(options: Sequence[Option]) -> Sequence[Option]:
    """Return options; of very many only some, at even distances."""
    if len(options) <= _MAX_OPTIONS:
        return options
    last = len(options) - 1
    chosen_indexes = {last * step // (_MAX_OPTIONS - 1) for step in range(_MAX_OPTIONS)}
    return [options[number] for number in sorted(chosen_indexes)]
