"""The lines of a recording: a header, then changes of objects and marks, each one JSON document. Pure.

    {"apiVersion":"cli.drawbridge.internal/v1","kind":"Recording","startedAt":"...",...}
    {"at":0.2,"object":{"apiVersion":"v1","kind":"Node","name":"node-a"},"set":{"metadata":{...},...}}
    {"at":0.9,"mark":"state"}
    {"at":14.031,"object":{...,"kind":"Pod","name":"train","namespace":"team"},"set":{"spec":{...}}}
    {"at":70.4,"mark":"gap","since":41.0,"resource":"pods"}
    {"at":86400.0,"mark":"end"}

Changes before the mark `state` make the first state. A file that ends within a line, as that of a recorder that
was killed, is whole up to there.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from answers.model.kinds import API_VERSION
from answers.recording.delta import Delta, ObjectKey
from findings.text import quote_text
from kube.errors import ObjectFileError
from kube.manifests.source import raise_at
from kube.manifests.views import RECORDING

MAX_LINE: Final = 8 * 2**20
"""Bytes of a line; the API server accepts objects of 3 MiB at most."""
MAX_LINES: Final = 50_000_000
MAX_SECONDS: Final = 10.0**9
"""Thirty years."""
_MAX_NAME: Final = 253
"""Characters of a name or a namespace, as the API server accepts them."""


class Mark(StrEnum):
    """The mark of a line without an object."""

    STATE = "state"
    """The first state is complete."""
    GAP = "gap"
    """The API server was not followed for a while."""
    END = "end"
    """The recording was ended."""
    DECISIONS = "decisions"
    """Decisions of the bridge were read."""


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The first line of a recording.

    Attributes:
        started_at: The time of second 0 in RFC 3339.
        kubernetes_version: The version of the API server.
        server: The address of the API server.
        context: The kubeconfig's context; empty where it has none.
        unreadable: Resources that could not be read.
    """

    api_version: str = API_VERSION
    kind: str = RECORDING
    started_at: str = ""
    kubernetes_version: str = ""
    server: str = ""
    context: str = ""
    unreadable: tuple[str, ...] = ()


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an object.

    Attributes:
        at: The second, counted from the beginning of the recording.
        delta: The change.
        line: The line of the file; 0 where it comes from none.
    """

    at: float
    delta: Delta
    line: int = 0


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A time without following a resource; its changes have the second of their discovery.

    Attributes:
        at: The second in which it ended.
        since: The second of the last contact before it.
        resource: The plural of the resource, such as `pods`.
    """

    at: float
    since: float
    resource: str


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The completion of the first state, or the end of the recording.

    Attributes:
        at: The second.
        mark: STATE or END.
    """

    at: float
    mark: Mark


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions of the bridge, as its sidecar logged them.

    Attributes:
        at: The second in which they were read.
        view: The fields of the sidecar's answer.
        line: The line of the file; 0 where it comes from none.
    """

    at: float
    view: Mapping[str, msgspec.Raw]
    line: int = 0


Entry = Change | Gap | Moment | Decisions


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line behind the header: the change of an object, or a mark.

    Attributes:
        at: Seconds since the recording began, never less than in the line before.
        object: The object that changed.
        set: Its fields with their new values; of a new object all.
        unset: Fields that it has no more.
        deleted: It is gone.
        mark: `state`: the first state is complete. `gap`: a resource was not followed. `end`: the recording was ended.
            `decisions`: decisions of the bridge.
        since: The second in which a gap began.
        resource: The plural of the resource that was not followed.
        decisions: The fields of the sidecar's answer that decisions were read from.
    """

    at: float
    object: ObjectKey | None = None
    set: dict[str, msgspec.Raw] = {}
    unset: tuple[str, ...] = ()
    deleted: bool = False
    mark: Mark | None = None
    since: float | None = None
    resource: str = ""
    decisions: dict[str, msgspec.Raw] = {}


_DECODER: Final = msgspec.json.Decoder(Line)
_HEADER: Final = msgspec.json.Decoder(Header)


class Torn(ObjectFileError):
    """A file that ends within a line."""


def encode_header(header: Header) -> bytes:
    """Return the first line."""
    return msgspec.json.encode(header) + b"\n"


def encode_entry(entry: Entry) -> bytes:
    """Return a line."""
    return msgspec.json.encode(_line_of(entry, round(entry.at, 3))) + b"\n"


def _line_of(entry: Entry, at: float) -> Line:
    match entry:
        case Change(delta=delta):
            return Line(
                at=at,
                object=delta.object,
                set=dict(delta.set),
                unset=delta.unset,
                deleted=delta.deleted,
            )
        case Gap():
            since = round(entry.since, 3)
            return Line(at=at, mark=Mark.GAP, since=since, resource=entry.resource)
        case Moment():
            return Line(at=at, mark=entry.mark)
        case Decisions():
            return Line(at=at, mark=Mark.DECISIONS, decisions=dict(entry.view))


def decode_header(line: bytes, source: str) -> Header:
    """Return the header of a recording.

    Raises:
        ObjectFileError: It is none.
    """
    try:
        header = _HEADER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise_at(source, 1, f"not the first line of a recording: {_reason(error)}")
    if (header.api_version, header.kind) != (API_VERSION, RECORDING):
        type_name = quote_text(f"{header.api_version} {header.kind}")
        raise_at(source, 1, f"not a recording: {type_name} instead of {API_VERSION} {RECORDING}")
    return header


def decode_entries(lines: Iterable[bytes], source: str) -> Iterator[Entry]:
    """Yield the entries of the lines behind the header; values of fields are `msgspec.Raw`.

    Args:
        lines: The lines with their ends.
        source: The name of the file, for messages.

    Raises:
        Torn: The last line has no end; all entries before it were yielded.
        ObjectFileError: A line is not what a recorder writes. The message begins with `source:line:`.
    """
    before = 0.0
    for number, line in enumerate(lines, start=2):
        if not line.endswith(b"\n"):
            raise Torn(f"{source}:{number}: the file ends within a line")
        if number > MAX_LINES:
            raise_at(source, number, f"more than {MAX_LINES} lines")
        entry = _decode(line, source, number)
        if entry.at < before:
            raise_at(source, number, f"second {entry.at:g} stands behind second {before:g}")
        before = entry.at
        yield entry


def _decode(line: bytes, source: str, number: int) -> Entry:
    try:
        decoded = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise_at(source, number, f"not a line of a recording: {_reason(error)}")
    at = _second(decoded.at, "at", source, number)
    if decoded.mark is Mark.GAP:
        since = _second(decoded.since or 0.0, "since", source, number)
        return Gap(at=at, since=min(since, at), resource=decoded.resource)
    if decoded.mark is Mark.DECISIONS:
        return Decisions(at=at, view=decoded.decisions, line=number)
    if decoded.mark is not None:
        return Moment(at=at, mark=decoded.mark)
    key = decoded.object
    if key is None:
        raise_at(source, number, "neither an object nor a mark")
    if not (key.name and key.kind and key.api_version):
        raise_at(source, number, "the object lacks apiVersion, kind or name")
    if max(len(key.name), len(key.namespace), len(key.kind), len(key.api_version)) > _MAX_NAME:
        raise_at(source, number, f"the object has a name of more than {_MAX_NAME} characters")
    delta = Delta(object=key, set=decoded.set, unset=decoded.unset, deleted=decoded.deleted)
    return Change(at=at, delta=delta, line=number)


def _second(value: float, field: str, source: str, number: int) -> float:
    # JSON has no NaN, and 1e999 is infinite.
    if not math.isfinite(value) or not 0 <= value <= MAX_SECONDS:
        raise_at(source, number, f"{field}: {value:g} is no second from 0 to {MAX_SECONDS:.0f}")
    return value


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
