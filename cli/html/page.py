"""The page around an answer: one file that fetches nothing and runs only the script that it came with.

Its Content-Security-Policy allows one style and one script by their hashes, so neither text that
escaped notice nor an extension of the page can run anything else.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from cli.html.elements import Child, Markup, element, join, raw_text_element

_FOLDER: Final = Path(__file__).parent
MAX_NAMES: Final = 8
"""Objects that a cell names."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A choice that filters the entries of a page.

    Attributes:
        label: The name of the choice.
        values: The values that an entry may have; `entry` marks it with one.
    """

    label: str
    values: Sequence[str]


def build_page(title: str, subtitle: str, *parts: Child, choice: Filter | None = None) -> str:
    """Return the text of a page.

    Args:
        title: Heading of the page.
        subtitle: A line below it; may be empty.
        parts: Sections, with `section`.
        choice: A filter beside the search, for entries that have a value.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=content_security_policy()),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} - Drawbridge"),
        raw_text_element("style", _asset("page.css")),
    )
    body = element(
        "body",
        element(
            "header",
            element("h1", title),
            element("p", subtitle, class_="subtitle") if subtitle else None,
            _toolbar(choice),
        ),
        element("main", *parts),
        raw_text_element("script", _asset("page.js")),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en').html}\n"


def content_security_policy() -> str:
    """Return the policy: nothing at all, but for the page's own style and script."""
    return (
        f"default-src 'none'; style-src '{_digest('page.css')}'; script-src '{_digest('page.js')}'; "
        "base-uri 'none'; form-action 'none'"
    )


def section(title: str, *children: Child, note: str = "") -> Markup:
    """Return a section with a heading, and a line below it."""
    return element(
        "section",
        element("h2", title),
        element("p", note, class_="note") if note else None,
        *children,
    )


def table(caption: str, head: Sequence[str], rows: Iterable[Markup]) -> Markup:
    """Return a table that a keyboard can scroll.

    Args:
        caption: Names the table for those who do not see it.
        head: Titles of the columns.
        rows: Made with `row`.
    """
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", (element("th", name, scope="col") for name in head))),
            element("tbody", rows),
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def row(name: Child, *cells: Child, value: str | None = None) -> Markup:
    """Return a row; the search finds it by its text.

    Args:
        name: The first cell, which names the row.
        cells: The others.
        value: The row's value for the page's filter.
    """
    return element(
        "tr",
        element("th", name, scope="row"),
        (element("td", cell) for cell in cells),
        class_="entry",
        data_value=value,
    )


def summary_row(name: Child, *cells: Child) -> Markup:
    """Return a row that sums up entries, so that the search neither counts nor hides it."""
    return element("tr", element("th", name, scope="row"), (element("td", cell) for cell in cells))


def tiles(entries: Iterable[tuple[str, Child]]) -> Markup:
    """Return numbers with their names."""
    return element(
        "dl",
        (element("div", element("dt", name), element("dd", number)) for name, number in entries),
        class_="tiles",
    )


def badge(text: str, kind: str = "") -> Markup:
    """Return a word in a frame; `kind` is `good`, `fair`, `bad` or empty."""
    return element("span", text, class_=f"badge {kind}".strip())


def lines(texts: Iterable[Child]) -> Markup:
    """Return texts below each other."""
    return join(element("div", text) for text in texts)


def names(texts: Sequence[str]) -> Markup:
    """Return the first names below each other, and the number of further ones."""
    more = len(texts) - MAX_NAMES
    return lines([*texts[:MAX_NAMES], *([f"and {more} more"] if more > 0 else [])])


def with_code(text: str) -> Markup:
    """Return text with its parts between backticks as code."""
    parts = text.split("`")
    return join(
        element("code", part) if index % 2 and index < len(parts) - 1 else part
        for index, part in enumerate(parts)
    )


def _toolbar(choice: Filter | None) -> Markup:
    """Return search, filter and colours; the script shows them."""
    options = choice.values if choice is not None else ()
    return element(
        "div",
        element(
            "label",
            "Search ",
            element("input", type="search", id="search", aria_keyshortcuts="/", autocomplete="off"),
        ),
        element(
            "label",
            f"{choice.label} ",
            element(
                "select",
                element("option", "all", value=""),
                (element("option", value, value=value) for value in options),
                id="choice",
            ),
        )
        if choice is not None
        else None,
        element("button", "Light or dark", type="button", id="theme"),
        element("p", id="count", role="status"),
        class_="toolbar",
        id="toolbar",
        hidden=True,
    )


def _digest(name: str) -> str:
    digest = hashlib.sha256(_asset(name).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
