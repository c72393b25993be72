"""The text of a file with translated objects, for `drawbridge translate --in-place`. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff

import msgspec

from answers.manifests.translate import Document, TranslatedObject
from findings.text import printable
from kube.errors import NotEditable
from kube.manifests.compressed import decompress
from kube.manifests.edit import Change, Path, check_edit, edit_yaml
from kube.manifests.json_reader import read_json
from kube.manifests.lists import flatten
from kube.manifests.source import LocatedDocument
from kube.manifests.yaml_reader import YamlReader


class EditedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and its text with translated objects.

    Attributes:
        changed: The number of objects that differ.
        added: The number of ResourceClaimTemplates that are added.
    """

    path: str
    before: bytes
    after: bytes
    changed: int
    added: int

    def diff(self) -> Iterator[str]:
        """Yield the lines of a unified diff, fit for a terminal."""
        before, after = (
            text.decode().splitlines(keepends=True) for text in (self.before, self.after)
        )
        for line in unified_diff(before, after, self.path, self.path):
            yield "\t".join(map(printable, line.rstrip("\r\n").split("\t")))
            if not line.endswith("\n"):
                yield "\\ No newline at end of file"


def edit_file(path: str, text: bytes, results: Sequence[TranslatedObject]) -> EditedFile:
    """Return the file with its objects translated; an object that does not change keeps its bytes.

    A rejected object stays as it is.

    Args:
        text: The content of the file.
        results: The results of all its objects, in order.

    Raises:
        NotEditable: The file is compressed, JSON or not UTF-8, is not the text whose objects were
            translated, or has a form that cannot be edited.
    """
    located_objects = _locate_objects(path, text)
    if [entry.object for entry in located_objects] != [entry.source.document for entry in results]:
        raise NotEditable(f"{path}: has changed since it was read; try again")
    changes: list[Change] = []
    templates: dict[int, list[Document]] = {}
    objects: dict[int, list[Document]] = {}
    for located, result in zip(located_objects, results, strict=True):
        old = located.object
        new = old if result.document is None else result.document
        objects.setdefault(located.document, []).append(new)
        if new != old:
            templates.setdefault(located.document, []).extend(result.templates)
            changes.append(Change(document=located.document, path=located.path, old=old, new=new))
    after = edit_yaml(text.decode(), path, changes, templates).encode() if changes else text
    expected = [
        document
        for number, own_objects in objects.items()
        for document in (*templates.get(number, ()), *own_objects)
    ]
    check_edit(text, after, path, expected)
    added = sum(map(len, templates.values()))
    return EditedFile(path=path, before=text, after=after, changed=len(changes), added=added)


class _LocatedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object, with the number of its document and its path there."""

    document: int
    path: Path
    object: Document


def _locate_objects(path: str, text: bytes) -> list[_LocatedObject]:
    return [
        _LocatedObject(document=number, path=object_path, object=value)
        for number, document in enumerate(_read_yaml(path, text))
        for object_path, value in _object_paths(document, path).items()
    ]


def _read_yaml(path: str, text: bytes) -> list[LocatedDocument]:
    if decompress(text, path) != text:
        raise NotEditable(f"{path}: is compressed; --in-place edits plain YAML files")
    bare = text.removeprefix(b"\xef\xbb\xbf")
    if read_json(bare, path) is not None:
        raise NotEditable(f"{path}: is JSON; --in-place edits YAML files, so use -o json")
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise NotEditable(f"{path}: is not UTF-8") from error
    return list(YamlReader(bare, path).documents())


def _object_paths(document: LocatedDocument, source: str) -> Mapping[Path, Document]:
    """Return the objects of a document by their paths; of a List those of its items."""
    objects = [source_object.document for source_object in flatten(document, source)]
    if len(objects) == 1 and objects[0] is document.value:
        return {(): objects[0]}
    items = document.value.get("items") or () if isinstance(document.value, dict) else ()
    if len(objects) != len(items):
        raise NotEditable(f"{source}:{document.line}: is a List of Lists; use -o yaml")
    return {("items", index): item for index, item in enumerate(objects)}
