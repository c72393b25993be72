"""Writes of a process that may still be made when that process ends."""

import pytest

from sidecar.commit.pending_writes import MAX_IN_DOUBT, DecidedOn, PendingWrites
from sidecar.commit.writes import Outcome

MADE = None
NAME = ("team", "claim")
CLAIM = (NAME, "uid")


@pytest.mark.parametrize(
    ("name", "outcomes", "want"),
    [
        ("it was made", [MADE], True),
        ("it met another version, and its copy would, too", [Outcome.CONFLICT], True),
        ("its object is gone, and never comes back under this uid", [Outcome.GONE], True),
        ("it may be made later", [Outcome.UNKNOWN], False),
        ("refused, while a copy may meet a fence that knows us", [Outcome.REFUSED], False),
        ("unknown, until a later one was made", [Outcome.UNKNOWN, MADE], True),
        ("likewise, until a later one met its result", [Outcome.UNKNOWN, Outcome.CONFLICT], True),
        ("a refusal settles nothing", [Outcome.UNKNOWN, Outcome.REFUSED], False),
        ("made, and then unknown again", [MADE, Outcome.UNKNOWN], False),
    ],
)
def test_writes_of_one_object(name: str, outcomes: list[Outcome | None], want: bool) -> None:
    pending = PendingWrites()
    for outcome in outcomes:
        pending.begin(CLAIM)
        assert (pending.has_calls, pending.are_over) == (True, False)
        pending.end(CLAIM, outcome)

    assert want is pending.are_over, name
    assert not pending.has_calls


def test_one_object_settles_no_other() -> None:
    pending = PendingWrites()
    for claim, outcome in (((("team", "a"), "uid-a"), Outcome.UNKNOWN), (CLAIM, MADE)):
        pending.begin(claim)
        pending.end(claim, outcome)

    assert not pending.are_over


def test_two_writes_of_one_object_are_over_when_both_are() -> None:
    pending = PendingWrites()
    pending.begin(CLAIM)
    pending.begin(CLAIM)
    pending.end(CLAIM, MADE)

    assert (pending.has_calls, pending.are_over) == (True, False)


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.REFUSED])
@pytest.mark.parametrize(
    ("name", "seen", "want"),
    [
        ("its object is gone", None, True),
        ("its name is that of another object", DecidedOn("other", 1), True),
        ("its object has changed, and a copy meets another version", DecidedOn("uid", 8), True),
        ("its object is as it was, and a copy may be made", DecidedOn("uid", 7), False),
    ],
)
def test_a_write_in_doubt_is_over_once_it_cannot_be_made(
    name: str, seen: DecidedOn | None, want: bool, outcome: Outcome
) -> None:
    pending = PendingWrites()
    pending.begin(CLAIM)
    pending.end(CLAIM, outcome, DecidedOn("uid", 7))

    pending.forget_settled(lambda _: seen)

    assert want is pending.are_over, name


def test_a_write_that_is_conditional_on_nothing_stays_in_doubt() -> None:
    pending = PendingWrites()
    pending.begin(CLAIM)
    pending.end(CLAIM, Outcome.UNKNOWN)

    pending.forget_settled(lambda _: None)

    assert not pending.are_over


def test_a_late_write_to_the_claim_before_hides_no_doubt_about_the_one_of_that_name_now() -> None:
    pending = PendingWrites()
    now, before = (NAME, "uid-b"), (NAME, "uid-a")
    for key in (before, now):
        pending.begin(key)
    pending.end(now, Outcome.UNKNOWN, DecidedOn("uid-b", 20))
    pending.end(before, Outcome.UNKNOWN, DecidedOn("uid-a", 10))

    pending.forget_settled(lambda _: DecidedOn("uid-b", 20))

    assert not pending.are_over


def test_many_doubts_are_to_be_looked_at_before_the_end() -> None:
    pending = PendingWrites()
    for number in range(MAX_IN_DOUBT + 1):
        assert not pending.has_many_doubts
        key = (("team", f"claim-{number}"), f"uid-{number}")
        pending.begin(key)
        pending.end(key, Outcome.UNKNOWN, DecidedOn(f"uid-{number}", 1))
    assert pending.has_many_doubts

    pending.forget_settled(lambda _: None)

    assert pending.are_over
