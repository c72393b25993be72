"""Write Kubernetes objects as YAML that kubectl reads back unchanged."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kube.manifests import scalars


def dump_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as a stream of documents for `kubectl apply -f -`.

    Keys keep their order, there are no aliases, multi-line strings are block literals, and strings
    that YAML 1.1 or 1.2 could resolve to another type are quoted.

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
    return "---\n".join(
        "".join(f"{line}\n" for line in _block_lines(document, "")) for document in objects
    )


def _block_lines(value: Any, indent: str) -> Iterator[str]:
    """Yield the indented lines of a value that begins on a new line."""
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from _pair_lines(key, child, indent)
    elif isinstance(value, list | tuple) and value:
        for child in value:
            lines = _block_lines(child, indent + "  ")
            yield f"{indent}- {next(lines)[len(indent) + 2 :]}"
            yield from lines
    else:
        yield indent + _inline(value, indent)


def _pair_lines(key: str, value: Any, indent: str) -> Iterator[str]:
    name = f"{indent}{scalars.quote(key)}:"
    if len(name) > _LONGEST_SIMPLE_KEY:
        yield f"{indent}? {scalars.quote(key)}"
        name = f"{indent}:"
    if not isinstance(value, Mapping | list | tuple) or not value:
        yield f"{name} {_inline(value, indent + '  ')}"
        return
    yield name
    # A list is not indented below its key, as kubectl prints it.
    yield from _block_lines(value, indent if isinstance(value, list | tuple) else indent + "  ")


def _inline(value: Any, indent: str) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return scalars.block_literal(value, indent) or scalars.quote(value)
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return scalars.format_float(value)
        case Mapping():
            return "{}"
        case list() | tuple():
            return "[]"
        case _:
            raise ValueError(f"{value!r} is not a JSON value")


_LONGEST_SIMPLE_KEY: Final = 1000
"""YAML requires the colon within 1024 characters of the start of the key."""
