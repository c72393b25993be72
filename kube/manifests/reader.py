"""Read objects from YAML and JSON as kubectl would send them, with file and line.

A JSON parser reads JSON documents. For YAML, values are built directly from libyaml's events: a tree
of nodes takes more time, and ten times the memory of the text. kube/manifests/scalars.py resolves
unquoted words.

Size, number of values, depth and alias expansion are limited, because files may be hostile.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from kube.api.meta import ApiStruct
from kube.errors import ObjectFileError
from kube.manifests.compressed import decompress
from kube.manifests.json_reader import read_json
from kube.manifests.lists import flatten
from kube.manifests.source import (
    MAX_BYTES,
    STDIN,
    SUFFIXES,
    LocatedDocument,
    SourceObject,
    ViewedObject,
    check_size,
)
from kube.manifests.views import is_recording, read_list_views
from kube.manifests.yaml_reader import YamlReader


def read_paths(
    paths: Iterable[str], *, recursive: bool = False, stdin: BinaryIO | None = None
) -> list[SourceObject]:
    """Read the objects of the paths of `-f`: files, directories, or `-` for standard input.

    A file may be compressed with gzip.
    Of a directory the files `*.yaml`, `*.yml` and `*.json` are read in order of their names.

    Args:
        recursive: Subdirectories are read, too, but no symbolic links to directories.

    Raises:
        ObjectFileError: A path cannot be read, or `read_objects` rejects its text.
    """
    return [
        source_object
        for name, text in _read_all(paths, stdin, recursive=recursive)
        for source_object in read_objects(text, name)
    ]


def read_views(
    paths: Iterable[str],
    kinds: Mapping[tuple[str, str], type[ApiStruct]],
    *,
    stdin: BinaryIO | None = None,
) -> list[SourceObject | ViewedObject]:
    """Read the objects of these kinds; those in a JSON List, as `kubectl get -o json` prints, as views.

    Views take a tenth of the time of documents. An object that cannot be converted to its view is
    returned as a document, so that the caller can report the error.

    Args:
        paths: The paths, as in `read_paths`.
        kinds: The view of each (apiVersion, kind). Other kinds in a JSON List are skipped.

    Raises:
        ObjectFileError: As `read_paths`.
    """
    objects: list[SourceObject | ViewedObject] = []
    for name, text in _read_all(paths, stdin, recursive=False):
        check_size(text, name)
        views = read_list_views(text, kinds, name)
        objects += read_objects(text, name) if views is None else views
    return objects


def _read_all(
    paths: Iterable[str], stdin: BinaryIO | None, *, recursive: bool
) -> Iterator[tuple[str, bytes]]:
    stdin = sys.stdin.buffer if stdin is None else stdin
    for path in paths:
        try:
            for name, content in _read_path(path, stdin, recursive=recursive):
                yield name, decompress(content, name)
        except OSError as error:
            raise ObjectFileError(f"{error.filename or path}: {error.strerror}") from error


def _read_path(path: str, stdin: BinaryIO, *, recursive: bool) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file of a path."""
    if not path:
        raise ObjectFileError("the path is empty")
    if path == "-":
        yield STDIN, stdin.read(MAX_BYTES + 1)
        return
    for file in _object_files(Path(path), recursive=recursive):
        with file.open("rb") as stream:
            yield str(file), stream.read(MAX_BYTES + 1)


def _object_files(path: Path, *, recursive: bool) -> list[Path]:
    if not path.is_dir():
        return [path]
    inside = files_below(path) if recursive else sorted(filter(Path.is_file, path.iterdir()))
    files = [file for file in inside if file.suffix in SUFFIXES]
    if not files:
        place = "in or below" if recursive else "in"
        raise ObjectFileError(f"{path}: no {', '.join(SUFFIXES)} file {place} this directory")
    return files


def files_below(path: Path) -> Iterator[Path]:
    """Yield the files of a directory, then those of its subdirectories, each in order of names."""
    entries = sorted(path.iterdir())
    yield from (entry for entry in entries if entry.is_file())
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            yield from files_below(entry)


def read_objects(text: bytes, source: str) -> list[SourceObject]:
    """Read the objects of a stream of documents in order; Lists are flattened.

    Empty documents are skipped. Items of a typed list (`PodList`) without apiVersion and kind get
    them from the list, as in kubectl.

    Args:
        text: YAML or JSON in UTF-8, any number of documents.
        source: The name for messages.

    Raises:
        ObjectFileError: The text is neither YAML nor JSON, a document is not an object with
            apiVersion and kind, or a limit is exceeded. The message begins with `source:line:`.
    """
    return [
        source_object
        for document in read_documents(text, source)
        for source_object in flatten(document, source)
    ]


def read_documents(text: bytes, source: str) -> Iterable[LocatedDocument]:
    """Read a stream of documents of any kind.

    Raises:
        ObjectFileError: As `read_objects`, but for what a document is; maybe during the iteration.
    """
    if text.startswith(b"{") and is_recording(text):
        hint = (
            "replay and the commands about devices read it with --snapshot; this needs a snapshot"
        )
        raise ObjectFileError(f"{source}:1: a recording of drawbridge record: {hint}")
    check_size(text, source)
    text = text.removeprefix(b"\xef\xbb\xbf")
    documents = read_json(text, source)
    return YamlReader(text, source).documents() if documents is None else documents
