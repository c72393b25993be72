"""Stored workloads and pods with device keys, as their authors created them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kube.api.events import ObjectReference
from kube.api.extended_resources import IMPLICIT_PREFIX
from kube.api.meta import ObjectHead, ObjectMeta, convert, decode
from kube.api.workloads import VALIDATED_KINDS
from kube.names import REQUEST_ANNOTATION
from translation.model.intents import Vocabulary

POD_KIND: Final = ("v1", "Pod")


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """A stored object with pods.

    Attributes:
        kind: Its apiVersion and kind, which lists leave out.
        metadata: The object's own metadata.
        document: The object as it was created.
    """

    kind: tuple[str, str]
    metadata: ObjectMeta
    document: Mapping[str, Any]

    @property
    def reported(self) -> ObjectReference:
        """Return the object that the event is about: itself, or the custom owner of a pod."""
        owner = _controller_of(self.metadata)
        if owner is None:
            return ObjectReference.of(*self.kind, self.metadata)
        return msgspec.structs.replace(owner, namespace=self.metadata.namespace)


def key_texts(vocabularies: Iterable[Vocabulary]) -> tuple[bytes, ...]:
    """Return texts; the JSON of every object with device keys has at least one of them."""
    texts = {IMPLICIT_PREFIX}
    for vocabulary in vocabularies:
        texts |= {*vocabulary.keys, *vocabulary.key_prefixes, *vocabulary.requesting}
        if vocabulary.requesting_label is not None:
            texts.add(vocabulary.requesting_label[0])
    return tuple(sorted(text.encode() for text in texts))


def stored_object(raw: bytes, kind: tuple[str, str], texts: Iterable[bytes]) -> StoredObject | None:
    """Return an object with device keys that is reported itself; None for others.

    Pods and workloads of a built-in workload are reported with that, translated pods not at all.

    Args:
        kind: Its apiVersion and kind.
        texts: The result of `key_texts`, so that most objects need not be decoded.
    """
    if not any(text in raw for text in texts):
        return None
    try:
        document = decode(raw, dict[str, Any])
        metadata = convert(document, ObjectHead).metadata
    except (msgspec.DecodeError, RecursionError):
        return None
    owner = _controller_of(metadata)
    if owner is not None and (kind != POD_KIND or _is_built_in(owner)):
        return None
    if REQUEST_ANNOTATION in (metadata.annotations or {}):
        return None
    return StoredObject(kind=kind, metadata=metadata, document=_as_created(document, kind))


def _controller_of(metadata: ObjectMeta) -> ObjectReference | None:
    # Kubernetes validates no names of owners, and people read events at a terminal.
    owners = (
        owner
        for owner in metadata.owner_references or ()
        if owner.controller and f"{owner.api_version}{owner.kind}{owner.name}".isprintable()
    )
    return next(
        (
            ObjectReference(
                api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid
            )
            for owner in owners
        ),
        None,
    )


def _is_built_in(owner: ObjectReference) -> bool:
    return (owner.api_version, owner.kind) in VALIDATED_KINDS


def _as_created(document: dict[str, Any], kind: tuple[str, str]) -> dict[str, Any]:
    created = {field: value for field, value in document.items() if field != "status"}
    spec = created.get("spec")
    if kind == POD_KIND and isinstance(spec, dict):
        created["spec"] = {field: value for field, value in spec.items() if field != "nodeName"}
    return created
