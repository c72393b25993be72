"""JSON Patch (RFC 6902): build operations and apply them.

A patch that does not apply fails the request even with failurePolicy Ignore. Patches are therefore
computed from the received document and applied to it before they are returned.
"""

from collections.abc import Iterable
from typing import Any, Literal

import jsonpatch
import msgspec


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
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def add(path: str, value: object) -> Operation:
    """Return an operation that sets a member, or inserts an element if the path ends in an index."""
    return Operation(op="add", path=path, value=value)


def remove(path: str) -> Operation:
    """Return an operation that removes a member or an element."""
    return Operation(op="remove", path=path)


def apply(document: Any, operations: Iterable[Operation]) -> Any:
    """Apply operations to a document in place, and return it.

    Raises:
        jsonpatch.JsonPatchException: An operation does not apply; previous ones stay applied.
        jsonpatch.JsonPointerException: Likewise, if the parent of the target is missing.
    """
    patch = jsonpatch.JsonPatch(())
    # The constructor would traverse each operation twice.
    patch.patch = msgspec.to_builtins(tuple(operations))
    return patch.apply(document, in_place=True)
