"""A part of the claims of an attempt: some of its requests and constraints."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from allocator.model.requests import PendingClaims, Request


class Item(NamedTuple):
    """A request or a constraint of an attempt, by its place."""

    is_request: bool
    claim: int
    number: int


Items = tuple[Item, ...]


class Case(NamedTuple):
    """A part of the claims that does not fit, seen from one alternative of its last request."""

    items: Items
    last: Item
    alternative: int

    @property
    def requests(self) -> list[Item]:
        """The requests of the part, in order."""
        return sorted(item for item in self.items if item.is_request)

    @property
    def has_constraints(self) -> bool:
        """Return True if the part has a constraint."""
        return not all(item.is_request for item in self.items)

    def part(self, pending: PendingClaims, count: int | None = None) -> PendingClaims:
        """Return the part as an attempt of its own, with the last request for fewer devices."""
        if count == 0:
            return subset_of(pending, tuple(item for item in self.items if item != self.last))
        only = pending.requests[self.last.claim][self.last.number][self.alternative]
        if count is not None:
            only = msgspec.structs.replace(only, count=count)
        return subset_of(pending, self.items, {self.last: only})


def subset_of(
    pending: PendingClaims, items: Items, instead: Mapping[Item, Request] | None = None
) -> PendingClaims:
    """Return claims with only some of their requests and constraints.

    Args:
        instead: The replacements for all alternatives of a request.
    """
    kept_items = frozenset(items)
    claims, requests = [], []
    for number, (claim, every) in enumerate(zip(pending.claims, pending.requests, strict=True)):
        constraints = tuple(
            constraint
            for index, constraint in enumerate(claim.spec.devices.constraints or ())
            if Item(is_request=False, claim=number, number=index) in kept_items
        )
        devices = msgspec.structs.replace(claim.spec.devices, constraints=constraints or None)
        spec = msgspec.structs.replace(claim.spec, devices=devices)
        claims.append(msgspec.structs.replace(claim, spec=spec))
        chosen_requests: list[tuple[Request, ...]] = []
        for index, alternatives in enumerate(every):
            item = Item(is_request=True, claim=number, number=index)
            if item in kept_items:
                only = (instead or {}).get(item)
                these = alternatives if only is None else (only,)
                at = len(chosen_requests)
                chosen_requests.append(
                    tuple(msgspec.structs.replace(request, index=at) for request in these)
                )
        requests.append(tuple(chosen_requests))
    return PendingClaims(claims=tuple(claims), requests=tuple(requests))
