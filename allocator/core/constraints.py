"""Relations between the devices of a claim: matchAttribute and distinctAttribute.

The values that a device has of an attribute are a set, written as a bit mask: one value for a
scalar, any number for a list. Devices match while all of them have some value in common, and are
distinct while no two of them have one in common. A constraint never spans claims.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental/constraint.go;
allocator_experimental.go, matchAttributeConstraint and lookupAttribute.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from allocator.core.model import Asked, Features, NodeDevices, PublishedDevice, Request
from allocator.core.outcome import AttemptFailed, Reason, Refusal
from allocator.core.tracker import Ahead
from kube.api.resource import DeviceAttribute, DeviceConstraint
from kube.cel.derived import compile_derived
from kube.cel.device import view
from kube.errors import CelError, UnsupportedSelector

_LIST: Final = 1
"""The bit of a list while DRAListTypeAttributes is off: a value that is comparable to none, not
even to itself. Upstream accepts it on the first device and refuses every comparison with it."""

_ANYTHING: Final = -1
"""All bits: no device has been chosen yet."""

_Named = tuple[str, str | None]
"""An attribute's full name, and the expression that it is derived by; None if it is published."""

_REMEMBERED: Final = 4096
_SHOWN: Final = 64


class Need(NamedTuple):
    """What a request still needs.

    Attributes:
        candidates: A mask of the positions that it can still be given.
        devices: How many of them it needs.
    """

    candidates: int
    devices: int


def tracker(node: NodeDevices, asked: Asked, features: Features) -> "Constraints | None":
    """Return the tracker of an attempt, for all claims; None when no claim has a constraint."""
    found = [
        (claim, constraint)
        for claim, each in enumerate(asked.claims)
        for constraint in each.spec.devices.constraints or ()
    ]
    return Constraints(node, found, _alternatives(asked), features) if found else None


class Constraints:
    """What the devices chosen so far have in common, or used up, per constraint."""

    def __init__(
        self,
        node: NodeDevices,
        constraints: Sequence[tuple[int, DeviceConstraint]],
        requests: Sequence[Request],
        features: Features,
    ) -> None:
        """Look up every attribute that a constraint names, on every device.

        Args:
            constraints: With the index of the claim of each.
            requests: All alternatives of all claims.
        """
        self._states: list[int] = []
        self._before: list[list[tuple[int, int]]] = []
        self._rules: list[_Rule] = []
        self._ahead: dict[Ahead, tuple[int, ...]] = {}
        self._applying: dict[Request, list[_Rule]] = {}
        covered: list[tuple[int, bool, Request, _Named]] = []
        for claim, constraint in constraints:
            # Both may be set by mistake; upstream looks at matchAttribute first.
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            is_distinct = constraint.match_attribute is None
            number = len(self._states)
            self._states.append(0 if is_distinct else _ANYTHING)
            for request in requests:
                if request.claim == claim and _applies(constraint, request):
                    named = (attribute, request.derived.get(attribute))
                    covered.append((number, is_distinct, request, named))
        named_once = tuple(dict.fromkeys(named for *_, named in covered))
        looks = _looks(node, named_once, lists=features.list_type_attributes)
        for number, is_distinct, request, named in covered:
            rule = _Rule(number, is_distinct, request, looks.columns[named])
            self._rules.append(rule)
            self._applying.setdefault(request, []).append(rule)
        self._every = (1 << len(node.devices)) - 1
        self._values = looks.values
        self._sees = looks.numbers
        self._shared = looks.shareable if features.consumable_capacity else 0

    def sees(self, position: int) -> Hashable:
        """Return the values that a device has of all attributes in question, as a number."""
        return self._sees[position]

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:  # noqa: ARG002
        """Choose a device if all constraints of the request's claim still hold.

        Raises:
            AttemptFailed: A derived attribute cannot be compiled or evaluated.
        """
        rules = self._applying.get(request)
        if rules is None:
            return True
        states = self._states
        changes = []
        for number, is_distinct, _, column in rules:
            values = column.values[position]
            if values is None:
                values = column.judged(position)
            state = states[number]
            if is_distinct:
                if not values or state & values:
                    return False
                changes.append((number, state | values | _LIST))
            else:
                common = state & values
                if not common:
                    return False
                changes.append((number, common & ~_LIST))
        self._before.append([(number, states[number]) for number, _ in changes])
        for number, state in changes:
            states[number] = state
        return True

    def undo(self, request: Request, position: int, *, further_share: bool) -> None:  # noqa: ARG002
        """Restore what the devices had in common before the latest `add`."""
        if request in self._applying:
            for number, state in self._before.pop():
                self._states[number] = state

    def state(self) -> Hashable:
        """Return what the chosen devices have in common, or used up."""
        return tuple(self._states)

    def outlook(self, ahead: Ahead) -> Hashable:
        """Return the states of constraints that apply to a request ahead."""
        numbers = self._ahead.get(ahead)
        if numbers is None:
            applying = {
                rule.number
                for rule in self._rules
                if (rule.request.claim, rule.request.index) >= (ahead.claim, ahead.index)
            }
            numbers = self._ahead[ahead] = tuple(sorted(applying))
        states = self._states
        return tuple([states[number] for number in numbers])

    def refusal(self, request: Request, position: int, *, further_share: bool) -> Refusal | None:  # noqa: ARG002
        """Return which constraint a device would break.

        Raises:
            AttemptFailed: See `add`.
        """
        for number, is_distinct, _, column in self._applying.get(request, ()):
            values, state = column.judged(position), self._states[number]
            shown = self._values.shown
            if not values:
                why = f"it has no attribute {column.attribute}"
            elif is_distinct and state & values:
                why = f"{column.attribute} {shown(state & values)} is taken by another device"
            elif not is_distinct and not state & values:
                others = shown(state) if state else "nothing in common"
                why = f"{column.attribute} is {shown(values)}, those chosen before have {others}"
            else:
                continue
            return Refusal(reason=Reason.CONSTRAINT, detail=why)
        return None

    def applies(self, request: Request) -> bool:
        """Return whether any constraint is about a request."""
        return request in self._applying

    @property
    def is_order_bound(self) -> bool:
        """Return whether the answer depends on which device comes first.

        While lists are off, distinctAttribute takes a device with a list first and never later.
        """
        return any(rule.is_distinct and rule.column.positions.get(_LIST) for rule in self._rules)

    def unjudged(self, request: Request) -> int:
        """Return the positions for which `add` would raise, as a mask."""
        mask = 0
        for rule in self._applying.get(request, ()):
            mask |= rule.column.unjudged
        return mask

    # --- what the search can leave out ------------------------------------------------------------

    def allowed(self, request: Request) -> int:
        """Return the devices that `add` would accept now, as a mask of positions.

        Devices whose derived attribute cannot be judged are among them: choosing one is an error.
        """
        allowed = self._every
        for number, is_distinct, _, column in self._applying.get(request, ()):
            state = self._states[number]
            if is_distinct:
                having = column.valued & ~column.having(state) if state else column.valued
            else:
                having = column.valued if state == _ANYTHING else column.having(state)
            allowed &= having | column.unjudged
        return allowed

    def hopeless(self, needs: Mapping[Request, Need]) -> Refusal | None:
        """Return why no choice among candidates can satisfy the constraints; None if some may.

        A bound that counts and does not search. What it rules out, upstream does not find either;
        but in mode All upstream calls a broken constraint an error, so leave such requests out.

        Args:
            needs: Of each request, or alternative, that is to be met from here on.
        """
        by_constraint: dict[int, list[tuple[_Rule, Need]]] = {}
        for rule in self._rules:
            need = needs.get(rule.request)
            if need is not None and need.devices > 0:
                by_constraint.setdefault(rule.number, []).append((rule, need))
        for number, needed in by_constraint.items():
            judge = self._too_alike if needed[0][0].is_distinct else self._too_different
            refusal = judge(self._states[number], needed)
            if refusal is not None:
                return refusal
        return None

    def _too_different(self, state: int, needed: "list[tuple[_Rule, Need]]") -> Refusal | None:
        """Return why no value is common to enough candidates of every request."""
        total = sum(need.devices for _, need in needed)
        most = self._reach(needed, 0)
        values = [
            value for rule, need in needed for value in rule.column.values_among(need.candidates)
        ]
        for value in dict.fromkeys(values):
            if most >= total:
                return None
            if state & value and (value != _LIST or total == 1):
                most = max(most, self._reach(needed, value))
        if most >= total:
            return None
        attribute = needed[0][0].column.attribute
        detail = f"no value of {attribute} is common to {total} suitable devices, at most to {most}"
        return Refusal(reason=Reason.CONSTRAINT, detail=detail)

    def _reach(self, needed: "list[tuple[_Rule, Need]]", value: int) -> int:
        """Return how many needs devices of one value meet at most; 0 is a value that none has."""
        dedicated, met_by_shares, met = 0, 0, 0
        for rule, need in needed:
            column = rule.column
            having = need.candidates & (column.positions.get(value, 0) | column.unjudged)
            met += min(need.devices, having.bit_count())
            dedicated |= having & ~self._shared
            # A device that can be shared serves each request once.
            met_by_shares += min(need.devices, (having & self._shared).bit_count())
        return min(met, met_by_shares + dedicated.bit_count())

    def _too_alike(self, state: int, needed: "list[tuple[_Rule, Need]]") -> Refusal | None:
        """Return why the candidates have fewer different values than devices are needed."""
        all_values: set[int] = set()
        unjudged = total = 0
        for rule, need in needed:
            column = rule.column
            values = {each for each in column.values_among(need.candidates) if not state & each}
            unjudged_here = need.candidates & column.unjudged
            all_values |= values
            unjudged |= unjudged_here
            total += need.devices
            if len(values) + unjudged_here.bit_count() < need.devices:
                return _too_few(column.attribute, len(values), need.devices)
        if not unjudged and len(all_values) < total:
            return _too_few(needed[0][0].column.attribute, len(all_values), total)
        return None


class _Rule(NamedTuple):
    """A constraint as it applies to one request."""

    number: int
    is_distinct: bool
    request: Request
    column: "_Column"


class _Looks(NamedTuple):
    """All that constraints on some attributes can tell of the devices of a node.

    Attributes:
        columns: An attribute's name and derivation to what devices have of it.
        values: Of all columns, which compare with each other.
        numbers: By position: equal where all columns are.
        shareable: Positions of devices that allow multiple allocations.
    """

    columns: Mapping[_Named, "_Column"]
    values: "_Values"
    numbers: list[int]
    shareable: int


@lru_cache(maxsize=_REMEMBERED)
def _looks(node: NodeDevices, named: tuple[_Named, ...], *, lists: bool) -> _Looks:
    values = _Values(lists=lists)
    columns = {each: _Column(*each, node.devices, values) for each in named}
    return _Looks(
        columns=columns,
        values=values,
        numbers=_numbered(node, list(columns.values())),
        shareable=_mask(each.device.allow_multiple_allocations for each in node.devices),
    )


class _Column:
    """One attribute, static or derived, of all devices.

    Attributes:
        attribute: Its fully qualified name.
        values: By position: a mask of the values that a device has; 0 where it has none, None
            where they could not be judged.
        positions: Value to a mask of the positions that have it.
        valued: The positions that have any.
        unjudged: The positions that could not be judged.
    """

    def __init__(
        self,
        attribute: str,
        derived: str | None,
        devices: Sequence[PublishedDevice],
        values: "_Values",
    ) -> None:
        self.attribute = attribute
        self._derived = derived
        self._devices = devices
        self._values = values
        self.values = [self._quietly(position) for position in range(len(devices))]
        self.positions: dict[int, int] = {}
        for position, mask in enumerate(self.values):
            for value in _bits(mask or 0):
                self.positions[value] = self.positions.get(value, 0) | 1 << position
        self.valued = _mask(self.values)
        self.unjudged = _mask(mask is None for mask in self.values)
        self._having: dict[int, int] = {}

    def judged(self, position: int) -> int:
        """Return the values of a device.

        Raises:
            AttemptFailed: A derived attribute cannot be compiled or evaluated.
        """
        known = self.values[position]
        return self._judged(position) if known is None else known

    def having(self, values: int) -> int:
        """Return the positions that have any of the values."""
        known = self._having.get(values)
        if known is None:
            if len(self._having) >= _REMEMBERED:
                self._having.clear()
            known = 0
            for value, positions in self.positions.items():
                if value & values:
                    known |= positions
            self._having[values] = known
        return known

    def values_among(self, candidates: int) -> Iterator[int]:
        """Yield each value that some candidate has."""
        for value, positions in self.positions.items():
            if positions & candidates:
                yield value

    def _quietly(self, position: int) -> int | None:
        """Return the values of a device; None when an attempt to choose it would have to fail."""
        try:
            return self._judged(position)
        except AttemptFailed:
            return None

    def _judged(self, position: int) -> int:
        device = self._devices[position]
        if self._derived is None:
            found = _static(self.attribute, device)
        else:
            found = _evaluated(self.attribute, self._derived, device)
        return 0 if found is None else self._values.of(found)


class _Values:
    """Numbers the values of attributes, a bit for each."""

    def __init__(self, *, lists: bool) -> None:
        self._bit: dict[tuple[str, object], int] = {}
        self._kept: Callable[[DeviceAttribute], Iterator[tuple[str, object]]] = (
            _elements if lists else _scalar
        )
        # Without the gate upstream has an answer for a value that is no scalar, with it for none.
        self._otherwise = 0 if lists else _LIST

    def of(self, attribute: DeviceAttribute) -> int:
        """Return a mask of the values of an attribute; values of unlike types are never equal."""
        mask = 0
        for each in self._kept(attribute):
            mask |= self._bit.setdefault(each, 2 << len(self._bit))
        return mask or self._otherwise

    def shown(self, mask: int) -> str:
        """Return values for people, bounded in length."""
        if mask == _LIST:
            return "a list, while DRAListTypeAttributes is off"
        shown = ", ".join(
            str(value).lower() if kind == "bool" else str(value)
            for (kind, value), bit in self._bit.items()
            if mask & bit
        )
        return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _scalar(attribute: DeviceAttribute) -> Iterator[tuple[str, object]]:
    """Yield the one scalar of an attribute; nothing for a list."""
    # Versions compare as texts: "in their minimal form" equal versions are equal texts.
    for kind, value in (
        ("string", attribute.string),
        ("int", attribute.int_),
        ("bool", attribute.bool_),
        ("version", attribute.version),
    ):
        if value is not None:
            yield kind, value
            return


def _elements(attribute: DeviceAttribute) -> Iterator[tuple[str, object]]:
    """Yield the elements of an attribute; a scalar is a list of one, an empty list is nothing."""
    for kind, values in (
        ("int", attribute.ints),
        ("bool", attribute.bools),
        ("string", attribute.strings),
        ("version", attribute.versions),
    ):
        if values:
            yield from ((kind, value) for value in values)
            return
    yield from _scalar(attribute)


def _static(name: str, published: PublishedDevice) -> DeviceAttribute | None:
    """Return a published attribute by its full name, or by its bare one if the driver's.

    Source: lookupStaticAttribute.
    """
    attributes = published.device.attributes or {}
    exact = attributes.get(name)
    if exact is not None:
        return exact
    domain, slash, identifier = name.partition("/")
    return attributes.get(identifier) if slash and domain == published.id.driver else None


def _evaluated(name: str, expression: str, published: PublishedDevice) -> DeviceAttribute:
    """Return what a derived attribute is on a device.

    Raises:
        AttemptFailed: It cannot be compiled or evaluated.
    """
    try:
        derived = compile_derived(expression)
    except UnsupportedSelector as error:
        raise AttemptFailed(f"derived attribute {name}: unsupportedCel: {error}") from error
    except CelError as error:
        raise AttemptFailed(f"compile derived attribute {name} failed: {error}") from error
    try:
        return derived.value(view(published.id.driver, published.device))
    except UnsupportedSelector as error:
        raise AttemptFailed(f"derived attribute {name}: unsupportedCel: {error}") from error
    except CelError as error:
        raise AttemptFailed(
            f"evaluate derived attribute {name} on device {published.id} failed: {error}"
        ) from error


def _applies(constraint: DeviceConstraint, request: Request) -> bool:
    """Return whether a constraint of its claim covers a request, by itself or by its parent."""
    names = constraint.requests
    if not names:
        return True
    if request.parent is None:
        return request.name in names
    return request.parent in names or request.full_name in names


def _alternatives(asked: Asked) -> list[Request]:
    return [
        request for claim in asked.requests for alternatives in claim for request in alternatives
    ]


def _numbered(node: NodeDevices, columns: Sequence[_Column]) -> list[int]:
    """Return by position a number that devices of the same values share."""
    numbers: dict[Hashable, int] = {}
    found = []
    for position in range(len(node.devices)):
        seen = tuple([column.values[position] for column in columns])
        # What cannot be judged fails with the device's name: it is like no other.
        key: Hashable = (position,) if None in seen else seen
        found.append(numbers.setdefault((None in seen, key), len(numbers)))
    return found


def _too_few(attribute: str, found: int, needed: int) -> Refusal:
    detail = f"{attribute} has {found} different values among suitable devices, {needed} are needed"
    return Refusal(reason=Reason.CONSTRAINT, detail=detail)


def _bits(mask: int) -> Iterator[int]:
    """Yield each bit of a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest


def _mask(flags: Iterable[object]) -> int:
    """Return a mask of the positions of what is true."""
    return sum(1 << position for position, flag in enumerate(flags) if flag)
