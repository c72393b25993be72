from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.features import partitionable_devices as counters
from allocator.model.constraint import RemainingDemand
from allocator.model.devices import NodeDevices, Pool
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason
from allocator.model.usage import DeviceUse, Usage
from kube.quantity import Quantity
from testing.allocation.builders import (
    consumes,
    counter_set,
    device,
    node_with,
    pool_of,
    resolved_request,
)

REQUEST = resolved_request()
HELD = DeviceUse(exclusive=True)
FEATURES = Features()


def used(pool: Pool, **devices: DeviceUse) -> Usage:
    return Usage(pools={pool.id: devices})


def fitting(node: NodeDevices, positions: Sequence[int], usage: Usage | None = None) -> list[bool]:
    constraint = counters.build_constraint(node, usage or Usage(), FEATURES)
    assert constraint is not None
    return [constraint.add(REQUEST, position, further_share=False) for position in positions]


SHARED_8 = (counter_set(memory="8Gi"),)
FOUR, SIX = consumes(memory="4Gi"), consumes(memory="6Gi")


class Case(NamedTuple):
    want: list[bool]
    name: str
    node: NodeDevices
    usage: Usage = Usage()


A_464 = pool_of(device("a", FOUR), device("b", SIX), device("c", FOUR), counters=SHARED_8)
ELSEWHERE = pool_of(device("a", FOUR), counters=SHARED_8, elsewhere=(device("far", SIX),))
TWO_SETS = pool_of(
    device("a", consumes("one", memory=1)),
    device("b", consumes("two", memory=1)),
    device("c"),
    counters=(counter_set("one", memory=1), counter_set("two", memory=1)),
)
CASES = (
    Case([True, False, True], "4, 6 and 4 of 8: the 6 does not fit", node_with(A_464)),
    Case([False, False, False], "an allocated 6 leaves 2", node_with(A_464), used(A_464, b=HELD)),
    Case([True, False, False], "one 4 is left", node_with(A_464), used(A_464, c=HELD)),
    Case([True, False, False], "a share without capacity charges",
         node_with(A_464), used(A_464, c=DeviceUse(share_ids=frozenset("s")))),
    Case([True, False, False], "a share known by its consumption only charges",
         node_with(A_464), used(A_464, c=DeviceUse(capacity={}))),
    Case([True, False, True], "what is no longer published charges nothing",
         node_with(A_464), used(A_464, gone=HELD)),
    Case([False], "a device of another node charges", node_with(ELSEWHERE), used(ELSEWHERE, far=HELD)),
    Case([True, True, True], "sets do not mix", node_with(TWO_SETS)),
    Case([True, False], "pools of one name under two drivers do not mix", node_with(
        pool_of(device("a", consumes(memory=1)), counters=(counter_set(memory=1),)),
        pool_of(device("a", consumes(memory=2)), counters=(counter_set(memory=1),), driver="other"),
    )),
    Case([True, False], "two entries of one set add up", node_with(pool_of(
        device("a", consumes(memory=1), consumes(memory=1)),
        device("b", consumes(memory=1)), counters=(counter_set(memory=2),),
    ))),
    Case([True], "amounts beyond int64 are exact", node_with(pool_of(
        device("a", consumes(memory="20E")), counters=(counter_set(memory="20E"),),
    ))),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_add(case: Case) -> None:
    positions = range(len(case.node.devices))

    assert case.want == fitting(case.node, positions, case.usage)


def test_an_overdrawn_counter_rejects_every_consumer_of_the_pool() -> None:
    """The declared amount sank under the amount in use; other sets and plain devices."""
    pool = pool_of(
        device("a", consumes("one", memory=2)),
        device("b", consumes("two", memory=1)),
        device("c"),
        counters=(counter_set("one", memory=1), counter_set("two", memory=1)),
    )

    assert [False, False, True] == fitting(node_with(pool), (0, 1, 2), used(pool, a=HELD))


def test_a_further_share_consumes_no_counters() -> None:
    node = node_with(pool_of(device("a", FOUR, shared=True), counters=(counter_set(memory="4Gi"),)))
    constraint = counters.build_constraint(node, Usage(), FEATURES)
    assert constraint is not None

    assert constraint.add(REQUEST, 0, further_share=False)
    assert constraint.add(REQUEST, 0, further_share=True)
    constraint.remove(REQUEST, 0, further_share=True)

    assert not constraint.add(REQUEST, 0, further_share=False)


def test_rejection_names_the_available_amount() -> None:
    constraint = counters.build_constraint(node_with(A_464), used(A_464, c=HELD), FEATURES)
    assert constraint is not None

    rejection = constraint.rejection(REQUEST, 1, further_share=False)

    assert rejection is not None
    assert rejection.reason is Reason.COUNTERS
    assert rejection.detail == "counter memory 6Gi (4Gi free in counter set set-0)"


def test_rejection_names_an_overdrawn_counter() -> None:
    constraint = counters.build_constraint(node_with(A_464), used(A_464, a=HELD, b=HELD), FEATURES)
    assert constraint is not None

    rejection = constraint.rejection(REQUEST, 2, further_share=False)

    assert rejection is not None
    assert rejection.detail == "counter memory 4Gi (0 free in counter set set-0)"


def test_rejection_by_counters_of_a_second_pool() -> None:
    plain = pool_of(device("a", FOUR), counters=SHARED_8)
    other = pool_of(
        device("b", consumes(memory=2), consumes(memory=1, slices=2)),
        counters=(counter_set(memory=4, slices=2),),
        pool="other",
    )
    constraint = counters.build_constraint(node_with(plain, other), Usage(), FEATURES)
    assert constraint is not None
    assert constraint.add(REQUEST, 1, further_share=False)

    rejection = constraint.rejection(REQUEST, 1, further_share=False)

    assert rejection is not None
    assert rejection.detail == "counter memory 3 (1 free in counter set set-0)"
    assert constraint.rejection(REQUEST, 1, further_share=True) is None


def test_counters_of_a_second_pool_are_its_own() -> None:
    first = pool_of(device("a", FOUR), counters=(counter_set(memory="8Gi"), counter_set("x", y=9)))
    second = pool_of(
        device("b", consumes("two", slices=1)),
        device("c", consumes("three", slices=2)),
        counters=(
            counter_set("one", slices=9),
            counter_set("two", slices=1),
            counter_set("three", slices=1),
        ),
        pool="other",
    )
    overdrawn_usage = Usage(pools={second.id: {"c": HELD}})

    assert [True, False, False] == fitting(node_with(first, second), (1, 1, 2))
    assert [False, True] == fitting(node_with(first, second), (1, 0), overdrawn_usage)


def test_an_exhausted_counter_is_not_overdrawn() -> None:
    pool = pool_of(
        device("a", consumes(memory=1)),
        device("b", consumes(slices=1)),
        counters=(counter_set(memory=1, slices=1),),
    )

    assert [False, True] == fitting(node_with(pool), (0, 1), used(pool, a=HELD))


def test_devices_with_equal_consumption_have_equal_keys() -> None:
    constraint = counters.build_constraint(node_with(A_464), Usage(), FEATURES)
    assert constraint is not None

    assert (
        constraint.equivalence_key(0)
        == constraint.equivalence_key(2)
        != constraint.equivalence_key(1)
    )


def test_no_constraint_without_counter_consumers() -> None:
    assert counters.build_constraint(node_with(pool_of(device())), Usage(), FEATURES) is None


def test_devices_with_counters_are_rejected_while_the_gate_is_off() -> None:
    off = Features(partitionable_devices=False)
    rejection = counters.rejection(device("a", FOUR), off)

    assert rejection is not None
    assert rejection.reason is Reason.PARTITIONABLE_DEVICES_DISABLED
    assert rejection.detail == "shared counters (needs feature gate DRAPartitionableDevices)"
    assert counters.rejection(device("a"), off) is None
    assert counters.build_constraint(node_with(A_464), Usage(), off) is None


def test_allocated_devices_reduce_the_available_counters() -> None:
    available = counters.available_counters(A_464, {"b": HELD})

    assert (Quantity("2Gi").nanos,) == available.nanos


# --- bounds ---------------------------------------------------------------------------------------


PARTITIONS = pool_of(
    device("small", consumes("one", slices=2, memory=10)),
    device("large", consumes("one", slices=4, memory=10)),
    device("plain"),
    device("bare", consumes("one", slices=3)),
    device("both", consumes("one", slices=1), consumes("two", slices=1)),
    device("other", consumes("two", slices=5, memory=1)),
    counters=(counter_set("one", slices=8, memory=40), counter_set("two", slices=8, memory=40)),
)
UNITS = 10**9


def partitions(usage: Usage | None = None) -> counters.CounterConstraint:
    constraint = counters.build_constraint(node_with(PARTITIONS), usage or Usage(), FEATURES)
    assert constraint is not None
    return constraint


@pytest.mark.parametrize(
    ("want", "positions"),
    [
        ({"slices": 2, "memory": 10}, 0b000011),
        ({"slices": 2}, 0b001011),
        ({"slices": 2}, 0b010000),
        ({"slices": 2, "memory": 1}, 0b100001),
        ({}, 0b000111),
        ({}, 0),
    ],
)
def test_least_consumption(want: dict[str, int], positions: int) -> None:
    least_consumption = partitions().least_consumption(positions)

    assert {name: amount * UNITS for name, amount in want.items()} == least_consumption


@pytest.mark.parametrize(
    ("want", "positions"),
    [
        ({0b000011: 4}, 0b000011),
        ({0b001011: 4}, 0b001011),
        ({0b001001: 4, 0b100000: 1, 0b010000: 8}, 0b111101),
        ({0b000010: 2}, 0b000010),
        ({}, 0b000100),
    ],
)
def test_max_devices_of_each_group(want: dict[int, int], positions: int) -> None:
    constraint = partitions()

    assert want == {
        part.devices: constraint.max_devices(part)
        for part in constraint.group_by_counter_sets(positions)
    }


def test_max_devices_of_the_available_counters() -> None:
    constraint = partitions(used(PARTITIONS, large=HELD, bare=HELD))
    (part,) = constraint.group_by_counter_sets(0b1)

    assert constraint.max_devices(part) == 0


def test_no_device_fits_an_overdrawn_counter() -> None:
    pool = pool_of(*(device(name, FOUR) for name in "abc"), counters=SHARED_8)
    constraint = counters.build_constraint(
        node_with(pool), used(pool, a=HELD, b=HELD, c=HELD), FEATURES
    )
    assert constraint is not None
    (part,) = constraint.group_by_counter_sets(0b111)

    assert constraint.max_devices(part) == 0
    assert constraint.available_totals(RemainingDemand(claim=0, index=0, positions=0b111)) == {
        "memory": 0
    }


@pytest.mark.parametrize(
    ("want", "positions"),
    [
        ({"slices": 8, "memory": 40}, 0b000001),
        ({"slices": 16, "memory": 40}, 0b010011),
        ({"slices": 16, "memory": 80}, 0b100001),
        ({"slices": 8}, 0b001000),
        ({}, 0b000100),
    ],
)
def test_available_totals_of_remaining_devices(want: dict[str, int], positions: int) -> None:
    available_totals = partitions().available_totals(
        RemainingDemand(claim=0, index=0, positions=positions)
    )

    assert {name: amount * UNITS for name, amount in want.items()} == available_totals
