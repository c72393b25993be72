"""The work of functions: their calls, and the speed of this machine, so that bounds of CPU time hold for slower ones, too."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final

USUAL_S: Final = 0.25
"""The CPU seconds for counting to ten million on a usual machine."""


def slow_by() -> float:
    """Return this machine's CPU time for the same work, in times of a usual machine; 1 if it is faster."""
    began = time.process_time()
    number = 0
    while number < 10_000_000:
        number += 1
    return max(1.0, (time.process_time() - began) / USUAL_S)


@contextmanager
def counted_calls() -> Iterator[Counter[CodeType]]:
    """Count the calls of Python functions of this thread meanwhile, each by its code."""
    calls: Counter[CodeType] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        calls[frame.f_code] += event == "call"

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)
