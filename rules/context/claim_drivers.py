"""The drivers that a claim may get devices of: a claim names classes, and no driver.

They are those of the published devices that class and request select, and those that the expressions
name, as in `device.driver == "gpu.nvidia.com"`, whose devices may not be published yet.

A class is an administrator's, and its drivers are known until the inventory changes. The selectors of a claim
are anybody's. They are evaluated only where the class leaves open whether the claim reaches drivers of one
owner or of two, and no further than until that is certain.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

import msgspec

from allocator.model.devices import PublishedDevice
from allocator.model.requests import Expression
from allocator.model.selectors import SelectorChain, selector_chain
from kube.api.resource import (
    MAX_ALTERNATIVES,
    MAX_REQUESTS,
    DeviceClaim,
    DeviceClass,
    DeviceSelector,
)
from kube.cel.comparisons import compared_drivers
from kube.cel.library import Environment
from kube.cel.scope import STEPS_PER_LOOK, AnswersPending, current_scope, evaluating
from kube.errors import CelError
from rules.context.context import Context
from rules.model.requests import (
    MAX_CHARACTERS,
    Alternative,
    exceeds_compile_cost,
    list_alternatives,
)

MAX_EVALUATED: Final = MAX_REQUESTS * MAX_ALTERNATIVES
"""Requests and alternatives of one claim."""
MAX_CLASS_EXPRESSIONS: Final = 1024
"""Expressions of classes of which the drivers are kept."""
MAX_OWN_EXPRESSIONS: Final = 128
"""The same of claims."""
FIRST_DEVICES: Final = 8
"""Devices of a driver that are looked at first; then twice as many each time. Most selectors select one of
the first, or none."""


class ClaimDrivers(msgspec.Struct, frozen=True, kw_only=True):
    """The drivers of a claim's requests.

    Attributes:
        published: Drivers of published devices that a request selects.
        named: Drivers that expressions name.
        unknown: Names of requests, and of alternatives, for which there is neither.
    """

    published: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()

    @property
    def all(self) -> frozenset[str]:
        """Published and named drivers."""
        return self.published | self.named

    def __or__(self, other: "ClaimDrivers") -> "ClaimDrivers":
        """Return the drivers of both."""
        return ClaimDrivers(
            published=self.published | other.published,
            named=self.named | other.named,
            unknown=(*self.unknown, *other.unknown),
        )


def drivers_of_class(device_class: DeviceClass, context: Context) -> ClaimDrivers:
    """Return the drivers of a class; its name is in `unknown` if nothing tells them."""
    texts = _texts(device_class.spec.selectors)
    with evaluating(tenant=""):  # Whoever asks, it is kept for all.
        published_drivers = context.inventory.class_drivers(_chain(texts))
    named_drivers = frozenset[str]().union(*map(_named_by_class, texts))
    if not published_drivers and not named_drivers:
        return ClaimDrivers(unknown=(device_class.metadata.name,))
    return ClaimDrivers(published=published_drivers, named=named_drivers)


def drivers_of_claim(claim: DeviceClaim, context: Context) -> ClaimDrivers:
    """Return the drivers of all requests and alternatives of a claim.

    Raises:
        AnswerInterrupted: Selectors of the claim count, and are not evaluated yet.
    """
    drivers = ClaimDrivers()
    pending: AnswersPending | None = None
    of_classes: dict[str, ClaimDrivers] = {}
    for alternative in islice(list_alternatives(claim), MAX_EVALUATED):
        try:
            drivers |= _drivers_of_request(alternative, context, of_classes)
        except AnswersPending as error:
            pending = error  # So that the engine hears of all requests at once.
    if pending is not None:
        raise pending
    return drivers


def _drivers_of_request(
    alternative: Alternative, context: Context, of_classes: dict[str, ClaimDrivers]
) -> ClaimDrivers:
    """Return the drivers of an alternative.

    Args:
        of_classes: The drivers of the classes of other alternatives, by name; those of its own are added.
    """
    name = alternative.request.device_class_name
    device_class = context.classes.get(name)
    if device_class is None:
        return ClaimDrivers(unknown=(alternative.name,))
    of_class = of_classes.get(name)
    if of_class is None:
        of_class = of_classes[name] = drivers_of_class(device_class, context)
    own = tuple(alternative.request.selectors or ())
    if of_class.all and not (own and _has_two_owners(of_class.published, context)):
        return of_class
    texts = _texts(own)
    if of_class.published:
        chain = _chain((*_texts(device_class.spec.selectors), *texts))
        selected_drivers = _selected_drivers(chain, sorted(of_class.published), context)
        if selected_drivers:
            # A driver that the class names is out where its devices are published and not selected.
            return ClaimDrivers(
                published=selected_drivers, named=of_class.named - of_class.published
            )
    named_drivers = of_class.named
    if not exceeds_compile_cost(own, MAX_CHARACTERS):
        named_drivers = named_drivers.union(*map(_named_by_claim, texts))
    if named_drivers:
        return ClaimDrivers(named=named_drivers)
    return of_class if of_class.all else ClaimDrivers(unknown=(alternative.name,))


def _has_two_owners(drivers: Collection[str], context: Context) -> bool:
    """Return True if the bridge owns some drivers, and kube-scheduler others."""
    return len({driver in context.owned_drivers for driver in drivers}) > 1


def _selected_drivers(
    chain: SelectorChain, drivers: Iterable[str], context: Context
) -> frozenset[str]:
    """Return the drivers with devices that the selectors select; stop at drivers of two owners.

    Raises:
        AnswerInterrupted: It is not known yet whether there are.
    """
    selected: set[str] = set()
    pending: AnswersPending | None = None
    for driver in drivers:
        try:
            if _selects_one(chain, context.inventory.devices_of(driver)):
                selected.add(driver)
        except AnswersPending as error:
            pending = error
        if _has_two_owners(selected, context):
            return frozenset(selected)
    if pending is not None:
        raise pending
    return frozenset(selected)


def _selects_one(chain: SelectorChain, devices: Sequence[PublishedDevice]) -> bool:
    return any(True in chain.verdicts(part) for part in _growing_parts(devices))


def _growing_parts(devices: Sequence[PublishedDevice]) -> Iterator[Sequence[PublishedDevice]]:
    """Yield all devices in parts, each twice as large as the one before."""
    start, size = 0, FIRST_DEVICES
    while start < len(devices):
        yield devices[start : start + size]
        start, size = start + size, 2 * size


def _texts(selectors: Iterable[DeviceSelector] | None) -> tuple[str, ...]:
    return tuple(
        selector.cel.expression for selector in selectors or () if selector.cel is not None
    )


def _chain(texts: Iterable[str]) -> SelectorChain:
    return selector_chain(tuple(Expression(text=text, origin="") for text in texts))


@lru_cache(maxsize=MAX_CLASS_EXPRESSIONS)
def _named_by_class(expression: str) -> frozenset[str]:
    """Return the drivers in an expression of an administrator: of a class."""
    return _named_drivers(expression)


@lru_cache(maxsize=MAX_OWN_EXPRESSIONS)
def _named_by_claim(expression: str) -> frozenset[str]:
    """Return the drivers in an expression of a claim.

    Raises:
        AnswerInterrupted: There is no time left. What was looked at is kept, so that a retry gets further.
    """
    # To compile a long expression takes up to a tenth of a second.
    current_scope().meter.count(STEPS_PER_LOOK)
    return _named_drivers(expression)


def _named_drivers(expression: str) -> frozenset[str]:
    try:
        return compared_drivers(expression, Environment.STORED)
    except CelError:
        return frozenset()  # Other rules report it.
