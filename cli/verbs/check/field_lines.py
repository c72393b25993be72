"""The lines of the fields that findings are about. Reads the files again."""

from pathlib import Path

from msgspec.structs import replace

from answers.manifests.check import CheckedFinding, CheckReport
from findings.field_path import Key
from kube.errors import ObjectFileError
from kube.manifests.compressed import decompress
from kube.manifests.field_lines import MAX_BYTES, FieldLines


def with_field_lines(report: CheckReport, stdin_name: str) -> CheckReport:
    """Return a report with findings that have the lines of their fields.

    A finding keeps the line of its object where the file cannot be read again: standard input, or a
    large file.

    Args:
        stdin_name: The name of standard input, which may be that of another file.
    """
    files = {stdin_name: FieldLines(b"")}
    return replace(report, shown=tuple(_with_line(entry, files) for entry in report.shown))


def _with_line(entry: CheckedFinding, files: dict[str, FieldLines]) -> CheckedFinding:
    if entry.file is None:
        return entry
    if entry.file not in files:
        files[entry.file] = FieldLines(_read(entry.file))
    path = [step.name if isinstance(step, Key) else step for step in entry.finding.path.steps]
    return replace(entry, line=files[entry.file].line(entry.line, path))


def _read(path: str) -> bytes:
    """Return the text of a file; nothing if it cannot be read, or is too large."""
    try:
        with Path(path).open("rb") as file:
            text = decompress(file.read(MAX_BYTES + 1), path)
    except (OSError, ObjectFileError):
        return b""
    return text if len(text) <= MAX_BYTES else b""
