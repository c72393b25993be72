"""Selectors judged once for all devices that look alike to them.

Every device has a uuid, so no two devices are equal; but a selector that reads only `model` sees
as many devices as there are models. What a chain of selectors can see of a device is its
*projection*, and each projection is judged once, for the whole cluster.

Source of the order of evaluation: upstream's isSelectable and selectorsMatch.
"""

from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from allocator.core.model import Expression, NodeDevices, PublishedDevice
from kube.api.resource import Device, DeviceAttribute
from kube.cel.compile import Environment, Selector, compile_selector
from kube.cel.device import view
from kube.cel.semver import Semver
from kube.errors import CelError, InvalidSelector, UnsupportedSelector

COST_PER_STEP: Final = 150
"""Units of CEL cost that take about as long as one step of the search (3 us)."""

_CHAINS: Final = 1024
_LONG_CHAINS: Final = 64
_LONG: Final = 256
"""Characters beyond which the selectors of a request count as long."""
_PROJECTIONS: Final = 1 << 17
_SELECTIONS: Final = 1 << 15
"""Nodes times chains; a node that is asked again need not be looked at."""


class Place(msgspec.Struct, frozen=True, order=True):
    """Where a selector looks: an attribute, or a capacity, by domain and identifier."""

    domain: str
    identifier: str
    is_capacity: bool = False

    def value(self, driver: str, device: Device) -> Hashable:
        """Return what a device has there; None when it has nothing.

        A name without a domain is filed under the driver's. A device that publishes both forms of
        one name shows both here, since which of them counts is the view's business.
        """
        found = device.capacity if self.is_capacity else device.attributes
        if not found:
            return None
        whole = found.get(f"{self.domain}/{self.identifier}")
        if self.domain != driver:
            return whole
        bare = found.get(self.identifier)
        return whole if bare is None else bare if whole is None else (whole, bare)


class Failure(msgspec.Struct, frozen=True):
    """A selector could not be judged: looking at the device ends the attempt."""

    message: str


class Chain:
    """Selectors in order, all of which must be true.

    Verdicts are shared by all chains of the same texts, whichever class or claim wrote them.

    Attributes:
        places: All that they look at, sorted; None when they may look at anything.
    """

    def __init__(self, expressions: tuple[Expression, ...]) -> None:
        self._origins = [expression.origin for expression in expressions]
        self._judge = _judge(tuple([expression.text for expression in expressions]))
        self.places = self._judge.places

    @property
    def spent(self) -> int:
        """Steps that evaluations have cost so far; a caller charges the difference."""
        return self._judge.spent

    @property
    def key(self) -> Hashable:
        """Equal for chains that always give the same verdict."""
        return self._judge.texts

    def verdict(self, published: PublishedDevice) -> bool | Failure:
        """Return whether a device satisfies all of them; a failure when one of them raises."""
        known = self._judge.verdict(published)
        if isinstance(known, _Fault):
            return Failure(self._message(known))
        return known

    def selection(self, node: NodeDevices) -> "Selection":
        """Return the verdicts on all devices of a node."""
        # What is remembered of a long one would keep it, too.
        select = _select if self._judge.is_long else _selected
        chosen, faults = select(self._judge, node)
        failures = {position: self._message(fault) for position, fault in faults.items()}
        return Selection(chosen=chosen, failures=failures)

    def _message(self, fault: "_Fault") -> str:
        return f"{self._origins[fault.link]}{fault.message}"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts of a chain on the devices of a node.

    Attributes:
        chosen: Positions that satisfy it, as a mask.
        failures: Positions on which it fails, and the message.
    """

    chosen: int
    failures: Mapping[int, str]


class _Fault(msgspec.Struct, frozen=True):
    """Which selector of a chain could not be judged, and why."""

    link: int
    message: str


class _Judge:
    """Selectors as texts; remembers its verdicts."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts
        self.is_long = _are_long(texts)
        self._links = tuple(_compiled(text) for text in texts)
        self.places = places_of(each for each in self._links if isinstance(each, Selector))
        self.spent = 0
        self._verdicts: dict[Hashable, bool | _Fault] = {}

    def verdict(self, published: PublishedDevice) -> bool | _Fault:
        seen = projection(published, self.places)
        known = self._verdicts.get(seen)
        if known is None:
            if len(self._verdicts) >= _PROJECTIONS:
                self._verdicts.clear()
            known = self._verdicts[seen] = self._judged(published)
        return known

    def _judged(self, published: PublishedDevice) -> bool | _Fault:
        device = view(published.id.driver, published.device)
        for number, link in enumerate(self._links):
            if isinstance(link, str):
                return _Fault(number, link)
            self.spent += 1 + link.cost // COST_PER_STEP
            try:
                if not link.matches(device):
                    return False
            except UnsupportedSelector as error:
                return _Fault(number, f" on device {published.id}: unsupportedCel: {error}")
            except CelError as error:
                return _Fault(number, f" on device {published.id}: CEL runtime error: {error}")
        return True


def chain(expressions: tuple[Expression, ...]) -> Chain:
    """Return the chain of these expressions; mostly the same object for the same ones."""
    if _are_long([expression.text for expression in expressions]):
        return _long_chain(expressions)
    return _short_chain(expressions)


# A compiled selector is some hundred times as large as its text, so of long ones few are kept.
@lru_cache(maxsize=_CHAINS)
def _short_chain(expressions: tuple[Expression, ...]) -> Chain:
    return Chain(expressions)


@lru_cache(maxsize=_LONG_CHAINS)
def _long_chain(expressions: tuple[Expression, ...]) -> Chain:
    return Chain(expressions)


def forget_selectors() -> None:
    """Let go of selectors that were asked about before; who still uses one keeps it."""
    for each in (_short_chain, _long_chain, _short_judge, _long_judge, _selected):
        each.cache_clear()


def _select(judge: _Judge, node: NodeDevices) -> tuple[int, Mapping[int, _Fault]]:
    """Return the devices that are chosen, and the faults on others, by position."""
    chosen, faults = 0, {}
    for position, published in enumerate(node.devices):
        verdict = judge.verdict(published)
        if verdict is True:
            chosen |= 1 << position
        elif isinstance(verdict, _Fault):
            faults[position] = verdict
    return chosen, faults


_selected = lru_cache(maxsize=_SELECTIONS)(_select)


def _judge(texts: tuple[str, ...]) -> _Judge:
    return _long_judge(texts) if _are_long(texts) else _short_judge(texts)


def _are_long(texts: Iterable[str]) -> bool:
    return sum([len(text) for text in texts]) > _LONG


@lru_cache(maxsize=_CHAINS)
def _short_judge(texts: tuple[str, ...]) -> _Judge:
    return _Judge(texts)


@lru_cache(maxsize=_LONG_CHAINS)
def _long_judge(texts: tuple[str, ...]) -> _Judge:
    return _Judge(texts)


def projection(published: PublishedDevice, places: tuple[Place, ...] | None) -> Hashable:
    """Return what selectors that look at `places` can tell of a device.

    Apart from the places these are the driver, whether it can be shared, and whether an attribute
    is malformed, which spoils every expression.
    """
    device, driver = published.device, published.id.driver
    shareable = device.allow_multiple_allocations or False
    if places is None:
        return driver, shareable, _everything(device.attributes), _everything(device.capacity)
    return (
        driver,
        shareable,
        _quirk(device),
        tuple([place.value(driver, device) for place in places]),
    )


def places_of(selectors: Iterable[Selector]) -> tuple[Place, ...] | None:
    """Return all that selectors look at, sorted; None when one may look at anything."""
    union: set[Place] = set()
    for selector in selectors:
        if selector.attributes is None or selector.capacities is None:
            return None
        union.update(Place(*pair) for pair in selector.attributes)
        union.update(Place(*pair, is_capacity=True) for pair in selector.capacities)
    return tuple(sorted(union))


def _compiled(text: str) -> Selector | str:
    """Return a selector as the scheduler reads stored ones, or why there is none."""
    try:
        return compile_selector(text, Environment.STORED)
    except InvalidSelector as error:
        return f": CEL compile error: {error}"
    except UnsupportedSelector as error:
        return f": unsupportedCel: {error}"


def _everything(named: object) -> Hashable:
    # A mapping of frozen values; its items in the driver's order would tell equal devices apart.
    return frozenset(named.items()) if isinstance(named, dict) else None


def _quirk(device: Device) -> Hashable:
    """Return what makes selectors fail, or compare otherwise, whatever they look at."""
    has_versions = False
    for attribute in (device.attributes or {}).values():
        text = attribute.string
        if text is not None:
            if "\0" in text:
                return _everything(device.attributes)
        elif attribute.int_ is None and attribute.bool_ is None:
            if not _is_sound(attribute):
                return _everything(device.attributes)
            has_versions |= attribute.version is not None or attribute.versions is not None
    return has_versions


@lru_cache(maxsize=_CHAINS)
def _is_sound(attribute: DeviceAttribute) -> bool:
    """Return whether a version or a list is one that selectors can be judged on."""
    texts = attribute.strings or ()
    if any("\0" in text for text in texts):
        return False
    versions = attribute.versions or (() if attribute.version is None else (attribute.version,))
    try:
        for version in versions:
            Semver.parsed(version)
    except ValueError:
        return False
    return bool(versions or texts or attribute.ints or attribute.bools)
