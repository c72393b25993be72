"""The worker that evaluates expressions of strangers: the same verdicts, and what happens when it is lost."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest

from kube.api.meta import convert
from kube.api.resource import Device
from kube.cel import engine as engines
from kube.cel.compile import RemoteSelector, compile_selector
from kube.cel.device import device_view
from kube.cel.engine import EvaluationAbandoned, evaluating_with, while_wanted
from kube.cel.library import Environment
from kube.errors import CelError, SelectorTooCostly, UnsupportedSelector
from process.selectors.engine import MAX_RESTARTS_PER_MINUTE, WorkerEngine
from testing.fake_api_server import running, until

DRIVER: Final = "gpu.example.com"
A: Final = f'device.attributes["{DRIVER}"]'
GPU: Final = convert(
    {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "attributes": {
            "model": {"string": "A100"},
            "index": {"int": 3},
            "healthy": {"bool": True},
            "version": {"version": "1.2.3"},
            "links": {"strings": ["a", "b"]},
            "other.example.com/zone": {"string": "é"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    },
    Device,
)
EXPRESSIONS: Final = (
    f'{A}.model == "A100"',
    f'{A}.model == "H100"',
    f"{A}.index > 2 && {A}.healthy",
    f'{A}.version.compareTo(semver("1.2.0")) > 0',
    f'{A}.links.includes("b")',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
    'device.attributes["other.example.com"].zone == "é" && device.allowMultipleAllocations',
    f'device.driver == "{DRIVER}"',
    f"{A}.missing == 1",
    f'{A}.model.matches("(?i)a1")',
    f"{A}.model",
    f"{A}.model ==",
    "[1, 2].sum() == 3",
    f'{A}.model.matches("(.{{1000}}){{9}}")',
)


DOES_NOT_START: Final = "the process that evaluates expressions does not start"


def long(expression: str) -> str:
    """Return an expression that is too long to be evaluated in place."""
    return f"{expression:{engines.SIMPLE_LENGTH + 1}}"


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerEngine]:
    engine = WorkerEngine()
    try:
        yield engine
    finally:
        engine.close()


def verdict(expression: str, device: Device = GPU) -> bool | tuple[type, str]:
    try:
        selector = compile_selector(expression, Environment.STORED)
        return selector.matches(device_view(DRIVER, device))
    except CelError as error:
        return type(error), str(error)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_worker_says_what_this_process_would_say(worker: WorkerEngine, expression: str) -> None:
    here = verdict(long(expression))

    with evaluating_with(worker):
        assert verdict(long(expression)) == here


def test_a_compiled_selector_knows_what_it_reads(worker: WorkerEngine) -> None:
    expression = long(EXPRESSIONS[0])
    here = compile_selector(expression, Environment.STORED)

    with evaluating_with(worker):
        there = compile_selector(expression, Environment.STORED)

    assert isinstance(there, RemoteSelector)
    assert (there.attributes, there.capacities) == (here.attributes, here.capacities)
    assert there.cost == here.cost
    assert there.matches(device_view(DRIVER, GPU))


@pytest.mark.parametrize(
    ("is_remote", "expression"),
    [
        (False, EXPRESSIONS[0]),
        (False, f'{A}.model.matches("(?i)^nvidia")'),
        (True, long(EXPRESSIONS[0])),
        (True, f"lists.range(99).all(i, lists.range(99).all(j, i < 99 || {A}.index > j))"),
    ],
)
def test_only_what_is_short_and_cheap_is_evaluated_in_place(
    worker: WorkerEngine, is_remote: bool, expression: str
) -> None:
    with evaluating_with(worker):
        selector = compile_selector(expression, Environment.STORED)

    assert isinstance(selector, RemoteSelector) == is_remote


# --- what is lost ---------------------------------------------------------------------------------

STAND_IN: Final = """
import os, signal, sys, time
from process.selectors import worker
from process.selectors.protocol import Fault
real = worker.answer
def answer(call):
    if "stall" in call.expression:
        time.sleep(60)
    if "kill" in call.expression:
        os.kill(os.getpid(), signal.SIGKILL)
    if "spin" in call.expression and ("on a device" not in call.expression or call.device):
        while True:
            pass
    if "memory" in call.expression:
        bytearray(2**30)
    if "environment" in call.expression:
        return Fault("UnsupportedSelector", ",".join(sorted(os.environ)))
    return real(call)
worker.answer = answer
worker.main()
"""
"""The worker, with expressions that misbehave as the real engine must not."""


@contextmanager
def stand_in(**options: Any) -> Iterator[Callable[[str], bool | tuple[type, str]]]:
    """Yield a function that evaluates an expression with a worker that may misbehave."""
    engine = WorkerEngine((sys.executable, "-c", STAND_IN), **options)
    try:
        with evaluating_with(engine):
            yield lambda text: verdict(long(f'{A}.model != "{text}"'))
    finally:
        engine.close()


def test_what_takes_too_long_is_stopped_and_not_tried_again() -> None:
    stopped: list[None] = []
    with stand_in(deadline_s=2.0, count_stopped=lambda: stopped.append(None)) as evaluate:
        assert evaluate("honest") is True
        first, again = evaluate("spin"), evaluate("spin")
        other = evaluate("spin on")
        honest = evaluate("honest, too")

    assert first == again
    assert first == (
        SelectorTooCostly,
        "its evaluation was stopped (it took too long); it is not tried again until it changes",
    )
    assert other == first
    assert honest is True
    assert len(stopped) == 2


def test_what_was_stopped_on_a_device_is_too_costly_from_then_on() -> None:
    """The rule about costly expressions compiles them, and so tells of it."""
    expression = long(f'{A}.model != "spin on a device"')
    with stand_in(deadline_s=2.0):
        selector = compile_selector(expression, Environment.STORED)

        with pytest.raises(SelectorTooCostly, match="it took too long"):
            selector.matches(device_view(DRIVER, GPU))
        with pytest.raises(SelectorTooCostly, match="not tried again until it changes"):
            compile_selector(expression, Environment.STORED)


@pytest.mark.parametrize(
    ("cause", "words"), [("stall", "got no time from this machine"), ("kill", "was killed")]
)
async def test_what_the_machine_has_no_time_or_memory_for_is_asked_again(
    cause: str, words: str
) -> None:
    """A suspended machine, or one that is short of memory, says nothing about an expression."""
    engine = WorkerEngine((sys.executable, "-c", STAND_IN), deadline_s=2.0)
    expression = long(f'{A}.model != "{cause}"')
    forgotten: list[str] = []
    with evaluating_with(engine):
        try:
            verdicts = [await asyncio.to_thread(verdict, expression) for _ in range(2)]
            async with running(
                partial(engine.run_retries, partial(forgotten.append, "all"), period_s=0.001)
            ):
                await until(lambda: bool(forgotten))
        finally:
            engine.close()

    message = f"the process that evaluates expressions {words}"
    assert verdicts == [(UnsupportedSelector, message)] * 2


@pytest.mark.parametrize("resource", ["spin", "memory"])
def test_the_kernel_stops_what_takes_too_much(resource: str) -> None:
    with stand_in(deadline_s=30.0) as evaluate:
        evaluate("honest")
        verdicts = evaluate(resource)
        honest = evaluate("honest")

    assert isinstance(verdicts, tuple)
    assert "it took more memory or time than it may" in verdicts[1]
    assert honest is True


def test_the_worker_knows_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    with stand_in() as evaluate:
        verdicts = evaluate("environment")

    assert isinstance(verdicts, tuple)
    assert set(verdicts[1].split(",")) <= {"LANG", "LC_CTYPE", "PYTHONPATH"}


def test_a_worker_that_was_killed_between_two_questions_is_replaced() -> None:
    engine = WorkerEngine()
    try:
        with evaluating_with(engine):
            before = verdict(long(EXPRESSIONS[0]))
            worker = engine._worker
            assert worker is not None
            os.kill(worker._process.pid, signal.SIGKILL)
            worker._process.wait()

            assert verdict(long(EXPRESSIONS[1])) is False
            assert verdict(long(EXPRESSIONS[0])) == before
    finally:
        engine.close()


def test_a_worker_that_does_not_start_is_no_fault_of_the_expression() -> None:
    engine = WorkerEngine((sys.executable, "-c", "pass"), clock=lambda: 0.0)
    with evaluating_with(engine):
        verdicts = [verdict(long("1 == 1")) for _ in range(MAX_RESTARTS_PER_MINUTE + 1)]

    assert verdicts[0] == (UnsupportedSelector, DOES_NOT_START)
    assert verdicts[-1] == (
        UnsupportedSelector,
        "too many evaluations had to be stopped in a minute",
    )


async def test_expressions_that_were_not_looked_at_are_forgotten() -> None:
    engine = WorkerEngine((sys.executable, "-c", "pass"))
    forgotten: list[str] = []
    forget = partial(forgotten.append, "all")

    async with running(partial(engine.run_retries, forget, period_s=0.001)):
        await asyncio.sleep(0.05)
        assert not forgotten, "each was looked at"
        with evaluating_with(engine):
            assert verdict(long("1 == 1")) == (UnsupportedSelector, DOES_NOT_START)
        await until(lambda: bool(forgotten))
        await asyncio.sleep(0.05)

    assert forgotten == ["all"]


def test_nothing_is_evaluated_when_nobody_waits(worker: WorkerEngine) -> None:
    with (
        evaluating_with(worker),
        while_wanted(lambda: False),
        pytest.raises(EvaluationAbandoned),
    ):
        compile_selector(long(EXPRESSIONS[0]), Environment.STORED)
