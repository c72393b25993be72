"""The signature of a translated pod: proof that the webhook has checked its record's claims. Pure.

Anybody who may create pods can write a translation record, also where the webhook is not called. So
templates are created only for pods that carry a keyed hash (HMAC, RFC 2104, with SHA-256) of what the
webhook accepted:

    version, time of signing, namespace, text of the record, names of the claims and their templates

A signature is of no use in another namespace, for another record, or for a pod with other claims. The
pod's uid is not known at admission, so a pod of the same content can carry it, too; it is void for
pods that were created more than a day before or after it.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import msgspec

VERSION: Final = "v1"
MAX_AGE: Final = timedelta(days=1)
"""The longest time between signing and the pod's creation, by two clocks; a later copy is
invalid."""
FRESH_FOR: Final = timedelta(hours=1)
"""A younger signature need not be replaced when the same pod is reviewed again."""
MAX_NAME: Final = 253
"""The maximum length of a claim's or template's name; the API server rejects pods with longer
ones."""
SECRET_BYTES: Final = 32
MAX_KEYS: Final = 64
"""The largest number of keys that a Secret holds, regardless of the settings."""

_SIGNATURE: Final = re.compile(r"v1\.([0-9a-f]{8})\.([0-9]{1,11})\.([A-Za-z0-9_-]{43})")


class SigningKeysError(ValueError):
    """Text that does not hold signing keys; the message has the reason."""


class SigningKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of signatures.

    Attributes:
        id: Eight hexadecimal digits, in every signature of the key.
        created: The time of creation, with a time zone.
        secret: 32 random bytes.
    """

    id: str
    created: datetime
    secret: bytes

    def __repr__(self) -> str:
        """Return everything but the secret; that must not reach a log."""
        return f"SigningKey(id={self.id!r}, created={self.created.isoformat()})"


Keys = Sequence[SigningKey]
"""The keys from oldest to newest."""


class SignedContent(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a pod that a signature covers.

    Attributes:
        record: The text of the translation record.
        templates: Name of a claim in the pod to the template that it is created from.
    """

    namespace: str
    record: str
    templates: Mapping[str, str]


class SignatureStatus(StrEnum):
    """The result of a verification; the value is a label of metrics."""

    VALID = "valid"
    MISSING = "missing"
    """There is none."""
    MALFORMED = "malformed"
    """The text is not a signature of this version."""
    UNKNOWN_KEY = "unknown_key"
    """Its key does not exist here, or no longer."""
    MISMATCH = "mismatch"
    """It is of another namespace, record or set of claims, or was invented."""
    EXPIRED = "expired"
    """It was made at another time than the pod."""


def content_of(document: Mapping[str, Any], *, namespace: str, record: str) -> SignedContent:
    """Return the content of a pod that is signed.

    Args:
        document: The pod as JSON, with the types of a pod.
        record: The text of its translation record.
    """
    entries = (document.get("spec") or {}).get("resourceClaims") or ()
    return SignedContent(
        namespace=namespace,
        record=record,
        templates={
            entry.get("name") or "": entry["resourceClaimTemplateName"]
            for entry in entries
            if entry.get("resourceClaimTemplateName")
        },
    )


def sign(content: SignedContent, key: SigningKey, now: datetime) -> str | None:
    """Return the signature; None for content that the API server will reject.

    Args:
        now: The present time, with a time zone; kept in whole seconds.
    """
    if any(len(name) > MAX_NAME for pair in content.templates.items() for name in pair):
        return None
    time_s = int(now.timestamp())
    return f"{VERSION}.{key.id}.{time_s}.{_mac(content, key, time_s)}"


def verify(
    signature: str | None, content: SignedContent, keys: Keys, creation_time: datetime
) -> SignatureStatus:
    """Check that a signature proves that the webhook accepted this content.

    Args:
        signature: Untrusted text; None for none.
        keys: All keys that may have signed.
        creation_time: The time at which the API server created the pod.
    """
    if signature is None:
        return SignatureStatus.MISSING
    parts = _SIGNATURE.fullmatch(signature)
    if parts is None:
        return SignatureStatus.MALFORMED
    key_id, time_text, mac = parts.groups()
    key = next((key for key in keys if key.id == key_id), None)
    if key is None:
        return SignatureStatus.UNKNOWN_KEY
    time_s = int(time_text)
    if not hmac.compare_digest(_mac(content, key, time_s), mac):
        return SignatureStatus.MISMATCH
    is_near = abs(creation_time.timestamp() - time_s) <= MAX_AGE.total_seconds()
    return SignatureStatus.VALID if is_near else SignatureStatus.EXPIRED


def is_fresh(signature: str | None, content: SignedContent, keys: Keys, now: datetime) -> bool:
    """Return True if a signature is valid and was made within the last hour."""
    if signature is None or verify(signature, content, keys, now) is not SignatureStatus.VALID:
        return False
    time_s = int(signature.split(".")[2])
    return abs(now.timestamp() - time_s) <= FRESH_FOR.total_seconds()


def _mac(content: SignedContent, key: SigningKey, time_s: int) -> str:
    # JSON of a list of texts is unambiguous: no two contents have the same bytes.
    signed_bytes = msgspec.json.encode(
        (
            VERSION,
            time_s,
            content.namespace,
            content.record,
            sorted(content.templates.items()),
        )
    )
    keyed_hash = _keyed_hash(key.secret).copy()
    keyed_hash.update(signed_bytes)
    digest = keyed_hash.digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@lru_cache(maxsize=MAX_KEYS)
def _keyed_hash(secret: bytes) -> hmac.HMAC:
    """Return the keyed hash of nothing yet; a copy of it saves most of the work of a short message."""
    return hmac.new(secret, digestmod=hashlib.sha256)


# --- keys -----------------------------------------------------------------------------------------


class KeyTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of a rotation of signing keys.

    Attributes:
        renew_after: The age at which the newest key gets a successor.
        propagation: The time for which verifiers know a key before it signs.
        max_keys: The number of keys that are kept. One more stays while a pod that was signed with
            it can still be created; those beyond `MAX_KEYS` never do.
    """

    renew_after: timedelta
    propagation: timedelta
    max_keys: int


def signing_key(keys: Keys, now: datetime, propagation: timedelta) -> SigningKey | None:
    """Return the key that signs now: the newest that is known everywhere; None without keys."""
    known_keys = [key for key in keys if key.created + propagation <= now]
    return known_keys[-1] if known_keys else next(iter(keys), None)


def rotate_keys(
    keys: Keys,
    now: datetime,
    timing: KeyTiming,
    create: Callable[[datetime], SigningKey],
    *,
    requested: bool = False,
) -> Keys:
    """Return the keys after the step that is due; the same object if none is.

    Args:
        create: Creates a key with the given time of creation.
        requested: An administrator has requested a new key.
    """
    # A key of the future, made by a clock that was wrong, does not put off the next one.
    ages = [abs(now - key.created) for key in keys]
    if keys and not requested and min(ages) < timing.renew_after:
        return keys
    kept_keys = (*keys, create(now))[-MAX_KEYS:]
    last_use = timing.propagation + MAX_AGE
    while len(kept_keys) > timing.max_keys and kept_keys[1].created + last_use <= now:
        kept_keys = kept_keys[1:]
    return kept_keys


class _StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    created: datetime
    secret: bytes


class _StoredKeys(msgspec.Struct, frozen=True, kw_only=True):
    keys: tuple[_StoredKey, ...]


def encode_keys(keys: Iterable[SigningKey]) -> bytes:
    """Return the stored form of keys, JSON."""
    stored_keys = (
        _StoredKey(id=key.id, created=key.created.astimezone(UTC), secret=key.secret)
        for key in keys
    )
    return msgspec.json.encode(_StoredKeys(keys=tuple(stored_keys)))


def decode_keys(text: bytes) -> Keys:
    """Return the keys of a stored form.

    Raises:
        SigningKeysError: It is not what `encode_keys` returns.
    """
    try:
        keys = msgspec.json.decode(text, type=_StoredKeys).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise SigningKeysError("not signing keys") from fault
    if len(keys) > MAX_KEYS:
        raise SigningKeysError(f"{len(keys)} signing keys, at most {MAX_KEYS}")
    for key in keys:
        if len(key.secret) < SECRET_BYTES or key.created.tzinfo is None:
            raise SigningKeysError("a signing key is too short, or its time has no time zone")
        if re.fullmatch(r"[0-9a-f]{8}", key.id) is None:
            raise SigningKeysError("the id of a signing key is not eight hexadecimal digits")
    return tuple(SigningKey(id=key.id, created=key.created, secret=key.secret) for key in keys)
