"""`-o text|json`, for commands whose answer is to be read rather than applied."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import click
import msgspec

from kube.quantity import Quantity, format_amount


class Output(StrEnum):
    """Forms of an answer."""

    TEXT = "text"
    JSON = "json"


def text_or_json(text: str = "to read") -> Callable[[Any], Any]:
    """Give a command `-o` as `output`.

    Args:
        text: Describes the text.
    """
    return click.option(
        "-o",
        "--output",
        type=click.Choice([form.value for form in Output]),
        default=Output.TEXT.value,
        show_default=True,
        help=f"text: {text}. json: for scripts.",
    )


def encode_readable(value: object) -> bytes:
    """Return the JSON of one of our own values, with amounts as text output has them."""
    return msgspec.json.encode(value, enc_hook=_readable)


def _readable(value: object) -> str:
    return format_amount(value) if isinstance(value, Quantity) else str(value)


def indent_json(document: bytes) -> str:
    """Return JSON as `-o json` prints it."""
    return msgspec.json.format(document, indent=2).decode()
