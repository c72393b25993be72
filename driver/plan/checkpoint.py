"""The checkpoint: the claims that are prepared on this node, as a file lists them.

The file is a line about the rest, then the rest: a version, and a checksum of what follows. A version
reads files of the one before and the one after it, so that a driver can be upgraded and rolled back with
claims prepared: what a version adds has a default, and what it no longer needs it still writes once.

A reboot ends all containers. So claims of another boot are not prepared any more, and their uids are all
that is of interest.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from driver.model.names import is_uid
from driver.model.record import Record
from kube.api.meta import ApiStruct, decode, encode

VERSION: Final = 1
READABLE: Final = range(VERSION - 1, VERSION + 2)
KIND: Final = "DriverCheckpoint"
MAX_BYTES: Final = 64 * 2**20
"""The size of a checkpoint's file, at most; 8,192 prepared devices take about a tenth."""


class Checkpoint(ApiStruct, frozen=True, kw_only=True):
    """All claims of a node.

    Attributes:
        boot_id: The ID of the boot during which the claims were prepared.
        claims: The prepared claims by UID.
    """

    boot_id: str
    claims: Mapping[str, Record] = {}

    def with_record(self, record: Record) -> "Checkpoint":
        """Return the checkpoint with a claim added or replaced."""
        return msgspec.structs.replace(self, claims={**self.claims, record.uid: record})

    def without(self, uid: str) -> "Checkpoint":
        """Return the checkpoint without a claim."""
        rest = {key: record for key, record in self.claims.items() if key != uid}
        return msgspec.structs.replace(self, claims=rest)


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A file that does not tell the prepared claims.

    Attributes:
        why: The reason, for people.
    """

    why: str


class _Head(ApiStruct, frozen=True, kw_only=True):
    kind: str
    version: int
    sha256: str


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the content of a checkpoint's file."""
    body = encode(checkpoint)
    head = _Head(kind=KIND, version=VERSION, sha256=hashlib.sha256(body).hexdigest())
    return encode(head) + b"\n" + body + b"\n"


def decode_checkpoint(text: bytes) -> Checkpoint | Unreadable:
    """Return the checkpoint that a file holds, or the reason it cannot be relied on."""
    first, _, rest = text.partition(b"\n")
    body = rest.removesuffix(b"\n")
    try:
        head = decode(first, _Head)
    except (msgspec.DecodeError, RecursionError):
        return Unreadable(why="its first line is not that of a checkpoint")
    if head.kind != KIND:
        return Unreadable(why=f"it is a {head.kind[:40]!r}, not a {KIND}")
    if head.version not in READABLE:
        versions = f"{READABLE.start} to {READABLE.stop - 1}"
        return Unreadable(why=f"it is of version {head.version}; this driver reads {versions}")
    if head.sha256 != hashlib.sha256(body).hexdigest():
        return Unreadable(why="its checksum is wrong")
    try:
        checkpoint = decode(body, Checkpoint)
    except (msgspec.DecodeError, RecursionError) as error:
        return Unreadable(why=f"it does not say what a checkpoint says: {error}")
    for uid, record in checkpoint.claims.items():
        if uid != record.uid or not is_uid(uid):
            return Unreadable(why="a claim in it has a uid that is none, or two of them")
    return checkpoint
