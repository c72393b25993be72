"""The content of a checkpoint, and checkpoints that are not to be relied on."""

import hashlib
import json

import msgspec
import pytest

from driver.model.record import State
from driver.plan.checkpoint import (
    VERSION,
    Checkpoint,
    Unreadable,
    decode_checkpoint,
    encode_checkpoint,
)
from testing.allocation.builders import result
from testing.driver.builders import (
    BOOT,
    allocated_claim,
    configured_configuration,
    prepared_checkpoint,
    share,
    shared_gpu,
)

CHECKPOINT = prepared_checkpoint(
    allocated_claim(
        share("gpu-0"), config=[configured_configuration(sharing={"timeSlice": "Long"})]
    ),
    allocated_claim(result("gpu-1", admin_access=True), name="other", namespace="elsewhere"),
    devices=[shared_gpu("gpu-0"), shared_gpu("gpu-1")],
)


def of_version(version: int, body: bytes | None = None) -> bytes:
    """A checkpoint as another version of the driver would write it."""
    text = encode_checkpoint(CHECKPOINT).split(b"\n")[1] if body is None else body
    head = {"kind": "DriverCheckpoint", "version": version}
    digest = hashlib.sha256(text).hexdigest()
    return json.dumps({**head, "sha256": digest}).encode() + b"\n" + text + b"\n"


def test_everything_comes_back() -> None:
    assert CHECKPOINT == decode_checkpoint(encode_checkpoint(CHECKPOINT))


def test_nothing_comes_back() -> None:
    empty = Checkpoint(boot_id=BOOT)

    assert empty == decode_checkpoint(encode_checkpoint(empty))


@pytest.mark.parametrize("uid", ["", "../../../etc/cron.d/x", "another-claim", "a\0b"])
def test_uids_that_no_claim_has_are_not_relied_on(uid: str) -> None:
    """They become names of files."""
    (record, *_) = CHECKPOINT.claims.values()
    for claims in ({uid: record}, {uid: msgspec.structs.replace(record, uid=uid)}):
        if uid == "another-claim" == claims[uid].uid:
            continue
        text = encode_checkpoint(Checkpoint(boot_id=BOOT, claims=claims))

        assert isinstance(decode_checkpoint(text), Unreadable)


@pytest.mark.parametrize("depth", [500, 5_000, 500_000])
@pytest.mark.parametrize(
    "around",
    [b"%b", b'{"bootID":%b}', b'{"bootID":"boot-1","claims":%b}', b'{"bootID":"b","unknown":%b}'],
)
def test_depth_is_no_way_out_of_the_parser(around: bytes, depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    body = around % deep

    assert isinstance(decode_checkpoint(body + b"\n" + body + b"\n"), Unreadable)
    content = decode_checkpoint(of_version(VERSION, body))
    assert isinstance(content, Unreadable | Checkpoint)


def test_a_person_can_read_it() -> None:
    _, body, _ = encode_checkpoint(CHECKPOINT).split(b"\n")
    record = json.loads(body)["claims"]["uid-of-default-claim-0"]

    assert "Completed" == record["state"]
    assert "10Gi" == record["results"][0]["consumedCapacity"]["memory"]


@pytest.mark.parametrize("version", [VERSION - 1, VERSION, VERSION + 1])
def test_neighbouring_versions_are_read(version: int) -> None:
    assert CHECKPOINT == decode_checkpoint(of_version(version))


def test_fields_of_the_next_version_are_passed_over() -> None:
    _, body, _ = encode_checkpoint(CHECKPOINT).split(b"\n")
    document = json.loads(body)
    document["pods"] = {"new": True}
    document["claims"]["uid-of-default-claim-0"]["cgroup"] = "/new"

    checkpoint = decode_checkpoint(of_version(VERSION + 1, json.dumps(document).encode()))

    assert CHECKPOINT == checkpoint


def test_fields_that_the_version_before_did_not_have_are_not_needed() -> None:
    claims = {"1": {"uid": "1", "namespace": "default", "name": "claim"}}
    body = json.dumps({"bootId": BOOT, "claims": claims}).encode()

    checkpoint = decode_checkpoint(of_version(VERSION - 1, body))

    assert isinstance(checkpoint, Checkpoint)
    assert State.STARTED is checkpoint.claims["1"].state


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "its first line"),
        (b"\0" * 4096, "its first line"),
        (of_version(VERSION + 2), f"of version {VERSION + 2}; this driver reads 0 to 2"),
        (encode_checkpoint(CHECKPOINT)[:-40], "checksum"),
        (encode_checkpoint(CHECKPOINT).replace(b"gpu-0", b"gpu-1"), "checksum"),
        (encode_checkpoint(CHECKPOINT).replace(b"DriverCheckpoint", b"Other"), "a 'Other'"),
        (of_version(VERSION, b"[]"), "does not say"),
        (of_version(VERSION, b'{"bootId": "1", "claims": {"1": {"uid": 5}}}'), "does not say"),
    ],
    ids=[
        "empty",
        "zeroes",
        "two versions later",
        "cut off",
        "changed",
        "another kind",
        "a list",
        "a wrong type",
    ],
)
def test_what_cannot_be_relied_on(text: bytes, words: str) -> None:
    checkpoint = decode_checkpoint(text)

    assert isinstance(checkpoint, Unreadable)
    assert words in checkpoint.why
