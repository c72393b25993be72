"""Decode views directly from a JSON List, as `kubectl get -o json` prints it."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kube.api.conversion import current_version
from kube.api.meta import ApiStruct, decode
from kube.manifests.json_reader import check_depth
from kube.manifests.source import SourceObject, ViewedObject
from kube.names import GROUP

SNAPSHOT_LIST: Final = "SnapshotList"
"""The kind of the file of `drawbridge snapshot`, a List with the items of a cluster."""
RECORDING: Final = "Recording"
"""The kind of the first line of the file of `drawbridge record`."""


_MAX_HEADER: Final = 2**16
"""Bytes of the first line of a recording."""


class _Head(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The type of an object, and the items of a List."""

    api_version: str
    kind: str
    items: list[msgspec.Raw] | None = None


def is_recording(text: bytes) -> bool:
    """Return True if a text begins with the first line of a recording of any version.

    >>> is_recording(b'{"apiVersion": "cli.drawbridge.internal/v1", "kind": "Recording"}')
    True
    """
    end = text.find(b"\n", 0, _MAX_HEADER)
    try:
        head = msgspec.json.decode(text[: end if end >= 0 else _MAX_HEADER], type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return head.kind == RECORDING and head.api_version.startswith(f"cli.{GROUP}/")


def read_list_views(
    text: bytes, kinds: Mapping[tuple[str, str], type[ApiStruct]], source: str
) -> list[SourceObject | ViewedObject] | None:
    """Decode the objects of a JSON List; None for any other text.

    >>> read_list_views(b'{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": 1}]}', {}, "-")
    """
    try:
        outer = msgspec.json.decode(text, type=_Head)
        if outer.kind not in {"List", SNAPSHOT_LIST} or outer.items is None:
            return None
        heads = [msgspec.json.decode(raw, type=_Head) for raw in outer.items]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not all(head.api_version and head.kind and head.items is None for head in heads):
        return None
    objects: list[SourceObject | ViewedObject] = []
    for head, raw in zip(heads, outer.items, strict=True):
        version = current_version(head.api_version, head.kind)
        kind = kinds.get((version, head.kind))
        if kind is None:
            continue
        # The caller converts documents of other versions.
        is_current = version == head.api_version
        value = _decode_view(head, raw, kind, source) if is_current else None
        objects.append(value or _decode_item(text, bytes(raw), source))
    return objects


def _decode_view(
    head: _Head, raw: msgspec.Raw, kind: type[ApiStruct], source: str
) -> ViewedObject | None:
    try:
        value = decode(raw, kind)
    except (msgspec.DecodeError, RecursionError):
        return None
    return ViewedObject(api_version=head.api_version, kind=head.kind, value=value, source=source)


def _decode_item(text: bytes, item: bytes, source: str) -> SourceObject:
    line = 1 + text.count(b"\n", 0, text.find(item))
    document = check_depth(decode(item, dict[str, Any]), source, line)
    return SourceObject(document=document, source=source, line=line)
