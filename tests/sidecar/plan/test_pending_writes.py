"""Whether a write of a process may still be made when that process ends."""

import pytest

from sidecar.plan.pending_writes import PendingWrites
from sidecar.plan.writes import Outcome

MADE = None


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
        pending.begin("claim")
        assert (pending.has_calls, pending.are_over) == (True, False)
        pending.end("claim", outcome)

    assert want is pending.are_over, name
    assert not pending.has_calls


def test_one_object_settles_no_other() -> None:
    pending = PendingWrites()
    for claim, outcome in (("a", Outcome.UNKNOWN), ("b", MADE)):
        pending.begin(claim)
        pending.end(claim, outcome)

    assert not pending.are_over


def test_two_writes_of_one_object_are_over_when_both_are() -> None:
    pending = PendingWrites()
    pending.begin("claim")
    pending.begin("claim")
    pending.end("claim", MADE)

    assert (pending.has_calls, pending.are_over) == (True, False)
