"""Self-checks of the sidecar: the lag of its event loop, and drift of the devices in use."""

import asyncio
import time
from typing import Final

from sidecar.metrics import SidecarMetrics
from sidecar.service import Service

LAG_PERIOD_S: Final = 0.5


async def measure_lag(metrics: SidecarMetrics) -> None:
    """Measure how late the event loop comes to a task, until cancelled."""
    while True:
        due = time.monotonic() + LAG_PERIOD_S
        await asyncio.sleep(LAG_PERIOD_S)
        metrics.observe_lag(max(0.0, time.monotonic() - due))


async def check_drift(service: Service, period_s: float) -> None:
    """Count the devices in use anew now and then, until cancelled."""
    while True:
        await asyncio.sleep(period_s)
        await service.check_drift()
