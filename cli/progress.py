"""How far a long run is, on standard error; short runs say nothing."""

import time
from typing import Final

import click

SILENT_S: Final = 2.0
"""Seconds without a word, at the beginning and in between."""


class Progress:
    """Tells how many of how many are done."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._told_at = time.monotonic()

    def __call__(self, done: int) -> None:
        """Say so, if it is time."""
        now = time.monotonic()
        if now - self._told_at >= SILENT_S:
            self._told_at = now
            click.echo(f"{self._what}: {done} of {self._total}", err=True)
