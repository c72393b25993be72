"""The signature of a translated pod: its coverage, and the life of its keys."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from translation.record.signature import (
    FRESH_FOR,
    MAX_AGE,
    MAX_KEYS,
    Keys,
    KeyTiming,
    SignatureStatus,
    SignedContent,
    SigningKey,
    SigningKeysError,
    content_of,
    decode_keys,
    encode_keys,
    is_fresh,
    rotate_keys,
    sign,
    signing_key,
    verify,
)

NOW = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
DAY = timedelta(days=1)
OLD = SigningKey(id="00000001", created=NOW - 90 * DAY, secret=b"a" * 32)
NEW = SigningKey(id="00000002", created=NOW - 2 * DAY, secret=b"b" * 32)
KEYS = (OLD, NEW)
CONTENT = SignedContent(namespace="team-a", record='{"a":1}', templates={"gpu": "nvidia-gpu-1"})
SIGNATURE = sign(CONTENT, NEW, NOW) or ""


def changed(**fields: Any) -> SignedContent:
    return msgspec.structs.replace(CONTENT, **fields)


class Case(NamedTuple):
    name: str
    want: SignatureStatus
    signature: str | None = SIGNATURE
    content: SignedContent = CONTENT
    keys: Keys = KEYS
    created: datetime = NOW


VERSION, ID, TIME, MAC = SIGNATURE.split(".")
CASES = (
    Case("as it was signed", SignatureStatus.VALID),
    Case("by an older key", SignatureStatus.VALID, sign(CONTENT, OLD, NOW)),
    Case("a pod that is created a little later", SignatureStatus.VALID, created=NOW + MAX_AGE),
    Case("none", SignatureStatus.MISSING, None),
    Case("empty", SignatureStatus.MALFORMED, ""),
    Case("of another version", SignatureStatus.MALFORMED, f"v2.{ID}.{TIME}.{MAC}"),
    Case("with a line break", SignatureStatus.MALFORMED, SIGNATURE + "\n"),
    Case("megabytes", SignatureStatus.MALFORMED, SIGNATURE * 100_000),
    Case("digits of other scripts", SignatureStatus.MALFORMED, f"v1.{ID}.١٢٣.{MAC}"),
    Case("by a key that is gone", SignatureStatus.UNKNOWN_KEY, keys=(OLD,)),
    Case("without keys", SignatureStatus.UNKNOWN_KEY, keys=()),
    Case(
        "by another key of the id",
        SignatureStatus.MISMATCH,
        keys=(msgspec.structs.replace(NEW, secret=b"c" * 32),),
    ),
    Case("invented", SignatureStatus.MISMATCH, f"v1.{ID}.{TIME}.{'A' * 43}"),
    Case("of another time", SignatureStatus.MISMATCH, f"v1.{ID}.{int(TIME) + 1}.{MAC}"),
    Case("of another namespace", SignatureStatus.MISMATCH, content=changed(namespace="team-b")),
    Case("of another record", SignatureStatus.MISMATCH, content=changed(record='{"a":2}')),
    Case("of another template", SignatureStatus.MISMATCH, content=changed(templates={"gpu": "b"})),
    Case(
        "of a claim of another name",
        SignatureStatus.MISMATCH,
        content=changed(templates={"card": "nvidia-gpu-1"}),
    ),
    Case(
        "of fewer claims",
        SignatureStatus.MISMATCH,
        content=changed(templates={"gpu": "nvidia-gpu-1", "more": "nvidia-gpu-1"}),
    ),
    Case(
        "parts that move into each other",
        SignatureStatus.MISMATCH,
        content=changed(namespace='team-a","{', record='"a":1}'),
    ),
    Case("a copy of the next week", SignatureStatus.EXPIRED, created=NOW + 7 * DAY),
    Case("a pod of the last week", SignatureStatus.EXPIRED, created=NOW - 7 * DAY),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verify(case: Case) -> None:
    assert verify(case.signature, case.content, case.keys, case.created) is case.want


def test_a_signature_is_the_hmac_of_rfc_2104_over_json() -> None:
    signed = b'["v1",1795163400,"team-a","{\\"a\\":1}",[["gpu","nvidia-gpu-1"]]]'
    want = hmac.new(b"b" * 32, signed, hashlib.sha256).digest()

    assert f"v1.00000002.1795163400.{base64.urlsafe_b64encode(want).decode()[:-1]}" == SIGNATURE


def test_the_order_of_claims_does_not_matter() -> None:
    in_order, reversed_ = (
        changed(templates={"a": "x", "b": "y"}),
        changed(templates={"b": "y", "a": "x"}),
    )

    assert verify(sign(in_order, NEW, NOW), reversed_, KEYS, NOW) is SignatureStatus.VALID


def test_what_the_api_server_will_reject_is_not_signed() -> None:
    assert sign(changed(templates={"gpu": "x" * 254}), NEW, NOW) is None


def test_only_claims_from_templates_are_signed() -> None:
    entries = [
        {"name": "gpu", "resourceClaimTemplateName": "nvidia-gpu-1"},
        {"name": "nic", "resourceClaimName": "nic-1"},
        {"name": None, "resourceClaimTemplateName": "t"},
    ]
    pod = {"spec": {"resourceClaims": entries}}

    content = content_of(pod, namespace="team-a", record='{"a":1}')

    assert content == changed(templates={"gpu": "nvidia-gpu-1", "": "t"})


def test_a_signature_is_fresh_for_an_hour() -> None:
    assert is_fresh(SIGNATURE, CONTENT, KEYS, NOW + FRESH_FOR)
    assert not is_fresh(SIGNATURE, CONTENT, KEYS, NOW + FRESH_FOR + timedelta(seconds=1))
    assert not is_fresh(None, CONTENT, KEYS, NOW)
    assert not is_fresh(SIGNATURE, changed(namespace="team-b"), KEYS, NOW)


# --- keys -----------------------------------------------------------------------------------------

MINUTE = timedelta(minutes=1)
TIMING = KeyTiming(renew_after=90 * DAY, propagation=MINUTE, max_keys=2)


def create(now: datetime) -> SigningKey:
    return SigningKey(id="00000003", created=now, secret=b"c" * 32)


def test_a_new_key_signs_once_it_is_known_everywhere() -> None:
    keys = (OLD, create(NOW))

    assert signing_key(keys, NOW, MINUTE) == OLD
    assert signing_key(keys, NOW + MINUTE, MINUTE) == keys[-1]
    assert signing_key(keys[1:], NOW, MINUTE) == keys[-1]
    assert signing_key((), NOW, MINUTE) is None


class Rotation(NamedTuple):
    name: str
    keys: Keys
    want: Keys
    requested: bool = False


AHEAD = SigningKey(id="00000009", created=NOW + 400 * DAY, secret=b"d" * 32)
ROTATIONS = (
    Rotation("the first key", (), (create(NOW),)),
    Rotation("young enough", KEYS, KEYS),
    Rotation("old", (OLD,), (OLD, create(NOW))),
    Rotation("requested", (NEW,), (NEW, create(NOW)), requested=True),
    Rotation("the oldest of too many goes", KEYS, (NEW, create(NOW)), requested=True),
    Rotation("a key of a clock that was ahead", (AHEAD,), (AHEAD, create(NOW))),
)


@pytest.mark.parametrize("case", ROTATIONS, ids=lambda case: case.name)
def test_rotate_keys(case: Rotation) -> None:
    rotated = rotate_keys(case.keys, NOW, TIMING, create, requested=case.requested)

    assert tuple(rotated) == tuple(case.want)
    assert tuple(rotate_keys(rotated, NOW, TIMING, create)) == tuple(rotated)


def test_hurried_rotations_withdraw_no_key_of_a_pod_that_may_still_be_created() -> None:
    keys: Keys = KEYS
    for number in range(10):
        keys = rotate_keys(keys, NOW + number * MINUTE, TIMING, create, requested=True)
    # Ten more than may be kept; only those go that signed nothing for a day.
    assert [key.created for key in keys] == [NEW.created, *(NOW + n * MINUTE for n in range(10))]
    assert verify(SIGNATURE, CONTENT, keys, NOW) is SignatureStatus.VALID

    later = rotate_keys(keys, NOW + 2 * DAY, TIMING, create, requested=True)
    assert [key.created for key in later] == [NOW + 9 * MINUTE, NOW + 2 * DAY]


def test_however_often_and_however_many_no_more_keys_are_kept_than_are_read() -> None:
    generous = msgspec.structs.replace(TIMING, max_keys=1000)
    keys: Keys = ()
    for number in range(MAX_KEYS + 10):
        keys = rotate_keys(keys, NOW + number * MINUTE, generous, create, requested=True)

    assert len(decode_keys(encode_keys(keys))) == MAX_KEYS
    assert keys[-1].created == NOW + (MAX_KEYS + 9) * MINUTE


def test_keys_survive_being_stored() -> None:
    assert decode_keys(encode_keys(KEYS)) == KEYS


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 5000,
        encode_keys([msgspec.structs.replace(NEW, id="../../etc")]),
        encode_keys([msgspec.structs.replace(NEW, secret=b"short")]),
        encode_keys([NEW] * 65),
        b'{"keys": [{"id": "00000002", "created": "2026-11-20T08:30:00", "secret": "'
        + base64.b64encode(b"b" * 32)
        + b'"}]}',
    ],
    ids=["nothing", "a list", "no text", "depth", "an id", "a short key", "many", "no time zone"],
)
def test_damaged_keys_are_refused(stored: bytes) -> None:
    with pytest.raises(SigningKeysError) as refused:
        decode_keys(stored)

    assert "short" not in str(refused.value) or "too short" in str(refused.value)


def test_a_key_does_not_show_its_secret() -> None:
    assert "bbbb" not in repr(NEW)
    assert "bbbb" not in repr(KEYS)
