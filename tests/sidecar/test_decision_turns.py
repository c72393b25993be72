"""The pods that are decided about now."""

from collections.abc import Callable
from typing import Any

import pytest

from kube.api.core import Pod
from kube.api.meta import convert
from process.fairness.turns import REST
from sidecar.answers.decision_turns import (
    AGAIN_S,
    EXPECTED_S,
    GIVEN_UP,
    LAST,
    LAST_S,
    MIN_REST_S,
    OTHERS_S,
    POLL_S,
    RESTING,
    DecisionTurns,
)


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def pod(name: str, namespace: str = "team-a", **spec: Any) -> Pod:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    return convert({"metadata": metadata, "spec": {"schedulerName": "bridge", **spec}}, Pod)


def nothing_pending(_uid: str) -> bool:
    return False


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_namespace_rests_while_pods_of_others_come(clock: Clock) -> None:
    turns = DecisionTurns(clock=clock)
    turns.turn_away(pod("quiet", "team-b"))
    assert turns.turn_away(pod("a")) is None
    turns.end(pod("a"), 1.0)

    assert turns.turn_away(pod("b")) is RESTING
    assert turns.turn_away(pod("quiet", "team-b")) is None
    clock.now_s += REST
    assert turns.turn_away(pod("b")) is None


def test_a_namespace_that_is_alone_does_not_rest(clock: Clock) -> None:
    turns = DecisionTurns(clock=clock)
    turns.turn_away(pod("quiet", "team-b"))
    turns.end(pod("a"), 10.0)
    clock.now_s += OTHERS_S

    assert turns.turn_away(pod("a")) is None


def test_a_namespace_that_was_alone_for_long_rests_for_its_last_decision_only(clock: Clock) -> None:
    turns = DecisionTurns(clock=clock)
    for number in range(600):
        assert turns.turn_away(pod(f"{number}")) is None
        clock.now_s += 0.5
        turns.end(pod(f"{number}"), 0.5)
        clock.now_s += 0.5

    turns.expect(pod("quiet", "team-b"))
    assert turns.turn_away(pod("next")) is RESTING
    clock.now_s += REST * 0.5
    assert turns.turn_away(pod("next")) is None


def test_a_namespace_rests_while_pods_of_others_are_behind_its_own_in_the_queue(
    clock: Clock,
) -> None:
    """The scheduler asks about one pod after the other: about those behind it has not asked yet."""
    turns = DecisionTurns(clock=clock)
    turns.turn_away(pod("a"))
    turns.expect(pod("quiet", "team-b"), pod("b"))
    turns.end(pod("a"), 10.0)
    clock.now_s += OTHERS_S

    assert turns.turn_away(pod("b")) is RESTING
    assert turns.turn_away(pod("quiet", "team-b")) is None
    clock.now_s += OTHERS_S
    assert turns.turn_away(pod("b")) is None


@pytest.mark.parametrize(
    "ending",
    [
        lambda turns, expected: turns.forget(expected.metadata.uid),
        lambda turns, expected: turns.expect_no_more([expected]),
        lambda turns, expected: turns.expect(expected),
    ],
    ids=["it is gone", "it was decided about with its group", "it is never asked about"],
)
def test_an_expected_pod_has_no_others_rest_for_ever(
    ending: Callable[[DecisionTurns, Pod], None], clock: Clock
) -> None:
    turns = DecisionTurns(clock=clock)
    turns.turn_away(pod("a"))
    turns.end(pod("a"), 2 * EXPECTED_S)
    expected = pod("quiet", "team-b")
    turns.expect(expected)
    assert turns.turn_away(pod("a")) is RESTING

    ending(turns, expected)
    clock.now_s += EXPECTED_S if turns.turn_away(pod("a")) else 0.0

    assert turns.turn_away(pod("a")) is None


@pytest.mark.parametrize(
    "other",
    [
        {"schedulerName": "another"},
        {"nodeName": "node"},
        {"schedulingGates": [{"name": "example.com/quota"}]},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_nobody_rests_for_pods_that_the_scheduler_does_not_try(
    other: dict[str, Any], clock: Clock
) -> None:
    turns = DecisionTurns(clock=clock)
    turns.turn_away(pod("a"))
    turns.end(pod("a"), 1.0)

    turns.expect(pod("quiet", "team-b", **other))

    assert turns.turn_away(pod("a")) is None


def test_quick_decisions_cost_no_rest(clock: Clock) -> None:
    turns = DecisionTurns(clock=clock)
    turns.turn_away(pod("quiet", "team-b"))
    for number in range(10):
        turns.end(pod(str(number)), MIN_REST_S / 100)

    assert turns.turn_away(pod("next")) is None


def test_one_unfinished_pod_of_a_namespace_is_tried_again_at_a_time(clock: Clock) -> None:
    turns = DecisionTurns(clock=clock)
    ready = turns.ready(
        [pod("a"), pod("b"), pod("c", "team-b"), pod("d", "team-b")], nothing_pending
    )

    assert [found.metadata.name for found in ready.pods] == ["a", "c"]
    assert ready.next_s == POLL_S


@pytest.mark.parametrize(
    ("is_pending", "rests", "next_s"),
    [
        (nothing_pending, False, OTHERS_S),
        (lambda uid: True, False, POLL_S),
        (nothing_pending, True, 1.0),
    ],
    ids=["it is ready", "it waits for evaluations", "its namespace rests"],
)
def test_the_scheduler_asks_again_when_a_pod_may_be_ready(
    is_pending: Callable[[str], bool], rests: bool, next_s: float, clock: Clock
) -> None:
    turns = DecisionTurns(clock=clock)
    turns.turn_away(pod("quiet", "team-b"))
    if rests:
        turns.end(pod("a"), 1.0 / REST)

    ready = turns.ready([pod("a")], is_pending)

    assert ready.next_s == next_s
    assert bool(ready.pods) is (next_s == OTHERS_S)


def test_a_pod_whose_decision_did_not_end_comes_last(clock: Clock) -> None:
    poison = pod("poison")
    turns = DecisionTurns({poison.metadata.uid: 1}, clock=clock)
    turns.turn_away(pod("a", "team-b"))

    assert turns.turn_away(poison) is LAST
    assert not turns.ready([poison], nothing_pending).pods
    clock.now_s += LAST_S
    assert not turns.ready([poison], nothing_pending).pods
    clock.now_s += AGAIN_S - 2 * LAST_S
    turns.turn_away(pod("a", "team-b"))
    clock.now_s += LAST_S
    assert turns.ready([poison], nothing_pending).pods == (poison,)
    assert turns.turn_away(poison) is None
    turns.end(poison, 0.01)
    assert not turns.undecided


def test_a_pod_whose_decision_did_not_end_twice_is_given_up(clock: Clock) -> None:
    poison = pod("poison")
    turns = DecisionTurns({poison.metadata.uid: 1}, clock=clock)
    turns.has_stuck(poison.metadata.uid)

    assert turns.turn_away(poison) is GIVEN_UP
    assert turns.undecided == {poison.metadata.uid: 2}
    turns.begin([pod("other").metadata.uid])  # It was deleted.
    assert not turns.undecided
