"""Objects before and after as a unified diff, as `kubectl diff` prints it."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import unified_diff
from typing import Any, Final

import click

from findings.text import inert_line, printable
from kube.manifests.dump import dump_yaml
from kube.manifests.edited_file import EditedFile

Document = Mapping[str, Any]


def file_name(document: Document, namespace: str) -> str:
    """Return the file name of an object in kubectl diff: group.version.Kind.namespace.name.

    >>> deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}
    >>> file_name(deployment, "team")
    'apps.v1.Deployment.team.a'
    """
    metadata = document.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    parts = (document["apiVersion"].replace("/", "."), document["kind"], namespace, name)
    return ".".join(str(part) for part in parts)


def unified_diff_lines(name: str, old: Document | None, new: Document) -> Iterator[str]:
    """Yield the lines of one object's diff, none when it is unchanged.

    Args:
        old: None when the object is new.
    """
    before = dump_yaml([old]).splitlines() if old is not None else []
    after = dump_yaml([new]).splitlines()
    lines = list(unified_diff(before, after, f"old/{name}", f"new/{name}", lineterm=""))
    if lines:
        # Names and the object's own texts may hold what a terminal or a CI system obeys.
        yield printable(f"diff -u -N old/{name} new/{name}")
        yield from map(_printable_line, lines)


def file_diff_lines(file: EditedFile) -> Iterator[str]:
    """Yield the lines of the diff of a file, fit for a terminal; none when it is unchanged."""
    before, after = (text.decode().splitlines(keepends=True) for text in (file.before, file.after))
    for line in unified_diff(before, after, file.path, file.path):
        yield _printable_line(line.rstrip("\r\n"))
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _printable_line(line: str) -> str:
    """Return a line of a diff, with its tabs, that neither a terminal nor a CI system obeys."""
    return inert_line("\t".join(map(printable, line.split("\t"))))


_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def colorize(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines in colours; click drops these if the output is no terminal."""
    for line in lines:
        colour = _COLOURS.get(line[:1])
        yield click.style(line, fg=colour) if colour else line
