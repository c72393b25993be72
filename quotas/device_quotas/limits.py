"""The limits of DeviceQuotas, compiled: the devices and requests that count, and their measure.

Selectors are administrators' expressions, so they are evaluated in place, once for each projection of a
device. Whatever cannot be evaluated counts: a limit whose expression does not compile, or takes more steps for
the devices there are than a limit may, lets nothing through.
"""

from collections.abc import Hashable, Iterable, Mapping
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from allocator.model.amount_bound import capacity_amount
from allocator.model.devices import PublishedDevice
from allocator.model.selectors import projection, referenced_fields
from findings.field_path import FieldPath
from kube.api.device_quota import (
    Budget,
    DeviceQuota,
    LegacyKey,
    QuotaEnforcement,
    QuotaLimit,
    WhenFull,
)
from kube.api.resource import DeviceSelector
from kube.cel.compile import COST_PER_STEP, Environment, LocalSelector, compile_in_place
from kube.cel.device import device_view, qualify_name
from kube.cel.scope import current_scope
from kube.errors import CelError, InvalidSelector, UnsupportedSelector
from kube.quantity import Quantity, format_amount

MAX_STEPS: Final = 200_000
"""Steps of the selectors of one limit for all devices that differ: half a second."""
ONE: Final = 10**9
"""A device, or a claim, in nano-units."""
_MAX_CACHED: Final = 65536
"""Verdicts that a filter caches; beyond that the cache is cleared."""


class Measure(StrEnum):
    """The unit of a limit."""

    DEVICES = "devices"
    CLAIMS = "claims"
    CAPACITY = "capacity"
    COUNTER = "counter"


_NUMBERS: Final = frozenset({Measure.DEVICES, Measure.CLAIMS})


class Measured(Protocol):
    """The amount of a device that counts."""

    @property
    def driver(self) -> str:
        """The driver; a name without a domain is in its domain."""

    @property
    def measure(self) -> Measure:
        """The unit."""

    @property
    def capacity(self) -> tuple[str, str]:
        """Domain and identifier of the capacity, if the measure is one."""

    @property
    def counter(self) -> str:
        """Name of the counter, if the measure is one."""


class LimitFault(msgspec.Struct, frozen=True, kw_only=True):
    """The fault of a selector, independent of the device.

    Attributes:
        is_spent: It compiles, and takes too many steps for all devices.
    """

    path: FieldPath
    why: str
    is_spent: bool = False


class DeviceFilter:
    """The devices that a limit counts. Immutable but for its cache of verdicts, and for its fault.

    Attributes:
        fault: The first selector that does not compile, or all of them once they have taken too many steps;
            None while they can be evaluated. It stays until the quota is another one.
        counts_all: Every device counts.
        failure: The message of a selector that failed on a device; empty if none has.
    """

    def __init__(self, selectors: Iterable[DeviceSelector], path: FieldPath) -> None:
        """Compile every selector.

        Args:
            path: The path of the selectors in the quota.
        """
        self.fault: LimitFault | None = None
        self.failure = ""
        self._selectors: list[LocalSelector] = []
        for place, selector in enumerate(selectors):
            compiled = _compile(selector, path.child(place, "cel", "expression"))
            if isinstance(compiled, LocalSelector):
                self._selectors.append(compiled)
            elif self.fault is None:
                self.fault = compiled
        self.counts_all: Final = self.fault is not None or not self._selectors
        self._path = path
        self._fields = referenced_fields(self._selectors)
        self._verdicts: dict[Hashable, bool] = {}
        self._steps = 0
        self._has_gone_devices = False

    def renew(self) -> None:
        """Take note that devices are others now, so that some verdicts may be of devices that are gone."""
        self._has_gone_devices = bool(self._verdicts)

    def counts(self, device: PublishedDevice) -> bool:
        """Return True if a device counts; one that no selector can be evaluated on does.

        Raises:
            AnswerInterrupted: The budget of the answer does not last for the evaluation.
        """
        if self.counts_all:
            return True
        key = projection(device, self._fields)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if not self._may_evaluate():
                return True
            verdict = self._verdicts[key] = self._evaluate(device)
        return verdict

    def _may_evaluate(self) -> bool:
        """Return True if the selectors have steps left for another device."""
        if self.fault is not None:
            return False
        is_spent = self._steps >= MAX_STEPS
        if is_spent and not self._has_gone_devices:
            # Verdicts stay, so that a claim is charged the same before and after.
            why = f"takes more than {MAX_STEPS} steps for the {len(self._verdicts)} devices that differ"
            self.fault = LimitFault(path=self._path, why=why, is_spent=True)
            return False
        if is_spent or len(self._verdicts) >= _MAX_CACHED:
            self._verdicts.clear()
            self._steps, self._has_gone_devices = 0, False
        return True

    def _evaluate(self, device: PublishedDevice) -> bool:
        view = device_view(device.id.driver, device.device)
        for selector in self._selectors:
            steps = 1 + selector.charge // COST_PER_STEP
            self._steps += steps
            current_scope().meter.count(steps)
            try:
                if not selector.matches(view):
                    return False
            except CelError as error:
                if isinstance(error, UnsupportedSelector) and not view.unsupported:
                    self.fault = LimitFault(path=self._path, why=str(error), is_spent=True)
                self.failure = f"device {device.id}: {error}"
        return True


class Limit(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One limit of one quota. All amounts are in nano-units, devices and claims, too.

    Attributes:
        classes: The classes whose requests count; all without any.
        capacity: Domain and identifier of the capacity, where the measure is one.
        counter: Name of the counter, where the measure is one.
        max: The largest amount in use at a time, as written.
        per_request: The largest amount of a request; None for no limit.
        per_device: The largest amount on a device; None for no limit.
        is_enforced: False if the quota only reports.
        waits: A pod for which nothing is left waits.
        is_shared: One amount for all selected namespaces.
        path: The path of the limit in its quota.
        legacy_keys: Keys by which pods without claims count.
    """

    quota: str
    name: str
    driver: str
    classes: frozenset[str] = frozenset()
    devices: DeviceFilter
    measure: Measure
    capacity: tuple[str, str] = ("", "")
    counter: str = ""
    max: Quantity
    per_request: Quantity | None = None
    per_device: Quantity | None = None
    alert_percent: int = 95
    is_enforced: bool = True
    waits: bool = True
    is_shared: bool = True
    path: FieldPath
    legacy_keys: tuple[LegacyKey, ...] = ()

    @property
    def is_closed(self) -> bool:
        """Return True if nothing is let through, since the limit cannot be evaluated."""
        return self.devices.fault is not None

    @property
    def available_max(self) -> int:
        """Return the largest amount in use at a time in nano-units; 0 for a limit that is closed."""
        return 0 if self.is_closed else self.max.nanos

    def counts_class(self, name: str) -> bool:
        """Return True if requests for a DeviceClass count."""
        return not self.classes or name in self.classes

    def as_text(self, nanos: int) -> str:
        """Return an amount for people, such as `40Gi`; of a limit of 80G, too, since devices write it so."""
        amount = Quantity.from_nanos(nanos, self.max.format)
        return str(amount) if self.measure in _NUMBERS else format_amount(amount)

    def in_words(self, nanos: int) -> str:
        """Return an amount with its measure, such as `40Gi of memory`."""
        amount = self.as_text(nanos)
        match self.measure:
            case Measure.CAPACITY:
                return f"{amount} of {self.capacity[1]}"
            case Measure.COUNTER:
                return f"{amount} of counter {self.counter}"
            case Measure.DEVICES:
                return f"{amount} device" if nanos == 10**9 else f"{amount} devices"
            case Measure.CLAIMS:
                return f"{amount} claim" if nanos == 10**9 else f"{amount} claims"


def amount_of(device: PublishedDevice, consumed: Mapping[str, Quantity], limit: Measured) -> int:
    """Return the charge for a device, or for a share with this consumption.

    Args:
        consumed: The consumption; empty for all of the device.
    """
    match limit.measure:
        case Measure.DEVICES | Measure.CLAIMS:
            return ONE
        case Measure.CAPACITY:
            if consumed and device.device.allow_multiple_allocations:
                return capacity_of(consumed, limit)
            capacity = device.device.capacity or {}
            return capacity_of({name: amount.value for name, amount in capacity.items()}, limit)
        case Measure.COUNTER:
            return sum(
                max(0, counter.value.nanos)
                for consumption in device.device.consumes_counters or ()
                for name, counter in (consumption.counters or {}).items()
                if name == limit.counter
            )


def counts_device(limit: Limit, device: PublishedDevice) -> bool:
    """Return True if a limit charges something for a device.

    Raises:
        AnswerInterrupted: As `DeviceFilter.counts` does.
    """
    is_of_driver = device.id.driver == limit.driver
    return is_of_driver and amount_of(device, {}, limit) > 0 and limit.devices.counts(device)


def capacity_of(amounts: Mapping[str, Quantity], limit: Measured) -> int:
    """Return the amount of the limit's capacity, by either form of its name; 0 without one."""
    return capacity_amount(amounts, limit.capacity, limit.driver)


def compile_limits(quota: DeviceQuota) -> tuple[Limit, ...]:
    """Return the limits of a quota, in its order."""
    return tuple(
        _compile_limit(quota, limit, FieldPath.of("spec", "limits", place))
        for place, limit in enumerate(quota.spec.limits)
    )


def _compile_limit(quota: DeviceQuota, limit: QuotaLimit, path: FieldPath) -> Limit:
    measure = _measure(limit)
    return Limit(
        quota=quota.metadata.name,
        name=limit.name,
        driver=limit.driver,
        classes=frozenset(limit.device_class_names or ()),
        devices=DeviceFilter(limit.selectors or (), path.child("selectors")),
        measure=measure,
        capacity=qualify_name(limit.capacity or "", limit.driver),
        counter=limit.counter or "",
        max=limit.max,
        per_request=limit.per_request,
        per_device=limit.per_device,
        alert_percent=limit.alert_threshold_percent,
        is_enforced=quota.spec.enforcement is not QuotaEnforcement.AUDIT,
        waits=quota.spec.when_full is not WhenFull.DENY,
        is_shared=quota.spec.budget is not Budget.PER_NAMESPACE,
        path=path,
        legacy_keys=limit.legacy_keys or (),
    )


def _measure(limit: QuotaLimit) -> Measure:
    if limit.capacity is not None:
        return Measure.CAPACITY
    if limit.counter is not None:
        return Measure.COUNTER
    return Measure.CLAIMS if limit.claims is not None else Measure.DEVICES


def _compile(selector: DeviceSelector, path: FieldPath) -> LocalSelector | LimitFault:
    if selector.cel is None:
        # A kind of selector of a later version.
        return LimitFault(path=path, why="it is not CEL")
    try:
        return compile_in_place(selector.cel.expression, Environment.STORED)
    except (InvalidSelector, UnsupportedSelector) as error:
        return LimitFault(path=path, why=str(error))
