"""The requests of a claim, one by one: whole requests and the alternatives of others.

Source: resource.k8s.io/v1, DeviceRequest; an alternative is called `parent/name`.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

import msgspec

from kube.api.resource import (
    MAX_ALTERNATIVES,
    MAX_CONSTRAINTS,
    MAX_REQUESTS,
    CapacityRequirements,
    DeviceClaim,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
)

MAX_CONFIGS: Final = 32
"""Of one claim (DeviceConfigMaxSize)."""
MAX_AMOUNTS: Final = 64
"""Of one request. A device has at most 32 capacities, so what asks for more can never be met."""
MAX_CHARACTERS: Final = 10 * 1024
"""Of expressions that are judged in one object, so that one as long as may be is. To compile so much
takes up to a tenth of a second."""
_EACH: Final = 32
"""What an expression costs beside its characters, in characters."""


_Asks = TypeVar("_Asks", ExactDeviceRequest, DeviceSubRequest)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One way to ask.

    Attributes:
        path: Below `devices`, as the API server writes it.
        name: As constraints and configurations name it, `request` or `request/alternative`.
    """

    path: str
    name: str
    request: ExactDeviceRequest | DeviceSubRequest

    @property
    def parent(self) -> str:
        """The name of the request that it is a way to ask for."""
        return self.name.partition("/")[0]

    @property
    def is_only(self) -> bool:
        """Whether there is no alternative to it."""
        return "/" not in self.name


def asked(claim: DeviceClaim) -> Iterator[Asked]:
    """Yield every way to ask, in order."""
    for index, request in enumerate(claim.requests or ()):
        path = f"requests[{index}]"
        if request.exactly is not None:
            yield Asked(path=f"{path}.exactly", name=request.name, request=request.exactly)
        for number, alternative in enumerate(request.first_available or ()):
            yield Asked(
                path=f"{path}.firstAvailable[{number}]",
                name=f"{request.name}/{alternative.name}",
                request=alternative,
            )


def named(claim: DeviceClaim, names: tuple[str, ...] | None) -> tuple[Asked, ...]:
    """Return what a constraint or configuration is about: all, when it names nothing.

    The name of a request with alternatives stands for all of them.
    """
    every = tuple(asked(claim))
    if not names:
        return every
    wanted = frozenset(names)
    return tuple(one for one in every if one.name in wanted or one.parent in wanted)


def bounded(claim: DeviceClaim) -> DeviceClaim:
    """Return a claim with no more of anything than rules look at.

    One request and one alternative more than there may be are left, so that their number is told.
    What else stands beyond a limit the API server refuses.
    """
    return DeviceClaim(
        requests=tuple(map(_bounded, (claim.requests or ())[: MAX_REQUESTS + 1])) or None,
        constraints=(claim.constraints or ())[:MAX_CONSTRAINTS] or None,
        config=(claim.config or ())[:MAX_CONFIGS] or None,
    )


def _bounded(request: DeviceRequest) -> DeviceRequest:
    exactly, alternatives = request.exactly, request.first_available
    return msgspec.structs.replace(
        request,
        exactly=None if exactly is None else _of_few_amounts(exactly),
        first_available=None
        if alternatives is None
        else tuple(map(_of_few_amounts, alternatives[: MAX_ALTERNATIVES + 1])),
    )


def _of_few_amounts(one: _Asks) -> _Asks:
    amounts = (one.capacity and one.capacity.requests) or {}
    if len(amounts) <= MAX_AMOUNTS:
        return one
    few = CapacityRequirements(requests=dict(islice(amounts.items(), MAX_AMOUNTS)))
    return msgspec.structs.replace(one, capacity=few)


def names_of(claim: DeviceClaim) -> tuple[str, ...]:
    """Return every name that a constraint or configuration may use, in order."""
    names: dict[str, None] = {}
    for request in claim.requests or ():
        names[request.name] = None
        for alternative in request.first_available or ():
            names[f"{request.name}/{alternative.name}"] = None
    return tuple(names)


def characters(claim: DeviceClaim) -> int:
    """Return what the selectors of a claim cost to compile, in characters."""
    return sum(cost(one.request.selectors) for one in asked(claim))


def cost(selectors: Iterable[DeviceSelector] | None) -> int:
    """Return what selectors cost to compile, in characters."""
    return sum(_EACH + len(one.cel.expression) for one in selectors or () if one.cel is not None)


def at(path: str, *steps: str) -> str:
    """Return a longer path.

    >>> at("spec.devices", "config[0]"), at("", "spec")
    ('spec.devices.config[0]', 'spec')
    """
    return ".".join(filter(None, (path, *steps)))
