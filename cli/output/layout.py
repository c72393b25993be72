"""Paragraphs of labelled rows, and tables: the layout that all text output shares."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from findings.text import inert_line, join_names, printable

MARGIN: Final = 12
"""Columns before a row's text, which hold its label."""

NARROWEST: Final = 40
"""Columns; a narrower terminal gets lines of this width."""

_STYLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "becomes": {"fg": "green"},
    "rejected": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow"},
    "conflict": {"fg": "red"},
    "missing": {"fg": "red"},
}
NEUTRAL: Final[Mapping[str, Any]] = {"dim": True}
GOOD: Final[Mapping[str, Any]] = {"fg": "green"}
BAD: Final[Mapping[str, Any]] = {"fg": "red", "bold": True}
"""Styles of the place of a paragraph."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A labelled text; an empty label continues the row before.

    Attributes:
        is_line: The text is a line of a program, which is searched for, and copied, as it is: it is not wrapped.
    """

    label: str
    text: str
    is_line: bool = False


class Paragraph(msgspec.Struct, frozen=True, kw_only=True):
    """A title with rows.

    Attributes:
        place: File and line, or the node; shown behind the title.
        style: The style of the place.
    """

    title: str
    place: str
    style: Mapping[str, Any] = msgspec.field(default_factory=lambda: NEUTRAL)
    rows: tuple[Row, ...]


def drop_repeated_labels(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows, without a label that repeats the one before."""
    last = ""
    for row in rows:
        yield msgspec.structs.replace(row, label="" if row.label == last else row.label)
        last = row.label


def format_paragraph(paragraph: Paragraph, width: int) -> str:
    """Return a paragraph as lines."""
    title, place = printable(paragraph.title), printable(paragraph.place)
    if len(title) + len(place) + 2 <= width:
        head = click.style(title, bold=True)
        head += f"  {click.style(place, **paragraph.style)}" if place else ""
    else:
        head = "\n".join(
            click.style(inert_line(line), bold=True)
            for line in textwrap.wrap(title, max(width, NARROWEST))
        )
    return "\n".join((head, *filter(None, (format_rows(paragraph.rows, width),))))


def format_rows(rows: Iterable[Row], width: int) -> str:
    """Return rows as lines, wrapped beside their label."""
    lines: list[str] = []
    label = ""
    for row in rows:
        label = row.label or label
        text = printable(row.text)
        columns = len(text) if row.is_line else max(width, NARROWEST) - MARGIN
        text_lines = textwrap.wrap(text, max(columns, 1), break_on_hyphens=False)
        for number, line in enumerate(map(inert_line, text_lines or [""])):
            margin = f"  {row.label if number == 0 else '':<{MARGIN - 2}}"
            style = _STYLES.get(label)
            lines.append(margin + (click.style(line, **style) if style else line))
    return "\n".join(line.rstrip() for line in lines)


def format_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return columns as wide as their longest cell, the last one ragged."""
    cells = [head, *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def fit_names(names: Sequence[str], width: int, least: int = 3) -> str:
    """Return the first names, as many as a width holds and at least a few, and the number of further ones.

    >>> fit_names(("gpu-1", "gpu-2", "gpu-3", "gpu-4"), 26)
    'gpu-1, gpu-2, gpu-3, gpu-4'
    >>> fit_names(("gpu-1", "gpu-2", "gpu-3", "gpu-4"), 25)
    'gpu-1, gpu-2, gpu-3 and 1 more'
    """
    # A name and its comma take three columns or more.
    for limit in range(min(len(names), width // 3 + 1), least, -1):
        text = join_names(names, limit)
        if len(printable(text)) <= width:
            return text
    return join_names(names, least)
