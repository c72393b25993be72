"""Read the manifests of a folder that also holds other files, such as a Git repository."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from kube.errors import ObjectFileError
from kube.manifests.compressed import decompress
from kube.manifests.lists import flatten
from kube.manifests.reader import files_below, read_documents, read_paths
from kube.manifests.source import MAX_BYTES, SUFFIXES, LocatedDocument, SourceObject

_NAMED: Final = 5


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of files, and the files that have none.

    Attributes:
        objects: The objects, in order of the files.
        unreadable: A message for each file that cannot be read; it begins with the file's name.
        notes: A line about the files with documents that have neither apiVersion nor kind, if there are any.
    """

    objects: tuple[SourceObject, ...]
    unreadable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_repositories(
    paths: Iterable[str], exclude: Iterable[str], *, stdin: BinaryIO | None = None
) -> Contents:
    """Read all manifests in and below directories; a file that is none does not end the reading.

    Other paths, and standard input, are read as by `read_paths`, because whoever names a file
    expects objects in it.

    Args:
        paths: The paths of `-f`.
        exclude: Globs of files and directories to leave out, as in `is_excluded`.

    Raises:
        ObjectFileError: A path that is no directory cannot be read, or a directory not listed; or there are
            only files that are skipped.
    """
    globs = tuple(exclude)
    objects: list[SourceObject] = []
    unreadable: list[str] = []
    skipped: list[str] = []
    for path in paths:
        folder = Path(path)
        if path in {"", "-"} or not folder.is_dir():
            objects += read_paths([path], stdin=stdin)
            continue
        for file in _list_files(folder, globs):
            try:
                manifests, others = _read_file(file)
            except ObjectFileError as error:
                unreadable.append(str(error))
            except OSError as error:
                unreadable.append(f"{file}: {error.strerror}")
            else:
                objects += manifests
                skipped += [str(file)] if others else []
    if skipped and not (objects or unreadable):
        read_paths(skipped[:1])  # Whoever finds nothing is told how such a file becomes manifests.
    notes = (_describe_skipped(skipped),) if skipped else ()
    return Contents(objects=tuple(objects), unreadable=tuple(unreadable), notes=notes)


def _describe_skipped(files: Sequence[str]) -> str:
    names = ", ".join(files[:_NAMED])
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    have = "a file has" if len(files) == 1 else f"{len(files)} files have"
    return f"{have} documents without apiVersion and kind, which are skipped: {names}{more}"


def is_excluded(path: Path, globs: Iterable[str]) -> bool:
    """Return True if a glob matches the path, its name, or one of the directories above it.

    Args:
        path: A path relative to the directory that was named.
        globs: The globs as in a shell, but `*` matches `/`, too.
    """
    places = [path, *path.parents[:-1]]
    names = {name for place in places for name in (place.as_posix(), place.name)}
    return any(fnmatchcase(name, glob.rstrip("/")) for glob in globs for name in names)


def _list_files(folder: Path, globs: tuple[str, ...]) -> list[Path]:
    try:
        return [
            file
            for file in files_below(folder)
            if file.suffix in SUFFIXES and not is_excluded(file.relative_to(folder), globs)
        ]
    except OSError as error:
        raise ObjectFileError(f"{error.filename or folder}: {error.strerror}") from error


def _read_file(file: Path) -> tuple[list[SourceObject], bool]:
    """Return the objects of a file, and True if other documents are in it."""
    source = str(file)
    with file.open("rb") as stream:
        text = decompress(stream.read(MAX_BYTES + 1), source)
    objects: list[SourceObject] = []
    has_others = False
    for document in read_documents(text, source):
        if _is_other(document):
            has_others = True
        else:
            objects += flatten(document, source)
    return objects, has_others


def _is_other(document: LocatedDocument) -> bool:
    value = document.value
    if isinstance(value, dict):
        return not (value.get("apiVersion") or value.get("kind"))
    return value is not None
