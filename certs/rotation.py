"""The rotation of a certificate authority: created, replaced and dropped so that no call fails.

API servers and webhook replicas learn of a change at different times, and none of them confirms it.
An authority is therefore trusted for a while before it signs, and after it stops signing for as
long as a serving certificate of it can be valid:

    create    there is no signer: create an authority
    publish   the signer is past two thirds of its lifetime, or a rotation is requested: create
              the successor and trust it
    switch    API servers have had time to receive the CA bundle with the successor: it signs
    drop      the last serving certificate of the predecessor has expired: stop trusting it
    demote    a signer that API servers do not know, as of an older copy of the Secret, becomes a successor
    forget    it has expired, or is not valid yet, as one of a clock that was ahead: as if it were lost

A decision depends on the stored state and the time, never on the previous action. A process may
therefore stop between any two steps, and the same chain of decisions repairs lost or damaged state.
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
SIGNING_SINCE: Final = "signing-since"
KEYS: Final = (*SIGNER, *SUCCESSOR, BUNDLE, SIGNING_SINCE)
"""The keys under which `Authorities` are stored."""
MAX_ACTIONS: Final = 8
"""More actions than are ever due at a time."""


class Authorities(msgspec.Struct, frozen=True, kw_only=True):
    """The authorities that sign and those that are trusted.

    Attributes:
        signer: The authority whose serving certificates are in use; None if it does not exist yet,
            was lost, or has expired.
        successor: The next signer; already trusted.
        trusted: Every certificate that a serving certificate may chain to, oldest first.
        signing_since: The time at which the signer began to sign.
    """

    signer: Authority | None = None
    successor: Authority | None = None
    trusted: tuple[x509.Certificate, ...] = ()
    signing_since: datetime | None = None

    @property
    def ca_bundle(self) -> bytes:
        """The trusted certificates as PEM."""
        return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in self.trusted)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of a rotation.

    Attributes:
        renew_at: The fraction of an authority's lifetime, from 0 to 1, after which it gets a
            successor.
        propagation: The time that a successor is trusted before it signs.
        urgent_propagation: The same if there is no other signer.
        certificate_lifetime: The longest lifetime of a serving certificate, plus the time that a
            replica may lag behind.
    """

    renew_at: float
    propagation: timedelta
    urgent_propagation: timedelta
    certificate_lifetime: timedelta


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the cluster that a decision depends on.

    Attributes:
        now: The time, with a time zone.
        published_since: The time since which the CA bundle of every webhook configuration holds all
            trusted certificates; None if one does not. No earlier than this process first observed
            it, so that a new leader waits again.
        published: The certificates in those CA bundles, in case the stored bundle is lost.
        rotation_requested: True if an administrator has requested a new authority.
        serving_authority: The authority of the serving certificate in use; None if it is not known.
    """

    now: datetime
    published_since: datetime | None = None
    published: tuple[x509.Certificate, ...] = ()
    rotation_requested: bool = False
    serving_authority: x509.Certificate | None = None

    @property
    def needed(self) -> tuple[x509.Certificate, ...]:
        """The authority of the serving certificate, if API servers trust it already."""
        authority = self.serving_authority
        return () if authority is None or authority not in self.published else (authority,)


class Action(StrEnum):
    """The next step of a rotation."""

    CREATE = "create"
    REPAIR = "repair"
    PUBLISH = "publish"
    SWITCH = "switch"
    DROP = "drop"
    DEMOTE = "demote"
    FORGET = "forget"


def next_action(
    authorities: Authorities, observation: Observation, timing: Timing
) -> Action | None:
    """Return the action of the first decision that has one; None if nothing is due."""
    actions = (decide(authorities, observation, timing) for decide in DECISIONS)
    return next((action for action in actions if action is not None), None)


def rotate(
    authorities: Authorities,
    observe: Callable[[Authorities], Observation],
    timing: Timing,
    create_authority: Callable[[], Authority],
) -> tuple[Authorities, tuple[Action, ...]]:
    """Take the actions that are due, and return the authorities after them.

    Args:
        authorities: The stored state.
        observe: Returns the state of the cluster as of authorities.
        timing: The durations of a rotation.
        create_authority: Creates a new authority.

    Raises:
        CertificateError: The actions do not come to an end, so the observations contradict each other.
    """
    actions: list[Action] = []
    while len(actions) < MAX_ACTIONS:
        observation = observe(authorities)
        action = next_action(authorities, observation, timing)
        if action is None:
            return authorities, tuple(actions)
        authorities = apply_action(action, authorities, observation, create_authority)
        actions.append(action)
    raise CertificateError(f"the rotation does not come to an end: {', '.join(actions)}")


def apply_action(
    action: Action,
    authorities: Authorities,
    observation: Observation,
    create_authority: Callable[[], Authority],
) -> Authorities:
    """Return the authorities after an action.

    Args:
        action: The result of `next_action` for the same authorities and observation.
        authorities: The current state.
        observation: The state of the cluster.
        create_authority: Creates a new authority.
    """
    now = observation.now
    match action:
        case Action.CREATE:
            still_trusted = authorities.trusted or _valid(observation.published, now)
            new_authority = create_authority()
            trusted_certificates = (*still_trusted, new_authority.certificate)
            if still_trusted:  # Serving certificates of a lost signer are still in use.
                return Authorities(successor=new_authority, trusted=trusted_certificates)
            return Authorities(
                signer=new_authority, trusted=trusted_certificates, signing_since=now
            )
        case Action.REPAIR:
            still_trusted = authorities.trusted or _valid(observation.published, now)
            needed = _valid(observation.needed, now)
            trusted_certificates = tuple(
                dict.fromkeys((*needed, *still_trusted, *_signing_certificates(authorities)))
            )
            # A serving certificate of another authority is in use as of now.
            is_dated = authorities.signing_since is not None and set(needed) <= set(still_trusted)
            since = authorities.signing_since if is_dated else now
            since = None if authorities.signer is None else since
            return msgspec.structs.replace(
                authorities, trusted=trusted_certificates, signing_since=since
            )
        case Action.PUBLISH:
            new_authority = create_authority()
            trusted_certificates = (*authorities.trusted, new_authority.certificate)
            return msgspec.structs.replace(
                authorities, successor=new_authority, trusted=trusted_certificates
            )
        case Action.SWITCH:
            return Authorities(
                signer=authorities.successor, trusted=authorities.trusted, signing_since=now
            )
        case Action.DROP:
            return msgspec.structs.replace(authorities, trusted=_signing_certificates(authorities))
        case Action.DEMOTE:
            return Authorities(successor=authorities.signer, trusted=authorities.trusted)
        case Action.FORGET:
            signer = _if_valid(authorities.signer, now)
            return Authorities(
                signer=signer,
                successor=_if_valid(authorities.successor, now),
                trusted=_valid(authorities.trusted, now),
                signing_since=authorities.signing_since if signer is not None else None,
            )


# --- decisions ------------------------------------------------------------------------------------


def _forget_invalid(
    authorities: Authorities, observation: Observation, _timing: Timing
) -> Action | None:
    """Remove certificates and authorities that have expired or are not valid yet."""
    certificates = (*authorities.trusted, *_signing_certificates(authorities))
    valid = _valid(certificates, observation.now)
    return Action.FORGET if len(valid) < len(certificates) else None


def _create_first(
    authorities: Authorities, _observation: Observation, _timing: Timing
) -> Action | None:
    """Create an authority if there is none; without a signer no replica can start."""
    is_missing = authorities.signer is None and authorities.successor is None
    return Action.CREATE if is_missing else None


def _demote_unknown_signer(
    authorities: Authorities, observation: Observation, _timing: Timing
) -> Action | None:
    """Let no signer sign that API servers do not know while they believe another's certificate."""
    if authorities.signer is None or authorities.signer.certificate in observation.published:
        return None
    return Action.DEMOTE if _valid(observation.needed, observation.now) else None


def _repair_bundle(
    authorities: Authorities, observation: Observation, _timing: Timing
) -> Action | None:
    """Trust each signer and the serving certificate's issuer; record when the signer began."""
    needed = _valid(observation.needed, observation.now)
    is_complete = {*_signing_certificates(authorities), *needed} <= set(authorities.trusted)
    is_dated = authorities.signer is None or authorities.signing_since is not None
    return None if is_complete and is_dated else Action.REPAIR


def _switch_signer(
    authorities: Authorities, observation: Observation, timing: Timing
) -> Action | None:
    """Let a successor sign once API servers have had time to receive the CA bundle."""
    if authorities.successor is None or observation.published_since is None:
        return None
    wait = timing.propagation if authorities.signer else timing.urgent_propagation
    return Action.SWITCH if observation.now >= observation.published_since + wait else None


def _publish_successor(
    authorities: Authorities, observation: Observation, timing: Timing
) -> Action | None:
    """Create a successor when the signer is due for renewal or a rotation is requested."""
    signer = authorities.signer
    if signer is None or authorities.successor is not None:
        return None
    begin = signer.certificate.not_valid_before_utc + BACKDATED
    renewal = begin + (signer.not_after - begin) * timing.renew_at
    is_due = observation.rotation_requested or observation.now >= renewal
    return Action.PUBLISH if is_due else None


def _drop_superseded(
    authorities: Authorities, observation: Observation, timing: Timing
) -> Action | None:
    """Drop an authority once every serving certificate that it may have signed has expired."""
    if authorities.successor is not None or authorities.signing_since is None:
        return None
    is_over = observation.now >= authorities.signing_since + timing.certificate_lifetime
    has_superseded = len(authorities.trusted) > len(_signing_certificates(authorities))
    return Action.DROP if is_over and has_superseded else None


Decision = Callable[[Authorities, Observation, Timing], Action | None]
DECISIONS: Final[Sequence[Decision]] = (
    _forget_invalid,
    _create_first,
    _demote_unknown_signer,
    _repair_bundle,
    _switch_signer,
    _publish_successor,
    _drop_superseded,
)
"""The decisions in order of precedence."""


def _signing_certificates(authorities: Authorities) -> tuple[x509.Certificate, ...]:
    """Return the certificates of the signer and the successor."""
    signers = (authorities.signer, authorities.successor)
    return tuple(signer.certificate for signer in signers if signer is not None)


def _if_valid(authority: Authority | None, now: datetime) -> Authority | None:
    return authority if authority is not None and _valid([authority.certificate], now) else None


def _valid(certificates: Iterable[x509.Certificate], now: datetime) -> tuple[x509.Certificate, ...]:
    return tuple(
        certificate
        for certificate in certificates
        if certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
    )


# --- stored form ----------------------------------------------------------------------------------


def encode_authorities(authorities: Authorities) -> Mapping[str, bytes]:
    """Return the values to store, by key; absent parts have no key."""
    values = {BUNDLE: authorities.ca_bundle}
    for (certificate_key, private_key), authority in (
        (SIGNER, authorities.signer),
        (SUCCESSOR, authorities.successor),
    ):
        if authority is not None:
            values |= {certificate_key: authority.certificate_pem, private_key: authority.key_pem}
    if authorities.signing_since is not None:
        values[SIGNING_SINCE] = authorities.signing_since.isoformat().encode()
    return values


def decode_authorities(values: Mapping[str, bytes]) -> tuple[Authorities, tuple[str, ...]]:
    """Return the authorities that stored values hold, and the errors in unreadable ones."""
    errors: list[str] = []
    authorities = Authorities(
        signer=_decode_authority(values, SIGNER, errors),
        successor=_decode_authority(values, SUCCESSOR, errors),
        trusted=_decode_bundle(values, errors),
        signing_since=_decode_time(values, errors),
    )
    return authorities, tuple(errors)


def parse_certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a PEM text without duplicates.

    Raises:
        CertificateError: The text holds no certificate, or something else.
    """
    try:
        return tuple(dict.fromkeys(x509.load_pem_x509_certificates(pem)))
    except ValueError as error:
        raise CertificateError(f"not certificates: {error}") from error


def _decode_authority(
    values: Mapping[str, bytes], keys: tuple[str, str], errors: list[str]
) -> Authority | None:
    certificate, private_key = (values.get(key, b"") for key in keys)
    if not certificate and not private_key:
        return None
    try:
        return Authority.read(certificate, private_key)
    except CertificateError as error:
        errors.append(f"{' and '.join(keys)}: {error}")
        return None


def _decode_bundle(values: Mapping[str, bytes], errors: list[str]) -> tuple[x509.Certificate, ...]:
    if not values.get(BUNDLE):
        return ()
    try:
        return parse_certificates(values[BUNDLE])
    except CertificateError as error:
        errors.append(f"{BUNDLE}: {error}")
        return ()


def _decode_time(values: Mapping[str, bytes], errors: list[str]) -> datetime | None:
    if SIGNING_SINCE not in values:
        return None
    try:
        since = datetime.fromisoformat(values[SIGNING_SINCE].decode())
    except ValueError as error:
        errors.append(f"{SIGNING_SINCE}: {error}")
        return None
    if since.tzinfo is None:
        errors.append(f"{SIGNING_SINCE}: no time zone")
        return None
    return since
