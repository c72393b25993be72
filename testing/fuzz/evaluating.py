"""The evaluation of selectors as sidecar and webhook have it done, and its cost.

What is measured is CPU: of this thread, and of the workers that a decision waits for.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from time import thread_time
from typing import Any, Final, NamedTuple, TypeVar

from allocator.model.selectors import clear_selector_caches
from kube.api.resource import Device
from kube.cel.compile import LocalSelector, compile_selector
from kube.cel.device import NamedDevice, device_view
from kube.cel.library import Environment
from kube.cel.scope import AnswerInterrupted, AnswersPending, Meter, evaluating
from kube.errors import CelError
from process.selectors.engine import WorkerEngine
from process.selectors.worker_process import COMMAND
from testing.fake_api_server import running

UNIT_S: Final = 20e-9
"""A unit of cost or charge; see `kube.cel.cost`."""
ROUNDS: Final = 4
"""Decisions about one question, between which the worker answers."""
WAIT_S: Final = 1.0
"""The wait for the worker; its answers by then are kept."""
WORKER_CPU_S: Final = 0.25
"""CPU time of one evaluation in the worker here, a quarter of what it has in the product."""
QUIET: Final = ("/bin/sh", "-c", 'exec "$@" 2> /dev/null', "sh", *COMMAND)
"""A worker that is lost says where it was."""

T = TypeVar("T")


class Lost(NamedTuple):
    """The harm that the expressions of one tenant did to a worker.

    Attributes:
        workers: The number of lost workers.
        others_served: The expression of another tenant was evaluated afterwards.
    """

    workers: int
    others_served: bool


class Evaluation:
    """One selector, and one device."""

    def __init__(self, expression: str, driver: str, device: Device) -> None:
        """Compile the selector.

        Raises:
            CelError: It does not compile, or is not evaluated at all.
        """
        self._selector = LocalSelector(expression, Environment.STORED)
        self._view = device_view(driver, device)

    @property
    def price_s(self) -> float:
        """The CPU seconds that are charged for it."""
        return self._selector.charge * UNIT_S

    def run(self) -> None:
        """Evaluate."""
        with suppress(CelError):
            self._selector.matches(self._view)


def costliest_turn_s(decide: Callable[[], object], cpu_s: float) -> float:
    """Return the CPU seconds of the costliest turn of a decision; it is made again as in the product.

    Args:
        cpu_s: CPU time of this thread that a decision may take, whatever its steps are.
    """
    clear_selector_caches()
    return _run(_costliest_turn_s(decide, cpu_s))


async def _costliest_turn_s(decide: Callable[[], object], cpu_s: float) -> float:
    costliest_s = 0.0
    async with _running(WorkerEngine(QUIET, cpu_limit_s=WORKER_CPU_S)) as engine:
        for _ in range(ROUNDS):
            deferring = engine.deferring()
            began_s, began_workers_s = thread_time(), workers_cpu_s()
            meter = Meter(is_over=partial(_is_over, began_s + cpu_s))
            with (
                suppress(AnswerInterrupted),
                evaluating(engine=deferring, tenant="hostile", question="pod", meter=meter),
            ):
                decide()
            turn_s = thread_time() - began_s + workers_cpu_s() - began_workers_s
            costliest_s = max(costliest_s, turn_s)
            if not deferring.demand.questions:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await engine.answer(deferring.demand, tenant="hostile", question="pod")
    return costliest_s


def _is_over(ends_s: float) -> bool:
    return thread_time() > ends_s


@asynccontextmanager
async def _running(engine: WorkerEngine) -> AsyncIterator[WorkerEngine]:
    async with running(engine.run):
        yield engine


def lose_workers(expressions: Sequence[str], honest: str, driver: str, device: Device) -> Lost:
    """Have a worker evaluate the expressions of one tenant, then the one of another tenant."""
    return _run(_lose_workers(expressions, honest, NamedDevice(driver, device)))


async def _lose_workers(expressions: Sequence[str], honest: str, device: NamedDevice) -> Lost:
    lost = 0

    def count_lost() -> None:
        nonlocal lost
        lost += 1

    async with _running(
        WorkerEngine(QUIET, cpu_limit_s=WORKER_CPU_S, count_stopped=count_lost)
    ) as engine:
        for number, expression in enumerate(expressions):
            await _verdict(engine, expression, device, "hostile")
            if not lost and number:
                break  # Expressions like these are harmless.
        verdict = await _verdict(engine, honest, device, "honest")
        return Lost(lost, verdict is True)


async def _verdict(
    engine: WorkerEngine, expression: str, device: NamedDevice, tenant: str
) -> bool | None:
    """Return a verdict; None if there is none."""
    while True:
        deferring = engine.deferring()
        try:
            with evaluating(engine=deferring, tenant=tenant):
                selector = compile_selector(expression, Environment.STORED)
                (verdict,) = selector.verdicts([device])
        except AnswersPending:
            answered = await engine.answer(deferring.demand, tenant=tenant)
            if not answered.is_complete:
                return None
        except CelError:
            return None
        else:
            return verdict if isinstance(verdict, bool) else None


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner() as runner:
        return runner.run(coroutine)


def workers_cpu_s() -> float:
    """Return the CPU seconds of all processes that this one started, those that ended included."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # It has ended.
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                ticks += int(fields[11]) + int(fields[12])
    ended = os.times()
    return ticks / os.sysconf("SC_CLK_TCK") + ended.children_user + ended.children_system
