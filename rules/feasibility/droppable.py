"""The droppable requests of claims that are infeasible together."""

from collections.abc import Iterator
from typing import Final

from rules.feasibility.bounded_search import Feasibility
from rules.feasibility.idle_cluster import Claims, IdleCluster
from rules.feasibility.partial_claims import without_request

MAX_TRIED: Final = 8
"""Requests that are tried, each with a search."""


def find_droppable(idle_cluster: IdleCluster, claims: Claims) -> Iterator[tuple[int, int]]:
    """Yield the index of the claim, and of the request in it, of each droppable request."""
    places = [
        (number, index)
        for number, claim in enumerate(claims)
        for index in range(len(claim.spec.devices.requests or ()))
    ]
    # A single request has no others.
    for number, index in places[:MAX_TRIED] if len(places) > 1 else ():
        rest = without_request(claims, number, index)
        if idle_cluster.feasibility(rest) is Feasibility.FEASIBLE:
            yield number, index
