"""From any stored state the chain of decisions comes to rest, and no valid certificate loses its trust."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.authority import Authority
from certs.rotation import (
    KEYS,
    Action,
    Authorities,
    Observation,
    Timing,
    apply_action,
    decode_authorities,
    encode_authorities,
    next_action,
)

pytestmark = pytest.mark.property

NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
TIMING: Final = Timing(
    renew_at=2 / 3, propagation=HOUR, urgent_propagation=HOUR / 6, certificate_lifetime=7 * DAY
)
LIFE: Final = 90 * DAY
# Expired, past two thirds of the lifetime, in the middle of it, new.
AUTHORITIES: Final = tuple(
    Authority.create("test", now=NOW - age * DAY, life=LIFE) for age in (100, 80, 40, 0)
)
MAX_ACTIONS: Final = 6

authority_values: Final = st.sampled_from(AUTHORITIES)
certificates: Final = st.lists(
    authority_values.map(lambda authority: authority.certificate), unique=True
).map(tuple)
times: Final = st.none() | st.integers(0, 24 * 20).map(lambda hours: NOW - hours * HOUR)
stored_states: Final = st.builds(
    Authorities,
    signer=st.none() | authority_values,
    successor=st.none() | authority_values,
    trusted=certificates,
    signing_since=times,
)
observations: Final = st.builds(
    Observation,
    now=st.just(NOW),
    published_since=times,
    published=certificates,
    rotation_requested=st.booleans(),
)


def run_to_rest(
    authorities: Authorities, observation: Observation
) -> tuple[Authorities, list[Action]]:
    """Apply actions until none is due, as the controller does."""
    ca_bundle, actions = authorities.ca_bundle, []
    while action := next_action(authorities, observation, TIMING):
        actions.append(action)
        assert len(actions) <= MAX_ACTIONS, actions
        create = partial(Authority.create, "test", now=NOW, life=LIFE)
        authorities = apply_action(action, authorities, observation, create)
        is_published = authorities.ca_bundle == ca_bundle
        observation = Observation(
            now=NOW,
            published_since=observation.published_since if is_published else None,
            published=observation.published,
            rotation_requested=observation.rotation_requested and action is not Action.PUBLISH,
        )
    return authorities, actions


@given(before=stored_states, observation=observations)
def test_the_chain_rests_in_a_valid_state(before: Authorities, observation: Observation) -> None:
    after, _ = run_to_rest(before, observation)

    signers = [authority for authority in (after.signer, after.successor) if authority is not None]
    assert signers
    assert {signer.certificate for signer in signers} <= set(after.trusted)
    assert all(certificate.not_valid_after_utc > NOW for certificate in after.trusted)
    assert len(set(after.trusted)) == len(after.trusted)
    assert after.signer is None or after.signing_since is not None


@given(before=stored_states, observation=observations)
def test_a_new_signer_was_published_or_nothing_was_trusted(
    before: Authorities, observation: Observation
) -> None:
    after, actions = run_to_rest(before, observation)

    if after.signer is not None and after.signer != before.signer:
        was_published = Action.SWITCH in actions and observation.published_since is not None
        unexpired_certificates = [
            certificate
            for certificate in before.trusted or observation.published
            if certificate.not_valid_after_utc > NOW
        ]
        assert was_published or not unexpired_certificates


@given(before=stored_states, observation=observations)
def test_an_authority_is_dropped_only_once_its_certificates_have_expired(
    before: Authorities, observation: Observation
) -> None:
    after, actions = run_to_rest(before, observation)

    unexpired_certificates = {
        certificate for certificate in before.trusted if certificate.not_valid_after_utc > NOW
    }
    if unexpired_certificates - set(after.trusted):
        assert Action.DROP in actions
        assert before.signing_since is not None
        assert before.signing_since + TIMING.certificate_lifetime <= NOW


@given(
    before=stored_states,
    damage=st.dictionaries(st.sampled_from(KEYS), st.sampled_from([b"", b"\xff", b"no", None])),
)
def test_any_stored_values_decode(before: Authorities, damage: Mapping[str, bytes | None]) -> None:
    values = {**encode_authorities(before), **damage}

    after, errors = decode_authorities(
        {key: value for key, value in values.items() if value is not None}
    )

    assert after.signer is None or after.signer.certificate == (
        before.signer and before.signer.certificate
    )
    assert all(error.partition(":")[1] for error in errors)
