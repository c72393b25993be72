"""The text of a file with translated objects, for `drawbridge translate --in-place`. Pure."""

from collections.abc import Sequence
from typing import Final

from answers.manifests.translate import TranslatedObject
from kube.errors import NotEditable
from kube.manifests.compressed import decompress
from kube.manifests.edited_file import EditedFile, ObjectEdit, edit_file
from kube.manifests.json_reader import read_json
from kube.names import REQUEST_ANNOTATION

COMMENT: Final = (
    "The keys that the claims derive from, written by drawbridge translate; do not edit."
)
"""The comment above the record in an edited file."""


def translate_file(path: str, text: bytes, results: Sequence[TranslatedObject]) -> EditedFile:
    """Return the file with its objects translated; an object that does not change keeps its bytes.

    A rejected object stays as it is.

    Args:
        text: The content of the file.
        results: The results of all its objects, in order.

    Raises:
        NotEditable: The file is compressed, JSON or not UTF-8, is not the text whose objects were
            translated, or has a form that cannot be edited.
    """
    if decompress(text, path) != text:
        raise NotEditable(f"{path}: is compressed; --in-place edits plain YAML files")
    # A template is a document of its own, and JSON has one document.
    if read_json(text.removeprefix(b"\xef\xbb\xbf"), path) is not None:
        raise NotEditable(f"{path}: is JSON; --in-place edits YAML files, so use -o json")
    edits = [
        ObjectEdit(
            old=result.source.document,
            new=result.source.document if result.document is None else result.document,
            inserted=result.templates if result.document is not None else (),
        )
        for result in results
    ]
    try:
        return edit_file(path, text, edits, {REQUEST_ANNOTATION: COMMENT})
    except NotEditable as error:
        raise NotEditable(f"{error}; -o yaml prints the objects without their comments") from error
