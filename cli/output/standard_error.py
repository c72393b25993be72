"""Lines on standard error: notes and hints with words that may come from other people's files and clusters."""

from collections.abc import Iterable

import click

from findings.text import inert_line, printable


def print_line(text: str, *, is_bold: bool = False) -> None:
    """Print one line on standard error that no terminal and no CI server obeys.

    A line break in the text is escaped, too, so that nobody can begin a line of their own.
    """
    line = inert_line(printable(text))
    click.echo(click.style(line, bold=True) if is_bold else line, err=True)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes, each on a line."""
    for note in notes:
        print_line(f"note: {note}")
