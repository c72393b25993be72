from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.core import counters
from allocator.core.model import DeviceUse, Features, NodeDevices, Pool, Usage
from allocator.core.outcome import Reason
from allocator.core.tracker import Ahead
from kube.quantity import Quantity
from tests.allocator.builders import consumes, counter_set, device, node_with, pool_of, wanted

REQUEST = wanted()
HELD = DeviceUse(exclusive=True)
FEATURES = Features()


def used(pool: Pool, **devices: DeviceUse) -> Usage:
    return Usage(pools={pool.id: devices})


def fitting(node: NodeDevices, positions: Sequence[int], usage: Usage | None = None) -> list[bool]:
    tracker = counters.tracker(node, usage or Usage(), FEATURES)
    assert tracker is not None
    return [tracker.add(REQUEST, position, further_share=False) for position in positions]


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


def test_an_overdrawn_counter_stops_every_consumer_of_the_pool() -> None:
    """The declared amount sank under what is in use; other sets and plain devices."""
    pool = pool_of(
        device("a", consumes("one", memory=2)),
        device("b", consumes("two", memory=1)),
        device("c"),
        counters=(counter_set("one", memory=1), counter_set("two", memory=1)),
    )

    assert [False, False, True] == fitting(node_with(pool), (0, 1, 2), used(pool, a=HELD))


def test_a_further_share_charges_nothing() -> None:
    node = node_with(pool_of(device("a", FOUR, shared=True), counters=(counter_set(memory="4Gi"),)))
    tracker = counters.tracker(node, Usage(), FEATURES)
    assert tracker is not None

    assert tracker.add(REQUEST, 0, further_share=False)
    assert tracker.add(REQUEST, 0, further_share=True)
    tracker.undo(REQUEST, 0, further_share=True)

    assert not tracker.add(REQUEST, 0, further_share=False)


def test_refusal_tells_what_is_left() -> None:
    tracker = counters.tracker(node_with(A_464), used(A_464, c=HELD), FEATURES)
    assert tracker is not None

    found = tracker.refusal(REQUEST, 1, further_share=False)

    assert found is not None
    assert found.reason is Reason.COUNTERS
    assert found.detail == "counter memory on set set-0 exhausted: needs 6Gi, free 4Gi"


def test_refusal_tells_of_an_overdrawn_counter() -> None:
    tracker = counters.tracker(node_with(A_464), used(A_464, a=HELD, b=HELD), FEATURES)
    assert tracker is not None

    found = tracker.refusal(REQUEST, 2, further_share=False)

    assert found is not None
    assert found.detail == "counter memory on set set-0 is overdrawn by 2Gi"


def test_refusal_of_what_a_second_pool_counts() -> None:
    plain = pool_of(device("a", FOUR), counters=SHARED_8)
    other = pool_of(
        device("b", consumes(memory=2), consumes(memory=1, slices=2)),
        counters=(counter_set(memory=4, slices=2),),
        pool="other",
    )
    tracker = counters.tracker(node_with(plain, other), Usage(), FEATURES)
    assert tracker is not None
    assert tracker.add(REQUEST, 1, further_share=False)

    found = tracker.refusal(REQUEST, 1, further_share=False)

    assert found is not None
    assert found.detail == "counter memory on set set-0 exhausted: needs 3, free 1"
    assert tracker.refusal(REQUEST, 1, further_share=True) is None


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
    overdrawn = Usage(pools={second.id: {"c": HELD}})

    assert [True, False, False] == fitting(node_with(first, second), (1, 1, 2))
    assert [False, True] == fitting(node_with(first, second), (1, 0), overdrawn)


def test_a_counter_that_is_used_up_is_not_overdrawn() -> None:
    pool = pool_of(
        device("a", consumes(memory=1)),
        device("b", consumes(slices=1)),
        counters=(counter_set(memory=1, slices=1),),
    )

    assert [False, True] == fitting(node_with(pool), (0, 1), used(pool, a=HELD))


def test_devices_that_take_the_same_look_the_same() -> None:
    tracker = counters.tracker(node_with(A_464), Usage(), FEATURES)
    assert tracker is not None

    assert tracker.sees(0) == tracker.sees(2) != tracker.sees(1)


def test_no_tracker_without_consumers() -> None:
    assert counters.tracker(node_with(pool_of(device())), Usage(), FEATURES) is None


def test_consumers_are_refused_while_the_gate_is_off() -> None:
    off = Features(partitionable_devices=False)
    found = counters.refusal(device("a", FOUR), off)

    assert found is not None
    assert found.reason is Reason.PARTITIONS_OFF
    assert found.detail == "it consumes counters, and DRAPartitionableDevices is off"
    assert counters.refusal(device("a"), off) is None
    assert counters.tracker(node_with(A_464), Usage(), off) is None


def test_availability_can_be_kept_by_the_caller() -> None:
    kept = counters.availability(A_464, {"b": HELD})
    tracker = counters.tracker(node_with(A_464), Usage(), FEATURES, lambda _pool, _use: kept)

    assert (Quantity("2Gi").nanos,) == kept.left
    assert tracker is not None
    assert tracker.state() == kept.left


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


def partitions(usage: Usage | None = None) -> counters.Counters:
    tracker = counters.tracker(node_with(PARTITIONS), usage or Usage(), FEATURES)
    assert tracker is not None
    return tracker


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
def test_least_of_every_device(want: dict[str, int], positions: int) -> None:
    got = partitions().least(positions)

    assert {name: amount * UNITS for name, amount in want.items()} == got


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
def test_most_of_each_part(want: dict[int, int], positions: int) -> None:
    tracker = partitions()

    assert want == {part.devices: tracker.most(part) for part in tracker.parts(positions)}


def test_most_of_what_is_left() -> None:
    tracker = partitions(used(PARTITIONS, large=HELD, bare=HELD))
    (part,) = tracker.parts(0b1)

    assert tracker.most(part) == 0


def test_most_of_an_overdrawn_counter_is_nothing() -> None:
    pool = pool_of(*(device(name, FOUR) for name in "abc"), counters=SHARED_8)
    tracker = counters.tracker(node_with(pool), used(pool, a=HELD, b=HELD, c=HELD), FEATURES)
    assert tracker is not None
    (part,) = tracker.parts(0b111)

    assert tracker.most(part) == 0
    assert tracker.totals(Ahead(claim=0, index=0, positions=0b111)) == {"memory": 0}


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
def test_totals_of_what_devices_ahead_take_from(want: dict[str, int], positions: int) -> None:
    got = partitions().totals(Ahead(claim=0, index=0, positions=positions))

    assert {name: amount * UNITS for name, amount in want.items()} == got
