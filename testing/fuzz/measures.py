"""The measures of an answer's cost: CPU, and time by the clock without that of other processes.

The kernel counts for every thread for how long it was ready to run and had no core. The rest of the time by the
clock is ours: this process works, or waits for its own threads, locks and timers.

Source: Documentation/scheduler/sched-stats.rst of Linux, `/proc/<pid>/schedstat`.
"""

import asyncio
import os
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Final

import msgspec

HEARTBEAT_S: Final = 0.001
_TASKS: Final = Path("/proc/self/task")


class Cost(msgspec.Struct, frozen=True):
    """The cost of an answer, in seconds.

    Attributes:
        cpu_s: CPU of the process.
        wall_s: The time by the clock, without that of other processes; 0 if the kernel does not count that.
        hold_s: CPU of the event loop's thread, for the longest time that something held it.
        stall_s: The longest time, measured as `wall_s`, in which the event loop did nothing else: something held
            it, or another thread had the interpreter.
    """

    cpu_s: float = 0.0
    wall_s: float = 0.0
    hold_s: float = 0.0
    stall_s: float = 0.0

    def least(self, other: "Cost") -> "Cost":
        """Return the lesser values of two measurements of the same."""
        return Cost(*map(min, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))

    def times(self, factor: float) -> "Cost":
        """Return as many times these values."""
        return Cost(*(factor * value for value in msgspec.structs.astuple(self)))

    def exceeds(self, limits: "Cost") -> bool:
        """Return True if any value is above its limit."""
        values = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(limits), strict=True)
        return any(value > limit for value, limit in values)


def run_queue_wait_s() -> float | None:
    """Return the time that threads of this process have waited for a core; None if it is not counted."""
    waited_ns = 0
    try:
        for task in _TASKS.iterdir():
            try:
                waited_ns += int((task / "schedstat").read_text().split()[1])
            except (FileNotFoundError, ProcessLookupError):  # It has ended, or nothing is counted.
                if int(task.name) == os.getpid():
                    return None
    except OSError:
        return None
    return waited_ns / 1e9


class Heartbeat:
    """The longest time between two beats of the event loop.

    Attributes:
        hold_s: CPU of its thread.
        stall_s: The time by the clock, with the cores in any use.
    """

    def __init__(self) -> None:
        self.hold_s = self.stall_s = 0.0

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            before_s, before_cpu_s = perf_counter(), thread_time()
            await asyncio.sleep(HEARTBEAT_S)
            self.hold_s = max(self.hold_s, thread_time() - before_cpu_s)
            self.stall_s = max(self.stall_s, perf_counter() - before_s - HEARTBEAT_S)


class Watch:
    """Measures from its creation on."""

    def __init__(self) -> None:
        self._waited_s = run_queue_wait_s()
        self._began_s, self._began_cpu_s = perf_counter(), process_time()

    def cost(self, heartbeat: Heartbeat) -> Cost:
        """Return the cost so far.

        By the clock it is at most what we took: where several threads waited for a core at a time, all of
        their time is left out.
        """
        took_s, cpu_s = perf_counter() - self._began_s, process_time() - self._began_cpu_s
        waited_s = run_queue_wait_s()
        if waited_s is None or self._waited_s is None:
            return Cost(cpu_s=cpu_s, hold_s=heartbeat.hold_s)
        others_s = waited_s - self._waited_s
        return Cost(
            cpu_s=cpu_s,
            wall_s=max(took_s - others_s, 0.0),
            hold_s=heartbeat.hold_s,
            stall_s=max(heartbeat.stall_s - others_s, 0.0),
        )
