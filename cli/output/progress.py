"""A long run over objects: its progress on standard error, and its end by ^C. A short run prints nothing.

On a terminal the progress is a bar with rate and remaining time, elsewhere a line now and then, and each
after twice the time of the one before, so that the log of a long run stays short.
"""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar

import click

from cli.output.standard_error import print_line

SILENT_S: Final = 2.0
"""Seconds before the first sign of progress; a run that ends sooner has none."""
BAR_STEPS: Final = 500
"""Changes of a bar from its beginning to its end."""
INTERRUPTED: Final = 130
"""The exit status of a process that SIGINT ended, as shells have it."""

T = TypeVar("T")


class LongRun:
    """A run over objects one after the other, within a `with` statement.

    The first ^C asks for an end after the current object, so that what is done can be printed; the
    second one ends the process.
    """

    def __init__(
        self,
        verb: str,
        total: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_divisible: bool = True,
    ) -> None:
        """Prepare a run.

        Args:
            verb: The participle for the counted objects, such as `checked`.
            total: The number of objects; None where it is not known.
            is_divisible: True if a part of it is an answer as well; else the first ^C ends the
                process.
        """
        self._verb = verb
        self._total = total
        self._clock = clock
        self._started_at = self._printed_at = clock()
        self._pause_s = SILENT_S
        self._bar: Any = None
        self._done_count = 0
        self._former_handler: Any = None
        self._is_divisible = is_divisible
        self.is_interrupted = False

    def __enter__(self) -> Self:
        if self._is_divisible and threading.current_thread() is threading.main_thread():
            self._former_handler = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._restore_handler()
        if self._bar is not None:
            self._bar.render_finish()
        if self.is_interrupted:
            print_line(
                f"interrupted: {self._verb} {self._done_text()}; the others are not part of the answer"
            )

    def track(self, objects: Sequence[T]) -> Iterator[T]:
        """Yield objects until all are done, or the run is interrupted."""
        for number, value in enumerate(objects, start=1):
            if self.is_interrupted:
                return
            yield value
            self(number)

    def expect(self, total: int) -> None:
        """Take the number of objects, if it is not known when the run begins."""
        self._total = total

    def stops(self) -> bool:
        """Return True if the run is to end before the next object."""
        return self.is_interrupted

    def __call__(self, done_count: int) -> None:
        """Note the number of objects done, and show it if enough time has passed."""
        self._done_count = done_count
        now = self._clock()
        if self._bar is not None:
            self._bar.update(done_count - self._bar.pos)
        elif now - self._printed_at >= self._pause_s and self._seconds_left(now) >= SILENT_S:
            self._printed_at = now
            if not sys.stderr.isatty():
                self._pause_s *= 2
            self._show(now)

    def _seconds_left(self, now: float) -> float:
        """Return the seconds that the rest will take; infinity if its amount is not known."""
        if self._total is None:
            return math.inf
        return (now - self._started_at) * (self._total - self._done_count) / self._done_count

    def _show(self, now: float) -> None:
        if self._total is None:
            print_line(f"{self._verb}: {self._done_text()}, {self._rate(now)}")
        elif sys.stderr.isatty():
            self._bar = click.progressbar(
                length=self._total,
                label=self._verb,
                file=sys.stderr,
                show_pos=True,
                # That of click would count from now on, and not from the start.
                show_eta=False,
                item_show_func=lambda _item: self._pace(self._clock()),
                update_min_steps=max(1, self._total // BAR_STEPS),
            )
            self._bar.update(self._done_count)
        else:
            print_line(f"{self._verb}: {self._done_text()}, {self._pace(now)}")

    def _done_text(self) -> str:
        return f"{self._done_count}{'' if self._total is None else f' of {self._total}'}"

    def _pace(self, now: float) -> str:
        return f"{self._rate(now)}, {format_seconds(self._seconds_left(now))} left"

    def _rate(self, now: float) -> str:
        return f"{self._done_count / max(now - self._started_at, 1e-3):.3g}/s"

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.is_interrupted = True
        self._restore_handler()

    def _restore_handler(self) -> None:
        if self._former_handler is not None:
            signal.signal(signal.SIGINT, self._former_handler)
            self._former_handler = None


def format_seconds(seconds: float) -> str:
    """Return a duration for people.

    >>> format_seconds(7.4), format_seconds(133), format_seconds(7500)
    ('7 s', '2 min 13 s', '2 h 5 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
