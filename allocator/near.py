"""The nearest miss: the smallest change to claims with which they would fit.

What can be changed is a dial: the count of a request, an amount, a condition of a selector, a
taint that is not tolerated, a constraint. A dial has settings from the least change to the most, so
that whatever fits at one setting fits at all behind it, as far as claims without mode All go. One
dial is turned at first, then two, then as many as it takes. Nothing is taken for granted: every
answer comes from the search itself, on the changed claims.

Which change is smallest is a matter of taste; this is ours, as costs that are added up:

=========================================  ========================================
a lower bound of a selector, or amount     10, and 30 for losing all of it
fewer devices                              10, and 40 for losing all of them
devices by number instead of all           15, and 40 for losing all of them
an amount where none was asked             20, and 30 for losing all of it
a taint tolerated                          20; 35 where it also evicts
a constraint dropped                       45
a condition of a selector dropped          50
an amount not asked for                    60
=========================================  ========================================

Classes are the cluster's, so their selectors stay, and a request stays with its class.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import combinations
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from allocator import nodeclass
from allocator.cluster import Cluster, Outcome
from allocator.core import taints
from allocator.core.inventory import Chain, chain
from allocator.core.model import (
    Asked,
    Budget,
    NodeDevices,
    Plan,
    Request,
    Usage,
)
from allocator.core.outcome import AttemptFailed
from allocator.core.problem import Rules
from allocator.core.search import allocate
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
    ResourceClaim,
)
from kube.errors import QuantityError
from kube.quantity import Format, Quantity

SEARCHES: Final = 1_200
"""Searches, each of one node, that an answer may cost; about a second."""

MAX_NODES: Final = 16
"""Nodes of a cluster that are tried, one per class, the most promising ones."""

MAX_WITNESSES: Final = 240
"""Further nodes, one per class, that an answer must not make end the attempt."""

_STEPS: Final = 20_000
_STEPS_PER_SEARCH: Final = 300
"""A search of more steps counts as so many more searches."""
_MAX_TOLD: Final = 4
_MAX_SETTINGS: Final = 48
_MAX_DIALS: Final = 64
_PARTS: Final = (1, 2, 3, 4, 8)
"""Into how many shares what is left of a device may have to be divided."""

_AMOUNT, _AMOUNT_LOST, _AMOUNT_DROPPED = 10, 30, 60
_COUNT, _COUNT_LOST, _ALL = 10, 40, 15
_UNASKED: Final = 20
_TAINT, _EVICTING_TAINT = 20, 35
_CONSTRAINT: Final = 45
_CONDITION: Final = 50

Ask = Callable[[Sequence[ResourceClaim]], Asked]
"""Makes claims ready for the search; may raise AttemptFailed."""

_Asks = ExactDeviceRequest | DeviceSubRequest
_Edit = Callable[[DeviceClaim], DeviceClaim]


class Kind(StrEnum):
    """What is changed."""

    COUNT = "count"
    CAPACITY = "capacity"
    SELECTOR = "selector"
    TOLERATION = "toleration"
    CONSTRAINT = "constraint"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change to a claim.

    Attributes:
        claim: `namespace/name`.
        request: `name`, or `parent/name` of an alternative; empty for a constraint.
        detail: `count 2 instead of 3`.
        cost: See the table above.
    """

    claim: str
    request: str
    kind: Kind
    detail: str
    cost: int


class NearestMiss(msgspec.Struct, frozen=True, kw_only=True):
    """Claims that fit, and what was changed to that end.

    Attributes:
        changes: In the order of claims; none where they fit as they are.
        claims: All of the attempt, in order, changed; put in the place of the old ones they fit.
        node: Which they fit.
    """

    changes: tuple[Change, ...]
    claims: tuple[ResourceClaim, ...]
    node: str

    @property
    def cost(self) -> int:
        """The sum of what the changes cost."""
        return sum(change.cost for change in self.changes)

    @property
    def detail(self) -> str:
        """What would fit where: `count 2 instead of 3 would fit node n1`."""
        if not self.changes:
            return f"what is asked for would fit node {self.node} as it is"
        names_claim = len(self.claims) > 1
        places = {(change.claim, change.request) for change in self.changes}
        words = []
        for change in self.changes[:_MAX_TOLD]:
            is_named = change.request and (len(places) > 1 or "/" in change.request)
            of = f" for request {change.request}" if is_named else ""
            of += f" of claim {change.claim}" if names_claim else ""
            words.append(shown(change.detail + of, 220))
        more = len(self.changes) - len(words)
        words += [f"{more} more change{'' if more == 1 else 's'}"] if more else []
        return f"{', and '.join(words)} would fit node {self.node}"


def nearest_miss(
    nodes: Sequence[NodeDevices],
    claims: Sequence[ResourceClaim],
    ask: Ask,
    usage: Usage,
    rules: Rules,
    *,
    witnesses: Sequence[NodeDevices] = (),
    searches: int = SEARCHES,
) -> NearestMiss | None:
    """Return the smallest change to claims with which they fit one of the nodes.

    Neither nodes nor witnesses end the attempt of the changed claims, so they fit wherever these
    are all there is.

    Args:
        nodes: In order of preference.
        claims: Not allocated, solved together.
        ask: With the classes and gates that hold.
        usage: What allocated claims hold; none of it tells what would fit an emptied cluster.
        rules: Gates and policies.
        witnesses: Nodes on which nothing is tried.
        searches: What the answer may cost; a long search counts as several.

    Returns:
        None when no change was found, or none for the price.
    """
    trial = _Trial(nodes, witnesses, claims, _Terms(ask, usage, rules), searches)
    try:
        asked = ask(claims)
    except AttemptFailed:
        return None
    if trial.fits({}):
        return trial.answer({})
    dials = list(_dials(nodes, asked, usage, rules))[:_MAX_DIALS]
    dials.sort(key=lambda dial: dial.settings[0].cost)
    return _one(trial, dials) or _two(trial, dials) or _several(trial, dials)


def nearest_now(
    cluster: Cluster, claims: Sequence[ResourceClaim], *, searches: int = SEARCHES
) -> NearestMiss | None:
    """Return the smallest change with which claims fit the cluster as it is used now."""
    return _nearest_in(cluster, claims, cluster.usage, searches)


def nearest_when_empty(
    cluster: Cluster, claims: Sequence[ResourceClaim], *, searches: int = SEARCHES
) -> NearestMiss | None:
    """Return the smallest change with which claims would fit if nothing were allocated."""
    return _nearest_in(cluster, claims, Usage(), searches)


def _nearest_in(
    cluster: Cluster, claims: Sequence[ResourceClaim], usage: Usage, searches: int
) -> NearestMiss | None:
    try:
        nodes = _sites(cluster, cluster.ask(claims), usage)
    except AttemptFailed:
        return None
    return nearest_miss(
        nodes[:MAX_NODES],
        claims,
        cluster.ask,
        usage,
        cluster.rules,
        witnesses=nodes[MAX_NODES : MAX_NODES + MAX_WITNESSES],
        searches=searches,
    )


# --- dials ----------------------------------------------------------------------------------------


class _Setting(NamedTuple):
    cost: int
    detail: str
    edit: _Edit


class _Dial(NamedTuple):
    """One thing that can be changed.

    Attributes:
        settings: From the least change to the most; never empty.
        may_exclude: It may rule out devices that would do otherwise: those without a capacity
            that is now asked for, or without room for what silence takes.
    """

    claim: int
    request: str
    kind: Kind
    settings: tuple[_Setting, ...]
    may_exclude: bool = False


_Turned = Mapping[_Dial, int]
"""Dials that are turned, and to which of their settings."""


def _dials(
    nodes: Sequence[NodeDevices], asked: Asked, usage: Usage, rules: Rules
) -> Iterator[_Dial]:
    for number, (claim, requests) in enumerate(zip(asked.claims, asked.requests, strict=True)):
        for alternatives in requests:
            for place, request in enumerate(alternatives):
                yield from _Requested(nodes, request, place, usage, rules).dials()
        for constraint in claim.spec.devices.constraints or ():
            kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
            name = constraint.match_attribute or constraint.distinct_attribute or ""
            setting = _Setting(_CONSTRAINT, f"no {kind} {name}", _without(constraint))
            yield _Dial(number, "", Kind.CONSTRAINT, (setting,))


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
        of_class = _class_chain(request)
        self._by_node = [
            [each for each in node.devices if of_class.verdict(each) is True] for node in nodes
        ]
        self._devices = [each for found in self._by_node for each in found]

    def dials(self) -> Iterator[_Dial]:
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
        self, kind: Kind, settings: Sequence[_Setting], *, may_exclude: bool = False
    ) -> Iterator[_Dial]:
        """Yield a dial if there is any setting."""
        if settings:
            request = self._request
            kept = tuple(_thinned(settings))
            yield _Dial(request.claim, request.full_name, kind, kept, may_exclude)

    def _counts(self) -> list[_Setting]:
        request = self._request
        if request.all_devices:
            there = min(max(map(len, self._by_node), default=0), MAX_RESULTS)
            base, whole, what = _ALL, there, "all"
        else:
            there = min(request.count - 1, MAX_RESULTS)
            base, whole, what = _COUNT, request.count, str(request.count)

        def setting(count: int) -> _Setting:
            cost = base + _COUNT_LOST * (whole - count) // max(whole, 1)
            edit = self._edit(lambda asks: replace(asks, allocation_mode="ExactCount", count=count))
            return _Setting(cost, f"count {count} instead of {what}", edit)

        return [setting(count) for count in range(there, 0, -1)]

    def _amounts(self, name: str, wanted: Quantity) -> list[_Setting]:
        return [
            _Setting(
                _AMOUNT + _lost(amount.nanos, wanted.nanos),
                f"{name} {amount} instead of {wanted}",
                self._with_amount(name, amount),
            )
            for amount in self._smaller(name, wanted)
        ]

    def _dropped(self, name: str, wanted: Quantity) -> list[_Setting]:
        """Return not to ask for an amount, where some device does not know it."""
        if all(name in (each.device.capacity or {}) for each in self._devices):
            return []
        edit = self._with_amount(name, None)
        return [_Setting(_AMOUNT_DROPPED, f"not asking for {name} {wanted}", edit)]

    def _unasked(self, name: str) -> list[_Setting]:
        """Return amounts for what is taken whole, or by default, where nothing is said of it."""
        whole = max(each.value for each in self._capacities(name))
        return [
            _Setting(
                _UNASKED + _lost(amount.nanos, whole.nanos),
                f"{name} {amount} instead of what silence takes",
                self._with_amount(name, amount),
            )
            for amount in self._smaller(name, whole)
        ]

    def _shared_capacities(self, asked: Mapping[str, Quantity]) -> list[str]:
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

    def _tolerations(self) -> Iterator[list[_Setting]]:
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
            if found:
                sets[tuple(found)] = None
        for blocking in sorted(sets, key=len):
            cost = sum(_EVICTING_TAINT if _evicts(one) else _TAINT for one in blocking)
            added = tuple(_toleration(one) for one in blocking)
            words = " and ".join(f"taint {_tainted(one)}" for one in blocking)
            yield [_Setting(cost, f"a toleration of {words}", self._tolerating(added))]

    def _conditions(self) -> Iterator[list[_Setting]]:
        """Yield one dial for each condition of the request's own selectors."""
        own = self._request.expressions[len(self._request.device_class.spec.selectors or ()) :]
        for text in dict.fromkeys(part for each in own for part in conjuncts(each.text)):
            settings = list(self._bounds(text))
            detail = f"not asking for {shown(text)}"
            yield [*settings, _Setting(_CONDITION, detail, self._reworded(text, None))]

    def _bounds(self, text: str) -> Iterator[_Setting]:
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
                yield _Setting(
                    _AMOUNT + _lost(value, wanted),
                    f"{limit.place.identifier} {written[value]} instead of {limit.wanted}",
                    self._reworded(text, limit.replaced(text, written[value])),
                )

    # --- edits -----------------------------------------------------------------------------------

    def _edit(self, change: Callable[[_Asks], _Asks]) -> _Edit:
        """Return an edit of a claim that changes what this request asks."""
        request, place = self._request, self._place

        def edited(devices: DeviceClaim) -> DeviceClaim:
            requests = list(devices.requests or ())
            requests[request.index] = _with_changed(requests[request.index], place, change)
            return replace(devices, requests=tuple(requests))

        return edited

    def _tolerating(self, added: tuple[DeviceToleration, ...]) -> _Edit:
        return self._edit(
            lambda asks: replace(asks, tolerations=(*(asks.tolerations or ()), *added))
        )

    def _with_amount(self, name: str, amount: Quantity | None) -> _Edit:
        def change(asks: _Asks) -> _Asks:
            amounts = dict((asks.capacity.requests if asks.capacity else None) or {})
            amounts.pop(name, None)
            if amount is not None:
                amounts[name] = amount
            capacity = CapacityRequirements(requests=amounts) if amounts else None
            return replace(asks, capacity=capacity)

        return self._edit(change)

    def _reworded(self, part: str, other: str | None) -> _Edit:
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


def _without(constraint: DeviceConstraint) -> _Edit:
    """Return an edit that drops a constraint, once."""

    def edited(devices: DeviceClaim) -> DeviceClaim:
        kept = list(devices.constraints or ())
        if constraint in kept:
            kept.remove(constraint)
        return replace(devices, constraints=tuple(kept) or None)

    return edited


def _class_chain(request: Request) -> Chain:
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


def _thinned(settings: Sequence[_Setting]) -> Sequence[_Setting]:
    """Return settings, some of them in even distances where there are very many."""
    if len(settings) <= _MAX_SETTINGS:
        return settings
    last = len(settings) - 1
    chosen = {last * step // (_MAX_SETTINGS - 1) for step in range(_MAX_SETTINGS)}
    return [settings[number] for number in sorted(chosen)]


# --- turning them ---------------------------------------------------------------------------------


class _Terms(NamedTuple):
    """By what changed claims are judged."""

    ask: Ask
    usage: Usage
    rules: Rules


class _Trial:
    """Tries changed claims on nodes.

    Attributes:
        left: Searches that may still be made.
    """

    def __init__(
        self,
        nodes: Sequence[NodeDevices],
        witnesses: Sequence[NodeDevices],
        claims: Sequence[ResourceClaim],
        terms: _Terms,
        searches: int,
    ) -> None:
        self._nodes = nodes
        self._witnesses = witnesses
        self._claims = claims
        self._terms = terms
        self.left = searches

    def fits(self, turned: _Turned) -> bool:
        """Return whether changed claims fit some node; false when the price is spent."""
        return self.left > 0 and self._node_for(self._changed(turned)) is not None

    def answer(self, turned: _Turned) -> NearestMiss | None:
        """Return changed claims with a node; None where they fit none, or end the attempt."""
        claims = self._changed(turned)
        node = self._node_for(claims)
        if node is None or self._ends(claims):
            return None
        changes = []
        for dial, number in turned.items():
            setting, metadata = dial.settings[number], self._claims[dial.claim].metadata
            changes.append(
                Change(
                    claim=f"{metadata.namespace}/{metadata.name}",
                    request=dial.request,
                    kind=dial.kind,
                    detail=setting.detail,
                    cost=setting.cost,
                )
            )
        return NearestMiss(changes=tuple(changes), claims=claims, node=node)

    def least(self, dial: _Dial, beside: _Turned) -> int | None:
        """Return the least setting of a dial that fits, beside other dials; None for none."""
        low, high = -1, len(dial.settings) - 1
        if not self.fits({**beside, dial: high}):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self.fits({**beside, dial: middle}):
                high = middle
            else:
                low = middle
        return high

    def _changed(self, turned: _Turned) -> tuple[ResourceClaim, ...]:
        claims = list(self._claims)
        for dial, number in turned.items():
            claim = claims[dial.claim]
            devices = dial.settings[number].edit(claim.spec.devices)
            claims[dial.claim] = replace(claim, spec=replace(claim.spec, devices=devices))
        return tuple(claims)

    def _node_for(self, claims: Sequence[ResourceClaim]) -> str | None:
        """Return the first node that claims fit; None also where a node before it ends the attempt.

        Raises nothing: what cannot be judged does not fit.
        """
        try:
            asked = self._terms.ask(claims)
            for node in self._nodes:
                if isinstance(self._outcome(node, asked), Plan):
                    return node.node
        except AttemptFailed:
            return None
        return None

    def _ends(self, claims: Sequence[ResourceClaim]) -> bool:
        """Return whether any node, or witness, ends the attempt."""
        try:
            asked = self._terms.ask(claims)
            for node in (*self._nodes, *self._witnesses):
                self._outcome(node, asked)
        except AttemptFailed:
            return True
        return False

    def _outcome(self, node: NodeDevices, asked: Asked) -> Outcome:
        """Return how the search ends on a node.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        terms, budget = self._terms, Budget(steps=_STEPS)
        outcome = allocate(node, asked, terms.usage, terms.rules, budget=budget)
        self.left -= 1 + outcome.steps // _STEPS_PER_SEARCH
        return outcome


def _one(trial: _Trial, dials: Sequence[_Dial]) -> NearestMiss | None:
    """Return the cheapest single change."""
    found: list[tuple[int, int, _Turned]] = []
    for order, dial in enumerate(dials):
        if found and dial.settings[0].cost >= min(found)[0]:
            break
        number = trial.least(dial, {})
        if number is not None:
            found.append((dial.settings[number].cost, order, {dial: number}))
    answers = (trial.answer(turned) for _, _, turned in sorted(found, key=lambda one: one[:2]))
    return next((answer for answer in answers if answer is not None), None)


def _two(trial: _Trial, dials: Sequence[_Dial]) -> NearestMiss | None:
    """Return a pair of changes, the cheapest kinds first."""
    if _all_turned(trial, dials) is None:
        return None
    pairs = sorted(combinations(dials, 2), key=lambda pair: sum(d.settings[0].cost for d in pair))
    reserve = trial.left // 3
    for first, second in pairs:
        if trial.left < reserve:
            return None
        number = trial.least(first, {second: len(second.settings) - 1})
        if number is None:
            continue
        other = trial.least(second, {first: number})
        answer = trial.answer({first: number, second: other}) if other is not None else None
        if answer is not None:
            return answer
    return None


def _several(trial: _Trial, dials: Sequence[_Dial]) -> NearestMiss | None:
    """Return changes of which none can be left out, the most expensive kinds left out first."""
    turned = _all_turned(trial, dials)
    if turned is None:
        return None
    for dial in reversed(list(turned)):
        fewer = {each: number for each, number in turned.items() if each is not dial}
        if trial.fits(fewer):
            turned = fewer
    for dial in list(turned):
        beside = {each: number for each, number in turned.items() if each is not dial}
        number = trial.least(dial, beside)
        if number is not None:
            turned[dial] = number
    # When the price is spent nothing more can be left out, and the change is no small one.
    return trial.answer(turned) if trial.left > 0 else None


def _all_turned(trial: _Trial, dials: Sequence[_Dial]) -> dict[_Dial, int] | None:
    """Return all dials turned as far as they go, where claims fit then; None where nothing helps."""
    everything = {dial: len(dial.settings) - 1 for dial in dials}
    relaxing = {dial: last for dial, last in everything.items() if not dial.may_exclude}
    return next((turned for turned in (relaxing, everything) if trial.fits(turned)), None)


# --- which nodes ----------------------------------------------------------------------------------


def _sites(cluster: Cluster, asked: Asked, usage: Usage) -> list[NodeDevices]:
    """Return one node of each class, those with the most devices that could serve first.

    A change never looks at more of a device than the claims do, so what holds of one node of a
    class holds of all.
    """
    through = nodeclass.lens(asked)
    requests = [one for claim in asked.requests for every in claim for one in every]
    chains = list(dict.fromkeys(map(_class_chain, requests)))
    seen: dict[Hashable, NodeDevices] = {}
    for name in sorted(cluster.nodes):
        node = cluster.node_devices(name)
        uses = [
            nodeclass.use(pool, held, cluster.rules)
            for pool in node.pools
            if (held := usage.pools.get(pool.id))
        ]
        look = (nodeclass.fixed(node, cluster.rules), tuple(uses), nodeclass.seen(node, through))
        seen.setdefault(look, node)
    return sorted(seen.values(), key=lambda node: (-_promise(node, chains, usage), node.node))


def _promise(node: NodeDevices, chains: Iterable[Chain], usage: Usage) -> int:
    """Return how many devices of the classes nobody holds alone."""
    free = [
        each for each in node.devices if (use := usage.of(each.id)) is None or not use.exclusive
    ]
    return sum(min(sum(of.verdict(one) is True for one in free), MAX_RESULTS) for of in chains)
