"""The origin of a snapshot: the first item in the file of `drawbridge snapshot`. Reads files."""

from collections.abc import Iterable
from typing import Final

from answers.model.objects import InputObject
from answers.model.snapshot_kinds import ALL_KINDS, resource_name
from answers.model.unread import UnreadKind
from kube.api.meta import ApiStruct, ObjectMeta
from kube.manifests.source import SourceObject, ViewedObject

SNAPSHOT: Final = "Snapshot"
"""The kind of the item."""
_NAMES: Final = frozenset(ALL_KINDS)
_REFUSAL: Final = "they could not be listed when the snapshot was taken"


class SnapshotOrigin(ApiStruct, frozen=True, kw_only=True):
    """The cluster of a snapshot.

    Attributes:
        kubernetes_version: The version of the API server, such as `v1.37.1`; empty if it is not
            known.
        unreadable: Resources that could not be read.
        server: The address of its API server; empty where it is not known.
        taken_at: The time in RFC 3339; empty where it is not known.
        context: The kubeconfig's context that it was read by; empty where it is not known.
    """

    metadata: ObjectMeta = ObjectMeta()
    kubernetes_version: str = ""
    unreadable: tuple[str, ...] = ()
    server: str = ""
    taken_at: str = ""
    context: str = ""


def unread_kinds(
    origin: SnapshotOrigin,
    objects: Iterable[SourceObject | InputObject],
    kinds: Iterable[tuple[str, str]],
) -> list[UnreadKind]:
    """Return the kinds that a snapshot lacks although its cluster may have objects of them.

    Args:
        origin: The snapshot's origin.
        objects: The state of the cluster; what another file has of a kind is there.
        kinds: The kinds that the command depends on.
    """
    present = {_name(object_.api_version, object_.kind) for object_ in objects}
    resources = {
        resource_name(name)
        for name in {_name(api_version, kind) for api_version, kind in kinds} - present
        if name in _NAMES
    }
    return [
        UnreadKind(resource, _REFUSAL) for resource in origin.unreadable if resource in resources
    ]


def _name(api_version: str, kind: str) -> str:
    """Return the name of a kind in a snapshot, with its group for a kind of several projects."""
    name = f"{kind}.{api_version.partition('/')[0]}"
    return name if name in _NAMES else kind


def find_origin(objects: Iterable[InputObject]) -> SnapshotOrigin:
    """Return the origin of files' objects; the last of several snapshots gives version and server.

    Files may have been edited, so a value of a wrong type tells nothing.
    """
    version = server = taken_at = context = ""
    unreadable: list[str] = []
    for object_ in objects:
        if object_.kind != SNAPSHOT:
            continue
        if isinstance(object_, ViewedObject):
            if isinstance(object_.value, SnapshotOrigin):
                version = object_.value.kubernetes_version or version
                server = object_.value.server or server
                taken_at = object_.value.taken_at or taken_at
                context = object_.value.context or context
                unreadable += object_.value.unreadable
        else:
            version = _text(object_.document.get("kubernetesVersion")) or version
            server = _text(object_.document.get("server")) or server
            taken_at = _text(object_.document.get("takenAt")) or taken_at
            context = _text(object_.document.get("context")) or context
            unreadable += _texts(object_.document.get("unreadable"))
    return SnapshotOrigin(
        kubernetes_version=version,
        unreadable=tuple(dict.fromkeys(unreadable)),
        server=server,
        taken_at=taken_at,
        context=context,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
