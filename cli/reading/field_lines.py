"""The lines of the fields that findings are about, in files that are read again."""

from collections.abc import Callable
from typing import Final

from findings.field_path import FieldPath, Key
from kube.errors import ObjectFileError
from kube.manifests.field_lines import MAX_BYTES, FieldLines

_NOTHING: Final = FieldLines(b"")


class LinesOfFiles:
    """The lines of fields in files.

    Each file is read once. A field has the line of its object where the text of the file is not known,
    or is large.

    Args:
        read: Returns the text of a file, decompressed, or raises ObjectFileError.
    """

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self._read = read
        self._files: dict[str, FieldLines] = {}

    def line(self, file: str, object_line: int, path: FieldPath) -> int:
        """Return the line of a field, or of the deepest part of its path that is in the file.

        Args:
            object_line: The line on which the object begins, from 1.
            path: The path from the object.
        """
        if file not in self._files:
            self._files[file] = self._lines_of(file)
        steps = [step.name if isinstance(step, Key) else step for step in path.steps]
        return self._files[file].line(object_line, steps)

    def _lines_of(self, file: str) -> FieldLines:
        try:
            text = self._read(file)
        except ObjectFileError:
            return _NOTHING
        return FieldLines(text) if len(text) <= MAX_BYTES else _NOTHING
