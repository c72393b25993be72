"""The drivers that a claim may get devices of: a claim names classes, and no driver.

They are those of the published devices that class and request select, and those that the expressions
name, as in `device.driver == "gpu.nvidia.com"`, whose devices may not be published yet.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from allocator.model.requests import Expression
from allocator.model.selectors import selector_chain
from kube.api.resource import (
    MAX_ALTERNATIVES,
    MAX_REQUESTS,
    DeviceClaim,
    DeviceClass,
    DeviceSelector,
)
from kube.cel.comparisons import compared_drivers
from kube.cel.library import Environment
from kube.errors import CelError
from rules.context import Context
from rules.requests import MAX_CHARACTERS, Alternative, exceeds_compile_cost, list_alternatives

MAX_EVALUATED: Final = MAX_REQUESTS * MAX_ALTERNATIVES
"""Requests and alternatives of one claim."""


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
    """Return the drivers of a class; its name is in `unknown` where nothing tells them."""
    return _drivers(device_class.spec.selectors or (), device_class.metadata.name, context)


def drivers_of_claim(claim: DeviceClaim, context: Context) -> ClaimDrivers:
    """Return the drivers of all requests and alternatives of a claim."""
    drivers = ClaimDrivers()
    for alternative in islice(list_alternatives(claim), MAX_EVALUATED):
        drivers |= _drivers_of_request(alternative, context)
    return drivers


def _drivers_of_request(alternative: Alternative, context: Context) -> ClaimDrivers:
    device_class = context.classes.get(alternative.request.device_class_name)
    if device_class is None:
        return ClaimDrivers(unknown=(alternative.name,))
    of_class = tuple(device_class.spec.selectors or ())
    own = tuple(alternative.request.selectors or ())
    # A claim is written by anybody, and what its selectors cost is theirs to choose.
    if exceeds_compile_cost(own, MAX_CHARACTERS):
        own = ()
    drivers = _drivers((*of_class, *own), alternative.name, context)
    if drivers.unknown and own:
        return _drivers(of_class, alternative.name, context)
    return drivers


def _drivers(selectors: Iterable[DeviceSelector], name: str, context: Context) -> ClaimDrivers:
    texts = [selector.cel.expression for selector in selectors if selector.cel is not None]
    chain = selector_chain(tuple(Expression(text=text, origin="") for text in texts))
    drivers = context.inventory.select(chain).drivers
    named_drivers = frozenset[str]().union(*map(_named_drivers, texts))
    if not drivers and not named_drivers:
        return ClaimDrivers(unknown=(name,))
    return ClaimDrivers(published=drivers, named=named_drivers)


def _named_drivers(expression: str) -> frozenset[str]:
    try:
        return compared_drivers(expression, Environment.STORED)
    except CelError:
        return frozenset()  # Other rules report it.
