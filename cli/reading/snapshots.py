"""Snapshots of clusters, read from files."""

from collections.abc import Iterable

from answers.model.kinds import API_VERSION, Kinds
from answers.model.objects import InputObject
from answers.model.snapshot_origin import SNAPSHOT, SnapshotOrigin, find_origin
from kube.manifests.reader import read_views


def read_snapshots(paths: Iterable[str], kinds: Kinds) -> tuple[list[InputObject], SnapshotOrigin]:
    """Return the objects of files, as of `read_views`, and where they were read.

    Raises:
        ObjectFileError: A file cannot be read.
    """
    objects = read_views(paths, {**kinds, (API_VERSION, SNAPSHOT): SnapshotOrigin})
    state = [object_ for object_ in objects if object_.kind != SNAPSHOT]
    return state, find_origin(objects)
