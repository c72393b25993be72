"""Evaluation of CEL selectors, once for all devices that a selector cannot tell apart.

Every device has a uuid, so no two devices are equal; but a selector that reads only `model` can
tell apart no more devices than there are models. What a chain of selectors can read of a device is
the device's *projection*, and each projection is evaluated once for the whole cluster.

Each evaluation is charged to the meter in force (`kube.cel.scope`), and what it makes this process keep is
counted for the tenant in force.

Source of the order of evaluation: upstream's isSelectable and selectorsMatch.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Final
from weakref import ref

import msgspec

from allocator.model.devices import NodeDevices, Pool, PublishedDevice
from allocator.model.requests import Expression
from kube.api.meta import encode
from kube.api.resource import Device
from kube.cel.compile import Environment, RemoteSelector, Selector, compile_selector
from kube.cel.device import NamedDevice
from kube.cel.projection import attribute_fault
from kube.cel.scope import AnswersPending, current_scope
from kube.collections.tenant_cache import CacheEntry, TenantCache
from kube.errors import CelError, InvalidSelector, UnsupportedSelector

MAX_BYTES: Final = 96 * 2**20
"""Cached verdicts of all chains. A selector on `uuid` has one for every device, and whoever creates claims
chooses how many such selectors there are."""
MAX_PINNED_BYTES: Final = 128 * 2**20
"""The same while questions are unfinished that need more."""
VERDICT_BYTES: Final = 256
"""A cached verdict, with the projection that it is about."""
SELECTION_BYTES: Final = 192
"""A cached selection of a pool."""
SELECTOR_BYTES: Final = 8 * 1024
"""A selector that is compiled in place, beside 20 bytes for each character."""
_BYTES_PER_CHARACTER: Final = 20

STEPS_PER_SELECTOR: Final = 100
"""Steps to compile a selector in place, beside one for each character; or to ask an engine for it."""

_LONG: Final = 256
"""Number of characters above which the selectors of a request count as long."""


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
    """The error of a selector on a device; it ends the attempt.

    Attributes:
        runtime_error: The error of the evaluation; empty where the expression does not compile, or
            is not supported.
    """

    message: str
    runtime_error: str = ""


class SelectorChain:
    """Selectors in order; all must be true.

    Verdicts are shared by all chains with the same texts, regardless of the class or claim.

    Attributes:
        fields: All fields that they read, sorted; None if they may read any.
    """

    def __init__(self, expressions: tuple[Expression, ...]) -> None:
        self._origins = [expression.origin for expression in expressions]
        self._evaluator = _evaluator(tuple([expression.text for expression in expressions]))
        self.fields = self._evaluator.fields

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SelectorChain):
            return NotImplemented
        return self.key == other.key and self._origins == other._origins

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def is_long(self) -> bool:
        """True if the texts are too long to be kept by caches with many entries."""
        return self._evaluator.is_long

    @property
    def key(self) -> Hashable:
        """A key that is equal for chains with the same verdicts."""
        return self._evaluator.texts

    @property
    def digest(self) -> bytes:
        """A digest of the key, for caches that are to keep no text and no verdict."""
        return self._evaluator.digest

    def verdict(self, device: PublishedDevice) -> bool | SelectorFailure:
        """Return True if a device satisfies all selectors; a failure if one of them raises."""
        return self.verdicts((device,))[0]

    def verdicts(self, devices: Sequence[PublishedDevice]) -> list[bool | SelectorFailure]:
        """Return the verdict on each device.

        Raises:
            AnswerInterrupted: There is none, for the reason that the class of the error says.
        """
        return [
            SelectorFailure(self._message(verdict, device), verdict.runtime_error)
            if isinstance(verdict, _Fault)
            else verdict
            for device, verdict in zip(devices, self._evaluator.verdicts(devices), strict=True)
        ]

    def selection(self, node: NodeDevices) -> "Selection":
        """Return the verdicts on all devices of a node.

        Raises:
            AnswerInterrupted: As in `verdicts`.
        """
        selected_mask, faults = self._select(node)
        failures = {
            position: self._message(fault, node.devices[position])
            for position, fault in faults.items()
        }
        return Selection(selected=selected_mask, failures=failures)

    def _select(self, node: NodeDevices) -> "tuple[int, Mapping[int, _Fault]]":
        if len(node.pool_starts) < len(node.pools):
            return _mask(self._evaluator.verdicts(node.devices))
        selected_mask, faults = 0, {}
        pending: AnswersPending | None = None
        for start, pool in zip(node.pool_starts, node.pools, strict=True):
            try:
                pool_mask, pool_faults = self._evaluator.selection(pool)
            except AnswersPending as error:
                pending = error  # So that the engine hears of many pools at once.
                if not error.has_room:
                    break
                continue
            selected_mask |= pool_mask << start
            for place, fault in pool_faults.items():
                faults[start + place] = fault
        if pending is not None:
            raise pending
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


_Verdict = bool | _Fault
_PoolSelection = tuple[int, Mapping[int, _Fault]]
"""Mask of the devices of a pool that are selected, and the faults on others by position."""


class _Evaluator:
    """Selectors as texts, with a cache of their verdicts."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts
        self.is_long = sum([len(text) for text in texts]) > _LONG
        self._selectors = _compile_all(texts)
        self.fields = referenced_fields(
            selector for selector in self._selectors if not isinstance(selector, str)
        )
        # An engine elsewhere keeps the verdicts of its expressions itself.
        self._is_remote = any(isinstance(selector, RemoteSelector) for selector in self._selectors)
        self._verdicts: dict[Hashable, _Verdict] = {}
        self._selections: dict[int, tuple[ref[Pool], _PoolSelection]] = {}
        self._entry: CacheEntry[_Evaluator] | None = None

    @cached_property
    def digest(self) -> bytes:
        """A digest of the texts."""
        return sha256(encode(self.texts)).digest()

    @property
    def size(self) -> int:
        """Bytes that it holds before it has verdicts."""
        return sum(SELECTOR_BYTES + _BYTES_PER_CHARACTER * len(text) for text in self.texts)

    def keep(self, entry: "CacheEntry[_Evaluator]") -> None:
        """Count verdicts for a cache's entry."""
        self._entry = entry

    def selection(self, pool: Pool) -> _PoolSelection:
        """Return the verdicts on a pool, by the places in it: many nodes may see it."""
        pool_ref, selection = self._selections.get(id(pool), _NO_SELECTION)
        if pool_ref is None or pool_ref() is not pool:
            selection = _mask(self.verdicts(pool.devices, pool))
            if len(self._selections) >= _MAX_SELECTIONS:
                self._grow(-SELECTION_BYTES * len(self._selections))
                self._selections.clear()
            self._selections[id(pool)] = ref(pool), selection
            self._grow(SELECTION_BYTES)
        return selection

    def verdicts(
        self, devices: Sequence[PublishedDevice], pool: Pool | None = None
    ) -> list[_Verdict]:
        """Return the verdict on each device.

        Args:
            pool: The pool that has these devices and no others; None if there is none.
        """
        if self._is_remote:
            return self._evaluate(devices, pool)
        # A key is a deep value, so it is hashed once for each device, and then once for all that are alike.
        numbers: dict[Hashable, int] = {}
        number_of = [
            numbers.setdefault(projection(device, self.fields), len(numbers)) for device in devices
        ]
        cached_verdicts, examples = self._verdicts, dict(zip(number_of, devices, strict=True))
        missing = {
            key: examples[number] for key, number in numbers.items() if key not in cached_verdicts
        }
        if missing:
            self._add_verdicts(missing)
        verdicts = [cached_verdicts[key] for key in numbers]
        return [verdicts[number] for number in number_of]

    def _add_verdicts(self, missing: Mapping[Hashable, PublishedDevice]) -> None:
        """Evaluate one by one, so that a budget that ends loses nothing."""
        pending: AnswersPending | None = None
        count = len(self._verdicts)
        try:
            for key, device in missing.items():
                try:
                    (self._verdicts[key],) = self._evaluate((device,))
                except AnswersPending as error:
                    pending = error  # So that the engine hears of all devices at once.
                    if not error.has_room:
                        break
        finally:
            self._grow(VERDICT_BYTES * (len(self._verdicts) - count))
        if pending is not None:
            raise pending

    def _evaluate(
        self, devices: Sequence[PublishedDevice], pool: Pool | None = None
    ) -> list[_Verdict]:
        """Evaluate one selector after the other on the devices that all before it select."""
        verdicts: list[_Verdict] = [True] * len(devices)
        places: Sequence[int] = range(len(devices))
        for index, selector in enumerate(self._selectors):
            if isinstance(selector, str):
                fault = _Fault(index, selector, is_of_device=False)
                for place in places:
                    verdicts[place] = fault
                break
            selected_places = []
            is_whole = len(places) == len(devices)
            selected_devices = devices if is_whole else [devices[place] for place in places]
            answers = self._answers(index, selector, selected_devices, pool if is_whole else None)
            for place, verdict in zip(places, answers, strict=True):
                if verdict is True:
                    selected_places.append(place)
                else:
                    verdicts[place] = verdict
            places = selected_places
            if not places:
                break
        return verdicts

    def _answers(
        self,
        index: int,
        selector: Selector,
        devices: Sequence[PublishedDevice],
        pool: Pool | None,
    ) -> list[_Verdict]:
        """Return the verdicts of one selector."""
        if self._is_remote and not isinstance(selector, RemoteSelector):
            # Mostly that of a class: its verdicts are known, whatever else is asked.
            of_class = _evaluator((self.texts[index],))
            if pool is None:
                verdicts = of_class.verdicts(devices)
            else:
                mask, faults = of_class.selection(pool)
                verdicts = [faults.get(n, bool(mask >> n & 1)) for n in range(len(devices))]
            return [
                msgspec.structs.replace(verdict, index=index)
                if isinstance(verdict, _Fault)
                else verdict
                for verdict in verdicts
            ]
        named_devices = [NamedDevice(device.id.driver, device.device) for device in devices]
        return [
            verdict if isinstance(verdict, bool) else _fault(index, verdict)
            for verdict in selector.verdicts(named_devices)
        ]

    def _grow(self, size: int) -> None:
        if self._entry is not None:
            _evaluators.grow(self._entry, size)


_MAX_SELECTIONS: Final = 1 << 14
_NO_SELECTION: Final[tuple[None, _PoolSelection]] = (None, (0, {}))
_evaluators: Final = TenantCache[tuple[str, ...], _Evaluator](
    max_bytes=MAX_BYTES, max_pinned_bytes=MAX_PINNED_BYTES
)


def selector_chain(expressions: tuple[Expression, ...]) -> SelectorChain:
    """Return the chain of these expressions; its verdicts are cached.

    Raises:
        AnswerInterrupted: It is not compiled, for the reason that the class of the error says.
    """
    return SelectorChain(expressions)


def selector_chains(requests: Iterable[tuple[Expression, ...]]) -> tuple[SelectorChain, ...]:
    """Return the chains of several requests, each different one once, in order.

    Raises:
        AnswerInterrupted: As in `selector_chain`; then the engine has heard of all of them.
    """
    chains: dict[Hashable, SelectorChain] = {}
    pending: AnswersPending | None = None
    for expressions in dict.fromkeys(requests):
        try:
            chain = selector_chain(expressions)
        except AnswersPending as error:
            pending = error
        else:
            chains.setdefault(chain.key, chain)
    if pending is not None:
        raise pending
    return tuple(chains.values())


def clear_selector_caches() -> None:
    """Drop all cached verdicts."""
    _evaluators.clear()


def release_verdicts(question: str) -> None:
    """Keep the verdicts of a question no longer than others: it has its answer, or nobody waits for it."""
    _evaluators.unpin(question)


def _evaluator(texts: tuple[str, ...]) -> _Evaluator:
    scope = current_scope()
    evaluator = _evaluators.get(texts, tenant=scope.tenant, question=scope.question)
    if evaluator is None:
        evaluator = _Evaluator(texts)
        evaluator.keep(
            _evaluators.put(
                texts,
                evaluator,
                tenant=scope.tenant,
                size=evaluator.size,
                question=scope.question,
            )
        )
    return evaluator


def projection(
    published_device: PublishedDevice, fields: tuple[DeviceField, ...] | None
) -> Hashable:
    """Return everything about a device that selectors reading `fields` can tell.

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
        attribute_fault(device),
        tuple([field.value(driver, device) for field in fields]),
    )


def referenced_fields(selectors: Iterable[Selector]) -> tuple[DeviceField, ...] | None:
    """Return all fields that selectors read, sorted; None if one may read any."""
    attributes: set[tuple[str, str]] = set()
    capacities: set[tuple[str, str]] = set()
    for selector in selectors:
        if selector.attributes is None or selector.capacities is None:
            return None
        attributes |= selector.attributes
        capacities |= selector.capacities
    fields = [DeviceField(*pair) for pair in attributes]
    fields += [DeviceField(*pair, is_capacity=True) for pair in capacities]
    return tuple(sorted(fields))


def _compile_all(texts: tuple[str, ...]) -> tuple[Selector | str, ...]:
    """Compile selectors; those that an engine has to compile first are all asked for at once."""
    selectors: list[Selector | str] = []
    pending: AnswersPending | None = None
    for text in texts:
        try:
            selectors.append(_compile(text))
        except AnswersPending as error:
            pending = error
    if pending is not None:
        raise pending
    return tuple(selectors)


def _compile(text: str) -> Selector | str:
    """Compile a selector as the scheduler does with stored ones; return the error if that fails."""
    scope = current_scope()
    is_in_place = scope.engine is None or len(text) <= _LONG
    scope.meter.charge(STEPS_PER_SELECTOR + (len(text) if is_in_place else 0))
    try:
        return compile_selector(text, Environment.STORED)
    except InvalidSelector as error:
        return f"CEL compile error: {error}"
    except UnsupportedSelector as error:
        return f"unsupportedCel: {error}"


def _fault(index: int, error: CelError) -> _Fault:
    if isinstance(error, UnsupportedSelector):
        return _Fault(index, f"unsupportedCel: {error}")
    return _Fault(index, f"CEL runtime error: {error}", runtime_error=str(error))


def _mask(verdicts: Sequence[_Verdict]) -> _PoolSelection:
    """Return a mask of the devices that are selected, and the faults on others by position."""
    selected_mask, faults = 0, {}
    for position, verdict in enumerate(verdicts):
        if verdict is True:
            selected_mask |= 1 << position
        elif verdict is not False:
            faults[position] = verdict
    return selected_mask, faults


def _items_key(items: object) -> Hashable:
    # A set, since the order of the items must not tell equal devices apart.
    return frozenset(items.items()) if isinstance(items, dict) else None
