"""Whatever was lost, damaged or asked for, and whenever: the chain rests, and nothing is cut off."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.authority import Authority
from certs.rotation import (
    TEXTS,
    Action,
    Seen,
    Timing,
    Trust,
    after,
    next_action,
    texts_of,
    trust_of,
)

pytestmark = pytest.mark.property

NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
TIMING: Final = Timing(renewed_at=2 / 3, published=HOUR, hurried=HOUR / 6, leaf=7 * DAY)
LIFE: Final = 90 * DAY
# Of every age that matters: dead, past two thirds, middle-aged, new.
AUTHORITIES: Final = tuple(
    Authority.make("test", now=NOW - age * DAY, life=LIFE) for age in (100, 80, 40, 0)
)
RESTS_WITHIN: Final = 6

authorities: Final = st.sampled_from(AUTHORITIES)
certificates: Final = st.lists(authorities.map(lambda each: each.certificate), unique=True).map(
    tuple
)
times: Final = st.none() | st.integers(0, 24 * 20).map(lambda hours: NOW - hours * HOUR)
trusts: Final = st.builds(
    Trust,
    signer=st.none() | authorities,
    successor=st.none() | authorities,
    trusted=certificates,
    since=times,
)
seens: Final = st.builds(
    Seen,
    now=st.just(NOW),
    believed_since=times,
    believed=certificates,
    is_asked=st.booleans(),
)


def rested(trust: Trust, seen: Seen) -> tuple[Trust, list[Action]]:
    """Return what the chain comes to, as the controller runs it."""
    before, actions = trust.bundle, []
    while action := next_action(trust, seen, TIMING):
        actions.append(action)
        assert len(actions) <= RESTS_WITHIN, actions
        trust = after(action, trust, seen, partial(Authority.make, "test", now=NOW, life=LIFE))
        told = seen.believed_since if trust.bundle == before else None
        asked = seen.is_asked and action is not Action.PUBLISH
        seen = Seen(now=NOW, believed_since=told, believed=seen.believed, is_asked=asked)
    return trust, actions


@given(trust=trusts, seen=seens)
def test_the_chain_rests_on_a_trust_in_good_order(trust: Trust, seen: Seen) -> None:
    found, _ = rested(trust, seen)

    holders = [each for each in (found.signer, found.successor) if each is not None]
    assert holders
    assert {each.certificate for each in holders} <= set(found.trusted)
    assert all(each.not_valid_after_utc > NOW for each in found.trusted)
    assert len(set(found.trusted)) == len(found.trusted)
    assert found.signer is None or found.since is not None


@given(trust=trusts, seen=seens)
def test_who_signs_changes_only_to_one_that_was_told_or_where_nobody_is_believed(
    trust: Trust, seen: Seen
) -> None:
    found, actions = rested(trust, seen)

    if found.signer is not None and found.signer != trust.signer:
        was_told = Action.SWITCH in actions and seen.believed_since is not None
        living = [each for each in trust.trusted or seen.believed if each.not_valid_after_utc > NOW]
        assert was_told or not living


@given(trust=trusts, seen=seens)
def test_what_is_trusted_is_dropped_only_when_it_has_ended_or_no_leaf_is_left(
    trust: Trust, seen: Seen
) -> None:
    found, actions = rested(trust, seen)

    lost = {each for each in trust.trusted if each.not_valid_after_utc > NOW} - set(found.trusted)
    if lost:
        assert Action.DROP in actions
        assert trust.since is not None
        assert trust.since + TIMING.leaf <= NOW


@given(
    trust=trusts,
    damage=st.dictionaries(st.sampled_from(TEXTS), st.sampled_from([b"", b"\xff", b"no", None])),
)
def test_any_texts_are_read(trust: Trust, damage: Mapping[str, bytes | None]) -> None:
    texts = {**texts_of(trust), **damage}

    found, problems = trust_of({name: text for name, text in texts.items() if text is not None})

    assert found.signer is None or found.signer.certificate == (
        trust.signer and trust.signer.certificate
    )
    assert all(problem.partition(":")[1] for problem in problems)
