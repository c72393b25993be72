"""The text of the files of fixed objects. Pure but for the reader that is given."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from findings.fixes import FixedObject
from kube.errors import NotEditable
from kube.manifests.dump import dump_yaml
from kube.manifests.edit import Document
from kube.manifests.edited_file import EditedFile, ObjectEdit, edit_file


class UneditedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with text that cannot be edited.

    Attributes:
        reason: The file, the line where one is known, and the cause.
        objects: All objects of the file, fixed.
    """

    reason: str
    objects: tuple[Document, ...]


def edit_files(
    objects: Sequence[FixedObject], read: Callable[[str], bytes], *, only_changed: bool = False
) -> list[EditedFile | UneditedFile]:
    """Return the files of objects, in order of their first ones, with the fixes in their text.

    Args:
        read: Returns the text of a file, or raises NotEditable.
        only_changed: Leave out, and do not read, files whose objects have no fix.

    Raises:
        ObjectFileError: A file cannot be read.
    """
    by_file: dict[str, list[FixedObject]] = {}
    for fixed in objects:
        by_file.setdefault(fixed.before.source, []).append(fixed)
    return [
        _edit_file(path, read, own_objects)
        for path, own_objects in by_file.items()
        if not only_changed or any(fixed.fixes for fixed in own_objects)
    ]


def _edit_file(
    path: str, read: Callable[[str], bytes], objects: Sequence[FixedObject]
) -> EditedFile | UneditedFile:
    try:
        text = read(path)
        if not any(fixed.fixes for fixed in objects):
            return EditedFile(path=path, before=text, after=text, changed=0, added=0)
        edits = [
            ObjectEdit(old=fixed.before.document, new=fixed.checked.source.document)
            for fixed in objects
        ]
        return edit_file(path, text, edits)
    except NotEditable as error:
        documents = tuple(fixed.checked.source.document for fixed in objects)
        return UneditedFile(reason=str(error), objects=documents)


def join_texts(files: Iterable[EditedFile | UneditedFile]) -> bytes:
    """Return the texts of files as one stream of documents; that of a single file as it is.

    The objects of a file that cannot be edited are written anew.
    """
    stream = b""
    for file in files:
        text = file.after if isinstance(file, EditedFile) else dump_yaml(file.objects).encode()
        if stream:
            stream += b"" if stream.endswith(b"\n") else b"\n"
            stream += b"" if text.startswith(b"---") else b"---\n"
        stream += text
    return stream
