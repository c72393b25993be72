"""The text of the files of fixed objects. Pure but for the reader that is given."""

from collections.abc import Callable, Iterable, Sequence

from answers.manifests.fixes import FixedObject
from kube.manifests.edited_file import EditedFile, ObjectEdit, edit_file


def edit_files(
    objects: Sequence[FixedObject], read: Callable[[str], bytes], *, only_changed: bool = False
) -> list[EditedFile]:
    """Return the files of objects, in order of their first ones, with the fixes in their text.

    Args:
        read: Returns the text of a file.
        only_changed: Leave out, and do not read, files whose objects have no fix.

    Raises:
        NotEditable: A file has a form that cannot be edited.
        ObjectFileError: A file cannot be read.
    """
    by_file: dict[str, list[FixedObject]] = {}
    for fixed in objects:
        by_file.setdefault(fixed.before.source, []).append(fixed)
    return [
        _edit_file(path, read(path), own_objects)
        for path, own_objects in by_file.items()
        if not only_changed or any(fixed.fixes for fixed in own_objects)
    ]


def _edit_file(path: str, text: bytes, objects: Sequence[FixedObject]) -> EditedFile:
    if not any(fixed.fixes for fixed in objects):
        return EditedFile(path=path, before=text, after=text, changed=0, added=0)
    edits = [
        ObjectEdit(old=fixed.before.document, new=fixed.checked.source.document)
        for fixed in objects
    ]
    return edit_file(path, text, edits)


def join_texts(files: Iterable[EditedFile]) -> bytes:
    """Return the texts of files as one stream of documents; that of a single file as it is."""
    stream = b""
    for file in files:
        if stream:
            stream += b"" if stream.endswith(b"\n") else b"\n"
            stream += b"" if file.after.startswith(b"---") else b"---\n"
        stream += file.after
    return stream
