"""JSON Patch (RFC 6902), written directly and applied before anybody else has to.

A patch that does not apply fails the request even under failurePolicy Ignore, so ours are computed
from the very document that was received, and tried on it first.
"""

from collections.abc import Iterable
from typing import Any, Literal

import jsonpatch
import msgspec


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One step. `value` is unset for a removal."""

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
    """Return a step that sets a member, or puts an element where the path ends in an index."""
    return Operation(op="add", path=path, value=value)


def remove(path: str) -> Operation:
    """Return a step that takes a member or element away."""
    return Operation(op="remove", path=path)


def apply(document: Any, operations: Iterable[Operation]) -> Any:
    """Apply the operations to the document, in place, and return it.

    Raises:
        jsonpatch.JsonPatchException: A step does not apply; what was applied before it stays.
        jsonpatch.JsonPointerException: Likewise, where what the step is to be made in is missing.
    """
    patch = jsonpatch.JsonPatch(())
    # Given to the constructor, each step would be looked through twice.
    patch.patch = msgspec.to_builtins(tuple(operations))
    return patch.apply(document, in_place=True)
