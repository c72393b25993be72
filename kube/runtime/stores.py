"""Stores of the objects of a resource, one per projection.

A projection chooses what is kept of an object. It is given the object's JSON, so that memory holds what
is used and nothing else.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from kube.api import meta
from kube.api.urls import Resource
from kube.errors import KubeError
from kube.logs import get_logger

T = TypeVar("T")
Key = tuple[str, str]
"""Namespace and name; the namespace of a cluster-scoped object is empty."""
Projection = Callable[[bytes], T | None]
"""A function from an object's JSON to the value to keep, None to keep nothing."""
Handler = Callable[[Key, T | None, T | None], None]
"""Called with key, old and new value: None for what was not there, or is not any more."""

log = get_logger()


class Store(Generic[T]):
    """The store of one projection of an informer's objects.

    Attributes:
        objects: Key to projected value.
        decode_errors: Objects that the projection could not decode.
        handlers: The handlers of all subscriptions to the projection.
    """

    def __init__(self, resource: Resource, projection: Projection[T]) -> None:
        self._resource = resource
        self._projection = projection
        self.objects: dict[Key, T] = {}
        self.decode_errors = 0
        self.handlers: list[Handler[T]] = []

    def project(self, key: Key, raw: bytes) -> T | None:
        """Return the projection of an object; None for nothing, or if it cannot be decoded."""
        try:
            try:
                return self._projection(raw)
            except RecursionError:  # The JSON could be parsed, but its values cannot be walked.
                return self._projection(meta.prune(raw))
        except msgspec.DecodeError as error:
            self.decode_errors += 1
            log.warning(
                "object.decode_failed", resource=self._resource.plural, key=key, error=str(error)
            )
            return None

    def replace(self, key: Key, new: T | None) -> "Change[T] | None":
        """Store a value, or remove it; return the change for the handlers."""
        old = self.objects.get(key)
        if old is None and new is None:
            return None
        if new is None:
            del self.objects[key]
        else:
            self.objects[key] = new
        return Change(self.handlers, key, old, new)


class Change(NamedTuple, Generic[T]):
    """A value that was stored or removed, and the handlers to call for it."""

    handlers: Sequence[Handler[T]]
    key: Key
    old: T | None
    new: T | None


class Identity(meta.ApiStruct, frozen=True, kw_only=True):
    """The name and version of an object."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.namespace, self.name


class _Head(meta.ApiStruct, frozen=True, kw_only=True):
    metadata: Identity = Identity()


def read_identity(raw: bytes) -> Identity:
    """Read the identity of an object.

    Raises:
        KubeError: It has no readable metadata.
    """
    try:
        return meta.decode(raw, _Head).metadata
    except msgspec.DecodeError as error:
        raise KubeError(f"an object without readable metadata: {error}", status=200) from error
