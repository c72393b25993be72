"""The pods of a group are bound together: the pods waited for, and the limit of the wait."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import pytest

from sidecar.commit.group_barrier import (
    WAIT_S,
    Barrier,
    Commit,
    GiveUp,
    Wait,
    arrive,
    begin,
    decide,
    is_short,
    leave,
    let_go,
    reserve,
)

Event = Callable[[Barrier], Barrier]

VOLUMES_S = 600.0
"""The longest time in PreBind."""
LATEST_S = VOLUMES_S + WAIT_S
"""The end of the wait for pods that are reserved, after the first arrival."""


def reserved(*pods: str, at_s: float = 0.0) -> Event:
    def happen(barrier: Barrier) -> Barrier:
        for pod in pods:
            barrier = reserve(barrier, pod, at_s)
        return barrier

    return happen


def arrived(*pods: str, at_s: float = 0.0) -> Event:
    def happen(barrier: Barrier) -> Barrier:
        for pod in pods:
            barrier = arrive(barrier, pod, at_s)
        return barrier

    return happen


def left(*pods: str, at_s: float = 0.0) -> Event:
    return partial(leave, uids=pods, now_s=at_s)


def begun(*pods: str) -> Event:
    return partial(begin, uids=pods)


def went(*pods: str) -> Event:
    return partial(let_go, uids=pods)


def barrier_after(events: Sequence[Event], min_count: int, *, is_gang: bool = True) -> Barrier:
    barrier = Barrier(min_count=min_count, is_gang=is_gang)
    for happen in events:
        barrier = happen(barrier)
    return barrier


def commit(*pods: str) -> Commit:
    return Commit(pods=frozenset(pods))


def give_up(*pods: str) -> GiveUp:
    return GiveUp(pods=frozenset(pods))


class Case(NamedTuple):
    name: str
    min_count: int
    events: Sequence[Event]
    bound: str
    now_s: float
    want: Wait | Commit | GiveUp


CASES = (
    Case("the first waits", 2, [reserved(*"ab"), arrived("a")], "", 1, Wait(until_s=LATEST_S)),
    Case("the last has all go", 2, [reserved(*"ab"), arrived(*"ab")], "", 1, commit(*"ab")),
    Case("in any order", 2, [reserved(*"ab"), arrived(*"ba")], "", 1, commit(*"ab")),
    Case(
        "one beyond the minimum is waited for",
        2,
        [reserved(*"abc"), arrived(*"ab")],
        "",
        1,
        Wait(until_s=LATEST_S),
    ),
    Case(
        "one that was unreserved is not",
        2,
        [reserved(*"abc"), arrived(*"ab"), left("c", at_s=5)],
        "",
        5,
        commit(*"ab"),
    ),
    Case(
        "without it they are too few, and wait for another from now on",
        3,
        [reserved(*"abc"), arrived(*"ab"), left("c", at_s=5)],
        "",
        6,
        Wait(until_s=5 + WAIT_S),
    ),
    Case(
        "a pod that is tried again comes on another node",
        3,
        [
            reserved(*"abc"),
            arrived(*"ab"),
            left("c", at_s=5),
            reserved("c", at_s=7),
            arrived("c", at_s=8),
        ],
        "",
        8,
        commit(*"abc"),
    ),
    Case(
        "a pod that is added is waited for from its reservation",
        2,
        [reserved(*"ab"), arrived(*"ab"), reserved("c", at_s=6)],
        "",
        8,
        Wait(until_s=LATEST_S),
    ),
    Case(
        "a waiting pod that is deleted counts no more",
        2,
        [reserved(*"ab"), arrived("a"), left("a", at_s=3), arrived("b", at_s=4)],
        "",
        5,
        Wait(until_s=4 + WAIT_S),
    ),
    Case(
        "bound pods count",
        3,
        [reserved(*"ab"), arrived(*"ab")],
        "z",
        1,
        commit(*"ab"),
    ),
    Case(
        "a pod that is seen bound is not waited for",
        2,
        [reserved(*"ab"), arrived("a")],
        "b",
        1,
        commit("a"),
    ),
    Case(
        "pods that were let go count",
        3,
        [reserved(*"abc"), arrived(*"bc"), begun(*"bc"), went(*"bc"), arrived("a")],
        "",
        1,
        commit("a"),
    ),
    Case(
        "beyond the minimum each goes singly, and waits for nobody",
        2,
        [reserved(*"abcd"), went(*"cd"), arrived("a")],
        "",
        1,
        commit("a"),
    ),
    Case(
        "a pod whose Binding failed does not count; the rest is beyond the minimum",
        2,
        [
            reserved(*"abc"),
            went(*"abc"),
            left("a", at_s=9),
            reserved("a", at_s=9),
            arrived("a", at_s=9),
        ],
        "",
        9,
        commit("a"),
    ),
    Case(
        "a bound pod that comes again counts once",
        2,
        [reserved("a"), arrived("a")],
        "a",
        1,
        Wait(until_s=WAIT_S),
    ),
    Case(
        "while others are written a further pod waits",
        2,
        [reserved(*"abc"), arrived(*"ab"), begun(*"ab"), arrived("c")],
        "",
        99,
        Wait(until_s=None),
    ),
    Case(
        "a pod whose volumes take minutes is waited for",
        3,
        [reserved(*"abc"), arrived(*"ab", at_s=1)],
        "",
        VOLUMES_S,
        Wait(until_s=1 + LATEST_S),
    ),
    Case(
        "and bound with the others",
        3,
        [reserved(*"abc"), arrived(*"ab", at_s=1), arrived("c", at_s=VOLUMES_S)],
        "",
        VOLUMES_S,
        commit(*"abc"),
    ),
    Case(
        "one whose volumes are not there in time is waited for once more after it was unreserved",
        3,
        [reserved(*"abc"), arrived(*"ab", at_s=1), left("c", at_s=200)],
        "",
        201,
        Wait(until_s=200 + WAIT_S),
    ),
    Case(
        "a lost pod is waited for no longer than the volumes of another may take",
        3,
        [reserved(*"abc"), arrived(*"ab", at_s=1)],
        "",
        1 + LATEST_S,
        give_up(*"ab"),
    ),
    Case(
        "enough pods do not give up for a lost one",
        2,
        [reserved(*"abc"), arrived(*"ab", at_s=1)],
        "",
        1 + LATEST_S,
        commit(*"ab"),
    ),
    Case(
        "all give up together",
        3,
        [reserved(*"abc"), arrived(*"ab", at_s=1), left("c", at_s=5)],
        "",
        5 + WAIT_S,
        give_up(*"ab"),
    ),
    Case(
        "a pod that comes after the others gave up waits again",
        3,
        [reserved(*"abc"), arrived(*"ab"), left(*"ab", at_s=WAIT_S), arrived("c", at_s=300)],
        "",
        301,
        Wait(until_s=300 + WAIT_S),
    ),
    Case(
        "pods that come and go do not make others wait for ever",
        3,
        [
            reserved("a"),
            arrived("a", at_s=0),
            *(
                happen
                for number in range(31)
                for happen in (reserved("d", at_s=20 * number), left("d", at_s=20 * number + 10))
            ),
        ],
        "",
        LATEST_S - 1,
        Wait(until_s=LATEST_S),
    ),
    Case(
        "and they give up then",
        3,
        [reserved("a"), arrived("a", at_s=0), reserved("d", at_s=LATEST_S - 5)],
        "",
        LATEST_S,
        give_up("a"),
    ),
    Case(
        "a pod that gave up is waited for no more",
        2,
        [reserved(*"abc"), arrived("a"), left("a", at_s=31), arrived(*"bc", at_s=32)],
        "",
        32,
        commit(*"bc"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_decide(case: Case) -> None:
    barrier = barrier_after(case.events, case.min_count)

    step = decide(barrier, min(barrier.arrived), case.bound, case.now_s, max_prebind_s=VOLUMES_S)

    assert step == case.want


def test_a_minimum_that_was_raised_while_they_wait_counts() -> None:
    barrier = barrier_after([reserved(*"ab"), arrived(*"ab")], 2)
    raised = barrier_after([reserved(*"ab"), arrived(*"ab")], 3)

    assert decide(barrier, "a", (), 1.0, max_prebind_s=VOLUMES_S) == commit(*"ab")
    assert decide(raised, "a", (), 1.0, max_prebind_s=VOLUMES_S) == Wait(until_s=WAIT_S)


def test_a_pod_of_a_basic_group_waits_for_nobody() -> None:
    barrier = barrier_after([reserved(*"ab"), arrived("a")], 1, is_gang=False)

    assert decide(barrier, "a", (), 1.0, max_prebind_s=VOLUMES_S) == commit("a")


@pytest.mark.parametrize(
    ("name", "events", "bound", "want"),
    [
        ("nobody left", [begun(*"abc")], "", False),
        ("one left", [begun(*"abc"), left("c")], "", True),
        ("another one is bound", [begun(*"abc"), left("c")], "z", False),
        ("another one passed", [went("y"), begun(*"abc"), left("c")], "", False),
    ],
)
def test_is_short(name: str, events: Sequence[Event], bound: str, *, want: bool) -> None:
    barrier = barrier_after(events, 3)

    assert is_short(barrier, barrier.committing, bound) is want, name


def test_who_has_left_is_nowhere() -> None:
    barrier = barrier_after([reserved(*"abcd"), arrived("b"), begun("c"), went("d")], 2)

    assert all(uid in barrier for uid in "abcd")
    assert leave(barrier, "x", 9.0) is barrier
    assert leave(barrier, "abcd", 9.0).is_empty
