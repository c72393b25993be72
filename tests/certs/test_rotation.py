"""When an authority is made, trusted, used and forgotten; and that no leaf is ever left alone."""

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
    Seen,
    Timing,
    Trust,
    after,
    certificates_of,
    next_action,
    texts_of,
    trust_of,
)

NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
TIMING: Final = Timing(renewed_at=2 / 3, published=HOUR, hurried=HOUR / 6, leaf=7 * DAY)


def authority(began: datetime = NOW, life: timedelta = 90 * DAY) -> Authority:
    return Authority.make("test", now=began, life=life)


OLD: Final = authority(NOW - 50 * DAY)
OLDER: Final = authority(NOW - 60 * DAY, 61 * DAY)
ENDED: Final = authority(NOW - 91 * DAY)
NEW: Final = authority()


def trust(
    signer: Authority | None,
    *others: Authority,
    successor: Authority | None = None,
    since: timedelta | None = timedelta(),
) -> Trust:
    """Return what is trusted in good order: others, signer, successor."""
    known = [each for each in (*others, signer, successor) if each is not None]
    return Trust(
        signer=signer,
        successor=successor,
        trusted=tuple(each.certificate for each in known),
        since=None if signer is None or since is None else NOW - since,
    )


def at(**fields: Any) -> Seen:
    return Seen(**{"now": NOW, "believed_since": NOW - 2 * DAY, **fields})


class Row(NamedTuple):
    name: str
    trust: Trust
    want: Action | None
    seen: Seen = at()


ROWS: Final = (
    Row("nothing is there", Trust(), Action.MAKE),
    Row("a signer in the middle of its life", trust(NEW), None),
    Row("a signer two thirds through", trust(OLD), None, at(now=NOW + 9 * DAY)),
    Row("a signer past two thirds", trust(OLD), Action.PUBLISH, at(now=NOW + 11 * DAY)),
    Row("a young signer, and somebody asks", trust(NEW), Action.PUBLISH, at(is_asked=True)),
    Row("asked while a successor waits", trust(OLD, successor=NEW), None, at(
        is_asked=True, believed_since=NOW)),
    Row("a successor that was told just now", trust(OLD, successor=NEW), None, at(
        believed_since=NOW - HOUR / 2)),
    Row("a successor that was told an hour ago", trust(OLD, successor=NEW), Action.SWITCH, at(
        believed_since=NOW - HOUR)),
    Row("a successor that could not be told", trust(OLD, successor=NEW), None, at(
        believed_since=None)),
    Row("a successor alone, told just now", trust(None, OLD, successor=NEW), None, at(
        believed_since=NOW)),
    Row("a successor alone waits less", trust(None, OLD, successor=NEW), Action.SWITCH, at(
        believed_since=NOW - HOUR / 6)),
    Row("leaves of the one before may live", trust(NEW, OLD, since=6 * DAY), None),
    Row("leaves of the one before have ended", trust(NEW, OLD, since=7 * DAY), Action.DROP),
    Row("nobody superseded", trust(NEW, since=7 * DAY), None),
    Row("nothing is dropped while a successor waits", trust(
        NEW, OLD, successor=authority(), since=9 * DAY), None, at(believed_since=NOW)),
    Row("a trusted one has ended", trust(NEW, ENDED), Action.FORGET),
    Row("the signer has ended", trust(ENDED), Action.FORGET),
    Row("the successor has ended", trust(NEW, successor=ENDED), Action.FORGET),
    Row("the bundle is lost", Trust(signer=NEW, since=NOW), Action.MEND),
    Row("the successor is not in the bundle", msgspec.structs.replace(
        trust(OLD), successor=NEW), Action.MEND),
    Row("when it began to sign is lost", trust(NEW, since=None), Action.MEND),
    Row("the signer is lost, not those trusted", trust(None, OLD), Action.MAKE),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_next_action(row: Row) -> None:
    assert row.want == next_action(row.trust, row.seen, TIMING)


class After(NamedTuple):
    name: str
    action: Action
    before: Trust
    want: Trust
    seen: Seen = at()


CERTIFICATE: Final = NEW.certificate

AFTERS: Final = (
    After("the first signs at once", Action.MAKE, Trust(), trust(NEW)),
    After("leaves of a lost signer stay trusted", Action.MAKE, trust(None, OLD), trust(
        None, OLD, successor=NEW)),
    After("what API servers believe stays trusted", Action.MAKE, Trust(), trust(
        None, OLD, successor=NEW), at(believed=(OLD.certificate, ENDED.certificate))),
    After("a successor is trusted, and does not sign", Action.PUBLISH, trust(OLD), trust(
        OLD, successor=NEW)),
    After("the successor signs, both are trusted", Action.SWITCH, trust(
        OLD, successor=NEW, since=9 * DAY), trust(NEW, OLD)),
    After("only the signer is left", Action.DROP, trust(NEW, OLDER, OLD), trust(NEW)),
    After("only what has ended is forgotten", Action.FORGET, trust(
        NEW, ENDED, OLD), trust(NEW, OLD)),
    After("a signer that has ended signs no more", Action.FORGET, trust(
        ENDED, successor=NEW), trust(None, successor=NEW)),
    After("a bundle is mended from what is believed", Action.MEND, Trust(
        signer=NEW, since=NOW), trust(NEW, OLD), at(believed=(OLD.certificate,))),
    After("a lost time begins anew", Action.MEND, trust(NEW, since=None), trust(NEW)),
)  # fmt: skip


@pytest.mark.parametrize("row", AFTERS, ids=lambda row: row.name)
def test_after(row: After) -> None:
    assert texts_of(row.want) == texts_of(after(row.action, row.before, row.seen, lambda: NEW))


def test_a_rotation_leaves_no_leaf_and_no_api_server_alone() -> None:
    """Hour by hour for a year: every leaf that may live chains to what was told an hour before."""
    life = 30 * DAY
    held, told_since = Trust(), NOW
    told: tuple[x509.Certificate, ...] = ()
    leaves: list[tuple[datetime, x509.Certificate]] = []
    actions = []
    for hour in range(24 * 365):
        now = NOW + hour * HOUR
        for _ in range(8):
            seen = Seen(now=now, believed_since=told_since, believed=told)
            action = next_action(held, seen, TIMING)
            if action is None:
                break
            actions.append(action)
            held = after(action, held, seen, partial(authority, now, life))
            if held.trusted != told:
                assert not told or action in {Action.PUBLISH, Action.DROP, Action.FORGET}
                told, told_since = held.trusted, now
        else:
            pytest.fail("the chain does not come to rest")
        assert held.signer is not None
        if hour % 12 == 0:  # A replica signs anew.
            leaves.append((now, held.signer.certificate))
        for signed, by in leaves:
            assert by in told or now >= signed + TIMING.leaf

    assert actions[:5] == [Action.MAKE, Action.PUBLISH, Action.SWITCH, Action.DROP, Action.PUBLISH]
    assert actions.count(Action.SWITCH) == pytest.approx(365 / 20, abs=1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda texts: {},
        lambda texts: {**texts, "ca.key": b"no key"},
        lambda texts: {**texts, "ca.crt": b""},
        lambda texts: {**texts, "bundle.crt": b"\xff"},
        lambda texts: {**texts, "signing-since": b"yesterday"},
        lambda texts: {**texts, "signing-since": b"2026-11-20"},
        lambda texts: {**texts, "next.key": b"", "next.crt": b"?"},
    ],
    ids=["all is lost", "no key", "no certificate", "no bundle", "no time", "no zone", "no next"],
)
def test_any_damage_heals_while_leaves_stay_trusted(
    damage: Callable[[dict[str, bytes]], dict[str, bytes]],
) -> None:
    before = trust(OLD, successor=NEW)
    held, _ = trust_of(damage(dict(texts_of(before))))
    now = NOW
    for _ in range(10):
        seen = Seen(now=now, believed_since=now - HOUR, believed=before.trusted)
        action = next_action(held, seen, TIMING)
        held = held if action is None else after(action, held, seen, authority)
        assert OLD.certificate in (held.trusted or seen.believed)

    assert held.signer is not None
    assert held.signer.certificate in held.trusted


def test_texts_read_back() -> None:
    before = trust(OLD, OLDER, successor=NEW)

    assert (before.bundle, ()) == ((read := trust_of(texts_of(before)))[0].bundle, read[1])
    assert texts_of(read[0]) == texts_of(before)


def test_what_is_wrong_with_texts_is_told() -> None:
    texts = {"ca.crt": b"a", "next.key": b"b", "bundle.crt": b"c", "signing-since": b"\xff"}
    found, problems = trust_of(texts)

    assert Trust() == found
    assert [problem.partition(":")[0] for problem in problems] == [
        "ca.crt and ca.key",
        "next.crt and next.key",
        "bundle.crt",
        "signing-since",
    ]


def test_a_certificate_that_is_there_twice_is_one() -> None:
    assert (CERTIFICATE,) == certificates_of(NEW.certificate_pem * 2)


@pytest.mark.parametrize("text", [b"", b"no", NEW.key_pem])
def test_what_is_no_certificate(text: bytes) -> None:
    with pytest.raises(CertificateError):
        certificates_of(text)
