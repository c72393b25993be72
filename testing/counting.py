"""The speed of this machine at the moment, so that bounds of CPU time hold for slower ones in proportion."""

import time
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
