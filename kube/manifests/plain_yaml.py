"""One YAML document as plain values, of text that anybody may have written.

The library raises more than its own errors: for a date without such a month, a `!!bool` of another word,
an integer of thousands of digits, and brackets that nest deeper than the interpreter allows.
"""

from typing import Any, Final

import yaml

MAX_BYTES: Final = 2**20
"""The largest size of a document, that of a ConfigMap. The library reads some tens of kilobytes in
a second."""
MAX_ALIASED: Final = 100_000
"""Values that aliases may stand for again: whoever reads the document into types makes each of them, and a few
lines could stand for billions."""
MAX_MERGED: Final = 10_000
"""Entries that merge keys (`<<`) may copy: a few lines of them could ask for billions."""
_MERGE: Final = "tag:yaml.org,2002:merge"


class PlainYamlError(ValueError):
    """Text that is not YAML, or more than is read; the message is one printable line."""


def load_yaml(text: str | bytes, max_bytes: int = MAX_BYTES) -> Any:
    """Return the document of a text; None for an empty one.

    Raises:
        PlainYamlError: It is no YAML, has no meaning, or is too long or too deep.
    """
    if len(text) > max_bytes:
        limit = f"{max_bytes >> 20} MiB" if max_bytes >= MAX_BYTES else f"{max_bytes >> 10} KiB"
        raise PlainYamlError(f"larger than {limit}")
    try:
        return yaml.load(text, _Loader)  # noqa: S506  It is a SafeLoader.
    except RecursionError as fault:
        raise PlainYamlError("it nests too deeply") from fault
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        raise PlainYamlError(_line(f"{line}{fault.problem}")) from fault
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as fault:
        raise PlainYamlError(_line(f"{type(fault).__name__}: {fault}")) from fault


class _Loader(yaml.SafeLoader):
    """The safe loader, with bounds on the nodes that aliases stand for and merge keys copy."""

    _merged = 0

    def get_single_node(self) -> yaml.Node | None:
        """Return the nodes of the document."""
        root: yaml.Node | None = super().get_single_node()
        if root is not None:
            sizes: dict[yaml.Node, int] = {}
            if _size(root, sizes) - len(sizes) > MAX_ALIASED:
                raise yaml.constructor.ConstructorError(
                    problem=f"aliases expand to more than {MAX_ALIASED} values"
                )
        return root

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace merge keys by the entries of the mappings that they name."""
        for key, value in node.value:
            if key.tag != _MERGE:
                continue
            for mapping in value.value if isinstance(value, yaml.SequenceNode) else (value,):
                if isinstance(mapping, yaml.MappingNode):
                    self.flatten_mapping(mapping)
                    self._merged += len(mapping.value)
                    self._check_merged(key)
        super().flatten_mapping(node)

    def _check_merged(self, key: yaml.Node) -> None:
        if self._merged > MAX_MERGED:
            raise yaml.constructor.ConstructorError(
                problem=f"merge keys copy more than {MAX_MERGED} entries",
                problem_mark=key.start_mark,
            )


def _size(node: yaml.Node, sizes: dict[yaml.Node, int]) -> int:
    """Return the number of nodes below a node and itself; those with several aliases count for each.

    Args:
        sizes: The nodes that have been counted, each once.
    """
    if node in sizes:
        return sizes[node]
    sizes[node] = 0  # A node within itself ends here.
    children = () if isinstance(node, yaml.ScalarNode) else node.value
    for child in children:
        for part in child if isinstance(child, tuple) else (child,):
            sizes[node] += _size(part, sizes)
    sizes[node] += 1
    return sizes[node]


def _line(text: str) -> str:
    """Return one printable line of a message that quotes the text."""
    return "".join(char if char.isprintable() else " " for char in text)[:256]
