"""Claims that differ in names, and in fields that no search reads, ask the same question."""

from typing import NamedTuple

import pytest

from allocator.cluster.canonical_requests import encode_requests
from allocator.model.feature_gates import Features
from allocator.search.attempt import AllocatorOptions
from kube.api.resource import DeviceConstraint, ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    alternative,
    claim,
    configured_configuration,
    distinct,
    first_of,
    match,
    request,
    tolerates,
)

NUMA = f"{DRIVER}/numa"
UNIFORM = AllocatorOptions(uniform_config_drivers=frozenset({DRIVER}))
ANY = AllocatorOptions()
WITHOUT_SHARES = AllocatorOptions(
    features=Features(consumable_capacity=False), uniform_config_drivers=frozenset({DRIVER})
)


class Case(NamedTuple):
    name: str
    first: ResourceClaim
    second: ResourceClaim
    are_equal: bool
    options: AllocatorOptions = ANY


def pair(*constraints: DeviceConstraint) -> ResourceClaim:
    """Return a claim for two devices by two requests, `a` and `b`."""
    return claim(request("a"), request("b"), constraints=constraints)


def gpu(parameters: int, *requests: str, driver: str = DRIVER) -> ResourceClaim:
    """Return a claim for two devices with a configuration."""
    config = configured_configuration(*requests, driver=driver, value=parameters)
    return claim(request("a"), request("b"), config=[config])


CASES = (
    Case("names of claims and requests do not count",
         claim(request("a"), name="x"), claim(request("b"), name="y", namespace="z"), True),
    Case("names of alternatives do not count",
         claim(first_of("a", alternative("x", count=2), alternative("y"))),
         claim(first_of("b", alternative("z", count=2), alternative("x"))), True),
    Case("the order of requests counts",
         claim(request("a", count=2), request("b")), claim(request("a"), request("b", count=2)),
         False),
    Case("the order of alternatives counts",
         claim(first_of("a", alternative("x", count=2), alternative("y"))),
         claim(first_of("a", alternative("y"), alternative("x", count=2))), False),
    Case("tolerations count",
         claim(request()), claim(request(tolerations=(tolerates("broken"),))), False),
    Case("a constraint is for the requests that it names, whatever their names",
         pair(match(NUMA, "a", "b")),
         claim(request("x"), request("y"), constraints=[match(NUMA, "y", "x")]), True),
    Case("a constraint for one request is not one for the other",
         pair(match(NUMA, "a")), pair(match(NUMA, "b")), False),
    Case("a constraint for some requests is not one for all",
         pair(match(NUMA, "a")), pair(match(NUMA)), False),
    Case("a constraint for no request of the claim is not one for all",
         pair(match(NUMA, "c")), pair(match(NUMA)), False),
    Case("a constraint for one alternative is not one for its request",
         claim(first_of("a", alternative("x"), alternative("y")), constraints=[match(NUMA, "a/x")]),
         claim(first_of("a", alternative("x"), alternative("y")), constraints=[match(NUMA, "a")]),
         False),
    Case("the kind of a constraint counts", pair(match(NUMA)), pair(distinct(NUMA)), False),
    Case("a configuration does not count", gpu(1), gpu(2), True),
    Case("a configuration counts for a driver that requires co-tenants to agree",
         gpu(1), gpu(2), False, UNIFORM),
    Case("the requests of such a configuration count", gpu(1, "a"), gpu(1, "b"), False, UNIFORM),
    Case("such a configuration for an unknown request is not one for all",
         gpu(1, "c"), gpu(1), False, UNIFORM),
    Case("a configuration for another driver does not count",
         gpu(1, driver="nic.example.com"), gpu(2, driver="nic.example.com"), True, UNIFORM),
    Case("no configuration counts where no device can be shared",
         gpu(1), gpu(2), True, WITHOUT_SHARES),
    Case("two requests of one name are not renamed",
         claim(request("a"), request("a"), constraints=[match(NUMA, "a")]),
         claim(request("b"), request("b"), constraints=[match(NUMA, "b")]), False),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_claims_ask_the_same_question(case: Case) -> None:
    first, second = (
        encode_requests([claim_], case.options) for claim_ in (case.first, case.second)
    )

    assert case.are_equal is (first == second)


def test_one_claim_for_two_requests_is_not_two_claims() -> None:
    together = encode_requests([claim(request("a"), request("b"))], ANY)
    apart = encode_requests([claim(request("a")), claim(request("b"))], ANY)

    assert together != apart
