"""Events about objects, as values and as events.k8s.io/v1 objects.

The name of an Event derives from what it says, so that a process that was restarted, or another
replica, does not say it twice.
"""

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal, Self

import msgspec

from kube.api.meta import ObjectMeta, micro_time

MAX_NAME: Final = 253
MAX_NOTE_BYTES: Final = 1024
MAX_INSTANCE: Final = 128
"""Limits of the API."""
HASH_LENGTH: Final = 16


class ObjectReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The object that an Event is about; the namespace of a cluster-scoped one is empty."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str
    uid: str

    @classmethod
    def of(cls, api_version: str, kind: str, metadata: ObjectMeta) -> Self:
        """Return the reference of an object."""
        return cls(
            api_version=api_version,
            kind=kind,
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
        )

    def __str__(self) -> str:
        """Return the object as logs name it.

        >>> print(ObjectReference(api_version="v1", kind="Pod", namespace="a", name="b", uid="c"))
        Pod/a/b
        """
        return f"{self.kind}/{self.namespace}/{self.name}"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A message about an object, before it is written.

    Attributes:
        regarding: The object.
        related: A second object that it happened with.
        reason: UpperCamelCase, for machines.
        action: The action that was taken or failed, UpperCamelCase.
        note: The message for people; it is cut at 1024 bytes.
        identity: Events of one object with the same identity are one Event; empty for reason and
            note.
        series_count: The number of occurrences; above 1, an Event that exists is updated to it.
            Else one that exists stays as it is.
    """

    regarding: ObjectReference
    related: ObjectReference | None = None
    reason: str
    action: str
    note: str
    type: Literal["Normal", "Warning"] = "Warning"
    identity: str = ""
    series_count: int = 1

    @property
    def namespace(self) -> str:
        """Return the namespace that stores it; events of cluster-scoped objects are in `default`."""
        return self.regarding.namespace or "default"

    @property
    def name(self) -> str:
        """The name, derived from object and identity."""
        identity = self.identity or f"{self.reason}{self.note}"
        # An object that does not exist has no uid, and others of its name may not exist either.
        object_id = self.regarding.uid or self.regarding.kind
        digest = sha256(f"{object_id}{identity}".encode()).hexdigest()[:HASH_LENGTH]
        return f"{self.regarding.name[: MAX_NAME - HASH_LENGTH - 1]}.{digest}"


def event_document(
    event: Event, *, controller: str, instance: str, now: datetime
) -> Mapping[str, Any]:
    """Return the events.k8s.io/v1 object.

    Args:
        controller: The reporting controller, a qualified name.
        instance: The reporting process.
    """
    related_object = {"related": _reference(event.related)} if event.related is not None else {}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": event.namespace},
        "eventTime": micro_time(now),
        "type": event.type,
        "reason": event.reason,
        "action": event.action,
        "note": _cut(event.note),
        "reportingController": controller,
        "reportingInstance": instance[:MAX_INSTANCE],
        "regarding": _reference(event.regarding),
        **related_object,
    }


def series_patch(event: Event, now: datetime) -> Mapping[str, Any]:
    """Return the merge patch that counts a further occurrence of an Event."""
    return {"series": {"count": event.series_count, "lastObservedTime": micro_time(now)}}


def _reference(reference: ObjectReference) -> Mapping[str, str]:
    return {name: value for name, value in msgspec.to_builtins(reference).items() if value}


def _cut(note: str) -> str:
    """Return the part of a note that an Event may have, in whole characters."""
    return note.encode()[:MAX_NOTE_BYTES].decode(errors="ignore")
