"""JSON Patch (RFC 6902): build operations and apply them.

A patch that does not apply fails the request even with failurePolicy Ignore. Patches are therefore
computed from the received document and applied to it before they are returned. That happens in every
review, so `apply` does no more than the three operations that occur here need; in tests, the package
jsonpatch is its oracle.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec


class PatchError(ValueError):
    """An operation that does not apply to the document."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a patch. `value` is unset for a removal."""

    op: Literal["add", "remove", "replace"]
    path: str
    value: Any = msgspec.UNSET


def pointer(*parts: str | int) -> str:
    """Return a JSON pointer (RFC 6901).

    >>> pointer("metadata", "annotations", "a.b/c~d")
    '/metadata/annotations/a.b~1c~0d'
    """
    texts = list(map(str, parts))
    path = "/".join(("", *texts))
    if "~" not in path and path.count("/") == len(texts):
        return path  # As of most parts, none of which has to be escaped.
    return "/".join(("", *(text.replace("~", "~0").replace("/", "~1") for text in texts)))


def add(path: str, value: object) -> Operation:
    """Return an operation that sets a member, or inserts an element if the path ends in an index."""
    return Operation(op="add", path=path, value=value)


def remove(path: str) -> Operation:
    """Return an operation that removes a member or an element."""
    return Operation(op="remove", path=path)


def apply(document: Any, operations: Iterable[Operation]) -> Any:
    """Return a document after operations; the given one stays as it is, and shares all that they leave alone.

    Args:
        document: The document as parsed from JSON: dicts, lists, texts, numbers. Nested at any depth.
        operations: Their values are copied, so that later operations do not change them.

    Raises:
        PatchError: An operation does not apply.
    """
    copies: _Copies = {}
    for operation in operations:
        document = _apply(document, operation, copies)
    return document


# --- parts ----------------------------------------------------------------------------------------

_END: Final = "-"
_DIGITS: Final = frozenset("0123456789")
_Copies = dict[int, Any]
"""The dicts and lists that operations may change, by id. They stay here, so that no other object gets the id."""


def _apply(document: Any, operation: Operation, copies: _Copies) -> Any:
    op, path = operation.op, operation.path
    value = None if op == "remove" else _copy(operation.value)
    if not path:
        if op == "remove":
            raise PatchError("the whole document cannot be removed")
        return value
    if path[0] != "/":
        raise PatchError(f"{path}: a pointer begins with a slash")
    parts = path[1:].split("/")
    if "~" in path:
        parts = [_unescape_part(part, path) for part in parts]
    *parents, last = parts
    document = _own(document, copies)
    target = document
    for part in parents:
        target = _own_member(target, part, path, copies)
    if type(target) is dict:
        if op != "add" and last not in target:
            raise PatchError(f"{path}: does not exist")
        if op == "remove":
            del target[last]
        else:
            target[last] = value
    elif type(target) is list:
        _change_element(target, op, last, value, path)
    else:
        raise PatchError(f"{path}: its parent is neither an object nor a list")
    return document


def _change_element(target: list[Any], op: str, last: str, value: Any, path: str) -> None:
    if op == "add":
        index = len(target) if last == _END else _index(last, path)
        if index > len(target):
            raise PatchError(f"{path}: is beyond the end of a list of {len(target)}")
        target.insert(index, value)
        return
    index = _index(last, path)
    if index >= len(target):
        raise PatchError(f"{path}: is beyond the end of a list of {len(target)}")
    if op == "remove":
        del target[index]
    else:
        target[index] = value


def _own_member(parent: Any, part: str, path: str, copies: _Copies) -> Any:
    """Return the member that a part of a pointer refers to, unescaped, after its parent has its own copy of it."""
    key: str | int = part
    if type(parent) is list:
        key = _index(part, path)
    elif type(parent) is not dict:
        raise PatchError(f"{path}: its parent does not exist")
    try:
        member = parent[key]
    except LookupError:
        raise PatchError(f"{path}: its parent does not exist") from None
    own = _own(member, copies)
    if own is not member:
        parent[key] = own
    return own


def _own(value: Any, copies: _Copies) -> Any:
    """Return a value that may be changed: itself if it is a copy or has no members, else a new copy."""
    if id(value) in copies or type(value) not in {dict, list}:
        return value
    own = value.copy()
    copies[id(own)] = own
    return own


def _unescape_part(part: str, path: str) -> str:
    if _has_bad_escape(part.split("~")):
        raise PatchError(f"{path}: ~ is written as ~0")
    return part.replace("~1", "/").replace("~0", "~")


def _has_bad_escape(pieces: Sequence[str]) -> bool:
    return any(piece[:1] not in {"0", "1"} for piece in pieces[1:])


def _index(part: str, path: str) -> int:
    """Return an index as RFC 6901 writes it: digits, without a leading zero."""
    is_plain = part and _DIGITS.issuperset(part) and (part == "0" or part[0] != "0")
    if not is_plain:
        raise PatchError(f"{path}: {part} is not an index")
    return int(part)


def _copy(value: Any) -> Any:
    return value if type(value) is str else msgspec.to_builtins(value)
