"""Decode responses of the API server; error responses become exceptions."""

from collections.abc import AsyncGenerator, Mapping
from typing import Final, Generic, TypeVar

import aiohttp
import msgspec

from kube.api import meta
from kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NamespaceTerminating,
    NotFound,
    Throttled,
)

T = TypeVar("T")

MAX_LINE_BYTES: Final = 16 * 2**20
"""The largest watch event. etcd stores objects of up to 1.5 MiB; JSON may be several times larger."""


class Listing(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A list or a page of one, and the resourceVersion to start a watch from."""

    items: tuple[T, ...]
    resource_version: str


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object's bytes."""

    type: str
    object: msgspec.Raw


class _ListMeta(meta.ApiStruct, frozen=True, kw_only=True):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(meta.ApiStruct, frozen=True, kw_only=True):
    """A page of a list; an empty `continue` token ends it."""

    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] | None = None


class ServerVersion(meta.ApiStruct, frozen=True, kw_only=True):
    """Source: apimachinery version.Info."""

    git_version: str = ""


class _Cause(meta.ApiStruct, frozen=True, kw_only=True):
    reason: str = ""


class _Details(meta.ApiStruct, frozen=True, kw_only=True):
    causes: tuple[_Cause, ...] | None = None


class _Status(meta.ApiStruct, frozen=True, kw_only=True):
    """The parts of meta/v1 Status that we read."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None
    metadata: _ListMeta | None = None

    def has_cause(self, reason: str) -> bool:
        """Return True if one of the causes has this reason."""
        causes = (self.details.causes if self.details else None) or ()
        return any(cause.reason == reason for cause in causes)


def decode_response(body: bytes, kind: type[T]) -> T:
    """Decode the body of a response to a view.

    Raises:
        KubeError: The body is not of this kind.
    """
    try:
        return meta.decode_pruned(body, kind)
    except msgspec.DecodeError as error:
        raise KubeError(f"unexpected response: {error}", status=200) from error


_BY_STATUS: Final[Mapping[int, type[KubeError]]] = {
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
    429: Throttled,
}


def error_from_status(http_status: int, body: bytes) -> KubeError:
    """Return the exception for a Status; for an ERROR event, the code is in the Status itself."""
    try:
        status = meta.decode(body, _Status)
    except msgspec.DecodeError:
        status = _Status(message=body[:200].decode(errors="replace"))
    code = http_status or status.code or 500
    message = status.message or f"HTTP {code}"
    if code == 410:
        continuation = status.metadata.continue_ if status.metadata else ""
        return Gone(message, status=code, reason=status.reason, continuation=continuation)
    kind = _BY_STATUS.get(code, KubeError)
    if status.reason == "AlreadyExists":
        kind = AlreadyExists
    elif kind is Forbidden and status.has_cause("NamespaceTerminating"):
        kind = NamespaceTerminating
    return kind(message, status=code, reason=status.reason)


async def read_lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream.

    Raises:
        KubeError: A line is longer than MAX_LINE_BYTES.
    """
    rest = bytearray()
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        rest += first
        if len(rest) > MAX_LINE_BYTES:
            raise KubeError(f"a watch event is longer than {MAX_LINE_BYTES >> 20} MiB", status=200)
        for other in others:
            if rest:
                yield bytes(rest)
            rest = bytearray(other)
