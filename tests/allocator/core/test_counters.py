from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.core import counters
from allocator.core.model import DeviceUse, Features, NodeDevices, Pool, Usage
from allocator.core.outcome import Reason
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


def test_no_tracker_without_consumers() -> None:
    assert counters.tracker(node_with(pool_of(device())), Usage(), FEATURES) is None


def test_consumers_are_refused_while_the_gate_is_off() -> None:
    off = Features(partitionable_devices=False)
    found = counters.refusal(device("a", FOUR), off)

    assert found is not None
    assert found.reason is Reason.PARTITIONS_OFF
    assert counters.refusal(device("a"), off) is None
    assert counters.tracker(node_with(A_464), Usage(), off) is None


def test_availability_can_be_kept_by_the_caller() -> None:
    kept = counters.availability(A_464, {"b": HELD})
    tracker = counters.tracker(node_with(A_464), Usage(), FEATURES, lambda _pool, _use: kept)

    assert (Quantity("2Gi").nanos,) == kept.left
    assert tracker is not None
    assert tracker.state() == kept.left
