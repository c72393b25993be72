"""The answer again and again, until ^C."""

import shutil
import sys
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

import click

from answers.cluster.top import Top
from cli.output.formats import Output, Report, encode_readable, format_next_document
from cli.output.standard_error import print_line
from cli.verbs.top.text import format_top
from findings.text import printable, shorten
from kube.errors import KubeError

CLEAR: Final = "\x1b[H\x1b[2J"
"""Moves the cursor of a terminal to the first line, and clears the screen."""
MAX_REASON: Final = 300
"""Characters of an error of the cluster that are shown."""


class Answer(NamedTuple):
    """An answer, and the lines about it for standard error."""

    top: Top
    lines: tuple[str, ...] = ()


def watch(
    look: Callable[[], Answer],
    show: Callable[[Answer], None],
    report: Callable[[str], None],
    pause: Callable[[], None],
) -> NoReturn:
    """Show the answer of now, wait, and begin again, until an exception such as that of ^C ends it.

    Args:
        report: Prints the reason of a failed look; called once for equal reasons one after the other.

    Raises:
        KubeError: The first look at the cluster fails.
    """
    has_answer, last_reason = False, ""
    while True:
        try:
            answer = look()
        except KubeError as error:
            if not has_answer:
                raise
            reason = shorten(printable(str(error)), MAX_REASON)
            if reason != last_reason:
                report(reason)
            last_reason = reason
        else:
            show(answer)
            has_answer, last_reason = True, ""
        pause()


class Screen:
    """Standard output and standard error with one answer after the other."""

    def __init__(self, output: str, now: Callable[[], str]) -> None:
        """Prepare for answers.

        Args:
            output: The form of an answer. Text has the time, and a terminal shows the last one only.
            now: Returns the time of day.
        """
        self._output = output
        self._clears = output == Output.TEXT and sys.stdout.isatty()
        self._now = now
        self._last_lines: tuple[str, ...] = ()

    def show(self, answer: Answer) -> None:
        """Print an answer, and the lines about it unless they are on the screen or in the log."""
        text = self._format(answer.top)
        if self._clears:
            # Without colours a terminal can be cleared all the same.
            click.echo(CLEAR, nl=False, color=True)
        if self._clears or answer.lines != self._last_lines:
            for line in answer.lines:
                print_line(line)
        self._last_lines = answer.lines
        click.echo(text)

    def report(self, reason: str) -> None:
        """Say that the cluster cannot be read for now."""
        print_line(f"{self._now()} the cluster cannot be read, trying again: {reason}")

    def _format(self, top: Top) -> str:
        if self._output != Output.TEXT:
            return format_next_document(self._output, encode_readable(top), Report.TOP)
        table = format_top(top, shutil.get_terminal_size().columns)
        return f"{self._now()}\n{table}" if self._clears else f"{self._now()}\n{table}\n"
