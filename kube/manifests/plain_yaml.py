"""One YAML document as plain values, of text that anybody may have written.

The library raises more than its own errors: for a date without such a month, a `!!bool` of another word,
an integer of thousands of digits, and brackets that nest deeper than the interpreter allows.
"""

from typing import Any, Final

import yaml

MAX_BYTES: Final = 2**20
"""As much as a ConfigMap holds. The library reads some tens of kilobytes in a second."""


class PlainYamlError(ValueError):
    """Text that is not YAML, or more than is read; the message is one printable line."""


def load_yaml(text: str | bytes, max_bytes: int = MAX_BYTES) -> Any:
    """Return the document of a text; None for an empty one.

    Raises:
        PlainYamlError: It is no YAML, has no meaning, or is too long or too deep.
    """
    if len(text) > max_bytes:
        raise PlainYamlError(f"larger than {max_bytes >> 20} MiB")
    try:
        return yaml.safe_load(text)
    except RecursionError as fault:
        raise PlainYamlError("it nests too deeply") from fault
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        raise PlainYamlError(_line(f"{line}{fault.problem}")) from fault
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as fault:
        raise PlainYamlError(_line(f"{type(fault).__name__}: {fault}")) from fault


def _line(text: str) -> str:
    """Return one printable line of a message, which quotes the text."""
    return "".join(char if char.isprintable() else " " for char in text)[:256]
