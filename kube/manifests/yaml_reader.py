"""Read YAML documents: values are built directly from libyaml's events."""

import base64
import json
import math
from collections.abc import Iterator
from typing import Any, Final, NoReturn

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

from kube.api.meta import MAX_DEPTH
from kube.manifests import scalars
from kube.manifests.source import MAX_ALIASED_NODES, LocatedDocument, json_type, raise_at


class _NotJsonError(ValueError):
    """A YAML word without a JSON value."""


class _Values(dict[str, scalars.Scalar]):
    """The values of a file's unquoted words; each word is resolved once."""

    def __missing__(self, text: str) -> scalars.Scalar:
        value = self[text] = scalars.resolve(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise _NotJsonError(f"{text} is not a JSON number")
        return value


class _Keys(dict[str, str]):
    """The JSON keys of a file's unquoted keys."""

    def __missing__(self, text: str) -> str:
        key = scalars.resolve_key(text)
        if key is None:
            raise _NotJsonError(f"{text or 'nothing'} cannot be a key")
        self[text] = key
        return key


class YamlReader:
    """Builds the values of a YAML text from libyaml's events."""

    def __init__(self, text: bytes, source: str) -> None:
        self._text = text
        self._source = source
        self._next = yaml.CSafeLoader(text).get_event
        self._values = _Values()
        self._keys = _Keys()
        self._anchors: dict[str, Any] = {}
        self._item_lines: list[int] = []
        self._aliased = 0

    def documents(self) -> Iterator[LocatedDocument]:
        """Yield each document; the parser's errors become ObjectFileErrors with their line."""
        try:
            for event in iter(self._next, None):
                if type(event) is DocumentStartEvent:
                    yield self._read_document(self._next_event())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = self._with_hint(f"not YAML: {error.problem}")
            is_json = self._text.lstrip()[:1] in {b"{", b"["}
            if is_json and mark and mark.index >= len(self._text.rstrip()):
                message = "not JSON: the text ends inside an object or a list, as of a file that is cut off"
            raise_at(self._source, mark.line + 1 if mark else 1, message)
        except yaml.reader.ReaderError as error:
            line = self._text.count(b"\n", 0, error.position) + 1
            raise_at(self._source, line, f"not YAML: {error.reason}")

    def _read_document(self, root: Any) -> LocatedDocument:
        self._anchors.clear()
        self._item_lines = []
        value = self._read_value(root, 0)
        line = root.start_mark.line + 1
        return LocatedDocument(value=value, line=line, item_lines=tuple(self._item_lines))

    def _next_event(self) -> Any:  # The stubs know an event's class, not its attributes.
        return self._next()

    def _with_hint(self, message: str) -> str:
        is_template = b"{{" in self._text
        return f"{message}; if this is a template, render it first" if is_template else message

    def _raise_at(self, event: Any, message: str) -> NoReturn:
        raise_at(self._source, event.start_mark.line + 1, message)

    def _raise_too_deep(self, event: Any) -> NoReturn:
        self._raise_at(event, f"nested deeper than {MAX_DEPTH} levels")

    def _read_value(self, event: Any, depth: int) -> Any:
        """Read the value that begins with an event."""
        kind = type(event)
        if kind is AliasEvent:
            return self._read_alias(event, depth)
        value: Any
        if kind is ScalarEvent:
            value = self._read_scalar(event)
        elif depth == MAX_DEPTH:
            self._raise_too_deep(event)
        elif kind is MappingStartEvent:
            value = self._read_mapping(depth + 1)
        else:
            value = self._read_sequence(depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _read_mapping(self, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        next_event, keys, values = self._next, self._keys, self._values
        event: Any = next_event()
        try:
            while type(event) is not MappingEndEvent:
                # The fast path: a key and a scalar without tag or anchor.
                if type(event) is not ScalarEvent or event.tag is not None or event.anchor:
                    key = self._read_marked_key(event, depth)
                elif not event.implicit[0]:
                    key = event.value
                elif event.value == "<<":
                    self._merge(next_event(), result, depth)
                    event = next_event()
                    continue
                else:
                    key = keys[event.value]
                event = next_event()
                if type(event) is not ScalarEvent or event.tag is not None or event.anchor:
                    is_items = depth == 1 and key == "items"
                    result[key] = (
                        self._read_items(event) if is_items else self._read_value(event, depth)
                    )
                else:
                    result[key] = values[event.value] if event.implicit[0] else event.value
                event = next_event()
        except _NotJsonError as error:
            self._raise_at(event, str(error))
        return result

    def _read_sequence(self, depth: int) -> list[Any]:
        result: list[Any] = []
        next_event, values = self._next, self._values
        event: Any = next_event()
        try:
            while type(event) is not SequenceEndEvent:
                if type(event) is not ScalarEvent or event.tag is not None or event.anchor:
                    result.append(self._read_value(event, depth))
                else:
                    result.append(values[event.value] if event.implicit[0] else event.value)
                event = next_event()
        except _NotJsonError as error:
            self._raise_at(event, str(error))
        return result

    def _read_items(self, event: Any) -> Any:
        """Read the value of the outermost `items`, and record the line of each item."""
        if type(event) is not SequenceStartEvent or event.anchor:
            return self._read_value(event, 1)
        result: list[Any] = []
        while type(item := self._next_event()) is not SequenceEndEvent:
            self._item_lines.append(item.start_mark.line + 1)
            result.append(self._read_value(item, 2))
        return result

    def _read_scalar(self, event: Any) -> scalars.Scalar:
        """Read a scalar; a known tag must agree with its value."""
        tag, text = event.tag, event.value
        if tag is None:
            return self._values[text] if event.implicit[0] else str(text)
        if tag in _RESOLVED_TAGS:
            value = self._values[text]
            if type(value) not in _RESOLVED_TAGS[tag]:
                self._raise_at(event, f"{text!r} does not agree with its tag")
            return value
        if tag == "tag:yaml.org,2002:binary":
            try:
                return base64.b64decode(text).decode()
            except ValueError:
                self._raise_at(event, "!!binary holds no base64 of UTF-8 text")
        return str(text)

    def _read_marked_key(self, event: Any, depth: int) -> str:
        """Read a key with a tag or an anchor, an alias, or a value that cannot be a key."""
        value = self._read_value(event, depth)
        if isinstance(value, str):
            return value
        if isinstance(value, dict | list):
            self._raise_at(event, self._with_hint(f"{json_type(value)} cannot be a key"))
        return self._keys["null" if value is None else json.dumps(value)]

    def _merge(self, event: Any, result: dict[str, Any], depth: int) -> None:
        """Apply `<<`: as in go-yaml, it overwrites previous keys and not later ones."""
        value = self._read_value(event, depth)
        # Of several mappings the first wins.
        for mapping in reversed(value if isinstance(value, list) else [value]):
            if not isinstance(mapping, dict):
                self._raise_at(event, "<< takes a mapping or a list of mappings")
            result.update(mapping)

    def _read_alias(self, event: Any, depth: int) -> Any:
        if event.anchor not in self._anchors:
            self._raise_at(event, f"the alias *{event.anchor} has no anchor before it")
        return self._copy(event, self._anchors[event.anchor], depth)

    def _copy(self, event: Any, value: Any, depth: int) -> Any:
        """Return a copy, so that objects share no parts; the total size of copies is limited."""
        self._aliased += 1
        if self._aliased > MAX_ALIASED_NODES:
            self._raise_at(event, f"aliases expand to more than {MAX_ALIASED_NODES} values")
        if isinstance(value, dict | list) and depth == MAX_DEPTH:
            self._raise_too_deep(event)
        if isinstance(value, dict):
            return {key: self._copy(event, child, depth + 1) for key, child in value.items()}
        if isinstance(value, list):
            return [self._copy(event, child, depth + 1) for child in value]
        return value


_RESOLVED_TAGS: Final[dict[str, tuple[type, ...]]] = {
    "tag:yaml.org,2002:bool": (bool,),
    "tag:yaml.org,2002:float": (int, float),
    "tag:yaml.org,2002:int": (int,),
    "tag:yaml.org,2002:null": (type(None),),
}
