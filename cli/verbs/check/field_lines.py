"""The lines of the fields that findings are about. Reads the files again."""

from pathlib import Path

from msgspec.structs import replace

from answers.manifests.check import CheckedFinding, CheckReport
from cli.reading.field_lines import LinesOfFiles
from kube.errors import ObjectFileError
from kube.manifests.compressed import decompress
from kube.manifests.field_lines import MAX_BYTES


def with_field_lines(report: CheckReport, stdin_name: str, stdin_text: bytes) -> CheckReport:
    """Return a report with findings that have the lines of their fields.

    A finding keeps the line of its object where the file cannot be read again, or is large.

    Args:
        stdin_name: The name of standard input, which may be that of another file.
        stdin_text: All of standard input, maybe compressed.
    """
    lines = LinesOfFiles(
        lambda path: decompress(stdin_text, path) if path == stdin_name else _read(path)
    )
    return replace(report, shown=tuple(_with_line(entry, lines) for entry in report.shown))


def _with_line(entry: CheckedFinding, lines: LinesOfFiles) -> CheckedFinding:
    if entry.file is None:
        return entry
    return replace(entry, line=lines.line(entry.file, entry.line, entry.finding.path))


def _read(path: str) -> bytes:
    """Return the text of a file, or as much of it as is too large.

    Raises:
        ObjectFileError: It cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return decompress(file.read(MAX_BYTES + 1), path)
    except OSError as error:
        raise ObjectFileError(f"{path}: {error.strerror}") from error
