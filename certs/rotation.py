"""When the certificate authority is made, replaced and forgotten, so that no call is lost.

API servers and replicas learn of a change at times of their own, and nobody confirms. So an
authority is trusted for a while before it signs, and for as long after as a leaf of it can live:

    make      nobody can sign: a successor is made
    publish   the signer has lived two thirds of its life, or somebody asks: a successor is made
    switch    API servers have had time to learn of the successor: it signs
    drop      the last leaf of the one before has ended: it is trusted no longer

Each judgement looks at what is there and at the time, never at what was done last. So a process may
end between any two steps, and what was lost or damaged is made good by the same chain.

Source: webhook-ops.md 3.2, 3.3.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import BACKDATED, Authority, CertificateError

SIGNER: Final = ("ca.crt", "ca.key")
SUCCESSOR: Final = ("next.crt", "next.key")
BUNDLE: Final = "bundle.crt"
SINCE: Final = "signing-since"
TEXTS: Final = (*SIGNER, *SUCCESSOR, BUNDLE, SINCE)
"""The names of the texts that a `Trust` is kept as."""


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """Who signs and who is trusted.

    Attributes:
        signer: Whose leaves are served; None where it is not there yet, lost, or has ended.
        successor: Who will sign, and is trusted already.
        trusted: Every certificate that a leaf may chain to, the oldest first.
        since: When the signer began to sign.
    """

    signer: Authority | None = None
    successor: Authority | None = None
    trusted: tuple[x509.Certificate, ...] = ()
    since: datetime | None = None

    @property
    def bundle(self) -> bytes:
        """The trusted certificates as one text."""
        return b"".join(each.public_bytes(Encoding.PEM) for each in self.trusted)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long things take.

    Attributes:
        renewed_at: The part of an authority's life, from 0 to 1, after which it gets a successor.
        published: For how long a successor is trusted before it signs.
        hurried: The same, where nobody else can sign.
        leaf: The longest life of a leaf, with what its replica may be behind.
    """

    renewed_at: float
    published: timedelta
    hurried: timedelta
    leaf: timedelta


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to know besides.

    Attributes:
        now: With a time zone.
        believed_since: When API servers had been told of all that is trusted; None where they have
            not. At the earliest when this process saw it, so that a new leader waits again.
        believed: What they have been told, if what was trusted is lost.
        is_asked: Whether somebody wants a new authority now.
    """

    now: datetime
    believed_since: datetime | None = None
    believed: tuple[x509.Certificate, ...] = ()
    is_asked: bool = False


class Action(StrEnum):
    """What to do next."""

    MAKE = "make"
    MEND = "mend"
    PUBLISH = "publish"
    SWITCH = "switch"
    DROP = "drop"
    FORGET = "forget"


def next_action(trust: Trust, seen: Seen, timing: Timing) -> Action | None:
    """Return what to do now, by the first judgement that wants something; None for nothing."""
    wanted = (judge(trust, seen, timing) for judge in JUDGEMENTS)
    return next((action for action in wanted if action is not None), None)


def after(action: Action, trust: Trust, seen: Seen, fresh: Callable[[], Authority]) -> Trust:
    """Return what is there once something is done.

    Args:
        action: From `next_action` about the same trust.
        trust: What is there now.
        seen: What else is known.
        fresh: Makes an authority.
    """
    match action:
        case Action.MAKE:
            known = trust.trusted or _living(seen.believed, seen.now)
            made = fresh()
            trusted = (*known, made.certificate)
            if known:  # Leaves of a signer that is lost are still served.
                return Trust(successor=made, trusted=trusted)
            return Trust(signer=made, trusted=trusted, since=seen.now)
        case Action.MEND:
            known = trust.trusted or _living(seen.believed, seen.now)
            trusted = tuple(dict.fromkeys((*known, *_needed(trust))))
            since = None if trust.signer is None else trust.since or seen.now
            return msgspec.structs.replace(trust, trusted=trusted, since=since)
        case Action.PUBLISH:
            made = fresh()
            trusted = (*trust.trusted, made.certificate)
            return msgspec.structs.replace(trust, successor=made, trusted=trusted)
        case Action.SWITCH:
            return Trust(signer=trust.successor, trusted=trust.trusted, since=seen.now)
        case Action.DROP:
            return msgspec.structs.replace(trust, trusted=_needed(trust))
        case Action.FORGET:
            signer = _good(trust.signer, seen.now)
            return Trust(
                signer=signer,
                successor=_good(trust.successor, seen.now),
                trusted=_living(trust.trusted, seen.now),
                since=trust.since if signer is not None else None,
            )


# --- judgements -----------------------------------------------------------------------------------


def _ended(trust: Trust, seen: Seen, _timing: Timing) -> Action | None:
    """What has ended vouches for nobody."""
    certificates = (*trust.trusted, *_needed(trust))
    return Action.FORGET if len(_living(certificates, seen.now)) < len(certificates) else None


def _missing(trust: Trust, _seen: Seen, _timing: Timing) -> Action | None:
    """Without a signer no replica can start."""
    return Action.MAKE if trust.signer is None and trust.successor is None else None


def _untrusted(trust: Trust, _seen: Seen, _timing: Timing) -> Action | None:
    """Who signs is trusted, and it is known since when it does."""
    is_whole = set(_needed(trust)) <= set(trust.trusted)
    is_dated = trust.signer is None or trust.since is not None
    return None if is_whole and is_dated else Action.MEND


def _published(trust: Trust, seen: Seen, timing: Timing) -> Action | None:
    """A successor signs once API servers have had time to learn of it."""
    if trust.successor is None or seen.believed_since is None:
        return None
    wait = timing.published if trust.signer else timing.hurried
    return Action.SWITCH if seen.now >= seen.believed_since + wait else None


def _due(trust: Trust, seen: Seen, timing: Timing) -> Action | None:
    """A signer gets a successor in time, or when somebody asks."""
    if trust.signer is None or trust.successor is not None:
        return None
    begin = trust.signer.certificate.not_valid_before_utc + BACKDATED
    renewed = begin + (trust.signer.not_after - begin) * timing.renewed_at
    return Action.PUBLISH if seen.is_asked or seen.now >= renewed else None


def _superseded(trust: Trust, seen: Seen, timing: Timing) -> Action | None:
    """An authority is trusted until the last leaf that it can have signed has ended."""
    if trust.successor is not None or trust.since is None:
        return None
    is_over = seen.now >= trust.since + timing.leaf
    return Action.DROP if is_over and len(trust.trusted) > len(_needed(trust)) else None


Judgement = Callable[[Trust, Seen, Timing], Action | None]
JUDGEMENTS: Final[Sequence[Judgement]] = (
    _ended,
    _missing,
    _untrusted,
    _published,
    _due,
    _superseded,
)
"""In order: the first that wants something is heard."""


def _needed(trust: Trust) -> tuple[x509.Certificate, ...]:
    """The certificates of those that sign or will."""
    return tuple(each.certificate for each in (trust.signer, trust.successor) if each is not None)


def _good(authority: Authority | None, now: datetime) -> Authority | None:
    return authority if authority is not None and now < authority.not_after else None


def _living(
    certificates: Iterable[x509.Certificate], now: datetime
) -> tuple[x509.Certificate, ...]:
    return tuple(each for each in certificates if now < each.not_valid_after_utc)


# --- as texts -------------------------------------------------------------------------------------


def texts_of(trust: Trust) -> Mapping[str, bytes]:
    """Return the texts that keep a trust; what is not there has none."""
    texts = {BUNDLE: trust.bundle}
    for (certificate, key), authority in ((SIGNER, trust.signer), (SUCCESSOR, trust.successor)):
        if authority is not None:
            texts |= {certificate: authority.certificate_pem, key: authority.key_pem}
    if trust.since is not None:
        texts[SINCE] = trust.since.isoformat().encode()
    return texts


def trust_of(texts: Mapping[str, bytes]) -> tuple[Trust, tuple[str, ...]]:
    """Return what texts hold, and what is wrong with those that hold nothing."""
    problems: list[str] = []
    trust = Trust(
        signer=_authority(texts, SIGNER, problems),
        successor=_authority(texts, SUCCESSOR, problems),
        trusted=_certificates(texts, problems),
        since=_time(texts, problems),
    )
    return trust, tuple(problems)


def certificates_of(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a text, each once.

    Raises:
        CertificateError: It holds none, or something else.
    """
    try:
        return tuple(dict.fromkeys(x509.load_pem_x509_certificates(pem)))
    except ValueError as fault:
        raise CertificateError(f"not certificates: {fault}") from fault


def _authority(
    texts: Mapping[str, bytes], names: tuple[str, str], problems: list[str]
) -> Authority | None:
    certificate, key = (texts.get(name, b"") for name in names)
    if not certificate and not key:
        return None
    try:
        return Authority.read(certificate, key)
    except CertificateError as fault:
        problems.append(f"{' and '.join(names)}: {fault}")
        return None


def _certificates(texts: Mapping[str, bytes], problems: list[str]) -> tuple[x509.Certificate, ...]:
    if not texts.get(BUNDLE):
        return ()
    try:
        return certificates_of(texts[BUNDLE])
    except CertificateError as fault:
        problems.append(f"{BUNDLE}: {fault}")
        return ()


def _time(texts: Mapping[str, bytes], problems: list[str]) -> datetime | None:
    if SINCE not in texts:
        return None
    try:
        since = datetime.fromisoformat(texts[SINCE].decode())
    except ValueError as fault:
        problems.append(f"{SINCE}: {fault}")
        return None
    if since.tzinfo is None:
        problems.append(f"{SINCE}: no time zone")
        return None
    return since
