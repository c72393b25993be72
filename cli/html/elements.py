"""HTML elements as values: the only place that puts markup together, so that all text is escaped.

Text and attributes may hold whatever a cluster's objects hold. Names of elements and attributes come
from our own code, and those that could run or fetch something are not accepted.
"""

import html
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from findings.text import printable

_NAME: Final = re.compile("[a-z][a-z0-9-]*")
_ATTRIBUTE: Final = re.compile("[a-zA-Z][a-zA-Z-]*")
_VOID: Final = frozenset({"br", "input", "meta"})
_SHAPES: Final = frozenset({"rect"})
"""Elements of SVG, which close themselves."""
_RAW: Final = frozenset({"script", "style"})
_LOADING: Final = frozenset({"action", "data", "formaction", "src", "srcdoc", "srcset", "style"})
"""Attributes that fetch or run something, or that the page's policy forbids."""


class Markup(msgspec.Struct, frozen=True):
    """HTML that is escaped already; only this module makes any."""

    html: str


Child = Markup | str | int | None | Iterable["Child"]
"""A part of an element: text, which is escaped, other elements, or nothing."""

Attribute = str | int | bool | None


def element(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element.

    >>> element("td", "<b>", class_="wide", data_value='"').html
    '<td class="wide" data-value="&quot;">&lt;b&gt;</td>'

    Args:
        name: The element's name.
        children: Text is escaped.
        attributes: `class_` is `class`, other underscores are hyphens. None and False leave an
            attribute out, True gives it no value.

    Raises:
        ValueError: An attribute could run or fetch something.
    """
    if name in _RAW or not _NAME.fullmatch(name):
        raise ValueError(f"no element {name!r} is made here")
    head = "".join(
        _attribute(key, value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Markup(f"<{name}{head}>")
    if name in _SHAPES:
        return Markup(f"<{name}{head}/>")
    return Markup(f"<{name}{head}>{_text(children)}</{name}>")


def join(*children: Child) -> Markup:
    """Return elements one after the other."""
    return Markup(_text(children))


def raw_text_element(name: str, text: str) -> Markup:
    """Return a script or a style with a text of our own, without escaping.

    Raises:
        ValueError: The text could end the element.
    """
    if name not in _RAW or "</" in text or "<!--" in text:
        raise ValueError(f"no {name} is made of this text")
    return Markup(f"<{name}>{text}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    if not _ATTRIBUTE.fullmatch(name) or name.startswith("on") or name in _LOADING:
        raise ValueError(f"no attribute {name!r} is made here")
    if value is True:
        return f" {name}"
    text = _escape(str(value))
    if name == "href" and not text.startswith("#"):
        raise ValueError("a page links only to its own parts")
    return f' {name}="{text}"'


def _text(children: Iterable[Child]) -> str:
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            parts.append(child.html)
        elif isinstance(child, str | int):
            parts.append(_escape(str(child)))
        else:
            parts.append(_text(child))
    return "".join(parts)


def _escape(text: str) -> str:
    """Return text that is neither markup nor a control character, here or in an attribute."""
    return html.escape(printable(text), quote=True)
