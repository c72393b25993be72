"""Curves of several series over one axis, with a table of the same figures."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from cli.html.elements import Markup, element, join
from cli.html.nodes import OWNER_COLOURS
from cli.html.page import row, table

_WIDTH: Final = 640
_HEIGHT: Final = 240
_LEFT: Final = 44
_BOTTOM: Final = 24
_TOP: Final = 8
_LINES: Final = 4
"""Parts of the vertical axis."""
_STEPS: Final = (1, 2, 2.5, 5, 10)
"""Parts of the axis, times a power of 10."""
_COLUMNS: Final = 10
"""Figures of a series in the table."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A series of figures.

    Attributes:
        name: Its name.
        points: Places on the horizontal axis, increasing, and figures, both at least 0.
    """

    name: str
    points: Sequence[tuple[float, float]]


def curves(title: str, series: Sequence[Series], *, unit: str, across: str) -> Markup:
    """Return a drawing and a table.

    Args:
        title: Names the drawing.
        series: The series.
        unit: The unit of the figures; may be empty.
        across: Names the horizontal axis.
    """
    right = max((point[0] for entry in series for point in entry.points), default=0.0) or 1.0
    top = _top((point[1] for entry in series for point in entry.points), is_whole=not unit)
    drawing = element(
        "svg",
        [_line(part / _LINES, top, unit) for part in range(_LINES + 1)],
        [
            element(
                "polyline",
                points=" ".join(f"{_x(x, right):.1f},{_y(y, top):.1f}" for x, y in entry.points),
                class_=f"curve {_colour(number)}",
            )
            for number, entry in enumerate(series)
        ],
        element("text", f"{across} (up to {right:g})", x=_LEFT, y=_HEIGHT - 6),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        width=_WIDTH,
        height=_HEIGHT,
        role="img",
        aria_label=f"{title}; the table below has the figures",
    )
    return join(drawing, _legend(series), _table(title, series, unit=unit, across=across))


def _top(figures: Iterable[float], *, is_whole: bool) -> float:
    """Return the end of the vertical axis, so that its lines are at figures that people read.

    >>> _top((24.97, 3), is_whole=False), _top((21,), is_whole=True), _top((), is_whole=True)
    (40.0, 40.0, 4.0)
    """
    step = max(figures, default=0.0) / _LINES
    magnitude = 10.0 ** math.floor(math.log10(step)) if step else 1.0
    if is_whole:
        magnitude = max(1.0, magnitude)
    steps = (magnitude * part for part in _STEPS if not is_whole or (magnitude * part).is_integer())
    return _LINES * next(size for size in steps if size >= step)


def _format(figure: float, unit: str) -> str:
    """Format a figure with its unit: shares with two places, never rounded up to a whole."""
    return f"{int(figure * 100) / 100:.2f}{unit}" if unit else f"{figure:g}"


def _colour(number: int) -> str:
    return f"o{number % OWNER_COLOURS}"


def _x(value: float, right: float) -> float:
    return _LEFT + value / right * (_WIDTH - _LEFT - 1)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP)


def _line(share: float, top: float, unit: str) -> Markup:
    height = _y(share * top, top)
    return join(
        element("polyline", points=f"{_LEFT},{height:.1f} {_WIDTH},{height:.1f}", class_="axis"),
        element("text", f"{share * top:.4g}{unit}", x=0, y=f"{height + 4:.1f}"),
    )


def _legend(series: Iterable[Series]) -> Markup:
    return element(
        "ul",
        (
            element(
                "li",
                element("span", class_=f"swatch {_colour(number)}", aria_hidden="true"),
                entry.name,
            )
            for number, entry in enumerate(series)
        ),
    )


def _table(title: str, series: Sequence[Series], *, unit: str, across: str) -> Markup:
    longest: Sequence[tuple[float, float]] = max(
        (entry.points for entry in series), key=len, default=()
    )
    places = _chosen(len(longest))
    return table(
        title,
        (across, *(f"{longest[place][0]:g}" for place in places)),
        (
            row(
                entry.name,
                *(
                    _format(entry.points[place][1], unit) if place < len(entry.points) else ""
                    for place in places
                ),
            )
            for entry in series
        ),
    )


def _chosen(count: int) -> Sequence[int]:
    """Return the places of figures that a table has, the last one among them.

    >>> _chosen(100), _chosen(2)
    ([9, 19, 29, 39, 49, 59, 69, 79, 89, 99], [0, 1])
    """
    columns = min(_COLUMNS, count)
    return [(number + 1) * count // columns - 1 for number in range(columns)]
