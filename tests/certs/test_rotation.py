"""The times of an authority's creation, trust, use and end; no certificate loses trust."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from cryptography import x509

from certs.authority import Authority, CertificateError
from certs.rotation import (
    Action,
    Authorities,
    Observation,
    Timing,
    apply_action,
    decode_authorities,
    encode_authorities,
    next_action,
    parse_certificates,
    rotate,
)

NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
TIMING: Final = Timing(
    renew_at=2 / 3, propagation=HOUR, urgent_propagation=HOUR / 6, certificate_lifetime=7 * DAY
)


def authority(began: datetime = NOW, life: timedelta = 90 * DAY) -> Authority:
    return Authority.create("test", now=began, life=life)


OLD: Final = authority(NOW - 50 * DAY)
OLDER: Final = authority(NOW - 60 * DAY, 61 * DAY)
EXPIRED: Final = authority(NOW - 91 * DAY)
FUTURE: Final = authority(NOW + 6 * HOUR)
NEW: Final = authority()


def with_signer(
    signer: Authority | None,
    *others: Authority,
    successor: Authority | None = None,
    since: timedelta | None = timedelta(),
) -> Authorities:
    """Return authorities that are all trusted, in this order: others, signer, successor."""
    known = [authority for authority in (*others, signer, successor) if authority is not None]
    return Authorities(
        signer=signer,
        successor=successor,
        trusted=tuple(authority.certificate for authority in known),
        signing_since=None if signer is None or since is None else NOW - since,
    )


def observe(**fields: Any) -> Observation:
    return Observation(**{"now": NOW, "published_since": NOW - 2 * DAY, **fields})


class Row(NamedTuple):
    name: str
    authorities: Authorities
    want: Action | None
    observation: Observation = observe()


ROWS: Final = (
    Row("nothing is stored", Authorities(), Action.CREATE),
    Row("a signer in the middle of its life", with_signer(NEW), None),
    Row("a signer two thirds through", with_signer(OLD), None, observe(now=NOW + 9 * DAY)),
    Row("a signer past two thirds", with_signer(OLD), Action.PUBLISH, observe(now=NOW + 11 * DAY)),
    Row("a young signer and a requested rotation", with_signer(NEW), Action.PUBLISH, observe(rotation_requested=True)),
    Row("a rotation requested while a successor waits", with_signer(OLD, successor=NEW), None, observe(
        rotation_requested=True, published_since=NOW)),
    Row("a successor published half an hour ago", with_signer(OLD, successor=NEW), None, observe(
        published_since=NOW - HOUR / 2)),
    Row("a successor published an hour ago", with_signer(OLD, successor=NEW), Action.SWITCH, observe(
        published_since=NOW - HOUR)),
    Row("a successor that could not be published", with_signer(OLD, successor=NEW), None, observe(
        published_since=None)),
    Row("a successor without a signer, just published", with_signer(None, OLD, successor=NEW), None, observe(
        published_since=NOW)),
    Row("a successor without a signer waits less", with_signer(None, OLD, successor=NEW), Action.SWITCH, observe(
        published_since=NOW - HOUR / 6)),
    Row("certificates of the predecessor may be valid", with_signer(NEW, OLD, since=6 * DAY), None),
    Row("certificates of the predecessor have expired", with_signer(NEW, OLD, since=7 * DAY), Action.DROP),
    Row("no predecessor", with_signer(NEW, since=7 * DAY), None),
    Row("nothing is dropped while a successor waits", with_signer(
        NEW, OLD, successor=authority(), since=9 * DAY), None, observe(published_since=NOW)),
    Row("a trusted authority has expired", with_signer(NEW, EXPIRED), Action.FORGET),
    Row("the signer has expired", with_signer(EXPIRED), Action.FORGET),
    Row("the successor has expired", with_signer(NEW, successor=EXPIRED), Action.FORGET),
    Row("a trusted authority is not valid yet", with_signer(NEW, FUTURE), Action.FORGET),
    Row("the signer is not valid yet", with_signer(FUTURE), Action.FORGET),
    Row("the bundle is lost", Authorities(signer=NEW, signing_since=NOW), Action.REPAIR),
    Row("the successor is not in the bundle", msgspec.structs.replace(
        with_signer(OLD), successor=NEW), Action.REPAIR),
    Row("signing-since is lost", with_signer(NEW, since=None), Action.REPAIR),
    Row("an older copy whose signer API servers do not know", with_signer(OLD), Action.DEMOTE, observe(
        published=(NEW.certificate,), serving_authority=NEW.certificate)),
    Row("an older copy whose signer API servers still know", with_signer(OLD), Action.REPAIR, observe(
        published=(OLD.certificate, NEW.certificate), serving_authority=NEW.certificate)),
    Row("a served certificate that API servers do not believe", with_signer(OLD), None, observe(
        published=(OLD.certificate,), serving_authority=NEW.certificate)),
    Row("a served certificate whose authority has expired", with_signer(NEW), None, observe(
        published=(EXPIRED.certificate,), serving_authority=EXPIRED.certificate)),
    Row("a served certificate of the predecessor", with_signer(NEW, OLD), None, observe(
        published=(OLD.certificate, NEW.certificate), serving_authority=OLD.certificate)),
    Row("the signer is lost and the bundle is not", with_signer(None, OLD), Action.CREATE),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_next_action(row: Row) -> None:
    assert row.want == next_action(row.authorities, row.observation, TIMING)


class Transition(NamedTuple):
    name: str
    action: Action
    before: Authorities
    want: Authorities
    observation: Observation = observe()


CERTIFICATE: Final = NEW.certificate

TRANSITIONS: Final = (
    Transition("the first authority signs immediately", Action.CREATE, Authorities(), with_signer(NEW)),
    Transition("certificates of a lost signer stay trusted", Action.CREATE, with_signer(None, OLD), with_signer(
        None, OLD, successor=NEW)),
    Transition("published authorities stay trusted", Action.CREATE, Authorities(), with_signer(
        None, OLD, successor=NEW), observe(published=(OLD.certificate, EXPIRED.certificate))),
    Transition("a successor is trusted and does not sign", Action.PUBLISH, with_signer(OLD), with_signer(
        OLD, successor=NEW)),
    Transition("the successor signs and both are trusted", Action.SWITCH, with_signer(
        OLD, successor=NEW, since=9 * DAY), with_signer(NEW, OLD)),
    Transition("only the signer is left", Action.DROP, with_signer(NEW, OLDER, OLD), with_signer(NEW)),
    Transition("only expired authorities are forgotten", Action.FORGET, with_signer(
        NEW, EXPIRED, OLD), with_signer(NEW, OLD)),
    Transition("an expired signer is removed", Action.FORGET, with_signer(
        EXPIRED, successor=NEW), with_signer(None, successor=NEW)),
    Transition("a signer that is not valid yet is removed", Action.FORGET, with_signer(
        FUTURE, OLD), with_signer(None, OLD)),
    Transition("a published authority that is not valid yet is not trusted", Action.CREATE, Authorities(),
        with_signer(NEW), observe(published=(FUTURE.certificate,))),
    Transition("the bundle is repaired from the published one", Action.REPAIR, Authorities(
        signer=NEW, signing_since=NOW), with_signer(NEW, OLD), observe(published=(OLD.certificate,))),
    Transition("a signer that nobody knows is trusted before it signs", Action.DEMOTE, with_signer(
        OLD, since=9 * DAY), with_signer(None, successor=OLD), observe(
        published=(NEW.certificate,), serving_authority=NEW.certificate)),
    Transition("what is served stays trusted for the life of a certificate", Action.REPAIR, with_signer(
        OLD, since=9 * DAY), with_signer(OLD, NEW), observe(
        published=(OLD.certificate, NEW.certificate), serving_authority=NEW.certificate)),
    Transition("a lost signing-since starts now", Action.REPAIR, with_signer(NEW, since=None), with_signer(NEW)),
)  # fmt: skip


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: row.name)
def test_apply_action(row: Transition) -> None:
    assert encode_authorities(row.want) == encode_authorities(
        apply_action(row.action, row.before, row.observation, lambda: NEW)
    )


def test_all_actions_that_are_due_are_taken_in_turn() -> None:
    forgotten = with_signer(EXPIRED, OLD, successor=NEW, since=9 * DAY)

    authorities, actions = rotate(forgotten, lambda _: observe(), TIMING, authority)

    assert (Action.FORGET, Action.SWITCH) == actions
    assert encode_authorities(with_signer(NEW, OLD)) == encode_authorities(authorities)


def test_observations_that_contradict_each_other_are_an_error() -> None:
    """The CA bundles hold all trusted certificates since two days ago, and do not hold the signer."""
    contradiction = observe(published=(OLD.certificate,), serving_authority=OLD.certificate)

    with pytest.raises(CertificateError, match="demote, switch, demote"):
        rotate(with_signer(NEW, OLD), lambda _: contradiction, TIMING, authority)


def test_every_valid_certificate_chains_to_the_published_bundle_for_a_year() -> None:
    """Hour by hour: a certificate is trusted from its issue to its expiry."""
    life = 30 * DAY
    authorities, published_since = Authorities(), NOW
    published: tuple[x509.Certificate, ...] = ()
    issued: list[tuple[datetime, x509.Certificate]] = []
    actions = []
    for hour in range(24 * 365):
        now = NOW + hour * HOUR
        for _ in range(8):
            observation = Observation(now=now, published_since=published_since, published=published)
            action = next_action(authorities, observation, TIMING)
            if action is None:
                break
            actions.append(action)
            authorities = apply_action(
                action, authorities, observation, partial(authority, now, life)
            )
            if authorities.trusted != published:
                assert not published or action in {Action.PUBLISH, Action.DROP, Action.FORGET}
                published, published_since = authorities.trusted, now
        else:
            pytest.fail("the chain does not come to rest")
        assert authorities.signer is not None
        if hour % 12 == 0:  # A replica renews its certificate.
            issued.append((now, authorities.signer.certificate))
        for issued_at, signer in issued:
            assert signer in published or now >= issued_at + TIMING.certificate_lifetime

    assert actions[:5] == [
        Action.CREATE,
        Action.PUBLISH,
        Action.SWITCH,
        Action.DROP,
        Action.PUBLISH,
    ]
    assert actions.count(Action.SWITCH) == pytest.approx(365 / 20, abs=1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda values: {},
        lambda values: {**values, "ca.key": b"no key"},
        lambda values: {**values, "ca.crt": b""},
        lambda values: {**values, "bundle.crt": b"\xff"},
        lambda values: {**values, "signing-since": b"yesterday"},
        lambda values: {**values, "signing-since": b"2026-11-20"},
        lambda values: {**values, "next.key": b"", "next.crt": b"?"},
    ],
    ids=[
        "everything is lost",
        "no key",
        "no certificate",
        "no bundle",
        "no time",
        "no zone",
        "no next",
    ],
)
def test_any_damage_is_repaired_while_certificates_stay_trusted(
    damage: Callable[[dict[str, bytes]], dict[str, bytes]],
) -> None:
    before = with_signer(OLD, successor=NEW)
    stored, _ = decode_authorities(damage(dict(encode_authorities(before))))
    now = NOW
    for _ in range(10):
        observation = Observation(now=now, published_since=now - HOUR, published=before.trusted)
        action = next_action(stored, observation, TIMING)
        stored = stored if action is None else apply_action(action, stored, observation, authority)
        assert OLD.certificate in (stored.trusted or observation.published)

    assert stored.signer is not None
    assert stored.signer.certificate in stored.trusted


def test_an_older_copy_of_the_secret_costs_no_served_certificate_its_trust() -> None:
    """Minute by minute: served certificates are trusted, and served only once API servers know their signer."""
    minute = timedelta(minutes=1)
    stored, published_since, served = with_signer(OLD), NOW, NEW.certificate
    published: tuple[x509.Certificate, ...] = (served,)
    known = published
    for number in range(60 * 24 * 8):
        now = NOW + number * minute
        for _ in range(8):
            observation = Observation(
                now=now,
                published_since=published_since if stored.trusted == published else None,
                published=published,
                serving_authority=served,
            )
            action = next_action(stored, observation, TIMING)
            if action is None:
                break
            stored = apply_action(action, stored, observation, authority)
        else:
            pytest.fail("the chain does not come to rest")
        if stored.signer is not None:
            served = stored.signer.certificate
        assert served in known, f"after {number} minutes"
        known = published  # API servers know since the last minute.
        if stored.trusted != published:
            published, published_since = stored.trusted, now

    assert (served, stored.trusted) == (OLD.certificate, (OLD.certificate,))


def test_authorities_survive_encoding() -> None:
    before = with_signer(OLD, OLDER, successor=NEW)

    decoded, errors = decode_authorities(encode_authorities(before))

    assert (before.ca_bundle, ()) == (decoded.ca_bundle, errors)
    assert encode_authorities(before) == encode_authorities(decoded)


def test_errors_name_the_keys_of_unreadable_values() -> None:
    values = {"ca.crt": b"a", "next.key": b"b", "bundle.crt": b"c", "signing-since": b"\xff"}
    decoded, errors = decode_authorities(values)

    assert Authorities() == decoded
    assert [error.partition(":")[0] for error in errors] == [
        "ca.crt and ca.key",
        "next.crt and next.key",
        "bundle.crt",
        "signing-since",
    ]


def test_parse_certificates_drops_duplicates() -> None:
    assert (CERTIFICATE,) == parse_certificates(NEW.certificate_pem * 2)


@pytest.mark.parametrize("text", [b"", b"no", NEW.key_pem])
def test_parse_certificates_rejects(text: bytes) -> None:
    with pytest.raises(CertificateError):
        parse_certificates(text)
