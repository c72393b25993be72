"""The search on worked examples, most of them run on the real allocator (dra-semantics, appendix C)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from allocator.model.devices import NodeDevices, PoolState
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed, BudgetExhausted, DoesNotFit
from allocator.model.plan import Budget, Plan
from allocator.model.requests import resolve_requests
from allocator.model.usage import Usage, gather_usage
from allocator.search.attempt import AllocatorOptions, lay_out
from allocator.search.search import allocate, search
from kube.api.resource import DerivedAttribute, Device, ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
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


def run_search(
    node: NodeDevices,
    *claims: ResourceClaim,
    usage: Usage | None = None,
    steps: int = 200_000,
    order: Sequence[int] | None = None,
) -> Plan | DoesNotFit | BudgetExhausted:
    rules = AllocatorOptions(features=Features())
    pending = resolve_requests(claims, classes(), rules.features)
    return allocate(node, pending, usage or Usage(), rules, budget=Budget(steps=steps), order=order)


def chosen(outcome: Any) -> list[str]:
    """`request device`, or `request device amounts` of a share; nothing when it does not fit."""
    if not isinstance(outcome, Plan):
        return NONE
    return [
        " ".join(
            [
                choice.request.full_name,
                choice.device.id.device,
                *(f"{key}={amount}" for key, amount in (choice.consumed or {}).items()),
            ]
        )
        for claim_ in outcome.choices
        for choice in claim_
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
    assert case.want == chosen(run_search(case.node, *case.claims))


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
def test_attempts_that_fail(case: Fatal) -> None:
    with pytest.raises(AttemptFailed, match=case.words):
        run_search(case.node, case.claim)


def test_admin_access_can_use_an_allocated_device() -> None:
    usage = gather_usage([allocated_claim(result("a"))], Features())

    assert NONE == chosen(run_search(one_pool(SHARED), claim(request()), usage=usage))
    assert ["adm a m=4"] == chosen(run_search(one_pool(SHARED), claim(admin()), usage=usage))


def test_reverting_a_share_keeps_other_shares() -> None:
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

    outcome = run_search(node, claim(*asks, constraints=[match(ROOT, "x", "y")]))

    assert ["w s", "x t", "y u", "z s"] == chosen(outcome)


def test_capacity_is_checked_before_constraints() -> None:
    derived = (DerivedAttribute(name=ROOT, expression="nonsense("),)
    asks = request(capacity={"m": 2}, derived_attributes=derived)
    features = Features(derived_attributes=True)
    pending = resolve_requests([claim(asks, constraints=[match(ROOT)])], classes(), features)
    usage = gather_usage([allocated_claim(result("a", share="1", consumed={"m": 3}))], features)

    assert isinstance(
        allocate(one_pool(SHARED), pending, usage, AllocatorOptions(features=features)), DoesNotFit
    )
    with pytest.raises(AttemptFailed, match="compile derived attribute"):
        allocate(one_pool(SHARED), pending, Usage(), AllocatorOptions(features=features))


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
def test_the_order_of_a_strategy_is_used(case: Preferred) -> None:
    order = range(len(case.node.devices))[::-1]

    assert case.want == chosen(run_search(case.node, case.claim, order=order, steps=case.steps))


def test_both_searches_count_where_the_one_in_the_preferred_order_is_given_up() -> None:
    case = PREFERRED[-1]
    order = range(len(case.node.devices))[::-1]

    alone = run_search(case.node, case.claim, steps=case.steps)
    outcome = run_search(case.node, case.claim, order=order, steps=case.steps)

    assert outcome.steps > alone.steps + case.steps


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
def test_smaller_alternatives_are_chosen_at_the_claim_limit(
    want: list[int], requests: Sequence[Any]
) -> None:
    outcome = run_search(FORTY, claim(*requests))

    assert isinstance(outcome, Plan)
    at = [choice.request.index for choice in outcome.choices[0]]
    assert want == [at.count(0), at.count(1)]


def test_alternatives_can_exceed_the_limit_or_fail() -> None:
    outcome = run_search(FORTY, claim(request("x"), asks_for(32, 1), constraints=[match(ROOT)]))

    assert ["x d00", "r/s1 d01"] == chosen(outcome)


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
def test_an_infeasible_search_is_pruned(name: str) -> None:
    node, claims = BLOW_UPS[name]

    outcome = run_search(node, *claims)

    assert isinstance(outcome, DoesNotFit)
    assert outcome.steps < 5_000


def test_200_claims_find_their_devices() -> None:
    claims = [claim(request(), name=f"c{number}") for number in range(200)]

    outcome = run_search(one_pool(*many(200)), *claims)

    assert isinstance(outcome, Plan)
    assert outcome.steps < 1_000


def test_a_search_ends_when_its_budget_is_exhausted() -> None:
    outcome = run_search(one_pool(*many(8)), claim(request(count=8)), steps=5)

    assert isinstance(outcome, BudgetExhausted)
    assert "the search budget of 5 steps is exhausted" in outcome.progress
    assert "1 claims with 1 requests on 8 devices" in outcome.progress
    assert outcome.steps == 6


def test_a_budget_suffices_if_it_is_just_used_up() -> None:
    plan = run_search(one_pool(*many(8)), claim(request(count=2), request("x")), steps=5)

    assert isinstance(plan, Plan)
    assert plan.steps == 5


def test_an_exhausted_search_restores_its_constraints() -> None:
    node = one_pool(*(device(name, capacity={"m": "4"}, shared=True) for name in "abcd"))
    pending = resolve_requests([claim(request(count=4, capacity={"m": 1}))], classes(), Features())
    attempt = lay_out(node, pending, Usage(), AllocatorOptions())
    before = [constraint.state_key() for constraint in attempt.constraints]

    assert isinstance(search(attempt, Budget(steps=3)), BudgetExhausted)
    assert before == [constraint.state_key() for constraint in attempt.constraints]


def test_infeasible_attempts_are_not_searched() -> None:
    outcome = run_search(one_pool(A), claim(request(count=2)))

    assert outcome == DoesNotFit(steps=0)


@pytest.mark.parametrize("count", [1, 2])
def test_invalid_pools_are_reported_when_claims_do_not_fit(count: int) -> None:
    node = node_with(pool_of(A), pool_of(pool="odd", state=PoolState.INVALID))

    outcome = run_search(node, claim(request(count=count)), claim(request(), name="other"))

    assert isinstance(outcome, DoesNotFit)
    assert outcome.invalid_pools


def test_a_plan_names_its_node_and_the_alternatives() -> None:
    asks = first_of("r", alternative("three", count=3), alternative("one"))

    plan = run_search(one_pool(A, B), claim(request("x"), asks))

    assert isinstance(plan, Plan)
    assert ("node-1", ((0, 1),)) == (plan.node, plan.alternatives)
