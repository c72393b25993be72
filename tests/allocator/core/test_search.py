"""The search on worked examples, most of them run on the real allocator (dra-semantics, appendix C)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from allocator.core.model import Budget, Features, NodeDevices, Plan, PoolState, Usage
from allocator.core.outcome import AttemptFailed, GaveUp, Unfit
from allocator.core.problem import Rules, problem
from allocator.core.requests import asked
from allocator.core.search import allocate, search
from allocator.core.usage import gathered
from kube.api.resource import DerivedAttribute, Device, ResourceClaim
from tests.allocator.builders import (
    DRIVER,
    allocated,
    alternative,
    claim,
    classes,
    consumes,
    counter_set,
    device,
    devices,
    distinct,
    first_of,
    match,
    node_with,
    pool_of,
    request,
    result,
)

ROOT = "resource.kubernetes.io/pcieRoot"
NONE: list[str] = []


def one_pool(*listed: Device) -> NodeDevices:
    return node_with(pool_of(*listed))


def tried(
    node: NodeDevices,
    *claims: ResourceClaim,
    held: Usage | None = None,
    steps: int = 200_000,
    order: Sequence[int] | None = None,
) -> Plan | Unfit | GaveUp:
    rules = Rules(features=Features())
    wanted = asked(claims, classes(), rules.features)
    return allocate(node, wanted, held or Usage(), rules, budget=Budget(steps=steps), order=order)


def chosen(outcome: Any) -> list[str]:
    """`request device`, or `request device amounts` of a share; nothing when it does not fit."""
    if not isinstance(outcome, Plan):
        return NONE
    return [
        " ".join(
            [
                one.request.full_name,
                one.device.id.device,
                *(f"{key}={amount}" for key, amount in (one.consumed or {}).items()),
            ]
        )
        for claim_ in outcome.choices
        for one in claim_
    ]


def admin(name: str = "adm") -> Any:
    return request(name, admin_access=True)


A, B = devices("a", "b")
DEDICATED = device("a", capacity={"m": "4"})
SHARED = device("a", capacity={"m": "4"}, shared=True)


class Case(NamedTuple):
    name: str
    node: NodeDevices
    claims: Sequence[ResourceClaim]
    want: list[str]


CASES = (
    Case("a claim without requests gets nothing, and that fits", one_pool(A), [claim()], NONE),
    Case("devices in order", one_pool(A, B), [claim(request(count=2))], ["req-0 a", "req-0 b"]),
    Case("admin access does not look at who else asks", one_pool(A),
         [claim(request()), claim(admin(), name="other")], ["req-0 a", "adm a"]),
    Case("who comes after an admin is refused", one_pool(A),
         [claim(admin()), claim(request(), name="other")], NONE),
    Case("no device twice for admins of one claim", one_pool(A), [claim(admin("x"), admin())], NONE),
    Case("nor for a user and an admin of one claim", one_pool(A), [claim(request(), admin())], NONE),
    Case("a capacity by its literal key only", one_pool(DEDICATED),
         [claim(request(capacity={f"{DRIVER}/m": "1"}))], NONE),
    Case("two requests share a device", one_pool(SHARED),
         [claim(request("x", capacity={"m": 1}), request("y", capacity={"m": 3}))],
         ["x a m=1", "y a m=3"]),
    Case("one request never takes two shares of a device", one_pool(SHARED),
         [claim(request(count=2, capacity={"m": 1}))], NONE),
    Case("silence takes all of a device without a policy", one_pool(SHARED),
         [claim(request()), claim(request(), name="other")], NONE),
    Case("a share of nothing", one_pool(SHARED), [claim(request(capacity={"m": 0}))],
         ["req-0 a m=0"]),
    Case("a dedicated device is too small", one_pool(DEDICATED),
         [claim(request(capacity={"m": 5}))], NONE),
    Case("a dedicated device says nothing of what it gives", one_pool(DEDICATED),
         [claim(request(capacity={"m": 3}))], ["req-0 a"]),
    Case("admins share a capacity like others", one_pool(SHARED),
         [claim(request("x", capacity={"m": 2}, admin_access=True),
                request("y", capacity={"m": 3}, admin_access=True))], NONE),
    Case("the second alternative when the first is too much", one_pool(A, B),
         [claim(first_of("r", alternative("three", count=3), alternative("two", count=2)))],
         ["r/two a", "r/two b"]),
    Case("matchAttribute wins where a constraint has both", one_pool(
        device("a", attributes={ROOT: "p0"}), device("b", attributes={ROOT: "p0"})),
         [claim(request(count=2), constraints=[
             type(match(ROOT))(match_attribute=ROOT, distinct_attribute=ROOT)])],
         ["req-0 a", "req-0 b"]),
    Case("all devices", one_pool(A, B), [claim(request(count=None))], ["req-0 a", "req-0 b"]),
    Case("all of nothing is not enough", node_with(), [claim(request(count=None))], NONE),
    Case("a selector that fails is never reached behind a device that fits", one_pool(
        device("a", attributes={"x": True}), B),
         [claim(request("r", f'device.attributes["{DRIVER}"].x'))], ["r a"]),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_devices(case: Case) -> None:
    assert case.want == chosen(tried(case.node, *case.claims))


class Fatal(NamedTuple):
    name: str
    node: NodeDevices
    claim: ResourceClaim
    words: str


FATAL = (
    Fatal("a selector fails on the first device", one_pool(B, device("c", attributes={"x": True})),
          claim(request("r", f'device.attributes["{DRIVER}"].x')), "no such key: x"),
    Fatal("a broken selector in an alternative that is reached", one_pool(A), claim(
        first_of("r", alternative("two", count=2), alternative("bad", "device.x == 1"))), "compile"),
    Fatal("all of more than a claim can hold", one_pool(*devices(*(f"d{n:02}" for n in range(33)))),
          claim(request(count=None)), "exceeds the claim limit of 32"),
    Fatal("all devices, of which constraints exclude one", one_pool(
        device("a", attributes={ROOT: "p0"}), device("b", attributes={ROOT: "p1"})),
          claim(request(count=None), constraints=[match(ROOT)]),
          "claim default/claim-0, request req-0: cannot add device gpu.example.com/node-1/b because "
          "a claim constraint would not be satisfied"),
)  # fmt: skip


@pytest.mark.parametrize("case", FATAL, ids=lambda case: case.name)
def test_what_ends_the_attempt(case: Fatal) -> None:
    with pytest.raises(AttemptFailed, match=case.words):
        tried(case.node, case.claim)


def test_a_device_held_as_a_whole_is_an_admins_still() -> None:
    held = gathered([allocated(result("a"))], Features())

    assert NONE == chosen(tried(one_pool(SHARED), claim(request()), held=held))
    assert ["adm a m=4"] == chosen(tried(one_pool(SHARED), claim(admin()), held=held))


def test_a_share_that_is_put_back_leaves_the_shares_of_others() -> None:
    node = node_with(
        pool_of(
            device("s", consumes(slices=2), attributes={ROOT: "p", "s": True}, shared=True),
            device("t", attributes={ROOT: "q"}),
            device("u", attributes={ROOT: "q", "u": True}),
            counters=[counter_set(slices=3)],
        )
    )
    s, u = (f'"{name}" in device.attributes["{DRIVER}"]' for name in "su")
    asks = (request("w", s), request("x"), request("y", u), request("z", s))

    found = tried(node, claim(*asks, constraints=[match(ROOT, "x", "y")]))

    assert ["w s", "x t", "y u", "z s"] == chosen(found)


def test_a_device_that_has_too_little_left_is_never_judged_by_constraints() -> None:
    derived = (DerivedAttribute(name=ROOT, expression="nonsense("),)
    asks = request(capacity={"m": 2}, derived_attributes=derived)
    features = Features(derived_attributes=True)
    wanted = asked([claim(asks, constraints=[match(ROOT)])], classes(), features)
    held = gathered([allocated(result("a", share="1", consumed={"m": 3}))], features)

    assert isinstance(allocate(one_pool(SHARED), wanted, held, Rules(features=features)), Unfit)
    with pytest.raises(AttemptFailed, match="compile derived attribute"):
        allocate(one_pool(SHARED), wanted, Usage(), Rules(features=features))


# --- an order that a strategy prefers -------------------------------------------------------------


class Preferred(NamedTuple):
    name: str
    node: NodeDevices
    claim: ResourceClaim
    want: list[str]
    steps: int = 200_000


X_FAILS = f'device.attributes["{DRIVER}"].x'
PREFERRED = (
    Preferred("what is preferred comes first", one_pool(A, B), claim(request()), ["req-0 b"]),
    Preferred("but not where looking at it may end the attempt",
              one_pool(device("a", attributes={"x": True}), B), claim(request("r", X_FAILS)), ["r a"]),
    Preferred("nor where the verdict depends on the order",
              one_pool(device("a", attributes={ROOT: ("p", "q")}), device("b", attributes={ROOT: "p"})),
              claim(request(count=2), constraints=[distinct(ROOT)]), ["req-0 a", "req-0 b"]),
    Preferred("nor where it leads to nothing within the budget", node_with(pool_of(
        A, *(device(f"x{n}", consumes(slices=n)) for n in range(3, 9)),
        counters=[counter_set(slices=2)])), claim(request()), ["req-0 a"], steps=4),
)  # fmt: skip


@pytest.mark.parametrize("case", PREFERRED, ids=lambda case: case.name)
def test_an_order_of_preference(case: Preferred) -> None:
    order = range(len(case.node.devices))[::-1]

    assert case.want == chosen(tried(case.node, case.claim, order=order, steps=case.steps))


# --- no more than 32 devices in a claim -----------------------------------------------------------


def asks_for(*counts: int) -> Any:
    return first_of("r", *(alternative(f"s{count}", count=count) for count in counts))


LONE = [device("lone", attributes={ROOT: "p"})]
FORTY = one_pool(*LONE, *devices(*(f"d{n:02}" for n in range(39)), attributes={ROOT: "q"}))


@pytest.mark.parametrize(
    ("want", "requests"),
    [
        pytest.param([30, 2], (request("x", count=30), asks_for(3, 2)), id="as many as there may be"),
        pytest.param([30, 2], (asks_for(31, 30), request("x", count=2)), id="what came before gives way"),
        pytest.param([2, 30], (asks_for(4, 3, 2), asks_for(31, 30)), id="both give way"),
    ],
)  # fmt: skip
def test_smaller_alternatives_where_a_claim_would_have_too_many(
    want: list[int], requests: Sequence[Any]
) -> None:
    found = tried(FORTY, claim(*requests))

    assert isinstance(found, Plan)
    at = [one.request.index for one in found.choices[0]]
    assert want == [at.count(0), at.count(1)]


def test_too_many_is_not_all_that_is_wrong_with_alternatives() -> None:
    found = tried(FORTY, claim(request("x"), asks_for(32, 1), constraints=[match(ROOT)]))

    assert ["x d00", "r/s1 d01"] == chosen(found)


# --- nothing blows up -----------------------------------------------------------------------------


def many(count: int, **same: Any) -> tuple[Device, ...]:
    return devices(*(f"d{number:03}" for number in range(count)), **same)


LAST = f'"last" in device.attributes["{DRIVER}"]'
NOT_LAST = f"!({LAST})"
HALVES = one_pool(
    *(device(f"d{number:02}", attributes={ROOT: f"p{number % 2}"}) for number in range(32))
)
SCARCE = node_with(
    pool_of(
        *(
            device(f"gpu-{gpu}-{part}", consumes(f"gpu-{gpu}", slices=4))
            for gpu in range(8)
            for part in range(3)
        ),
        counters=[counter_set(f"gpu-{gpu}", slices=7) for gpu in range(8)],
    )
)
BLOW_UPS = {
    "one more than there are": (one_pool(*many(31)), [claim(request(count=32))]),
    "half of the devices have each value": (
        HALVES,
        [claim(request(count=17), constraints=[match(ROOT)])],
    ),
    "more different values than there are": (
        HALVES,
        [claim(request(count=3), constraints=[distinct(ROOT)])],
    ),
    "interchangeable requests": (
        one_pool(*many(16)),
        [claim(*(request(f"r{number}") for number in range(17)))],
    ),
    "alternatives, eight deep": (
        one_pool(*many(8)),
        [
            claim(
                *(
                    first_of(f"r{n}", *(alternative(f"s{k}", count=9 - k) for k in range(1, 7)))
                    for n in range(4)
                )
            )
        ],
    ),
    "a claim that can never be met behind ten that can in many ways": (
        one_pool(*many(24)),
        [claim(request(count=2), name=f"c{number}") for number in range(10)]
        + [claim(request("none", 'device.driver == "other"'), name="last")],
    ),
    "alternatives that cannot agree behind claims that have nothing to do with it": (
        one_pool(
            *(device(f"d{number:02}", attributes={ROOT: f"p{number}"}) for number in range(16)),
            *(device(name, attributes={ROOT: name, "last": True}) for name in ("last-0", "last-1")),
        ),
        [claim(request("any", NOT_LAST), name=f"c{number}") for number in range(8)]
        + [claim(first_of("r", alternative("two", LAST, count=2)), constraints=[match(ROOT)])],
    ),
    "the same, and those claims have alternatives": (
        one_pool(
            *(device(f"d{number:02}", attributes={ROOT: f"p{number}"}) for number in range(16)),
            *(device(name, attributes={ROOT: name, "last": True}) for name in ("last-0", "last-1")),
        ),
        [
            claim(
                first_of("r", alternative("some", NOT_LAST), alternative("two", NOT_LAST, count=2)),
                name=f"c{number}",
            )
            for number in range(8)
        ]
        + [claim(first_of("r", alternative("two", LAST, count=2)), constraints=[match(ROOT)])],
    ),
    "many ways to take the same devices": (
        one_pool(*(device(f"d{number}", attributes={ROOT: f"p{number}"}) for number in range(9))),
        [claim(request(), name=f"c{number}") for number in range(5)]
        + [claim(first_of("r", alternative("two", count=2)), constraints=[match(ROOT)])],
    ),
    "more partitions than cards": (SCARCE, [claim(request(count=9))]),
    "200 claims for 199 devices": (
        one_pool(*many(199)),
        [claim(request(), name=f"c{number}") for number in range(200)],
    ),
}


@pytest.mark.parametrize("name", BLOW_UPS)
def test_a_search_in_vain_ends_soon(name: str) -> None:
    node, claims = BLOW_UPS[name]

    outcome = tried(node, *claims)

    assert isinstance(outcome, Unfit)
    assert outcome.steps < 5_000


def test_200_claims_find_their_devices() -> None:
    claims = [claim(request(), name=f"c{number}") for number in range(200)]

    outcome = tried(one_pool(*many(200)), *claims)

    assert isinstance(outcome, Plan)
    assert outcome.steps < 1_000


def test_a_search_gives_up_when_its_budget_is_spent() -> None:
    outcome = tried(one_pool(*many(8)), claim(request(count=8)), steps=5)

    assert isinstance(outcome, GaveUp)
    assert "gave up after 5 steps" in outcome.proved
    assert "1 claims with 1 requests on 8 devices" in outcome.proved
    assert outcome.steps == 6


def test_a_budget_is_enough_that_is_just_spent() -> None:
    plan = tried(one_pool(*many(8)), claim(request(count=2), request("x")), steps=5)

    assert isinstance(plan, Plan)
    assert plan.steps == 5


def test_a_search_that_gave_up_leaves_its_trackers_as_they_were() -> None:
    node = one_pool(*(device(name, capacity={"m": "4"}, shared=True) for name in "abcd"))
    wanted = asked([claim(request(count=4, capacity={"m": 1}))], classes(), Features())
    attempt = problem(node, wanted, Usage(), Rules())
    before = [tracker.state() for tracker in attempt.trackers]

    assert isinstance(search(attempt, Budget(steps=3)), GaveUp)
    assert before == [tracker.state() for tracker in attempt.trackers]


def test_what_is_hopeless_is_not_searched() -> None:
    outcome = tried(one_pool(A), claim(request(count=2)))

    assert outcome == Unfit(steps=0)


@pytest.mark.parametrize("count", [1, 2])
def test_invalid_pools_are_told_with_what_does_not_fit(count: int) -> None:
    node = node_with(pool_of(A), pool_of(pool="odd", state=PoolState.INVALID))

    outcome = tried(node, claim(request(count=count)), claim(request(), name="other"))

    assert isinstance(outcome, Unfit)
    assert outcome.invalid_pools


def test_a_plan_names_its_node_and_the_alternatives() -> None:
    asks = first_of("r", alternative("three", count=3), alternative("one"))

    plan = tried(one_pool(A, B), claim(request("x"), asks))

    assert isinstance(plan, Plan)
    assert ("node-1", ((0, 1),)) == (plan.node, plan.alternatives)
