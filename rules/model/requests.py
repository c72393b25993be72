"""The requests of a claim as a flat list: exact requests, and the alternatives of the others.

Source: resource.k8s.io/v1, DeviceRequest; an alternative is named `request/alternative`.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from typing import Final, TypeVar

import msgspec

from findings.field_path import FieldPath
from kube.api.resource import (
    MAX_ALTERNATIVES,
    MAX_CONSTRAINTS,
    MAX_REQUESTS,
    MAX_SELECTORS,
    CapacityRequirements,
    DeviceClaim,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
)

MAX_CONFIGS: Final = 32
"""The largest number of configurations of one claim (DeviceConfigMaxSize)."""
MAX_AMOUNTS: Final = 64
"""The largest number of amounts of one request. A device has at most 32 capacities, so a request
for more is infeasible."""
MAX_CHARACTERS: Final = 10 * 1024
"""The characters of all expressions that are evaluated in one object: the longest allowed
expression. Compiling so much takes up to a tenth of a second."""
_EXPRESSION_OVERHEAD: Final = 32
"""Cost of an expression beside its characters, in characters."""

_Request = TypeVar("_Request", ExactDeviceRequest, DeviceSubRequest)


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """An exact request, or one alternative of a request.

    Attributes:
        path: The path below `devices`.
        name: The name for constraints and configurations, `request` or `request/alternative`.
    """

    path: FieldPath
    name: str
    request: ExactDeviceRequest | DeviceSubRequest

    @property
    def parent(self) -> str:
        """The name of the request that it belongs to."""
        return self.name.partition("/")[0]

    @property
    def is_exact(self) -> bool:
        """Return True if the request has no other alternative."""
        return "/" not in self.name


def list_alternatives(claim: DeviceClaim) -> Iterator[Alternative]:
    """Yield every alternative of every request, in order."""
    for index, request in enumerate(claim.requests or ()):
        path = FieldPath.of("requests", index)
        if request.exactly is not None:
            yield Alternative(
                path=path.child("exactly"), name=request.name, request=request.exactly
            )
        for number, alternative in enumerate(request.first_available or ()):
            yield Alternative(
                path=path.child("firstAvailable", number),
                name=f"{request.name}/{alternative.name}",
                request=alternative,
            )


def referenced_alternatives(
    claim: DeviceClaim, names: tuple[str, ...] | None
) -> tuple[Alternative, ...]:
    """Return the alternatives that a constraint or configuration applies to.

    Args:
        names: The names in its `requests`; without names it applies to all. The name of a request
            includes all of its alternatives.
    """
    alternatives = tuple(list_alternatives(claim))
    if not names:
        return alternatives
    referenced_names = frozenset(names)
    return tuple(
        alternative
        for alternative in alternatives
        if not referenced_names.isdisjoint({alternative.name, alternative.parent})
    )


def truncate_claim(claim: DeviceClaim) -> DeviceClaim:
    """Return a claim of bounded size, with no more entries than rules validate.

    It keeps one entry above the limit of each list, so that rules report it. Amounts have no limit in
    the API server.
    """
    return DeviceClaim(
        requests=tuple(map(_truncate_request, (claim.requests or ())[: MAX_REQUESTS + 1])) or None,
        constraints=(claim.constraints or ())[: MAX_CONSTRAINTS + 1] or None,
        config=(claim.config or ())[: MAX_CONFIGS + 1] or None,
    )


def _truncate_request(request: DeviceRequest) -> DeviceRequest:
    exactly, alternatives = request.exactly, request.first_available
    return msgspec.structs.replace(
        request,
        exactly=None if exactly is None else _truncate_lists(exactly),
        first_available=None
        if alternatives is None
        else tuple(map(_truncate_lists, alternatives[: MAX_ALTERNATIVES + 1])),
    )


def _truncate_lists(request: _Request) -> _Request:
    if len(request.selectors or ()) > MAX_SELECTORS + 1:
        selectors = (request.selectors or ())[: MAX_SELECTORS + 1]
        request = msgspec.structs.replace(request, selectors=selectors)
    amounts = (request.capacity and request.capacity.requests) or {}
    if len(amounts) > MAX_AMOUNTS:
        capacity = CapacityRequirements(requests=dict(islice(amounts.items(), MAX_AMOUNTS)))
        request = msgspec.structs.replace(request, capacity=capacity)
    return request


def request_names(claim: DeviceClaim) -> tuple[str, ...]:
    """Return the names that a constraint or configuration may use, in order."""
    names: dict[str, None] = {}
    for request in claim.requests or ():
        names[request.name] = None
        for alternative in request.first_available or ():
            names[f"{request.name}/{alternative.name}"] = None
    return tuple(names)


def list_selectors(claims: Iterable[DeviceClaim]) -> Iterator[DeviceSelector]:
    """Yield the selectors of claims."""
    for claim in claims:
        for alternative in list_alternatives(claim):
            yield from alternative.request.selectors or ()


def exceeds_compile_cost(selectors: Iterable[DeviceSelector], limit: int) -> bool:
    """Return True if selectors cost more than a limit to compile, in characters.

    It looks no further than the limit, however many there are.
    """
    costs = (
        _EXPRESSION_OVERHEAD + len(selector.cel.expression)
        for selector in selectors
        if selector.cel is not None
    )
    return any(cost > limit for cost in accumulate(costs))
