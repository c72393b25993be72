"""Snapshots of clusters, read from files; of a recording its last state."""

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from answers.model.kinds import API_VERSION, Kinds
from answers.model.objects import InputObject
from answers.model.snapshot_origin import SNAPSHOT, SnapshotOrigin, find_origin
from answers.recording.views import last_state
from cli.reading.recordings import open_recording
from kube.manifests.reader import read_views
from kube.manifests.views import is_recording

_HEAD: Final = 2**16
"""Bytes of a file that are looked at for its first line."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = 16 + zlib.MAX_WBITS


def read_snapshots(paths: Iterable[str], kinds: Kinds) -> tuple[list[InputObject], SnapshotOrigin]:
    """Return the objects of files, as of `read_views`, and the place that they were read from.

    Raises:
        ObjectFileError: A file cannot be read.
    """
    objects: list[InputObject] = []
    for path in paths:
        if is_recording_file(path):
            recording = open_recording(path)
            objects += last_state(recording.header, recording.entries(), recording.name, kinds)
        else:
            objects += read_views([path], {**kinds, (API_VERSION, SNAPSHOT): SnapshotOrigin})
    state = [object_ for object_ in objects if object_.kind != SNAPSHOT]
    return state, find_origin(objects)


def is_recording_file(name: str) -> bool:
    """Return True if a file begins as the file of `drawbridge record` does; standard input never does.

    Raises:
        OSError: The file cannot be read.
    """
    path = Path(name)
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        text = stream.read(_HEAD)
    if text.startswith(_GZIP_MAGIC):
        try:
            text = zlib.decompressobj(wbits=_GZIP).decompress(text, _HEAD)
        except zlib.error:
            return False  # Whoever reads it says what is wrong.
    return is_recording(text)
