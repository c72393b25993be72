"""The files that a command may rewrite with `--in-place`, and their texts. Reads files."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import click

from kube.errors import NotEditable, ObjectFileError
from kube.manifests.compressed import decompress
from kube.manifests.source import CHART, KUSTOMIZATIONS, STDIN, SourceObject


def check_in_place(manifests: Iterable[SourceObject], paths: Sequence[str]) -> None:
    """Check that the files of manifests can be rewritten.

    Args:
        paths: The paths of `-f`.

    Raises:
        click.UsageError: One is standard input, or is named twice.
    """
    manifests = tuple(manifests)
    if any(manifest.source == STDIN for manifest in manifests):
        raise click.UsageError("--in-place rewrites files; - is standard input.")
    check_named_once(manifests, paths)


def check_named_once(manifests: Iterable[SourceObject], paths: Sequence[str]) -> None:
    """Check that no file of manifests is read twice, since each of them has one text.

    Raises:
        click.UsageError: One is.
    """
    sources = [source for source, _ in groupby(entry.source for entry in manifests)]
    for names in (sources, paths):
        if len({Path(name).resolve() for name in names}) < len(names):
            raise click.UsageError("a file is named twice.")


def read_text(path: str, stdin_text: bytes) -> bytes:
    """Return the text of a file of manifests, decompressed.

    Args:
        path: The file, or the name of standard input.
        stdin_text: All of standard input.

    Raises:
        ObjectFileError: The file cannot be read.
    """
    try:
        return decompress(stdin_text if path == STDIN else Path(path).read_bytes(), path)
    except OSError as error:
        raise ObjectFileError(f"{path}: {error.strerror}") from error


def read_editable(path: str, command: str) -> bytes:
    """Return the content of a file of manifests.

    Args:
        command: The command that is to rewrite the file.

    Raises:
        NotEditable: Another program builds the manifests that are applied from this file. It would
            build something else from a translated one: a chart has templates, and kustomize does not
            know where workloads name ResourceClaimTemplates.
        ObjectFileError: The file cannot be read.
    """
    file = Path(path)
    for directory in _directories(file):
        if (directory / CHART).is_file():
            raise NotEditable(
                f"{path}: belongs to the Helm chart {directory}; {command} what it renders: "
                f"helm template {directory} | drawbridge {command} -f -"
            )
        if any((directory / name).is_file() for name in KUSTOMIZATIONS):
            raise NotEditable(
                f"{path}: belongs to the kustomization {directory}; {command} what it builds: "
                f"kubectl kustomize {directory} | drawbridge {command} -f -"
            )
    try:
        return file.read_bytes()
    except OSError as error:
        raise ObjectFileError(f"{path}: {error.strerror}") from error


def _directories(file: Path) -> Iterator[Path]:
    """Yield the directory of a file, then those above it up to the root of its git repository."""
    for directory in file.resolve().parents:
        yield directory
        if (directory / ".git").exists():
            return
