"""Evaluation of CEL selectors, once for all devices that a selector cannot tell apart.

Every device has a uuid, so no two devices are equal; but a selector that reads only `model` can
tell apart no more devices than there are models. What a chain of selectors can read of a device is
the device's *projection*, and each projection is evaluated once for the whole cluster.

Source of the order of evaluation: upstream's isSelectable and selectorsMatch.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from allocator.model.devices import NodeDevices, Pool, PublishedDevice
from allocator.model.requests import Expression
from kube.api.resource import Device, DeviceAttribute
from kube.cel.compile import Environment, Selector, compile_selector
from kube.cel.device import device_view
from kube.cel.engine import require_wanted
from kube.cel.semver import Semver
from kube.errors import CelError, InvalidSelector, UnsupportedSelector

COST_PER_STEP: Final = 150
"""Units of CEL cost that take about as long as one step of the search (3 us)."""

_CHAINS: Final = 1024
_LONG_CHAINS: Final = 64
_LONG: Final = 256
"""Number of characters above which the selectors of a request count as long."""
_PROJECTIONS: Final = 1 << 17
MAX_VERDICTS: Final = 1 << 19
"""Number of cached verdicts of all selectors together, some 130 MB. A selector on `uuid` has one for
every device, and whoever creates claims chooses how many such selectors there are."""
_SELECTIONS: Final = 1 << 15
"""Number of cached pairs of pool and chain."""


class DeviceField(msgspec.Struct, frozen=True, order=True):
    """An attribute or a capacity of a device, by domain and identifier."""

    domain: str
    identifier: str
    is_capacity: bool = False

    def value(self, driver: str, device: Device) -> Hashable:
        """Return the value of the field; None if the device does not have it.

        A name without a domain belongs to the driver's domain. If a device publishes both forms of
        a name, return both values: `kube.cel.device` decides which one counts.
        """
        values = device.capacity if self.is_capacity else device.attributes
        if not values:
            return None
        qualified_value = values.get(f"{self.domain}/{self.identifier}")
        if self.domain != driver:
            return qualified_value
        bare = values.get(self.identifier)
        if bare is None or qualified_value is None:
            return qualified_value if bare is None else bare
        return qualified_value, bare


class SelectorFailure(msgspec.Struct, frozen=True):
    """The error of a selector on a device, which ends the attempt.

    Attributes:
        runtime_error: The error of the evaluation; empty where the expression does not compile, or
            is not supported.
    """

    message: str
    runtime_error: str = ""


class SelectorChain:
    """Selectors in order, all of which must be true.

    Verdicts are shared by all chains with the same texts, whichever class or claim they are from.

    Attributes:
        fields: All fields that they read, sorted; None if they may read any.
    """

    def __init__(self, expressions: tuple[Expression, ...]) -> None:
        self._origins = [expression.origin for expression in expressions]
        self._evaluator = _evaluator(tuple([expression.text for expression in expressions]))
        self.fields = self._evaluator.fields

    @property
    def is_long(self) -> bool:
        """Whether the texts are too long to be kept by caches with many entries."""
        return self._evaluator.is_long

    @property
    def spent_steps(self) -> int:
        """Cost of all evaluations so far in steps; a caller charges the difference."""
        return self._evaluator.spent_steps

    @property
    def key(self) -> Hashable:
        """A key that is equal for chains with the same verdicts."""
        return self._evaluator.texts

    def verdict(self, device: PublishedDevice) -> bool | SelectorFailure:
        """Return whether a device satisfies all selectors; a failure if one of them raises."""
        verdict = self._evaluator.verdict(device)
        if isinstance(verdict, _Fault):
            return SelectorFailure(self._message(verdict, device), verdict.runtime_error)
        return verdict

    def selection(self, node: NodeDevices) -> "Selection":
        """Return the verdicts on all devices of a node."""
        selected_mask, faults = self._select(node)
        failures = {
            position: self._message(fault, node.devices[position])
            for position, fault in faults.items()
        }
        return Selection(selected=selected_mask, failures=failures)

    def _select(self, node: NodeDevices) -> "tuple[int, Mapping[int, _Fault]]":
        if len(node.pool_starts) < len(node.pools):
            return _select(self._evaluator, node.devices)
        # A cached selection would keep a long chain in memory.
        select = _select_pool if self.is_long else _cached_pool_selection
        selected_mask, faults = 0, {}
        for start, pool in zip(node.pool_starts, node.pools, strict=True):
            pool_mask, pool_faults = select(self._evaluator, pool)
            selected_mask |= pool_mask << start
            for place, fault in pool_faults.items():
                faults[start + place] = fault
        return selected_mask, faults

    def _message(self, fault: "_Fault", device: PublishedDevice) -> str:
        place = f" on device {device.id}" if fault.is_of_device else ""
        return f"{self._origins[fault.index]}{place}: {fault.message}"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts of a chain on the devices of a node.

    Attributes:
        selected: Mask of the positions that satisfy it.
        failures: Position to message, where it fails.
    """

    selected: int
    failures: Mapping[int, str]


class _Fault(msgspec.Struct, frozen=True):
    """The index of the selector that failed, and the error.

    Attributes:
        is_of_device: Other devices have no error, or another one; one that does not compile fails on all.
    """

    index: int
    message: str
    runtime_error: str = ""
    is_of_device: bool = True


class _CachedVerdicts:
    """Counts the verdicts that all evaluators cache together.

    Those of evaluators that were evicted count until everything is dropped.
    """

    def __init__(self) -> None:
        self.number = 0

    def is_full(self) -> bool:
        """Count one more; return whether all are to be dropped first."""
        self.number += 1
        return self.number > MAX_VERDICTS


_cached_verdicts: Final = _CachedVerdicts()


class _Evaluator:
    """Selectors as texts, with a cache of their verdicts."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts
        self.is_long = _are_long(texts)
        self._selectors = tuple(_compile(text) for text in texts)
        self.fields = referenced_fields(
            selector for selector in self._selectors if not isinstance(selector, str)
        )
        self.spent_steps = 0
        self._verdicts: dict[Hashable, bool | _Fault] = {}

    def verdict(self, device: PublishedDevice) -> bool | _Fault:
        key = projection(device, self.fields)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._evaluate(device)
            if len(self._verdicts) >= _PROJECTIONS:
                self._verdicts.clear()
            if _cached_verdicts.is_full():
                clear_selector_caches()
                self._verdicts.clear()
            self._verdicts[key] = verdict
        return verdict

    def _evaluate(self, published_device: PublishedDevice) -> bool | _Fault:
        require_wanted()
        device = device_view(published_device.id.driver, published_device.device)
        for index, selector in enumerate(self._selectors):
            if isinstance(selector, str):
                return _Fault(index, selector, is_of_device=False)
            self.spent_steps += 1 + selector.cost // COST_PER_STEP
            try:
                if not selector.matches(device):
                    return False
            except UnsupportedSelector as error:
                return _Fault(index, f"unsupportedCel: {error}")
            except CelError as error:
                return _Fault(index, f"CEL runtime error: {error}", runtime_error=str(error))
        return True


def selector_chain(expressions: tuple[Expression, ...]) -> SelectorChain:
    """Return the chain of these expressions, from a cache."""
    if _are_long([expression.text for expression in expressions]):
        return _long_chain(expressions)
    return _short_chain(expressions)


# A compiled selector is about a hundred times as large as its text, so few long ones are cached.
@lru_cache(maxsize=_CHAINS)
def _short_chain(expressions: tuple[Expression, ...]) -> SelectorChain:
    return SelectorChain(expressions)


@lru_cache(maxsize=_LONG_CHAINS)
def _long_chain(expressions: tuple[Expression, ...]) -> SelectorChain:
    return SelectorChain(expressions)


def clear_selector_caches() -> None:
    """Drop all cached selectors that are not in use."""
    _cached_verdicts.number = 0
    for cache in (
        _short_chain,
        _long_chain,
        _short_evaluator,
        _long_evaluator,
        _cached_pool_selection,
    ):
        cache.cache_clear()


def _select(
    evaluator: _Evaluator, devices: Sequence[PublishedDevice]
) -> tuple[int, Mapping[int, _Fault]]:
    """Return a mask of the devices that are selected, and the faults on others by position."""
    selected_mask, faults = 0, {}
    for position, device in enumerate(devices):
        verdict = evaluator.verdict(device)
        if verdict is True:
            selected_mask |= 1 << position
        elif isinstance(verdict, _Fault):
            faults[position] = verdict
    return selected_mask, faults


def _select_pool(evaluator: _Evaluator, pool: Pool) -> tuple[int, Mapping[int, _Fault]]:
    """Return the same of a pool, by the places in it: many nodes may see it."""
    return _select(evaluator, pool.devices)


_cached_pool_selection = lru_cache(maxsize=_SELECTIONS)(_select_pool)


def _evaluator(texts: tuple[str, ...]) -> _Evaluator:
    return _long_evaluator(texts) if _are_long(texts) else _short_evaluator(texts)


def _are_long(texts: Iterable[str]) -> bool:
    return sum([len(text) for text in texts]) > _LONG


@lru_cache(maxsize=_CHAINS)
def _short_evaluator(texts: tuple[str, ...]) -> _Evaluator:
    return _Evaluator(texts)


@lru_cache(maxsize=_LONG_CHAINS)
def _long_evaluator(texts: tuple[str, ...]) -> _Evaluator:
    return _Evaluator(texts)


def projection(
    published_device: PublishedDevice, fields: tuple[DeviceField, ...] | None
) -> Hashable:
    """Return everything that selectors which read `fields` can tell about a device.

    Apart from the fields, these are the driver, whether the device can be shared, and whether an
    attribute is malformed, which breaks every expression.
    """
    device, driver = published_device.device, published_device.id.driver
    shareable = device.allow_multiple_allocations or False
    if fields is None:
        return driver, shareable, _items_key(device.attributes), _items_key(device.capacity)
    return (
        driver,
        shareable,
        _malformed_key(device),
        tuple([field.value(driver, device) for field in fields]),
    )


def referenced_fields(selectors: Iterable[Selector]) -> tuple[DeviceField, ...] | None:
    """Return all fields that selectors read, sorted; None if one may read any."""
    union: set[DeviceField] = set()
    for selector in selectors:
        if selector.attributes is None or selector.capacities is None:
            return None
        union.update(DeviceField(*pair) for pair in selector.attributes)
        union.update(DeviceField(*pair, is_capacity=True) for pair in selector.capacities)
    return tuple(sorted(union))


def _compile(text: str) -> Selector | str:
    """Compile a selector as the scheduler does with stored ones; return the error if that fails."""
    try:
        return compile_selector(text, Environment.STORED)
    except InvalidSelector as error:
        return f"CEL compile error: {error}"
    except UnsupportedSelector as error:
        return f"unsupportedCel: {error}"


def _items_key(items: object) -> Hashable:
    # A set, since the order of the items must not tell equal devices apart.
    return frozenset(items.items()) if isinstance(items, dict) else None


def _malformed_key(device: Device) -> Hashable:
    """Return the fault that makes selectors fail, or compare differently, whatever they read."""
    has_versions = False
    for attribute in (device.attributes or {}).values():
        text = attribute.string
        if text is not None:
            if "\0" in text:
                return _items_key(device.attributes)
        elif attribute.int_ is None and attribute.bool_ is None:
            if not _is_well_formed(attribute):
                return _items_key(device.attributes)
            has_versions |= attribute.version is not None or attribute.versions is not None
    return has_versions


@lru_cache(maxsize=_CHAINS)
def _is_well_formed(attribute: DeviceAttribute) -> bool:
    """Return whether selectors can be evaluated on a device with this version or list."""
    texts = attribute.strings or ()
    if any("\0" in text for text in texts):
        return False
    versions = attribute.versions or (() if attribute.version is None else (attribute.version,))
    try:
        for version in versions:
            Semver.parse(version)
    except ValueError:
        return False
    return bool(versions or texts or attribute.ints or attribute.bools)
