"""The lines of fields in the text of manifests: of the keys and items that lead to them."""

from collections.abc import Mapping, Sequence
from typing import Final

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

Step = str | int
"""The key of a mapping or the index of an item."""

MAX_BYTES: Final = 4 * 2**20
"""The largest text in which fields are looked for; a tree of nodes takes ten times its memory."""


class FieldLines:
    """The lines of fields in one text.

    Args:
        text: YAML or JSON of at most `MAX_BYTES`. Of another text no field is known.
    """

    def __init__(self, text: bytes) -> None:
        self._objects: dict[int, Node] = {}
        try:
            for root in yaml.compose_all(text, Loader=yaml.CSafeLoader):
                if root is not None:
                    self._add(root)
        except (yaml.YAMLError, RecursionError):
            self._objects = {}

    def _add(self, root: Node) -> None:
        items = _entries(root).get("items") if isinstance(root, MappingNode) else None
        if items is not None and isinstance(items[1], SequenceNode):
            for item in items[1].value:
                self._objects.setdefault(item.start_mark.line + 1, item)
        self._objects.setdefault(root.start_mark.line + 1, root)

    def line(self, object_line: int, path: Sequence[Step]) -> int:
        """Return the line of a field, or of the deepest part of its path that is written in the text.

        Args:
            object_line: The line on which the object begins, from 1.
            path: The path from the object.
        """
        node = self._objects.get(object_line)
        line = object_line
        for step in path:
            if isinstance(node, MappingNode) and str(step) in (entries := _entries(node)):
                key, value = entries[str(step)]
                line = key.start_mark.line + 1
                # The text of an alias is elsewhere.
                node = value if value.start_mark.index >= key.start_mark.index else None
            elif (
                isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value)
            ):
                item = node.value[step]
                if item.start_mark.index < node.start_mark.index:
                    break
                node, line = item, item.start_mark.line + 1
            else:
                break
        return line


def _entries(node: MappingNode) -> Mapping[str, tuple[Node, Node]]:
    """Return the nodes of keys and values; of equal keys the last counts."""
    return {str(key.value): (key, value) for key, value in node.value}
