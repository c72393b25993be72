"""The counters, samples, lines and faults of a soak.

Both soaks use it: that of the webhook, `e2e/soak.py`, and that of the bridge, `bench/bridge/churn.py`. They
have no more in common. The webhook's clients are threads that repeat what a failed call asked; the pods of the
bridge are tasks of one event loop, which wait for a scheduler's decisions and leave nothing promised behind.
Processes, faults and the conditions of a good result are their own.
"""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from e2e.memory_growth import grown, resident_mib
from e2e.processes import Child


class SoakRecord:
    """Counters of the events so far, and the memory of the processes, for all threads.

    Attributes:
        counts: Events so far by name.
        memory: MiB by name of the process, sample by sample.
        ended: Set at the end, which may come early.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.counts = dict.fromkeys(names, 0)
        self.memory: list[Mapping[str, int]] = []
        self.ended = threading.Event()
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def count(self, name: str, number: int = 1) -> None:
        """Count so many events."""
        with self._lock:
            self.counts[name] += number

    def sample(self, children: Mapping[str, Child]) -> Mapping[str, int]:
        """Note the memory of processes and of their children, in MiB, and return it."""
        memory = {name: resident_mib(child) for name, child in children.items()}
        self.memory.append(memory)
        return memory

    def grown(self) -> Mapping[str, Sequence[int]]:
        """Return the processes that grew.

        Raises:
            ValueError: As in `memory_growth.grown`.
        """
        return grown(self.memory)

    def figures(self) -> Mapping[str, object]:
        """Return the fields of each printed line."""
        return self.counts

    def print(self, event: str, **fields: Any) -> None:
        """Print a line of JSON."""
        at_s = round(time.monotonic() - self._began, 1)
        print(json.dumps({"event": event, "at_s": at_s, **self.figures(), **fields}), flush=True)

    def cause(
        self, faults: Sequence[Callable[[], None]], *, minutes: float, pause_s: float
    ) -> None:
        """Cause one fault after the other, with a pause before each, until the time is over or all has ended."""
        deadline = time.monotonic() + minutes * 60
        for fault in itertools.cycle(faults):
            left_s = deadline - time.monotonic()
            if self.ended.wait(max(0.0, min(pause_s, left_s))) or left_s <= pause_s:
                return
            self.print("fault", name=fault.__name__.strip("_"))
            fault()
