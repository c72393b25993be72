"""Self-checks of the sidecar.

They notice the lag of its event loop, drift of the devices in use, a silent scheduler, and a decision that
does not end.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from kube.runtime.leader import LeaseLost
from sidecar.answers.service import Service
from sidecar.reports.metrics import SidecarMetrics

LAG_PERIOD_S: Final = 0.5
SILENCE_PERIOD_S: Final = 1.0
STUCK_PERIOD_S: Final = 1.0
FIRST_CALL: Final = 20
"""Times as long a scheduler may take until its first call: its image may have to be pulled."""


class SchedulerSilent(LeaseLost):
    """The scheduler beside this process does not call, so the Lease is given back."""


class DecisionStuck(LeaseLost):
    """A decision does not end, so the Lease is given back: a thread cannot be ended but with its process."""


async def watch_decisions(
    service: Service, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Watch that decisions end, until cancelled.

    Raises:
        DecisionStuck: One does not. The next leader knows about which pod it was.
    """
    while (uid := service.stuck_pod()) is None:
        await sleep(STUCK_PERIOD_S)
    service.turns.has_stuck(uid)
    raise DecisionStuck(f"a decision about pod {uid or '(all)'} does not end, so another may lead")


async def measure_lag(metrics: SidecarMetrics) -> None:
    """Measure the delay of the event loop in coming to a task, until cancelled."""
    while True:
        due = time.monotonic() + LAG_PERIOD_S
        await asyncio.sleep(LAG_PERIOD_S)
        metrics.observe_lag(max(0.0, time.monotonic() - due))


async def check_drift(service: Service, period_s: float) -> None:
    """Count the devices in use anew now and then, until cancelled."""
    while True:
        await asyncio.sleep(period_s)
        await service.check_drift()


async def watch_scheduler(
    count_greetings: Callable[[], int],
    timeout_s: float,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Watch that the scheduler says hello, until cancelled.

    Only time in which this process itself runs counts: what it did not hear was not silence.

    Args:
        count_greetings: Returns how often the scheduler has said hello.
        timeout_s: The longest silence.
        sleep: Sleeps for some seconds.

    Raises:
        SchedulerSilent: It has ended, or hangs.
    """
    heard, left_s = count_greetings(), FIRST_CALL * timeout_s
    while left_s > 0:
        await sleep(SILENCE_PERIOD_S)
        left_s -= SILENCE_PERIOD_S
        if count_greetings() != heard:
            heard, left_s = count_greetings(), timeout_s
    raise SchedulerSilent(
        "the scheduler beside this sidecar has not said hello for schedulerTimeout, so another may lead"
    )
