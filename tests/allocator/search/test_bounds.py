from typing import NamedTuple

import pytest

from allocator.model.devices import NodeDevices
from allocator.model.requests import resolve_requests
from allocator.model.usage import DeviceUse, Usage
from allocator.search.attempt import AllocatorOptions, Attempt, lay_out
from allocator.search.bounds import Demand
from kube.api.resource import DeviceRequest, ResourceClaim
from testing.allocation.builders import (
    alternative,
    claim,
    classes,
    consumes,
    counter_set,
    device,
    devices,
    first_of,
    node_with,
    pool_of,
    quantities,
    request,
)

A_OR_B = '"model" in device.attributes["gpu.example.com"]'
ONLY_A = 'device.attributes["gpu.example.com"].?model.orValue("") == "a"'
ONLY_B = 'device.attributes["gpu.example.com"].?model.orValue("") == "b"'
NOT_A = 'device.attributes["gpu.example.com"].?model.orValue("a") != "a"'
NOT_C = 'device.attributes["gpu.example.com"].?model.orValue("c") != "c"'


def laid_out(node: NodeDevices, *claims: ResourceClaim, usage: Usage | None = None) -> Attempt:
    rules = AllocatorOptions()
    return lay_out(
        node, resolve_requests(claims, classes(), rules.features), usage or Usage(), rules
    )


class Case(NamedTuple):
    """Requests of one claim each, so that their needs are only added up from first to last."""

    want: bool
    name: str
    node: NodeDevices
    pending: tuple[DeviceRequest, ...]
    usage: Usage = Usage()


THREE = node_with(pool_of(*devices("x", "y", "z")))
MODELS = node_with(
    pool_of(
        device("a0", attributes={"model": "a"}),
        device("a1", attributes={"model": "a"}),
        device("b", attributes={"model": "b"}),
        device("other"),
        device("another"),
    )
)
A_B_C = node_with(
    pool_of(device("other"), *(device(name, attributes={"model": name}) for name in "abc"))
)
SHARED_8 = pool_of(device("s", capacity={"m": "8"}, shared=True), device("t"))
HALF_USED = Usage(
    pools={SHARED_8.id: {"s": DeviceUse(share_ids=frozenset("1"), capacity=quantities({"m": "4"}))}}
)
NO_AMOUNTS = node_with(pool_of(device("s", shared=True)))
PARTLY_SHARED = node_with(
    pool_of(
        device("s", attributes={"model": "a"}, shared=True), device("t", attributes={"model": "b"})
    )
)
SLICES = (counter_set("one", slices=7), counter_set("two", slices=7))
THREES = node_with(
    pool_of(
        *(
            device(f"{card_name}-{n}", consumes(card_name, slices=3))
            for card_name in ("one", "two")
            for n in range(4)
        ),
        counters=SLICES,
    )
)
FIVES = pool_of(
    *(
        device(f"{card_name}-{n}", consumes(card_name, slices=3))
        for card_name in ("one", "two")
        for n in range(4)
    ),
    counters=(counter_set("one", slices=5), counter_set("two", slices=5)),
)
WITH_FIVES = node_with(FIVES, pool_of(device("plain"), pool="other"))
LARGE = device("large", consumes("one", slices=5), attributes={"model": "a"})
SMALL, ELSEWHERE = (
    device("small", consumes("one", slices=3)),
    device("x", consumes("two", slices=7)),
)
ONE_SET = node_with(pool_of(LARGE, SMALL, counters=SLICES))
TWO_SETS = node_with(pool_of(LARGE, SMALL, ELSEWHERE, counters=SLICES))

ONE, TWO = request("one"), request("two", count=2)
FOUR_OF_M, THREE_OF_M = request(capacity={"m": 4}), request(capacity={"m": 3})
ONE_OF_M, ALL_OF_M = request(capacity={"m": 1}), request(capacity={"m": 8})
CASES = (
    Case(False, "as many as there are", THREE, (ONE, TWO)),
    Case(True, "one more than there are, though no request alone is too much", THREE, (TWO, TWO)),
    Case(False, "admin access takes nothing from others", THREE, (TWO, request(count=3, admin_access=True))),
    Case(True, "too many from within a set that others do not touch", MODELS,
         (request("any"), request("a", ONLY_A), request("ab", A_OR_B, count=3))),
    Case(False, "as many as the sets have, each and together", MODELS,
         (request("any", count=2), request("a", ONLY_A, count=2), request("ab", A_OR_B))),
    Case(True, "too many from two sets that overlap, though neither has too few", A_B_C,
         (request("ab", NOT_C, count=2), request("bc", NOT_A, count=2))),
    Case(False, "alternatives have devices of their own", A_B_C,
         (first_of("r", alternative("ab", NOT_C), alternative("b", ONLY_B)), request("b", ONLY_B))),
    Case(True, "the smallest alternatives are too much together", THREE,
         (TWO, first_of("r", alternative("many", count=3), alternative("few", count=2)))),
    Case(False, "some alternatives are not", THREE,
         (TWO, first_of("r", alternative("many", count=3), alternative("few")))),
    Case(True, "every alternative of a request is too much", THREE,
         (first_of("r", alternative("many", ONLY_A), alternative("few", count=4)),)),
    Case(False, "two shares and a device", node_with(SHARED_8), (FOUR_OF_M, FOUR_OF_M, ONE)),
    Case(True, "three shares, of which two have room", node_with(SHARED_8), (FOUR_OF_M,) * 3),
    Case(True, "shares that held ones leave no room for", node_with(SHARED_8), (FOUR_OF_M,) * 2, HALF_USED),
    Case(False, "the smallest share is what counts", node_with(SHARED_8), (FOUR_OF_M, THREE_OF_M)),
    Case(True, "a request has one share of a device, whatever the room", node_with(SHARED_8),
         (request(capacity={"m": 1}, count=2),)),
    Case(False, "even if it is the first request's", node_with(SHARED_8), (ONE_OF_M, ALL_OF_M, ALL_OF_M)),
    Case(False, "or the last one's", node_with(SHARED_8), (ALL_OF_M, ALL_OF_M, ONE_OF_M)),
    Case(True, "silence takes all of a device, shared or not", node_with(SHARED_8), (ONE, ONE, ONE)),
    Case(False, "without amounts everybody has a share", NO_AMOUNTS, (ONE, ONE, ONE)),
    Case(False, "a share and a device", PARTLY_SHARED, (TWO,)),
    Case(True, "who cannot use a shared device has no share of it", PARTLY_SHARED,
         (request("b", ONLY_B), TWO)),
    Case(False, "two of three slices in each set of seven", THREES, (request(count=4),)),
    Case(True, "a fifth does not fit into any", THREES, (request(count=3), TWO)),
    Case(False, "one of three in each set of five, and what needs no slices", WITH_FIVES,
         (request(count=3),)),
    Case(True, "the slices that two sets have left over are not one set's", WITH_FIVES,
         (request(count=4),)),
    Case(True, "five and three of seven, although two of three would go", ONE_SET,
         (request("a", ONLY_A), ONE)),
    Case(False, "five of seven, and anything of another set", TWO_SETS, (request("a", ONLY_A), ONE)),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_exceeds(case: Case) -> None:
    claims = [
        claim(device_request, name=f"claim-{number}")
        for number, device_request in enumerate(case.pending)
    ]
    attempt = laid_out(case.node, *claims, usage=case.usage)

    assert case.want == Demand(attempt).exceeds(0, 0, 0)


def test_later_requests_are_bounded_without_earlier_ones() -> None:
    demand = Demand(laid_out(THREE, claim(ONE, TWO), claim(ONE, name="claim-1")))

    assert [True, False, False] == [demand.exceeds(*at, 0) for at in ((0, 0), (0, 1), (1, 0))]
    assert [False, True] == [demand.exceeds(1, 0, chosen_mask) for chosen_mask in (0b011, 0b111)]


def test_chosen_devices_reduce_the_available_counters() -> None:
    attempt = laid_out(THREES, claim(request(count=4)))
    (table,) = attempt.requests[0][0]

    for constraint in attempt.constraints:
        constraint.add(table.request, 0, further_share=False)

    assert Demand(attempt).exceeds(0, 0, 0b1)


def test_remaining_demand_and_slack() -> None:
    many = first_of("r", alternative("many", ONLY_A, count=3), alternative("few", count=2))
    demand = Demand(laid_out(MODELS, claim(many, ONE), claim(request("a", ONLY_A), name="claim-1")))

    assert [0b11111, 0b11111, 0b00011] == [
        demand.remaining(*at).positions for at in ((0, 0), (0, 1), (1, 0))
    ]
    assert [28, 31, 31] == [demand.slack(*at) for at in ((0, 0), (0, 1), (1, 0))]


def test_mode_all_has_remaining_devices_in_use() -> None:
    usage = Usage(pools={THREE.pools[0].id: dict.fromkeys("xy", DeviceUse(exclusive=True))})
    demand = Demand(laid_out(THREE, claim(request(count=None)), usage=usage))

    assert (0b111, 29) == (demand.remaining(0, 0).positions, demand.slack(0, 0))


def test_requests_with_admin_access_are_part_of_the_remaining_demand() -> None:
    watching = request("b", ONLY_B, admin_access=True)
    demand = Demand(laid_out(MODELS, claim(request("a", ONLY_A), watching)))

    assert [(0, 0b00111, 30), (1, 0b00100, 31)] == [
        (ahead.index, ahead.positions, demand.slack(0, at))
        for at in (0, 1)
        for ahead in (demand.remaining(0, at),)
    ]
