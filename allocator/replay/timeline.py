"""The course of a replay: the allocated share as pods arrive, and the devices in use at some moments."""

from collections.abc import Sequence
from typing import Final

import msgspec

from allocator.model.usage import DeviceUse, PoolUse
from allocator.replay.device_use import measure_devices
from allocator.replay.results import Tally
from allocator.replay.state import ReplayState
from allocator.replay.workload import ReplayPod
from allocator.strategies.load import FULL, own_load

MAX_SAMPLES: Final = 100
"""Points of a curve."""
MAPS: Final = 4
"""Moments at which devices are mapped, equally far from each other; the last is the end."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of a replay.

    Attributes:
        arrived: Pods that have arrived.
        second: The second, with the order of arrivals.
        placed: Pods that were placed until then.
        percent: The share of the first capacity that is allocated; of all devices in use without capacities.
    """

    arrived: int
    second: float
    placed: int
    percent: float


class DeviceMap(msgspec.Struct, frozen=True, kw_only=True):
    """The devices at a moment.

    Attributes:
        arrived: Pods that have arrived.
        second: The second, with the order of arrivals.
        loads: The share of each cell's devices that is in use, from 0 to 1, node by node.
        per_cell: Devices that a cell stands for; the last may have fewer.
    """

    arrived: int
    second: float
    loads: tuple[float, ...]
    per_cell: int


class Recorder:
    """Samples a replay while it runs.

    Attributes:
        samples: The samples while pods arrive, in order.
        maps: The maps, in order.
    """

    def __init__(self, pods: Sequence[ReplayPod], max_cells: int) -> None:
        """Begin before the first pod.

        Args:
            pods: All pods of the replay.
            max_cells: The most cells of a map.
        """
        self.samples: list[Sample] = []
        self.maps: list[DeviceMap] = []
        self._pods = pods
        self._max_cells = max_cells
        self._arrived = 0
        self._tail: list[Sample] = []
        # Seconds between samples behind the last arrival; more where these seconds are many.
        self._spacing = 0.0

    @property
    def course(self) -> Sequence[Sample]:
        """The samples while pods arrive, and those while they leave behind the last arrival."""
        return (*self.samples, *self._tail)

    def count(self, state: ReplayState, tally: Tally, second: float) -> None:
        """Count a pod that has arrived and was tried; sample the moment if it is time."""
        self._arrived += 1
        total = len(self._pods)
        if _is_step(self._arrived, total, MAX_SAMPLES):
            self.samples.append(self._sample(state, tally, second))
        if _is_step(self._arrived, total, MAPS):
            self.maps.append(_device_map(state, self._arrived, second, self._max_cells))

    def follow(self, state: ReplayState, tally: Tally, second: float) -> None:
        """Sample a moment behind the last arrival, when pods have left."""
        if not self.samples or self._arrived < len(self._pods):
            return
        if second - self.samples[-1].second < self._spacing * (len(self._tail) + 1):
            return
        self._tail.append(self._sample(state, tally, second))
        if len(self._tail) > MAX_SAMPLES:
            self._tail = self._tail[1::2]
            self._spacing = (second - self.samples[-1].second) / len(self._tail)

    def finish(self, state: ReplayState, tally: Tally, second: float) -> None:
        """Sample the last moment, if it is behind the last sample."""
        if self.samples and second > self.course[-1].second:
            self._tail.append(self._sample(state, tally, second))

    def _sample(self, state: ReplayState, tally: Tally, second: float) -> Sample:
        capacities, devices = measure_devices(state, self._pods)
        percent = 100 * devices.in_use / devices.total if devices.total else 0.0
        if capacities:
            percent = capacities[0].percent
        return Sample(arrived=self._arrived, second=second, placed=tally.placed, percent=percent)


def _is_step(number: int, total: int, steps: int) -> bool:
    """Return True if one of so many equal steps ends with a number.

    >>> [number for number in range(1, 8) if _is_step(number, 7, 3)]
    [3, 5, 7]
    """
    return number * steps // total > (number - 1) * steps // total


def _device_map(state: ReplayState, arrived: int, second: float, max_cells: int) -> DeviceMap:
    loads = _loads(state)
    per_cell = max(1, -(-len(loads) // max_cells))
    cells = [loads[start : start + per_cell] for start in range(0, len(loads), per_cell)]
    return DeviceMap(
        arrived=arrived,
        second=second,
        loads=tuple(sum(cell) / len(cell) for cell in cells),
        per_cell=per_cell,
    )


def _loads(state: ReplayState) -> list[float]:
    """Return the load of each device, node by node; those of several nodes come with the first."""
    loads: list[float] = []
    counted: set[object] = set()
    nothing: PoolUse = {}
    unused = DeviceUse()
    usage = state.cluster.usage.pools
    for name in state.names:
        for pool in state.cluster.node_devices(name).pools:
            if pool.id in counted:
                continue
            counted.add(pool.id)
            uses = usage.get(pool.id, nothing)
            for member in (*pool.devices, *pool.elsewhere):
                use = uses.get(member.id.device, unused)
                loads.append(own_load(member.device, use) / FULL)
    return loads
