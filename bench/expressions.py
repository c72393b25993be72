"""The cost of a worker process that evaluates the expressions of strangers."""

import asyncio
from collections.abc import Iterator
from itertools import count
from time import perf_counter
from typing import Final

from allocator.model.devices import DeviceId, PublishedDevice
from allocator.model.requests import Expression
from allocator.model.selectors import SelectorChain, clear_selector_caches
from bench.report import Result, below, within
from kube.api.resource import Device, DeviceAttribute
from kube.cel.engine import SelectorEngine
from kube.cel.scope import evaluating
from process.selectors.engine import WorkerEngine
from testing.allocation.builders import devices, slice_of
from testing.fake_api_server import running
from testing.fuzz.costs import HOLD_S, SPECIES, PodGene

_ROUND: Final = count()
DEVICES: Final = 4_000
ROUNDS: Final = 5
DRIVER: Final = "gpu.example.com"
UUID: Final = f'device.attributes["{DRIVER}"].uuid'
SIMPLE: Final = f'device.driver == "{DRIVER}" && {UUID} != "GPU-1" && {UUID}.startsWith("GPU")'
LONG: Final = " && ".join(f'{UUID} != "GPU-{number:06}"' for number in range(12))
COSTLIEST_PODS: Final = (
    PodGene(containers=62, init=43, amounts=8, filters=12, padding=31),
    PodGene(containers=55, key=2, amounts=1, filters=11, padding=53, claims=90),
    PodGene(containers=45, init=43, key=1, amounts=3, filters=32, padding=54),
)
"""The costliest pods that are answered on the event loop, as `python -m testing.fuzz.costs` found them."""


def measure() -> Iterator[Result]:
    """Yield the results."""
    yield from asyncio.run(_compare())
    costliest_ms = max(map(SPECIES["pod"].excess, COSTLIEST_PODS)) * HOLD_S * 1000
    yield below("ms of CPU that a pod may hold the event loop, costliest", costliest_ms, 25.0)


async def _compare() -> list[Result]:
    """Return the results with a worker."""
    engine = WorkerEngine()
    async with running(engine.run):
        return await asyncio.to_thread(_results, engine.blocking())


def _results(engine: SelectorEngine) -> list[Result]:
    _took_us(LONG, engine)  # The worker has started.
    results = []
    for name, expression, at_most in (("simple", SIMPLE, 1.1), ("long", LONG, None)):
        ours, anchor = _side_by_side(expression, engine)
        title = f"us per device of a {name} selector where there is a worker, against in place"
        results.append(
            below(title, ours, None, anchor=anchor)
            if at_most is None
            else within(title, ours, anchor, at_most=at_most)
        )
    return results


def _side_by_side(expression: str, engine: SelectorEngine) -> tuple[float, float]:
    """Return microseconds per device with a worker and without, each the least of some rounds."""
    rounds = [(_took_us(expression, engine), _took_us(expression, None)) for _ in range(ROUNDS)]
    return min(ours for ours, _ in rounds), min(anchor for _, anchor in rounds)


def _took_us(expression: str, engine: SelectorEngine | None) -> float:
    clear_selector_caches()
    # A worker keeps its answers, so each round asks about another expression.
    text = expression + " " * next(_ROUND)
    with evaluating(engine=engine):
        chain = SelectorChain((Expression(text=text, origin=""),))
        began = perf_counter()
        assert all(verdict is True for verdict in chain.verdicts(_DEVICES))
        return (perf_counter() - began) / DEVICES * 1e6


_SLICE: Final = slice_of(*devices("gpu-0"))


def _device(number: int) -> PublishedDevice:
    name = f"gpu-{number}"
    uuid = DeviceAttribute(string=f"GPU-{'a' * 8}-{number}")
    return PublishedDevice(
        id=DeviceId(driver=DRIVER, pool="pool", device=name),
        device=Device(name=name, attributes={"uuid": uuid}),
        slice=_SLICE,
    )


_DEVICES: Final = tuple(map(_device, range(DEVICES)))
