"""Edit objects in the text of a YAML or JSON file; comments, order and layout of all else stay as they are.

Only the text of values that differ is written anew: of a word just the word, lines of removed keys
are deleted, and new keys and items are inserted below their neighbours. The positions are libyaml's,
which reads JSON as well. A caller proves the result by reading it again (`check_edit`), because YAML
has more forms than are handled here.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgspec
import yaml
from yaml.events import AliasEvent, DocumentStartEvent, NodeEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kube.errors import NotEditable, ObjectFileError
from kube.manifests import scalars
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_objects

Document = Mapping[str, Any]
Path = tuple[str | int, ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """An object that becomes another one.

    Attributes:
        document: The number of its document in the file, from 0.
        path: The object's path in its document; not empty for an item of a List.
    """

    document: int
    path: Path = ()
    old: Document
    new: Document


class _Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the text, and its replacement."""

    start: int
    end: int
    text: str


def edit_yaml(
    text: str,
    source: str,
    changes: Iterable[Change],
    inserted: Mapping[int, Sequence[Document]],
    comments: Mapping[str, str] = {},
) -> str:
    """Return the text with changed objects, and with documents inserted before others.

    Args:
        text: YAML or JSON that `read_objects` accepts.
        source: The name for messages.
        inserted: Number of a document to those that are written before it.
        comments: Key to the comment above it where it is new and on a line of its own.

    Raises:
        NotEditable: A value that changes comes from an alias or a merge key, aliases refer to it,
            or it has another form that cannot be changed alone; or the text is JSON that is not
            YAML, such as a stream.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix(mark)
    editor = _Editor(text, source, comments)
    try:
        roots = list(yaml.compose_all(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError as error:
        message = f"{source}: cannot be edited: it is JSON that is not YAML, such as a stream; use -o json"
        raise NotEditable(message) from error
    for change in changes:
        node = editor.find(roots[change.document], change.path)
        editor.change_mapping(node, change.old, change.new)
    starts = [
        event
        for event in yaml.parse(text, Loader=yaml.CSafeLoader)
        if isinstance(event, DocumentStartEvent)
    ]
    for number, documents in inserted.items():
        editor.insert_documents(number, starts[number], documents)
    return mark + editor.result()


def check_edit(before: bytes, after: bytes, source: str, expected: Iterable[Document]) -> None:
    """Check that an edited text has the expected objects, and every comment line of the old one.

    Raises:
        NotEditable: It has not.
    """
    message = "cannot be edited without changing something else"
    try:
        edited = read_objects(after, source)
    except ObjectFileError as error:
        raise NotEditable(f"{source}: {message}") from error
    new_documents = [_with_lists(document) for document in expected]
    for source_object, document in zip(edited, new_documents, strict=False):
        if source_object.document != document:
            raise NotEditable(f"{source}:{source_object.line}: {message}")
    if len(edited) != len(new_documents):
        raise NotEditable(f"{source}: {message}")
    if lost := _comment_lines(before) - _comment_lines(after):
        lines = (line.strip() for line in before.splitlines())
        number = next(number for number, line in enumerate(lines, 1) if line in lost)
        raise NotEditable(f"{source}:{number}: cannot be edited without losing this comment")


def _with_lists(value: Any) -> Any:
    """Return a value as a file has it: with lists in place of tuples."""
    if isinstance(value, Mapping):
        return {key: _with_lists(child) for key, child in value.items()}
    return [_with_lists(child) for child in value] if isinstance(value, list | tuple) else value


def _comment_lines(text: bytes) -> Counter[bytes]:
    lines = (line.strip() for line in text.splitlines())
    return Counter(line for line in lines if line.startswith(b"#"))


class _Editor:
    """Collects edits of one text."""

    def __init__(self, text: str, source: str, comments: Mapping[str, str]) -> None:
        self._text = text
        self._comments = comments
        self._source = source
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._in_brackets = json.dumps if text.lstrip().startswith("{") else _flow
        self._edits: list[_Edit] = []

    def result(self) -> str:
        """Return the text with all edits applied."""
        self._check_anchors()
        parts: list[str] = []
        position = 0
        # Of several insertions at one place the first stands first: it is the deeper one.
        for edit in sorted(self._edits, key=lambda edit: (edit.start, edit.end)):
            if edit.start < position:
                raise NotEditable(f"{self._source}: cannot be edited: two changes overlap")
            parts += [self._text[position : edit.start], edit.text]
            position = edit.end
        return "".join([*parts, self._text[position:]])

    def _check_anchors(self) -> None:
        """Check that no replaced text has an anchor that the rest of the text refers to."""
        aliases: set[tuple[int, str]] = set()
        anchors: list[tuple[int, str, int]] = []
        document = 0
        for event in yaml.parse(self._text, Loader=yaml.CSafeLoader):
            # An anchor ends with its document.
            document += isinstance(event, DocumentStartEvent)
            if not isinstance(event, NodeEvent) or event.anchor is None:
                continue
            mark = event.start_mark
            if mark is None:
                continue
            start = mark.index
            is_replaced = any(edit.start <= start < edit.end for edit in self._edits)
            if is_replaced and not isinstance(event, AliasEvent):
                anchors.append((document, event.anchor, mark.line + 1))
            elif not is_replaced and isinstance(event, AliasEvent):
                aliases.add((document, event.anchor))
        for number, anchor, line in anchors:
            if (number, anchor) in aliases:
                reason = f"aliases refer to the value by &{anchor}; write it out at each of them"
                self._refuse_line(line, reason)

    def find(self, node: Node, path: Path) -> Node:
        """Return the node at a path."""
        for step in path:
            if isinstance(step, int) and isinstance(node, SequenceNode):
                node = node.value[step]
            elif isinstance(node, MappingNode) and step in (entries := _entries(node)):
                node = entries[str(step)][1]
            else:
                self._refuse(node, f"{step} is not written here")
        return node

    def change_mapping(self, node: Node, old: Document, new: Document) -> None:
        """Change a mapping; its keys that do not differ stay as they are."""
        if not isinstance(node, MappingNode):
            self._refuse(node, "expected a mapping")
        renamed = self._renamed_keys(node, old, new)
        old = {renamed.get(key, key): value for key, value in old.items()}
        added = {key: value for key, value in new.items() if key not in old}
        if node.flow_style and (not old or old.keys() - new.keys()):
            self._replace_flow(node, new)
            return
        entries = self._rename_keys(_entries(node), renamed)
        for key, value in old.items():
            if new.get(key, _ABSENT) == value:
                continue
            if key not in entries:
                self._refuse(node, f"{key} comes from a merge key (<<); write it out")
            key_node, value_node = entries[key]
            if key not in new:
                self._remove_entry(key_node, value_node)
            else:
                self._change_value(
                    key_node, value_node, value, new[key], in_brackets=node.flow_style
                )
        if added and node.flow_style:
            self._insert_in_brackets(node.value[-1], added)
        elif added:
            column = node.value[0][0].start_mark.column
            self._insert_below(_pair_end(node.value[-1], self._text), added, column)

    def _renamed_keys(self, node: MappingNode, old: Document, new: Document) -> dict[str, str]:
        """Return the keys of words that are replaced by another key in the same place, old to new."""
        if len(old) != len(new):
            return {}
        entries, renamed = _entries(node), {}
        for name, new_name in zip(old, new, strict=True):
            if name in new or new_name in old or name not in entries or not _is_word(new[new_name]):
                continue
            key_node, value_node = entries[name]
            if isinstance(key_node, ScalarNode) and isinstance(value_node, ScalarNode):
                if self._word(key_node, new_name) is None:
                    continue
                renamed[name] = new_name
        return renamed

    def _rename_keys(
        self, entries: Mapping[str, tuple[Node, Node]], renamed: Mapping[str, str]
    ) -> dict[str, tuple[Node, Node]]:
        """Rename keys, and return the nodes by the new names."""
        for name, new_name in renamed.items():
            key_node, _ = entries[name]
            if isinstance(key_node, ScalarNode) and (word := self._word(key_node, new_name)):
                self._add(key_node.start_mark.index, key_node.end_mark.index, word)
        return {renamed.get(name, name): nodes for name, nodes in entries.items()}

    def insert_documents(
        self, number: int, start: DocumentStartEvent, documents: Sequence[Document]
    ) -> None:
        """Insert documents before one of the file, above the comments that belong to it."""
        texts = [dump_yaml([document]) for document in documents]
        mark = start.start_mark
        position = mark.index if mark and (start.explicit or number) else 0
        if start.explicit:
            text = "".join(f"---\n{text}" for text in texts)
        else:
            text = "".join(f"{text}---\n" for text in texts)
        self._add(position, position, text)

    def _change_value(
        self, key_node: Node, node: Node, old: Any, new: Any, *, in_brackets: bool
    ) -> None:
        if node.start_mark.index < key_node.start_mark.index:
            self._refuse(key_node, "the value is an alias; write it out")
        if isinstance(node, ScalarNode) and (word := self._word(node, new)) is not None:
            self._add(node.start_mark.index, node.end_mark.index, word)
        elif isinstance(node, ScalarNode) and _is_tagged(node, self._text) and _is_word(new):
            self._add(node.start_mark.index, node.end_mark.index, self._in_brackets(new))
        elif isinstance(node, MappingNode) and old and new and isinstance(new, Mapping):
            self.change_mapping(node, old, new)
        elif in_brackets and isinstance(node, MappingNode | SequenceNode):
            self._change_in_brackets(node, old, new)
        elif in_brackets:
            self._replace_flow(node, new)
        elif isinstance(node, SequenceNode) and isinstance(new, list) and len(new) >= len(old) > 0:
            self._change_sequence(node, old, new)
        else:
            if self._has_question_mark(key_node):
                self._refuse(key_node, "the key is written with a question mark; write key: value")
            column = key_node.start_mark.column
            rendered = self._render({str(key_node.value): new}, column)
            rendered = rendered.removeprefix(" " * column).removesuffix("\n")
            end = _pair_end((key_node, node), self._text)
            self._add(key_node.start_mark.index, end, rendered)

    def _has_question_mark(self, key_node: Node) -> bool:
        """Return True if a key is an explicit one: `? key`, with `: value` on a line below."""
        before = self._text[: key_node.start_mark.index]
        return before[before.rfind("\n") + 1 :].rstrip(" ").endswith("?")

    def _change_sequence(self, node: SequenceNode, old: Sequence[Any], new: Sequence[Any]) -> None:
        """Change items, and append those that are new."""
        if node.flow_style:
            self._change_in_brackets(node, old, new)
            return
        for item, before, after in zip(node.value, old, new, strict=False):
            if before == after:
                continue
            if item.start_mark.index < node.start_mark.index:
                self._refuse(node, "an item is an alias; write it out")
            if not isinstance(before, Mapping) or not isinstance(after, Mapping):
                self._refuse(item, "an item of a list changes")
            self.change_mapping(item, before, after)
        appended = list(new[len(old) :])
        if appended:
            column = node.start_mark.column
            end = _value_end(node.value[-1], node.start_mark.index, self._text)
            self._insert_below(end, appended, column)

    def _word(self, node: ScalarNode, new: Any) -> str | None:
        """Return the text of a new word, quoted as the old one; None if the value takes more."""
        text = self._text[node.start_mark.index : node.end_mark.index]
        if isinstance(new, str) and node.style in _QUOTES and text.startswith(node.style):
            # Within single quotes nothing but these has a meaning.
            special = {"'"} if node.style == "'" else {'"', "\\"}
            is_simple = new.isascii() and new.isprintable() and not set(new) & special
            return f"{node.style}{new}{node.style}" if is_simple else None
        # An anchor, a tag or nothing may stand where the word is expected.
        is_plain = text == node.value != "" or text[:1] == node.style in _QUOTES
        if not is_plain or isinstance(new, bool) or not isinstance(new, str | int):
            return None
        if isinstance(new, int):
            return str(new)
        # Within brackets these would have ended the old word.
        is_free = text == node.value and not _BRACKETS.isdisjoint(text)
        return new if is_free and scalars.quote(new) == new else self._in_brackets(new)

    def _change_in_brackets(self, node: MappingNode | SequenceNode, old: Any, new: Any) -> None:
        """Change items within brackets, or replace all of them if their number differs."""
        is_list = isinstance(node, SequenceNode) and isinstance(new, list)
        if not is_list or len(old) != len(new):
            self._replace_flow(node, new)
            return
        for item, before, after in zip(node.value, old, new, strict=True):
            if before != after:
                self._change_value(node, item, before, after, in_brackets=True)

    def _insert_in_brackets(self, last: tuple[Node, Node], added: Document) -> None:
        """Insert entries behind the last one of a mapping, laid out as that is."""
        start = last[0].start_mark.index
        margin = self._text[self._text.rfind("\n", 0, start) + 1 : start]
        # An entry on a line of its own is followed by others on theirs.
        separator = f",\n{margin}" if margin and not margin.strip() else ", "
        text = "".join(
            separator + self._in_brackets({key: value})[1:-1] for key, value in added.items()
        )
        end = _pair_end(last, self._text)
        self._add(end, end, text)

    def _replace_flow(self, node: Node, new: Any) -> None:
        start, end = node.start_mark.index, node.end_mark.index
        if re.search(r"(?:^|\s)#", self._text[start:end]):
            self._refuse(node, "a comment stands within brackets; write one key per line")
        self._add(start, end, self._in_brackets(new))

    def _remove_entry(self, key_node: Node, value_node: Node) -> None:
        start = key_node.start_mark.index
        line_start = self._text.rfind("\n", 0, start) + 1
        if self._text[line_start:start].strip():
            self._refuse(
                key_node, "a key that is removed stands behind a dash; write it further down"
            )
        end = self._line_end(_pair_end((key_node, value_node), self._text))
        self._add(line_start, end, "")

    def _insert_below(self, position: int, value: Any, column: int) -> None:
        """Insert keys or items on the lines below a position."""
        line_end = self._line_end(position)
        is_ended = self._text[line_end - 1] == "\n"
        rendered = self._render(value, column)
        if is_ended:
            self._add(line_end, line_end, rendered)
        else:
            self._add(line_end, line_end, "\n" + rendered.removesuffix("\n"))

    def _render(self, value: Any, column: int) -> str:
        """Return the lines of a mapping or a list, indented."""
        if isinstance(value, list):
            _, _, text = dump_yaml([{"items": value}]).partition("\n")
        else:
            text = dump_yaml([value])
        text = _with_comments(text, self._comments)
        indent = " " * column
        return "".join(
            f"{indent}{line}\n" if line else "\n" for line in text.removesuffix("\n").split("\n")
        )

    def _line_end(self, position: int) -> int:
        end = self._text.find("\n", position)
        return len(self._text) if end < 0 else end + 1

    def _add(self, start: int, end: int, text: str) -> None:
        self._edits.append(_Edit(start=start, end=end, text=text.replace("\n", self._newline)))

    def _refuse(self, node: Node, reason: str) -> NoReturn:
        self._refuse_line(node.start_mark.line + 1, reason)

    def _refuse_line(self, line: int, reason: str) -> NoReturn:
        raise NotEditable(f"{self._source}:{line}: cannot be edited: {reason}")


_ABSENT: Final = object()


def _with_comments(text: str, comments: Mapping[str, str]) -> str:
    """Add comments above keys, each the first word of its line, to YAML of our own."""
    lines = text.split("\n")
    places = [
        (key_node.start_mark.line, key_node.start_mark.column, comments[key_node.value])
        for key_node in _keys(yaml.compose(text, Loader=yaml.CSafeLoader))
        if key_node.value in comments
    ]
    for number, column, comment in sorted(places, reverse=True):
        if not lines[number][:column].strip():
            lines.insert(number, f"{' ' * column}# {comment}")
    return "\n".join(lines)


def _keys(node: Node | None) -> Iterator[ScalarNode]:
    """Yield the keys of all mappings in a node."""
    if isinstance(node, MappingNode):
        for key_node, value_node in node.value:
            if isinstance(key_node, ScalarNode):
                yield key_node
            yield from _keys(value_node)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            yield from _keys(item)


def _entries(node: MappingNode) -> dict[str, tuple[Node, Node]]:
    """Return the nodes of keys and values; of equal keys the last counts."""
    return {str(key.value): (key, value) for key, value in node.value}


def _is_tagged(node: ScalarNode, text: str) -> bool:
    """Return True if a tag or an anchor stands before a word that is there, on one line."""
    start, end = node.start_mark.index, node.end_mark.index
    return text[start] in "!&" and node.style not in _BLOCK_STYLES and "\n" not in text[start:end]


def _is_word(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _pair_end(pair: tuple[Node, Node], text: str) -> int:
    """Return the end of the text of a key and its value, without a comment behind it."""
    key, value = pair
    return max(key.end_mark.index, _value_end(value, key.start_mark.index, text))


def _value_end(node: Node, after: int, text: str) -> int:
    """Return the end of the text of a value; `after` for an alias, since its text is elsewhere.

    The end marks of block collections are not used: they lie behind comments and blank lines.
    """
    start = node.start_mark.index
    if start < after:
        return after
    if isinstance(node, ScalarNode):
        end = node.end_mark.index
        return start + len(text[start:end].rstrip()) if node.style in _BLOCK_STYLES else end
    if not isinstance(node, MappingNode | SequenceNode) or node.flow_style or not node.value:
        return node.end_mark.index
    last = node.value[-1]
    return _pair_end(last, text) if isinstance(node, MappingNode) else _value_end(last, start, text)


_BLOCK_STYLES: Final = ("|", ">")
_QUOTES: Final = ('"', "'")
_BRACKETS: Final = frozenset("[]{},")


def _flow(value: Any) -> str:
    """Return a value on one line, in braces and brackets."""
    match value:
        case Mapping():
            pairs = (f"{_flow_word(key)}: {_flow(child)}" for key, child in value.items())
            return f"{{{', '.join(pairs)}}}"
        case list() | tuple():
            return f"[{', '.join(map(_flow, value))}]"
        case str():
            return _flow_word(value)
        case _:
            return json.dumps(value)


def _flow_word(text: str) -> str:
    quoted = scalars.quote(text)
    # Between brackets a comma ends a word, and so do others.
    is_whole = quoted != text or _FLOW_PLAIN.fullmatch(text)
    return quoted if is_whole else json.dumps(text, ensure_ascii=False)


_FLOW_PLAIN: Final = re.compile(r"[A-Za-z0-9/_.+-]*")
