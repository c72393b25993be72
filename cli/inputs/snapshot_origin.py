"""Where a snapshot was read: the first item in the file of `drawbridge snapshot`. Reads files."""

from collections.abc import Iterable
from typing import Final

from cli.inputs.kinds import API_VERSION, Kinds
from cli.inputs.objects import InputObject
from kube.api.meta import ApiStruct, ObjectMeta
from kube.manifests.reader import read_views
from kube.manifests.source import ViewedObject

SNAPSHOT: Final = "Snapshot"
"""The kind of the item."""


class SnapshotOrigin(ApiStruct, frozen=True, kw_only=True):
    """The cluster of a snapshot.

    Attributes:
        kubernetes_version: Of its API server, such as `v1.37.1`; empty where it is not known.
        unreadable: Resources that could not be read.
    """

    metadata: ObjectMeta = ObjectMeta()
    kubernetes_version: str = ""
    unreadable: tuple[str, ...] = ()


def read_snapshots(paths: Iterable[str], kinds: Kinds) -> tuple[list[InputObject], str]:
    """Return the objects of files, as of `read_views`, and the version of the cluster's API server.

    Raises:
        ObjectFileError: A file cannot be read.
    """
    objects = read_views(paths, {**kinds, (API_VERSION, SNAPSHOT): SnapshotOrigin})
    state = [object_ for object_ in objects if object_.kind != SNAPSHOT]
    return state, find_origin(objects).kubernetes_version


def find_origin(objects: Iterable[InputObject]) -> SnapshotOrigin:
    """Return where the objects of files were read; of several snapshots the version of the last.

    Files may have been edited, so a value of a wrong type tells nothing.
    """
    version = ""
    unreadable: list[str] = []
    for object_ in objects:
        if object_.kind != SNAPSHOT:
            continue
        if isinstance(object_, ViewedObject):
            if isinstance(object_.value, SnapshotOrigin):
                version = object_.value.kubernetes_version or version
                unreadable += object_.value.unreadable
        else:
            version = _text(object_.document.get("kubernetesVersion")) or version
            unreadable += _texts(object_.document.get("unreadable"))
    return SnapshotOrigin(kubernetes_version=version, unreadable=tuple(dict.fromkeys(unreadable)))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
