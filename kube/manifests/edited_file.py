"""The edited text of a file: changed objects are replaced, and the rest stays as it is. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from kube.errors import NotEditable
from kube.manifests.edit import Change, Document, Path, check_edit, edit_yaml
from kube.manifests.lists import flatten
from kube.manifests.reader import read_documents
from kube.manifests.source import LocatedDocument


class ObjectEdit(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a file, as it was read and as it is to be.

    Attributes:
        new: The object after the edit; the old one where it does not change.
        inserted: Documents to write before that of the object, if it changes.
    """

    old: Document
    new: Document
    inserted: tuple[Document, ...] = ()


class EditedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and its text with other objects.

    Attributes:
        changed: The number of objects that differ.
        added: The number of documents that are inserted.
    """

    path: str
    before: bytes
    after: bytes
    changed: int
    added: int


def edit_file(
    path: str, text: bytes, edits: Sequence[ObjectEdit], comments: Mapping[str, str] = {}
) -> EditedFile:
    """Return the file with its objects edited; an object that does not change keeps its bytes.

    Args:
        text: The content of the file; YAML or JSON.
        edits: One for each of its objects, in order.
        comments: Key to the comment above it where it is new.

    Raises:
        NotEditable: The file is not UTF-8, is not the text whose objects were read, or has a form
            that cannot be edited.
    """
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise NotEditable(f"{path}: is not UTF-8") from error
    located_objects = _locate_objects(path, text)
    if [entry.object for entry in located_objects] != [edit.old for edit in edits]:
        raise NotEditable(f"{path}: has changed since it was read; try again")
    changes: list[Change] = []
    inserted: dict[int, list[Document]] = {}
    objects: dict[int, list[Document]] = {}
    for located, edit in zip(located_objects, edits, strict=True):
        old, new, number = located.object, edit.new, located.document
        objects.setdefault(number, []).append(new)
        if new != old:
            inserted.setdefault(number, []).extend(edit.inserted)
            changes.append(Change(document=number, path=located.path, old=old, new=new))
    after = edit_yaml(decoded, path, changes, inserted, comments).encode() if changes else text
    expected = [
        document
        for number, own_objects in objects.items()
        for document in (*inserted.get(number, ()), *own_objects)
    ]
    check_edit(text, after, path, expected)
    added = sum(map(len, inserted.values()))
    return EditedFile(path=path, before=text, after=after, changed=len(changes), added=added)


class _LocatedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object, with the number of its document and its path there."""

    document: int
    path: Path
    object: Document


def _locate_objects(path: str, text: bytes) -> list[_LocatedObject]:
    return [
        _LocatedObject(document=number, path=object_path, object=value)
        for number, document in enumerate(read_documents(text, path))
        for object_path, value in _object_paths(document, path).items()
    ]


def _object_paths(document: LocatedDocument, source: str) -> Mapping[Path, Document]:
    """Return the objects of a document by their paths; of a List those of its items."""
    objects = [source_object.document for source_object in flatten(document, source)]
    if len(objects) == 1 and objects[0] is document.value:
        return {(): objects[0]}
    items = document.value.get("items") or () if isinstance(document.value, dict) else ()
    if len(objects) != len(items):
        raise NotEditable(f"{source}:{document.line}: cannot be edited: it is a List of Lists")
    return {("items", index): item for index, item in enumerate(objects)}
