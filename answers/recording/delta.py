"""The difference between two states of a cluster, as changes of objects that can be folded again. Pure.

An object is known by its fields at the top level, such as `metadata`, `spec` and `status`: a change has those
that differ. So the pod that is bound does not bring its status along, nor the claim that is allocated its spec.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgspec

_T = TypeVar("_T")

DIGEST_BYTES: Final = 12
"""Bytes of a digest: by chance two of 2**48 different fields would count as equal."""


class ObjectKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The object that a change is about.

    Attributes:
        namespace: Empty for kinds without one.
    """

    api_version: str
    kind: str
    name: str
    namespace: str = ""


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The change of an object.

    Attributes:
        object: The object.
        set: Fields with their new values; of a new object all.
        unset: Fields that the object has no more.
        deleted: The object is gone.
    """

    object: ObjectKey
    set: Mapping[str, Any] = {}
    unset: tuple[str, ...] = ()
    deleted: bool = False


State = Mapping[ObjectKey, Mapping[str, Any]]
"""Object to its fields, apart from apiVersion and kind."""


def diff(before: State, after: State) -> Iterator[Delta]:
    """Yield the changes that make one state the other."""
    for key, fields in after.items():
        change = change_of(key, before.get(key), fields, fields)
        if change is not None:
            yield change
    for key in before:
        if key not in after:
            yield Delta(object=key, deleted=True)


def fold(deltas: Iterable[Delta], state: State) -> State:
    """Return the state after changes; those of objects that are not there begin with nothing."""
    folded = dict(state)
    for delta in deltas:
        fold_into(folded, delta)
    return folded


def fold_into(state: dict[ObjectKey, Mapping[str, Any]], delta: Delta) -> None:
    """Change a state by one change."""
    if delta.deleted:
        state.pop(delta.object, None)
        return
    before = state.get(delta.object, {})
    left = {name: value for name, value in before.items() if name not in delta.unset}
    state[delta.object] = {**left, **delta.set}


def change_of(
    key: ObjectKey,
    before: Mapping[str, _T] | None,
    after: Mapping[str, _T],
    values: Mapping[str, Any],
) -> Delta | None:
    """Return the change of an object that is there; None if nothing differs.

    Args:
        key: The object.
        before: Its fields, or their digests; None if it was not there.
        after: The same of its fields now.
        values: Its fields now.
    """
    known_fields = before or {}
    changed = {
        name: values[name]
        for name, value in after.items()
        if name not in known_fields or known_fields[name] != value
    }
    unset = tuple(sorted(known_fields.keys() - after.keys()))
    if before is not None and not changed and not unset:
        return None
    return Delta(object=key, set=changed, unset=unset)


def digest(encoded: bytes) -> bytes:
    """Return the digest of a field.

    Args:
        encoded: The JSON of its value.

    >>> len(digest(b"{}"))
    12
    """
    return blake2b(encoded, digest_size=DIGEST_BYTES).digest()
