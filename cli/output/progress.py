"""The progress of a long run, on standard error; a short run prints nothing."""

import time
from typing import Final

import click

SILENT_S: Final = 2.0
"""Seconds before the first line, and between two."""


class Progress:
    """Prints how much is done, and of how much where that is known."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._printed_at = time.monotonic()

    def __call__(self, done_count: int) -> None:
        """Print the progress if enough time has passed."""
        now = time.monotonic()
        if now - self._printed_at >= SILENT_S:
            self._printed_at = now
            of_total = "" if self._total is None else f" of {self._total}"
            click.echo(f"{self._what}: {done_count}{of_total}", err=True)
