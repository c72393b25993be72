"""Places of a group within its DeviceQuota: on other nodes, or with other devices, than without one."""

import pytest

from allocator.model.plan import Budget
from kube.api.resource import Device, ResourceClaim
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import Places
from sidecar.groups.searches import GroupSearches
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import attribute_of, claim, device, node, request, slice_of
from testing.allocation.quota_groups import (
    NETWORK,
    Card,
    Case,
    Wanted,
    is_within,
    most_members,
    random_case,
)
from testing.device_quotas import capacity_limit, device_limit, quota
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import snapshot


def world_of(case: Case) -> Snapshot:
    """The cluster of a case."""
    wanted_claims = {wanted.name: wanted for claims in case.pods for wanted in claims}
    names = case.nodes
    memory, cores, devices = case.limits
    return snapshot(
        *map(_claim, wanted_claims.values()),
        nodes=[node(name) for name in names],
        slices=[
            slice_of(
                *(_device(card) for card in case.cards if card.pool == pool),
                pool=pool,
                **({"all_nodes": True} if pool == NETWORK else {"node": pool}),
            )
            for pool in dict.fromkeys(card.pool for card in case.cards)
        ],
        quotas=[
            quota(
                capacity_limit("memory", memory),
                capacity_limit("cores", cores),
                device_limit(devices),
            )
        ],
    )


def _device(card: Card) -> Device:
    return device(
        card.name,
        attributes={"model": card.model},
        capacity={"memory": str(card.memory), "cores": str(card.cores)},
    )


def _claim(wanted: Wanted) -> ResourceClaim:
    expressions = [f'{attribute_of("model")} == "{wanted.model}"'] if wanted.model else []
    return claim(request("gpu", *expressions, count=wanted.devices), name=wanted.name)


# --- the same as trying all placements ------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 600, 50))
def test_a_group_is_placed_where_some_placement_keeps_within_the_quota(first: int) -> None:
    fits = 0
    for seed in range(first, first + 50):
        case = random_case(seed)
        pods = [
            member(f"p{number}", *(wanted.name for wanted in claims))
            for number, claims in enumerate(case.pods)
        ]
        world = world_of(case)
        outcome = decide(group_request(*pods, needs=case.needs), world, Attempt())
        is_placed = isinstance(outcome, Places)

        assert is_placed == (most_members(case) >= case.needs), (seed, outcome)
        fits += is_placed
        if isinstance(outcome, Places):
            assert is_within(_cards_of(outcome, case), case.limits), seed

    assert 5 < fits < 45


def _cards_of(outcome: Places, case: Case) -> frozenset[Card]:
    by_name = {(card.pool, card.name): card for card in case.cards}
    return frozenset(
        by_name[choice.device.id.pool, choice.device.id.device]
        for planned in outcome.claims.values()
        for choice in planned.choices
    )


# --- single cases ----------------------------------------------------------------------------------


def two_sizes(pods: int, most: str, *, per_node: int = 2, nodes: int = 1) -> Snapshot:
    """Nodes with large cards, and as many with small ones behind them."""
    sizes = {f"a{number}": "80Gi" for number in range(nodes)}
    sizes |= {f"b{number}": "40Gi" for number in range(nodes)}
    return snapshot(
        *(claim(request(), name=f"p{number}") for number in range(pods)),
        nodes=[node(name) for name in sizes],
        slices=[
            slice_of(
                *(device(f"gpu-{number}", capacity={"memory": size}) for number in range(per_node)),
                pool=name,
                node=name,
            )
            for name, size in sizes.items()
        ],
        quotas=[quota(capacity_limit("memory", most))],
    )


def test_other_nodes_are_tried_where_the_first_ones_cost_too_much() -> None:
    pods = [member(f"p{number}", f"p{number}") for number in range(2)]

    outcome = decide(group_request(*pods), two_sizes(2, "80Gi"), Attempt())

    assert isinstance(outcome, Places)
    assert set(outcome.nodes.values()) == {"b0"}


def test_a_mixture_is_found_where_the_cheap_nodes_are_too_few() -> None:
    pods = [member(f"p{number}", f"p{number}") for number in range(12)]

    outcome = decide(group_request(*pods), two_sizes(12, "640Gi", per_node=8), Attempt())

    assert isinstance(outcome, Places)
    assert sorted(outcome.nodes.values()) == ["a0"] * 4 + ["b0"] * 8


def test_a_group_that_no_placement_keeps_within_the_quota_is_told_what_is_needed() -> None:
    pods = [member(f"p{number}", f"p{number}") for number in range(2)]

    outcome = decide(group_request(*pods), two_sizes(2, "79Gi"), Attempt())

    assert isinstance(outcome, Rejection)
    assert outcome.code is Code.EXCEEDS_DEVICE_QUOTA
    assert "limit memory: 160Gi of memory needed, 79Gi of 79Gi of memory left" in outcome.message


def test_what_a_large_group_would_cost_at_least_ends_the_search() -> None:
    pods = [member(f"p{number}", f"p{number}") for number in range(256)]
    world = two_sizes(256, "10Ti", per_node=8, nodes=100)

    outcome = decide(group_request(*pods), world, Attempt())
    too_few = decide(group_request(*pods), two_sizes(256, "9Ti", per_node=8, nodes=100), Attempt())

    assert isinstance(outcome, Places)
    assert {name[0] for name in outcome.nodes.values()} == {"b"}
    assert isinstance(too_few, Rejection)
    assert too_few.code is Code.EXCEEDS_DEVICE_QUOTA


def in_sizes(pods: int, most: int, *sizes: int, nodes: int) -> Snapshot:
    """Equal nodes with cards of different sizes, in Gi."""
    return snapshot(
        *(claim(request(), name=f"p{number}") for number in range(pods)),
        nodes=[node(f"n{number}") for number in range(nodes)],
        slices=[
            slice_of(
                *(
                    device(f"gpu-{place}", capacity={"memory": f"{size}Gi"})
                    for place, size in enumerate(sizes)
                ),
                pool=f"n{number}",
                node=f"n{number}",
            )
            for number in range(nodes)
        ],
        quotas=[quota(capacity_limit("memory", f"{most}Gi"))],
    )


@pytest.mark.parametrize(
    ("pods", "sizes", "nodes", "least"),
    [
        pytest.param(24, (40, 80), 16, 16 * 40 + 8 * 80, id="one small card on each node"),
        pytest.param(20, (10, 20, 40, 80), 10, 10 * 10 + 10 * 20, id="four sizes"),
        pytest.param(30, (80, 40, 40, 80), 10, 20 * 40 + 10 * 80, id="two small cards of four"),
    ],
)
def test_a_group_that_costs_too_much_on_any_nodes_is_turned_away_soon(
    pods: int, sizes: tuple[int, ...], nodes: int, least: int
) -> None:
    """A bound by the cheapest card alone took up to 200,000 steps, and ended without an answer."""
    members = [member(f"p{number}", f"p{number}") for number in range(pods)]
    soon = Attempt(budget=Budget(steps=3_000))

    outcome = decide(group_request(*members), in_sizes(pods, least - 1, *sizes, nodes=nodes), soon)
    placed = decide(group_request(*members), in_sizes(pods, least, *sizes, nodes=nodes), soon)

    assert isinstance(outcome, Rejection)
    assert outcome.code is Code.EXCEEDS_DEVICE_QUOTA
    assert isinstance(placed, Places)


def test_a_search_within_the_quota_goes_on_with_the_next_attempt() -> None:
    pods = [member(f"p{number}", f"p{number}") for number in range(12)]
    world = two_sizes(12, "640Gi", per_node=8)
    searches = GroupSearches()
    outcomes = [decide(group_request(*pods), world, _short(searches))]
    while isinstance(outcomes[-1], Rejection) and outcomes[-1].is_unfinished:
        outcomes.append(decide(group_request(*pods), world, _short(searches)))

    assert 1 < len(outcomes) < 60
    assert isinstance(outcomes[-1], Places)


def _short(searches: GroupSearches) -> Attempt:
    return Attempt(searches=searches, budget=Budget(steps=12))


def test_without_a_next_attempt_a_search_that_ends_is_no_answer() -> None:
    pods = [member(f"p{number}", f"p{number}") for number in range(12)]

    outcome = decide(
        group_request(*pods),
        two_sizes(12, "640Gi", per_node=8),
        Attempt(budget=Budget(steps=100)),
    )

    assert isinstance(outcome, Rejection)
    assert outcome.code is Code.BUDGET_EXHAUSTED
    assert "DeviceQuota team, limit memory: 160Gi of memory needed, 0 of 640Gi" in outcome.message
    assert "not decided about other devices: the search ended after" in outcome.message
