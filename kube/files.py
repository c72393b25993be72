"""Objects from YAML and JSON text, and back: what kubectl would send, with file and line.

A document that is JSON is read by a JSON parser. All else is YAML: libyaml scans it, and values are
built straight from its events, because a tree of nodes costs more time and ten times the memory
of the text. What a word means is decided in kube/scalars.py.

Everything is bounded, since files come from strangers: size, values, depth, and what aliases copy.
"""

import base64
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import msgspec
import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from kube import scalars
from kube.api.meta import ApiStruct, ObjectMeta, decode
from kube.errors import ObjectFileError

MAX_BYTES: Final = 128 * 2**20
"""One file; a snapshot of 5,000 nodes and their slices is some tens of MB."""
MAX_MARKS: Final = 10_000_000
"""Commas, brackets, dashes and line ends, counted before anything is built: no value comes without
one. At this bound YAML of the worst shape takes about ten seconds."""
MAX_DEPTH: Final = 200
"""Nested mappings and sequences; the deepest schemas of real CRDs stay below 60."""
MAX_ALIASED_NODES: Final = 100_000
"""Values that aliases may copy in one file; kubectl stops at about four times that."""
STDIN: Final = "<stdin>"
SUFFIXES: Final = (".json", ".yaml", ".yml")


class SourceObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object as a file has it.

    Attributes:
        document: Dicts with text as keys, lists, strings, numbers, booleans and None.
        source: The file's name, or `<stdin>`.
        line: Where the object begins, from 1.
    """

    document: dict[str, Any]
    source: str
    line: int

    @property
    def api_version(self) -> str:
        """`apiVersion`, never empty."""
        return str(self.document["apiVersion"])

    @property
    def kind(self) -> str:
        """`kind`, never empty."""
        return str(self.document["kind"])

    @property
    def name(self) -> str:
        """`metadata.name`, else `metadata.generateName` as written, else empty."""
        return self._metadata("name") or self._metadata("generateName")

    @property
    def is_named(self) -> bool:
        """It has a name already, so that there can be only one of it."""
        return bool(self._metadata("name"))

    @property
    def namespace(self) -> str:
        """`metadata.namespace` as written; empty when absent."""
        return self._metadata("namespace")

    def _metadata(self, field: str) -> str:
        metadata = self.document.get("metadata")
        value = metadata.get(field) if isinstance(metadata, dict) else None
        return value if isinstance(value, str) else ""


class ViewedObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object of a file of which only a typed view was made.

    Attributes:
        value: The view; its `metadata` is an ObjectMeta.
        source: The file's name, or `<stdin>`.
    """

    api_version: str
    kind: str
    value: ApiStruct
    source: str

    @property
    def name(self) -> str:
        """`metadata.name`, else `metadata.generateName` as written, else empty."""
        return self._metadata.name or self._metadata.generate_name

    @property
    def is_named(self) -> bool:
        """It has a name already, so that there can be only one of it."""
        return bool(self._metadata.name)

    @property
    def namespace(self) -> str:
        """`metadata.namespace` as written; empty when absent."""
        return self._metadata.namespace

    @property
    def _metadata(self) -> ObjectMeta:
        metadata: ObjectMeta = self.value.metadata  # type: ignore[attr-defined] # See above.
        return metadata


class _Located(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed value and its first line; `item_lines` are those of a List's items, if known."""

    value: Any
    line: int
    item_lines: tuple[int, ...] = ()


def read_paths(paths: Iterable[str], *, stdin: BinaryIO | None = None) -> list[SourceObject]:
    """Return the objects of what `-f` names: files, directories, or `-` for standard input.

    Of a directory the files `*.yaml`, `*.yml` and `*.json` are read by name, not deeper.

    Raises:
        ObjectFileError: A path cannot be read, or `read_objects` refuses its text.
    """
    return [each for name, text in _all_texts(paths, stdin) for each in read_objects(text, name)]


def read_views(
    paths: Iterable[str],
    kinds: Mapping[tuple[str, str], type[ApiStruct]],
    *,
    stdin: BinaryIO | None = None,
) -> list[SourceObject | ViewedObject]:
    """Return the objects of these kinds, as views where they stand in a JSON List.

    That is what `kubectl get -o json` prints, and it takes a tenth of the time that documents do.
    What cannot be viewed comes as a document, for the caller to say what is wrong with it.

    Args:
        paths: As for `read_paths`.
        kinds: (apiVersion, kind) to view. Objects of other kinds are left out, if that is easy.

    Raises:
        ObjectFileError: As `read_paths`.
    """
    found: list[SourceObject | ViewedObject] = []
    for name, text in _all_texts(paths, stdin):
        _check_size(text, name)
        views = _views(text, kinds, name)
        found += read_objects(text, name) if views is None else views
    return found


def _all_texts(paths: Iterable[str], stdin: BinaryIO | None) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        try:
            yield from _texts(path, sys.stdin.buffer if stdin is None else stdin)
        except OSError as error:
            raise ObjectFileError(f"{error.filename or path}: {error.strerror}") from error


def _texts(path: str, stdin: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield name and text of each file that one `-f` names."""
    if not path:
        raise ObjectFileError("an empty path names no file")
    if path == "-":
        yield STDIN, stdin.read(MAX_BYTES + 1)
        return
    for file in _files(Path(path)):
        with file.open("rb") as stream:
            yield str(file), stream.read(MAX_BYTES + 1)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise ObjectFileError(f"{path}: no {', '.join(SUFFIXES)} file in this directory")
    return files


def read_objects(text: bytes, source: str) -> list[SourceObject]:
    """Return the objects of a stream of documents in order; Lists are flattened.

    Empty documents are skipped. Items of a typed list (`PodList`) that lack apiVersion and kind
    get them from the list, as in kubectl.

    Args:
        text: YAML or JSON in UTF-8, any number of documents.
        source: The name for messages.

    Raises:
        ObjectFileError: The text is neither YAML nor JSON, a document is not an object with
            apiVersion and kind, or a bound is exceeded. The message begins with `source:line:`.
    """
    _check_size(text, source)
    text = text.removeprefix(b"\xef\xbb\xbf")
    documents = _json_documents(text, source)
    if documents is None:
        documents = _YamlReader(text, source).documents()
    return [each for document in documents for each in _objects(document, source)]


def _check_size(text: bytes, source: str) -> None:
    if len(text) > MAX_BYTES:
        raise ObjectFileError(f"{source}:1: larger than {MAX_BYTES >> 20} MiB")
    if sum(text.count(mark) for mark in (b",", b"[", b"{", b"- ", b"\n")) > MAX_MARKS:
        raise ObjectFileError(f"{source}:1: more than {MAX_MARKS} values or lines")


def _refuse(source: str, line: int, message: str) -> NoReturn:
    raise ObjectFileError(f"{source}:{line}: {message}")


def _objects(located: _Located, source: str) -> Iterator[SourceObject]:
    document, line = located.value, located.line
    if document is None:
        return
    if not isinstance(document, dict):
        _refuse(source, line, f"expected an object, found {_kind_of(document)}")
    for field in ("apiVersion", "kind"):
        value = document.get(field)
        if value is None or value == "":
            _refuse(source, line, f"{field} is missing")
        if not isinstance(value, str):
            _refuse(source, line, f"{field} is {_kind_of(value)}, not a string")
    if not _is_list(document):
        yield SourceObject(document=document, source=source, line=line)
        return
    for index, item in enumerate(document.get("items") or ()):
        at = located.item_lines[index] if index < len(located.item_lines) else line
        if not isinstance(item, dict):
            _refuse(source, at, f"items[{index}]: expected an object, found {_kind_of(item)}")
        yield from _objects(_Located(value=_with_type(item, document), line=at), source)


def _is_list(document: Mapping[str, Any]) -> bool:
    """Say whether this is `List`, or an `...List` that has items (null when Go had none)."""
    if document["kind"] == "List":
        return isinstance(document.get("items"), list | None)
    kind: str = document["kind"]
    return (
        kind.endswith("List") and "items" in document and isinstance(document["items"], list | None)
    )


def _with_type(item: dict[str, Any], parent: Mapping[str, Any]) -> dict[str, Any]:
    kind = parent["kind"].removesuffix("List")
    if not kind or "kind" in item or "apiVersion" in item:
        return item
    return {"apiVersion": parent["apiVersion"], "kind": kind, **item}


def _kind_of(value: object) -> str:
    """Return what JSON calls a value.

    >>> _kind_of([]), _kind_of("x"), _kind_of(True)
    ('a list', 'a string', 'a boolean')
    """
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case None:
            return "null"
        case _:
            return "a number"


# JSON


def _json_documents(text: bytes, source: str) -> Iterable[_Located] | None:
    """Return the documents of a JSON stream; None when YAML has to judge, and to word the error."""
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] != b"{":
        return None
    first_line = text.count(b"\n", 0, start) + 1
    try:
        return [_json_document(text, first_line, source)]
    except (msgspec.DecodeError, RecursionError):
        return _json_stream(text, source)


def _json_document(text: bytes, line: int, source: str) -> _Located:
    """Return one document; the items of a List keep their lines.

    Raises:
        msgspec.DecodeError: This is not one JSON object.
    """
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    raw_items = bytes(fields["items"]) if "items" in fields else b""
    if not raw_items.startswith(b"["):
        return _Located(value=_bounded(msgspec.json.decode(text), source, line), line=line)
    items: list[Any] = []
    item_lines: list[int] = []
    at = text.find(raw_items)
    line_at = line + text.count(b"\n", len(text) - len(text.lstrip()), at)
    for raw in msgspec.json.decode(raw_items, type=list[msgspec.Raw]):
        item = bytes(raw)
        begin = text.find(item, at)
        line_at += text.count(b"\n", at, begin)
        item_lines.append(line_at)
        items.append(_bounded(msgspec.json.decode(item), source, line_at))
        at = begin + len(item)
        line_at += item.count(b"\n")
    value = {
        name: items if name == "items" else _bounded(msgspec.json.decode(raw), source, line)
        for name, raw in fields.items()
    }
    return _Located(value=value, line=line, item_lines=tuple(item_lines))


def _json_stream(text: bytes, source: str) -> list[_Located] | None:
    """Return documents that stand one behind the other, as `kubectl get --watch -o json` prints."""
    try:
        characters = text.decode()
        at, line, found = 0, 1, []
        while rest := characters[at:].lstrip():
            begin = len(characters) - len(rest)
            _, end = json.JSONDecoder().raw_decode(characters, begin)
            line += characters.count("\n", at, begin)
            found.append(_json_document(characters[begin:end].encode(), line, source))
            line += characters.count("\n", begin, end)
            at = end
    except (ValueError, RecursionError):  # Also UnicodeDecodeError and msgspec.DecodeError.
        return None
    return found


def _bounded(value: Any, source: str, line: int) -> Any:
    """Return the value, unless it is nested too deeply; walks it level by level."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return value
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list
        ]
    _refuse(source, line, f"nested deeper than {MAX_DEPTH} levels")


class _Head(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an object says of itself; of a List, also what it holds."""

    api_version: str
    kind: str
    items: list[msgspec.Raw] | None = None


def _views(
    text: bytes, kinds: Mapping[tuple[str, str], type[ApiStruct]], source: str
) -> list[SourceObject | ViewedObject] | None:
    """Return the objects of a JSON List; None when the text is anything else.

    >>> _views(b'{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": 1}]}', {}, "-")
    """
    try:
        outer = msgspec.json.decode(text, type=_Head)
        if outer.kind != "List" or outer.items is None:
            return None
        heads = [msgspec.json.decode(raw, type=_Head) for raw in outer.items]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not all(head.api_version and head.kind and head.items is None for head in heads):
        return None
    found: list[SourceObject | ViewedObject] = []
    for head, raw in zip(heads, outer.items, strict=True):
        kind = kinds.get((head.api_version, head.kind))
        if kind is not None:
            found.append(_view(head, raw, kind, source) or _item(text, bytes(raw), source))
    return found


def _view(head: _Head, raw: msgspec.Raw, kind: type[ApiStruct], source: str) -> ViewedObject | None:
    try:
        value = decode(raw, kind)
    except (msgspec.DecodeError, RecursionError):
        return None
    return ViewedObject(api_version=head.api_version, kind=head.kind, value=value, source=source)


def _item(text: bytes, item: bytes, source: str) -> SourceObject:
    line = 1 + text.count(b"\n", 0, text.find(item))
    document = _bounded(msgspec.json.decode(item), source, line)
    return SourceObject(document=document, source=source, line=line)


# YAML


class _NotJson(ValueError):
    """A word that YAML can say and JSON cannot."""


class _Values(dict[str, scalars.Scalar]):
    """Unquoted words of one file to their values; a word is resolved once, and kept once."""

    def __missing__(self, text: str) -> scalars.Scalar:
        value = self[text] = scalars.resolved(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise _NotJson(f"{text} is not a number of JSON")
        return value


class _Keys(dict[str, str]):
    """Unquoted keys of one file to JSON keys."""

    def __missing__(self, text: str) -> str:
        key = scalars.key(text)
        if key is None:
            raise _NotJson(f"{text or 'nothing'} cannot be a key")
        self[text] = key
        return key


class _YamlReader:
    """Builds the values of one YAML text out of libyaml's events."""

    def __init__(self, text: bytes, source: str) -> None:
        self._text = text
        self._source = source
        self._next = yaml.CSafeLoader(text).get_event
        self._values = _Values()
        self._keys = _Keys()
        self._anchors: dict[str, Any] = {}
        self._item_lines: list[int] = []
        self._aliased = 0

    def documents(self) -> Iterator[_Located]:
        """Yield each document; the parser's own errors become ObjectFileErrors with their line."""
        try:
            for event in iter(self._next, None):
                if type(event) is DocumentStartEvent:
                    yield self._document(self._event())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = self._hinted(f"not YAML: {error.problem}")
            _refuse(self._source, mark.line + 1 if mark else 1, message)
        except yaml.reader.ReaderError as error:
            line = self._text.count(b"\n", 0, error.position) + 1
            _refuse(self._source, line, f"not YAML: {error.reason}")

    def _document(self, root: Any) -> _Located:
        self._anchors.clear()
        self._item_lines = []
        value = self._value(root, 0)
        line = root.start_mark.line + 1
        return _Located(value=value, line=line, item_lines=tuple(self._item_lines))

    def _event(self) -> Any:  # The stubs know an event's class, not its attributes.
        return self._next()

    def _hinted(self, message: str) -> str:
        is_template = b"{{" in self._text
        return f"{message}; if this is a template, render it first" if is_template else message

    def _refuse(self, event: Any, message: str) -> NoReturn:
        _refuse(self._source, event.start_mark.line + 1, message)

    def _value(self, event: Any, depth: int) -> Any:
        """Return the value that an event begins."""
        kind = type(event)
        if kind is AliasEvent:
            return self._aliased_value(event)
        value: Any
        if kind is ScalarEvent:
            value = self._scalar(event)
        elif depth == MAX_DEPTH:
            self._refuse(event, f"nested deeper than {MAX_DEPTH} levels")
        elif kind is MappingStartEvent:
            value = self._mapping(depth + 1)
        else:
            value = self._sequence(depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _mapping(self, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        read, keys, values = self._next, self._keys, self._values
        event: Any = read()
        try:
            while type(event) is not MappingEndEvent:
                # The short way is for what nearly every line is: a key and value without marks.
                if type(event) is not ScalarEvent or event.tag is not None or event.anchor:
                    key = self._marked_key(event, depth)
                elif not event.implicit[0]:
                    key = event.value
                elif event.value == "<<":
                    self._merge(read(), result, depth)
                    event = read()
                    continue
                else:
                    key = keys[event.value]
                event = read()
                if type(event) is not ScalarEvent or event.tag is not None or event.anchor:
                    is_items = depth == 1 and key == "items"
                    result[key] = self._items(event) if is_items else self._value(event, depth)
                else:
                    result[key] = values[event.value] if event.implicit[0] else event.value
                event = read()
        except _NotJson as error:
            self._refuse(event, str(error))
        return result

    def _sequence(self, depth: int) -> list[Any]:
        result: list[Any] = []
        read, values = self._next, self._values
        event: Any = read()
        try:
            while type(event) is not SequenceEndEvent:
                if type(event) is not ScalarEvent or event.tag is not None or event.anchor:
                    result.append(self._value(event, depth))
                else:
                    result.append(values[event.value] if event.implicit[0] else event.value)
                event = read()
        except _NotJson as error:
            self._refuse(event, str(error))
        return result

    def _items(self, event: Any) -> Any:
        """Return the value of the outermost `items`, and note the line of each item."""
        if type(event) is not SequenceStartEvent or event.anchor:
            return self._value(event, 1)
        result: list[Any] = []
        while type(item := self._event()) is not SequenceEndEvent:
            self._item_lines.append(item.start_mark.line + 1)
            result.append(self._value(item, 2))
        return result

    def _scalar(self, event: Any) -> scalars.Scalar:
        """Return a scalar's value; its tag, when it is one that we know, has to agree."""
        tag, text = event.tag, event.value
        if tag is None:
            return self._values[text] if event.implicit[0] else str(text)
        if tag in _RESOLVED_TAGS:
            value = self._values[text]
            if type(value) not in _RESOLVED_TAGS[tag]:
                self._refuse(event, f"{text!r} is not what its tag says")
            return value
        if tag == "tag:yaml.org,2002:binary":
            try:
                return base64.b64decode(text).decode()
            except ValueError:
                self._refuse(event, "!!binary holds no base64 of UTF-8 text")
        return str(text)

    def _marked_key(self, event: Any, depth: int) -> str:
        """Return the key of an event that is tagged, anchored, an alias, or no key at all."""
        value = self._value(event, depth)
        if isinstance(value, str):
            return value
        if isinstance(value, dict | list):
            self._refuse(event, self._hinted(f"{_kind_of(value)} cannot be a key"))
        return self._keys["null" if value is None else json.dumps(value)]

    def _merge(self, event: Any, result: dict[str, Any], depth: int) -> None:
        """Apply `<<`: as in go-yaml, it overwrites what stands above it and not what follows."""
        value = self._value(event, depth)
        # Of several mappings the first wins.
        for each in reversed(value if isinstance(value, list) else [value]):
            if not isinstance(each, dict):
                self._refuse(event, "<< takes a mapping or a list of mappings")
            result.update(each)

    def _aliased_value(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            self._refuse(event, f"the alias *{event.anchor} has no anchor before it")
        return self._copy(event, self._anchors[event.anchor])

    def _copy(self, event: Any, value: Any) -> Any:
        """Return a copy, so that no two objects share a part; the sum of all copies is bounded."""
        self._aliased += 1
        if self._aliased > MAX_ALIASED_NODES:
            self._refuse(event, f"aliases expand to more than {MAX_ALIASED_NODES} values")
        if isinstance(value, dict):
            return {key: self._copy(event, each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._copy(event, each) for each in value]
        return value


_RESOLVED_TAGS: Final[dict[str, tuple[type, ...]]] = {
    "tag:yaml.org,2002:bool": (bool,),
    "tag:yaml.org,2002:float": (int, float),
    "tag:yaml.org,2002:int": (int,),
    "tag:yaml.org,2002:null": (type(None),),
}


# Writing


def dump_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """Return a stream of documents that `kubectl apply -f -` takes and people like to read.

    Keys keep their order, nothing is an alias, strings of several lines are block literals, and
    strings that YAML 1.1 or 1.2 could take for another type are quoted.

    Raises:
        ValueError: A number is infinite or NaN.

    >>> print(dump_yaml([{"kind": "Pod", "args": ["yes", 1, None], "labels": {}}]), end="")
    kind: Pod
    args:
    - "yes"
    - 1
    - null
    labels: {}
    """
    return "---\n".join("".join(f"{line}\n" for line in _block(each, "")) for each in objects)


def _block(value: Any, indent: str) -> Iterator[str]:
    """Yield the lines of a value that starts a line, each with its indent."""
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from _pair(key, child, indent)
    elif isinstance(value, list | tuple) and value:
        for child in value:
            lines = _block(child, indent + "  ")
            yield f"{indent}- {next(lines)[len(indent) + 2 :]}"
            yield from lines
    else:
        yield indent + _inline(value, indent)


def _pair(key: str, value: Any, indent: str) -> Iterator[str]:
    name = f"{indent}{scalars.quoted(key)}:"
    if len(name) > _LONGEST_SIMPLE_KEY:
        yield f"{indent}? {scalars.quoted(key)}"
        name = f"{indent}:"
    if not isinstance(value, Mapping | list | tuple) or not value:
        yield f"{name} {_inline(value, indent + '  ')}"
        return
    yield name
    # A list may stand right below its key, as kubectl prints it.
    yield from _block(value, indent if isinstance(value, list | tuple) else indent + "  ")


def _inline(value: Any, indent: str) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return scalars.literal(value, indent) or scalars.quoted(value)
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return scalars.floating(value)
        case Mapping():
            return "{}"
        case list() | tuple():
            return "[]"
        case _:
            raise ValueError(f"{value!r} is not a value of JSON")


_LONGEST_SIMPLE_KEY: Final = 1000
"""YAML wants the colon within 1024 characters of the key's beginning."""
