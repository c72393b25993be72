"""What can be changed of claims so that they may fit: dials, each with settings and what they cost.

A dial is the count of a request, an amount, a condition of a selector, a taint that is not
tolerated, a constraint. It has settings from the least change to the most, so that what fits at one
setting fits at all behind it, as far as claims without mode All go. Settings are taken from what is
there: the amounts that devices have, or have left, the taints that they bear.

Which change is smallest is a matter of taste; this is ours, as costs that are added up:

=========================================  ========================================
a lower bound of a selector, or amount     10, and 30 for losing all of it
fewer devices                              10, and 60 for losing all of them
devices by number instead of all           15, and 60 for losing all of them
an amount where none was asked             20, and 30 for losing all of it
a taint tolerated                          20; 35 where it also evicts
a constraint dropped                       35
a condition of a selector dropped          50
an amount not asked for                    60
=========================================  ========================================

Classes are the cluster's, so their selectors stay, and a request stays with its class.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec.structs import replace

from allocator.core import taints
from allocator.core.inventory import Chain, chain
from allocator.core.model import Asked, NodeDevices, Request, Usage
from allocator.core.problem import Rules
from allocator.core.unmet import bound, conjuncts, shown
from kube.api.resource import (
    MAX_RESULTS,
    CapacityRequirements,
    CelSelector,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
)
from kube.errors import QuantityError
from kube.quantity import Format, Quantity

_MAX_SETTINGS: Final = 48
MAX_TOLERATIONS: Final = 16
"""Of one request; the API server refuses more."""

_PARTS: Final = (1, 2, 3, 4, 8)
"""Into how many shares what is left of a device may have to be divided."""

_AMOUNT, _AMOUNT_LOST, _AMOUNT_DROPPED = 10, 30, 60
_COUNT, _COUNT_LOST, _ALL = 10, 60, 15
_UNASKED: Final = 20
_TAINT, _EVICTING_TAINT = 20, 35
_CONSTRAINT: Final = 35
_CONDITION: Final = 50

_Asks = ExactDeviceRequest | DeviceSubRequest
Edit = Callable[[DeviceClaim], DeviceClaim]
"""Makes one change to what a claim asks."""


class Kind(StrEnum):
    """What is changed."""

    COUNT = "count"
    CAPACITY = "capacity"
    SELECTOR = "selector"
    TOLERATION = "toleration"
    CONSTRAINT = "constraint"


class Setting(NamedTuple):
    """One way to set a dial.

    Attributes:
        detail: `count 2 instead of 3`.
    """

    cost: int
    detail: str
    edit: Edit


class Dial(NamedTuple):
    """One thing that can be changed.

    Attributes:
        settings: From the least change to the most; never empty.
        may_exclude: It may rule out devices that would do otherwise: those without a capacity
            that is now asked for, or without room for what silence takes.
    """

    claim: int
    request: str
    kind: Kind
    settings: tuple[Setting, ...]
    may_exclude: bool = False


Turned = Mapping[Dial, int]
"""Dials that are turned, and to which of their settings."""


def dials(nodes: Sequence[NodeDevices], asked: Asked, usage: Usage, rules: Rules) -> Iterator[Dial]:
    """Yield all that can be changed of claims, in the order in which they ask.

    Args:
        nodes: Whose devices tell how much there is to be had.
        asked: The claims.
        usage: What allocated claims hold.
    """
    for number, (claim, requests) in enumerate(zip(asked.claims, asked.requests, strict=True)):
        for alternatives in requests:
            for place, request in enumerate(alternatives):
                yield from _Requested(nodes, request, place, usage, rules).dials()
        for constraint in claim.spec.devices.constraints or ():
            kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
            name = constraint.match_attribute or constraint.distinct_attribute or ""
            setting = Setting(_CONSTRAINT, f"leaving out {kind} {name}", _without(constraint))
            yield Dial(number, "", Kind.CONSTRAINT, (setting,))


class _Requested:
    """What can be changed of one request, or alternative."""

    def __init__(
        self,
        nodes: Sequence[NodeDevices],
        request: Request,
        place: int,
        usage: Usage,
        rules: Rules,
    ) -> None:
        self._request = request
        self._place = place
        self._usage = usage
        self._rules = rules
        of_class = class_chain(request)
        self._by_node = [
            [each for each in node.devices if of_class.verdict(each) is True] for node in nodes
        ]
        self._devices = [each for found in self._by_node for each in found]

    def dials(self) -> Iterator[Dial]:
        """Yield all dials that have a setting."""
        asked = self._request.capacity or {}
        yield from self._dial(Kind.COUNT, self._counts())
        for name in sorted(asked):
            yield from self._dial(Kind.CAPACITY, self._amounts(name, asked[name]))
            yield from self._dial(Kind.CAPACITY, self._dropped(name, asked[name]), may_exclude=True)
        for name in self._shared_capacities(asked):
            yield from self._dial(Kind.CAPACITY, self._unasked(name), may_exclude=True)
        for settings in self._tolerations():
            yield from self._dial(Kind.TOLERATION, settings)
        for settings in self._conditions():
            yield from self._dial(Kind.SELECTOR, settings)

    def _dial(
        self, kind: Kind, settings: Sequence[Setting], *, may_exclude: bool = False
    ) -> Iterator[Dial]:
        """Yield a dial if there is any setting."""
        if settings:
            request = self._request
            kept = tuple(_thinned(settings))
            yield Dial(request.claim, request.full_name, kind, kept, may_exclude)

    def _counts(self) -> list[Setting]:
        request = self._request
        if request.all_devices:
            there = min(max(map(len, self._by_node), default=0), MAX_RESULTS)
            base, whole, what = _ALL, there, "all"
        else:
            there = min(request.count - 1, MAX_RESULTS)
            base, whole, what = _COUNT, request.count, str(request.count)

        def setting(count: int) -> Setting:
            cost = base + _COUNT_LOST * (whole - count) // max(whole, 1)
            edit = self._edit(lambda asks: replace(asks, allocation_mode="ExactCount", count=count))
            return Setting(cost, f"count {count} instead of {what}", edit)

        return [setting(count) for count in range(there, 0, -1)]

    def _amounts(self, name: str, wanted: Quantity) -> list[Setting]:
        return [
            Setting(
                _AMOUNT + _lost(amount.nanos, wanted.nanos),
                f"{name} {amount} instead of {wanted}",
                self._with_amount(name, amount),
            )
            for amount in self._smaller(name, wanted)
        ]

    def _dropped(self, name: str, wanted: Quantity) -> list[Setting]:
        """Return not to ask for an amount, where some device does not know it."""
        if all(name in (each.device.capacity or {}) for each in self._devices):
            return []
        edit = self._with_amount(name, None)
        return [Setting(_AMOUNT_DROPPED, f"not asking for {name} {wanted}", edit)]

    def _unasked(self, name: str) -> list[Setting]:
        """Return amounts for what is taken whole, or by default, where nothing is said of it."""
        whole = max(each.value for each in self._capacities(name))
        return [
            Setting(
                _UNASKED + _lost(amount.nanos, whole.nanos),
                f"{name} {amount} instead of what silence takes",
                self._with_amount(name, amount),
            )
            for amount in self._smaller(name, whole)
        ]

    def _shared_capacities(self, asked: Mapping[str, Quantity]) -> list[str]:
        if not self._rules.features.consumable_capacity:
            return []
        names = {
            name
            for each in self._devices
            if each.device.allow_multiple_allocations
            for name in each.device.capacity or {}
        }
        return sorted(names - asked.keys())

    def _capacities(self, name: str) -> list[DeviceCapacity]:
        found = (each.device.capacity or {} for each in self._devices)
        return [each[name] for each in found if name in each]

    def _smaller(self, name: str, wanted: Quantity) -> list[Quantity]:
        """Return amounts below what is wanted that some device has, or has left, largest first."""
        nanos: set[int] = set()
        for each in self._devices:
            capacity = (each.device.capacity or {}).get(name)
            if capacity is None:
                continue
            use = self._usage.of(each.id)
            used = (use.capacity if use is not None else None) or {}
            left = capacity.value.nanos - (used[name].nanos if name in used else 0)
            nanos.update(_amounts_within(capacity, left))
            nanos.update(_amounts_within(capacity, capacity.value.nanos))
        return [
            Quantity.from_nanos(each, wanted.format)
            for each in sorted(nanos, reverse=True)
            if 0 < each < wanted.nanos
        ]

    def _tolerations(self) -> Iterator[list[Setting]]:
        """Yield one dial for each set of taints that keeps some device away."""
        if not self._rules.features.device_taints:
            return
        sets: dict[tuple[DeviceTaint, ...], None] = {}
        for each in self._devices:
            found: list[DeviceTaint] = []
            tolerated = list(self._request.tolerations)
            while (taint := taints.blocking(each.device, tolerated)) is not None:
                found.append(replace(taint, time_added=None))
                tolerated.append(_toleration(taint))
            if found and len(tolerated) <= MAX_TOLERATIONS:
                sets[tuple(found)] = None
        for blocking in sorted(sets, key=len):
            cost = sum(_EVICTING_TAINT if _evicts(one) else _TAINT for one in blocking)
            added = tuple(_toleration(one) for one in blocking)
            words = " and ".join(f"taint {_tainted(one)}" for one in blocking)
            yield [Setting(cost, f"a toleration of {words}", self._tolerating(added))]

    def _conditions(self) -> Iterator[list[Setting]]:
        """Yield one dial for each condition of the request's own selectors."""
        own = self._request.expressions[len(self._request.device_class.spec.selectors or ()) :]
        for text in dict.fromkeys(part for each in own for part in conjuncts(each.text)):
            settings = list(self._bounds(text))
            detail = f"not asking for {shown(text)}"
            yield [*settings, Setting(_CONDITION, detail, self._reworded(text, None))]

    def _bounds(self, text: str) -> Iterator[Setting]:
        limit = bound(text)
        if limit is None:
            return
        written: dict[int, str] = {}
        for each in self._devices:
            value = limit.place.value(each.id.driver, each.device)
            if isinstance(value, DeviceCapacity):
                written[value.value.nanos] = str(value.value)
            elif isinstance(value, DeviceAttribute) and value.int_ is not None:
                written[value.int_] = str(value.int_)
        wanted = _number(limit.wanted, is_quantity=limit.place.is_capacity)
        if wanted is None:
            return
        for value in sorted(written, reverse=True):
            if value < wanted:
                yield Setting(
                    _AMOUNT + _lost(value, wanted),
                    f"{limit.place.identifier} {written[value]} instead of {limit.wanted}",
                    self._reworded(text, limit.replaced(text, written[value])),
                )

    # --- edits -----------------------------------------------------------------------------------

    def _edit(self, change: Callable[[_Asks], _Asks]) -> Edit:
        """Return an edit of a claim that changes what this request asks."""
        request, place = self._request, self._place

        def edited(devices: DeviceClaim) -> DeviceClaim:
            requests = list(devices.requests or ())
            requests[request.index] = _with_changed(requests[request.index], place, change)
            return replace(devices, requests=tuple(requests))

        return edited

    def _tolerating(self, added: tuple[DeviceToleration, ...]) -> Edit:
        return self._edit(
            lambda asks: replace(asks, tolerations=(*(asks.tolerations or ()), *added))
        )

    def _with_amount(self, name: str, amount: Quantity | None) -> Edit:
        def change(asks: _Asks) -> _Asks:
            amounts = dict((asks.capacity.requests if asks.capacity else None) or {})
            amounts.pop(name, None)
            if amount is not None:
                amounts[name] = amount
            capacity = CapacityRequirements(requests=amounts) if amounts else None
            return replace(asks, capacity=capacity)

        return self._edit(change)

    def _reworded(self, part: str, other: str | None) -> Edit:
        """Return an edit that replaces one condition, or drops it."""

        def change(asks: _Asks) -> _Asks:
            found = [_reworded(each, part, other) for each in asks.selectors or ()]
            return replace(asks, selectors=tuple([one for one in found if one]) or None)

        return self._edit(change)


def _with_changed(
    request: DeviceRequest, place: int, change: Callable[[_Asks], _Asks]
) -> DeviceRequest:
    """Return a request in which one alternative is changed, or the only one."""
    if not request.first_available:
        return replace(request, exactly=change(request.exactly or ExactDeviceRequest()))
    alternatives = tuple(
        change(each) if number == place else each
        for number, each in enumerate(request.first_available)
    )
    return replace(request, first_available=alternatives)


def _reworded(selector: DeviceSelector, part: str, other: str | None) -> DeviceSelector | None:
    """Return a selector in which one condition is another, or dropped; None when none is left."""
    parts = conjuncts(selector.cel.expression) if selector.cel is not None else ()
    if part not in parts:
        return selector
    left = [other if each == part else each for each in parts]
    kept = [each for each in left if each is not None]
    # What has been in parentheses may bind weaker than what joins it now.
    text = kept[0] if len(kept) == 1 else " && ".join(f"({each})" for each in kept)
    return DeviceSelector(cel=CelSelector(expression=text)) if kept else None


def _without(constraint: DeviceConstraint) -> Edit:
    """Return an edit that drops a constraint, once."""

    def edited(devices: DeviceClaim) -> DeviceClaim:
        kept = list(devices.constraints or ())
        if constraint in kept:
            kept.remove(constraint)
        return replace(devices, constraints=tuple(kept) or None)

    return edited


def class_chain(request: Request) -> Chain:
    """Return the selectors of the class, which no change touches."""
    return chain(request.expressions[: len(request.device_class.spec.selectors or ())])


def _amounts_within(capacity: DeviceCapacity, left: int) -> Iterator[int]:
    """Yield amounts that a request can have of what is left, in nano-units.

    Of what is left all, or an even part of it; of what the policy allows the largest below that.
    """
    policy = capacity.request_policy
    limit = policy.valid_range if policy is not None else None
    for parts in _PARTS:
        part = _even(left // parts, capacity.value.format)
        if policy is not None and policy.valid_values:
            part = max((one.nanos for one in policy.valid_values if one.nanos <= part), default=0)
        elif limit is not None:
            if limit.max is not None:
                part = min(part, limit.max.nanos)
            if limit.min is not None and limit.step is not None and limit.step.nanos > 0:
                part -= (part - limit.min.nanos) % limit.step.nanos
            if limit.min is not None and part < limit.min.nanos:
                continue
        yield part


def _even(nanos: int, family: Format) -> int:
    """Return an amount that people would write: whole mebibytes, or whole units, if it is large."""
    unit = (2**20 if family is Format.BINARY else 1) * 10**9
    return nanos - nanos % unit if nanos >= unit else nanos


def _toleration(taint: DeviceTaint) -> DeviceToleration:
    operator = "Equal" if taint.value else "Exists"
    return DeviceToleration(
        key=taint.key, operator=operator, value=taint.value, effect=taint.effect
    )


def _evicts(taint: DeviceTaint) -> bool:
    return taint.effect == "NoExecute"


def _tainted(taint: DeviceTaint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _lost(value: int, wanted: int) -> int:
    """Return what it costs that an amount is smaller."""
    return _AMOUNT_LOST * max(wanted - value, 0) // wanted if wanted > 0 else _AMOUNT_LOST


def _number(text: str, *, is_quantity: bool) -> int | None:
    """Return a bound as it is compared: nano-units of a quantity, or a whole number."""
    try:
        return Quantity(text).nanos if is_quantity else int(text)
    except (QuantityError, ValueError):
        return None


def _thinned(settings: Sequence[Setting]) -> Sequence[Setting]:
    """Return settings, some of them in even distances where there are very many."""
    if len(settings) <= _MAX_SETTINGS:
        return settings
    last = len(settings) - 1
    chosen = {last * step // (_MAX_SETTINGS - 1) for step in range(_MAX_SETTINGS)}
    return [settings[number] for number in sorted(chosen)]
