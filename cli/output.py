"""`-o text|json`, for subcommands whose answer is to be read rather than applied."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import click
import msgspec


class Output(StrEnum):
    """Forms of an answer."""

    TEXT = "text"
    JSON = "json"


def text_or_json(text: str = "to read") -> Callable[[Any], Any]:
    """Give a command `-o` as `output`.

    Args:
        text: What the text is.
    """
    return click.option(
        "-o",
        "--output",
        type=click.Choice([form.value for form in Output]),
        default=Output.TEXT.value,
        show_default=True,
        help=f"text: {text}. json: for scripts.",
    )


def indented(encoded: bytes) -> str:
    """Return JSON as `-o json` prints it."""
    return msgspec.json.format(encoded, indent=2).decode()
