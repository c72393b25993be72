"""Polls the faults of devices; `plan.health` decides about unhealthy devices."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from driver.faults.source import FaultSource
from driver.model.health import Effect, Fault, Healths, Recovery, observe, unhealthy, worst_faults
from driver.node.health_file import HealthFile
from driver.prepare.current import CurrentNode
from kube.logs import get_logger

PERIOD_S: Final = 1.0

log = get_logger()


class HealthWatch:
    """Keeps the faults of the node's devices up to date."""

    def __init__(
        self,
        current: CurrentNode,
        sources: Sequence[FaultSource],
        recovery: Recovery,
        effects: Mapping[str, Effect],
        *,
        file: HealthFile,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Initialize the watch from the health that an earlier process has stored.

        Args:
            current: The node's current state, which receives the health.
            sources: The sources of faults.
            recovery: The time after which a fault is over.
            effects: Kind of a fault to its effect, where it is not the usual one.
            file: The file in which relapses outlive the process.
            now: The wall clock, in UTC.
            clock: Monotonic seconds, the same for all processes of a boot.
        """
        self._current = current
        self._sources = sources
        self._recovery = recovery
        self._effects = effects
        self._now = now
        self._clock = clock
        self._file = file
        self._healths: Healths = file.load()
        self._faulty: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.to_thread(self.inspect)
            self._current.set_faults(self.faults)
            await asyncio.sleep(PERIOD_S)

    @property
    def faults(self) -> Mapping[str, tuple[Fault, datetime]]:
        """Unhealthy device to its fault and when it began."""
        return unhealthy(self._healths)

    def inspect(self) -> None:
        """Read all sources once."""
        faults = worst_faults((source.read() for source in self._sources), self._effects)
        before, state = self.faults, self._state()
        self._healths = observe(self._healths, faults, self._recovery, self._clock(), self._now())
        self._faulty = frozenset(faults)
        after = self.faults
        if self._state() != state:
            self._file.store(self._healths)
        for name in after.keys() - before.keys():
            fault, _ = after[name]
            log.warning("device.unhealthy", device=name, kind=fault.kind, message=fault.message)
        for name in before.keys() - after.keys():
            log.info("device.recovered", device=name)

    def _state(self) -> tuple[frozenset[str], Mapping[str, tuple[int, bool]]]:
        """Return the state to write down when it changes: not that a fault goes on."""
        histories = {
            name: (health.relapses, health.is_over) for name, health in self._healths.items()
        }
        return self._faulty, histories
