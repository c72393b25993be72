"""Snapshots of clusters, read from files; of a recording its last state."""

from collections.abc import Iterable

from answers.model.kinds import API_VERSION, Kinds
from answers.model.objects import InputObject
from answers.model.snapshot_origin import SNAPSHOT, SnapshotOrigin, find_origin
from answers.recording.views import last_state
from cli.reading.recordings import open_recording
from kube.manifests.reader import read_views


def read_snapshots(paths: Iterable[str], kinds: Kinds) -> tuple[list[InputObject], SnapshotOrigin]:
    """Return the objects of files, as of `read_views`, and where they were read.

    Raises:
        ObjectFileError: A file cannot be read.
    """
    objects: list[InputObject] = []
    for path in paths:
        recording = open_recording(path)
        if recording is None:
            objects += read_views([path], {**kinds, (API_VERSION, SNAPSHOT): SnapshotOrigin})
        else:
            objects += last_state(recording.header, recording.entries(), recording.name, kinds)
    state = [object_ for object_ in objects if object_.kind != SNAPSHOT]
    return state, find_origin(objects)
