"""Read JSON documents, with the line number of each object."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kube.api.meta import MAX_DEPTH
from kube.manifests.source import LocatedDocument, raise_at

_SPACE: Final = re.compile(r"\s+")


def read_json(text: bytes, source: str) -> Iterable[LocatedDocument] | None:
    """Read the documents of a JSON stream; None if the YAML parser must read or reject the text."""
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] != b"{":
        return None
    first_line = text.count(b"\n", 0, start) + 1
    try:
        return [_read_document(text, first_line, source)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_stream(text, source)


def _read_document(text: bytes, line: int, source: str) -> LocatedDocument:
    """Read one document; the items of a List keep their lines.

    Raises:
        msgspec.DecodeError: This is not one JSON object.
    """
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    raw_items = bytes(fields["items"]) if "items" in fields else b""
    if not raw_items.startswith(b"["):
        return LocatedDocument(
            value=check_depth(msgspec.json.decode(text), source, line), line=line
        )
    items: list[Any] = []
    item_lines: list[int] = []
    at = text.find(raw_items)
    line_at = line + text.count(b"\n", len(text) - len(text.lstrip()), at)
    for raw in msgspec.json.decode(raw_items, type=list[msgspec.Raw]):
        item = bytes(raw)
        begin = text.find(item, at)
        line_at += text.count(b"\n", at, begin)
        item_lines.append(line_at)
        items.append(check_depth(msgspec.json.decode(item), source, line_at))
        at = begin + len(item)
        line_at += item.count(b"\n")
    value = {
        name: items if name == "items" else check_depth(msgspec.json.decode(raw), source, line)
        for name, raw in fields.items()
    }
    return LocatedDocument(value=value, line=line, item_lines=tuple(item_lines))


def _read_stream(text: bytes, source: str) -> list[LocatedDocument] | None:
    """Read concatenated documents, such as `kubectl get --watch -o json` prints."""
    try:
        characters = text.decode()
        at, line, documents = 0, 1, []
        while (begin := _skip_space(characters, at)) < len(characters):
            _, end = json.JSONDecoder().raw_decode(characters, begin)
            line += characters.count("\n", at, begin)
            documents.append(_read_document(characters[begin:end].encode(), line, source))
            line += characters.count("\n", begin, end)
            at = end
    except (ValueError, RecursionError):  # Also UnicodeDecodeError and msgspec.DecodeError.
        return None
    return documents


def _skip_space(characters: str, at: int) -> int:
    """Return the place of the next character that is no space; the end if there is none."""
    match = _SPACE.match(characters, at)
    return at if match is None else match.end()


def check_depth(value: Any, source: str, line: int) -> Any:
    """Return the value unchanged, or raise if it is nested too deeply."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return value
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list
        ]
    return raise_at(source, line, f"nested deeper than {MAX_DEPTH} levels")
