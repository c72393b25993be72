"""The worker that evaluates expressions of strangers: the same verdicts, and the loss of a worker."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Final

import pytest

from kube.api.meta import convert
from kube.api.resource import Device
from kube.cel import engine as engines
from kube.cel.compile import RemoteSelector, compile_ahead, compile_in_place, compile_selector
from kube.cel.device import NamedDevice
from kube.cel.library import Environment
from kube.cel.projection import decode_projection
from kube.cel.scope import AnswersPending, BudgetSpent, Meter, evaluating
from kube.errors import CelError
from process.selectors import worker as workers
from process.selectors.answers import BLAME_S
from process.selectors.deferring import Demand
from process.selectors.engine import WINDOW_S, WorkerEngine
from process.selectors.protocol import Compiled, Question, Verdicts
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


Verdict = bool | tuple[type, str]


def long(expression: str) -> str:
    """Return an expression that is too long to be evaluated in place."""
    return f"{expression:{engines.SIMPLE_LENGTH + 1}}"


def shown(verdict: bool | CelError) -> Verdict:
    return (type(verdict), str(verdict)) if isinstance(verdict, CelError) else verdict


def verdicts_here(expression: str, devices: Sequence[Device] = (GPU,)) -> list[Verdict]:
    """Return the verdicts of selectors without a worker, or with the engine in force."""
    named = [NamedDevice(DRIVER, device) for device in devices]
    try:
        selector = compile_selector(expression, Environment.STORED)
        return [shown(verdict) for verdict in selector.verdicts(named)]
    except CelError as error:
        return [shown(error)] * len(devices)


class Worker:
    """An engine, and a namespace that asks it as a process does."""

    def __init__(self, engine: WorkerEngine) -> None:
        self.engine = engine
        self.demands = 0

    async def ask(
        self, expression: str, devices: Sequence[Device] = (GPU,), tenant: str = "team-a"
    ) -> list[Verdict] | None:
        """Return the verdicts; None if there is no worker for them."""
        while True:
            engine = self.engine.deferring()
            try:
                with evaluating(engine=engine, tenant=tenant):
                    return verdicts_here(long(expression), devices)
            except AnswersPending:
                self.demands += 1
                if not (await self.engine.answer(engine.demand, tenant=tenant)).is_complete:
                    return None

    async def says(self, text: str, tenant: str = "team-a") -> Verdict | None:
        """Return the stand-in's verdict on one device about an expression with a text."""
        verdicts = await self.ask(f'{A}.model != "{text}"', tenant=tenant)
        return None if verdicts is None else verdicts[0]

    @property
    def pid(self) -> int:
        process = self.engine._worker
        assert process is not None
        return process._process.pid


@asynccontextmanager
async def worker(**options: Any) -> AsyncIterator[Worker]:
    engine = WorkerEngine(**options)
    async with running(engine.run):
        yield Worker(engine)


async def test_the_worker_says_what_this_process_would_say() -> None:
    here = [verdicts_here(long(expression)) for expression in EXPRESSIONS]

    async with worker() as process:
        assert [await process.ask(expression) for expression in EXPRESSIONS] == here


async def test_a_compiled_selector_knows_what_it_reads() -> None:
    expression = long(EXPRESSIONS[0])
    here = compile_in_place(expression, Environment.STORED)

    async with worker() as process:
        await process.ask(EXPRESSIONS[0])
        with evaluating(engine=process.engine.deferring(), tenant="team-a"):
            there = compile_selector(expression, Environment.STORED)

    assert isinstance(there, RemoteSelector)
    assert (there.attributes, there.capacities) == (here.attributes, here.capacities)
    assert (there.cost, there.charge) == (here.cost, here.charge)


@pytest.mark.parametrize(
    ("is_remote", "expression"),
    [
        (False, EXPRESSIONS[0]),
        (False, f'{A}.model.matches("(?i)^nvidia")'),
        (True, long(EXPRESSIONS[0])),
        (True, f"lists.range(99).all(i, lists.range(99).all(j, i < 99 || {A}.index > j))"),
        (True, f"lists.range(99).map(i, lists.range(9)).size() > {A}.index"),
        # What calls Python leaks.
        (True, EXPRESSIONS[5]),
        (True, f"{A}.version == '1.2.3'"),
    ],
)
async def test_only_what_is_short_and_cheap_and_leaks_nothing_is_evaluated_in_place(
    is_remote: bool, expression: str
) -> None:
    engine = WorkerEngine().deferring()
    with evaluating(engine=engine):
        try:
            verdicts_here(expression)
        except AnswersPending:
            assert is_remote

    assert bool(engine.demand.questions) is is_remote


# --- questions ------------------------------------------------------------------------------------


def gpu(number: int, **attributes: Any) -> Device:
    attributes = {"serial": {"string": f"{number}"}, **attributes}
    return convert({"name": f"gpu-{number}", "attributes": attributes}, Device)


def test_an_attempt_names_all_that_it_needs_at_once() -> None:
    expressions = [long(f'{A}.serial != "{number}"') for number in range(3)]
    engine = WorkerEngine().deferring()

    with evaluating(engine=engine), pytest.raises(AnswersPending):
        compile_ahead(expressions, Environment.STORED)

    assert [text for text, _ in engine.demand.questions] == expressions


async def test_devices_that_differ_in_nothing_that_is_read_are_one_question() -> None:
    devices = [gpu(number, model={"string": f"T{number % 2}"}) for number in range(100)]
    asked: list[int] = []

    async with worker() as process:
        engine = process.engine.deferring()
        expression = long(f'{A}.model == "T1"')
        await process.ask(expression, devices[:1])  # Then it is known what it reads.
        with evaluating(engine=engine, tenant="team-a"), pytest.raises(AnswersPending):
            verdicts_here(expression, devices)
        asked += map(len, engine.demand.questions.values())
        verdicts = await process.ask(expression, devices)

    assert verdicts == [number % 2 == 1 for number in range(100)]
    assert asked == [1]


async def test_the_worker_sees_no_more_of_a_device_than_is_read() -> None:
    async with worker() as process:
        await process.ask(EXPRESSIONS[0], [gpu(1, model={"string": "A100"})])
        engine = process.engine.deferring()
        with evaluating(engine=engine, tenant="team-a"), pytest.raises(AnswersPending):
            verdicts_here(long(EXPRESSIONS[0]), [GPU])

    ((projection,),) = engine.demand.questions.values()
    assert set(decode_projection(projection).attributes) == {"model"}
    assert "80Gi" not in str(projection)


async def test_a_question_that_takes_long_is_answered_part_by_part() -> None:
    question = Question("true", Environment.STORED, (), 0.0)
    projections = tuple(
        projection
        for projection in [b"\x94\xa1d\xc2\x80\x80"] * 10  # A driver, and nothing else.
    )
    times = count()
    share = workers.answers(
        Question(question.expression, question.environment, projections, 3.0),
        clock=lambda: next(times),
        resident=lambda: 0,
    )

    compiled, *parts = list(share)

    assert isinstance(compiled, Compiled)
    assert [(len(part.verdicts), part.is_last) for part in parts if isinstance(part, Verdicts)] == [
        (1, False),
        (1, False),
        (1, True),
    ]


async def test_tenants_take_turns() -> None:
    """One that asks for much does not keep another waiting, and is answered nevertheless."""
    devices = [gpu(number) for number in range(3_000)]
    patterns = " || ".join(f'{A}.serial.matches("a{number}b")' for number in range(60))
    order: list[str] = []

    async with worker() as process, asyncio.TaskGroup() as group:
        await process.says("started")

        async def ask(tenant: str, expression: str, count: int) -> None:
            answer = await process.ask(expression, devices[:count], tenant)
            assert answer == [False] * count
            order.append(tenant)

        group.create_task(ask("loud", patterns, 3_000))
        await until(lambda: process.demands > 2)
        group.create_task(ask("quiet", f'{A}.serial == "none"', 5))

    assert order == ["quiet", "loud"]


async def test_whoever_does_not_wait_any_more_is_not_answered() -> None:
    devices = [gpu(number) for number in range(500)]
    async with worker() as process:
        engine = process.engine.deferring()
        with evaluating(engine=engine, tenant="team-a"), pytest.raises(AnswersPending):
            verdicts_here(long("true"), devices)
        answered = process.engine.submit(engine.demand, tenant="team-a")
        answered.cancel()

        assert await process.says("honest") is True
        engine = process.engine.deferring()
        with evaluating(engine=engine, tenant="team-a"), pytest.raises(AnswersPending):
            verdicts_here(long("true"), devices)


async def test_demands_of_the_same_verdicts_are_evaluated_once() -> None:
    """Pods of one workload ask the same questions, while the worker is at the first of them."""
    devices = [gpu(number) for number in range(100)]
    charges: dict[str, list[float]] = {"first": [], "second": [], "to compile": []}
    async with worker() as process:
        engine = process.engine.deferring()
        expression = long(f'{A}.serial == "none"')
        await process.ask(expression, devices[:1])
        with evaluating(engine=engine, tenant="team-a"), pytest.raises(AnswersPending):
            verdicts_here(expression, devices)
        compiled_only = Demand()
        compiled_only.add(expression, Environment.STORED)

        async with asyncio.TaskGroup() as group:
            for name, demand in zip(
                charges, (engine.demand, engine.demand, compiled_only), strict=True
            ):
                charge = charges[name].append
                group.create_task(process.engine.answer(demand, tenant="team-a", charge=charge))
        before = process.demands
        verdicts = await process.ask(expression, devices)

    assert verdicts == [False] * 100
    assert process.demands == before
    assert [len(charged) for charged in charges.values()] == [1, 0, 0]


async def test_nothing_is_kept_of_a_demand_that_nobody_waits_for() -> None:
    engine = WorkerEngine()  # It does not run: another demand takes long.
    first, *others = (engine.submit(Demand(), tenant="team-a") for _ in range(100))
    for answered in others:
        answered.cancel()
    await asyncio.sleep(0)

    assert len(engine._queue._waiting["team-a"]) == 1
    first.cancel()
    await asyncio.sleep(0)
    assert not len(engine._queue)


# --- what is lost ---------------------------------------------------------------------------------

STAND_IN: Final = """
import os, signal, sys, time
from process.selectors import worker
from process.selectors.protocol import Fault
real_verdict, real_answers = worker.verdict, worker.answers
def misbehave(text):
    if "stall" in text:
        time.sleep(60)
    if "kill" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    if "spin" in text:
        while True:
            pass
    if "memory" in text:
        bytearray(2**30)
def answers(question):
    if "to compile" in question.expression:
        misbehave(question.expression)
    yield from real_answers(question)
def verdict(selector, projection):
    if "to compile" not in selector.expression:
        misbehave(selector.expression)
    if "environment" in selector.expression:
        return Fault("UnsupportedSelector", ",".join(sorted(os.environ)))
    return real_verdict(selector, projection)
worker.answers, worker.verdict = answers, verdict
worker.main()
"""
"""The worker, with expressions that misbehave as the real engine must not."""

stand_in: Final = partial(worker, command=(sys.executable, "-c", STAND_IN), cpu_limit_s=0.2)


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("text", ["spin", "spin to compile"])
async def test_what_takes_too_long_is_stopped_for_an_hour(text: str) -> None:
    clock, lost = Clock(), list[None]()
    async with stand_in(clock=clock, count_stopped=lambda: lost.append(None)) as process:
        assert await process.says("honest") is True
        first, again = await process.says(text), await process.says(text)
        honest = await process.says("honest, too")
        clock.now_s = BLAME_S
        await process.says(text)

    assert isinstance(first, tuple)
    assert first == again
    assert "its evaluation was stopped (it took too long)" in first[1]
    assert honest is True
    assert len(lost) == 2


async def test_answers_about_stopped_expressions_are_forgotten_after_the_hour() -> None:
    clock, forgotten = Clock(), list[str]()
    async with stand_in(clock=clock) as process:
        forget = partial(forgotten.append, "all")
        async with running(partial(process.engine.run_retries, forget, period_s=0.001)):
            await process.says("spin")
            await asyncio.sleep(0.05)
            assert not forgotten
            clock.now_s = BLAME_S
            await until(lambda: bool(forgotten))
            await asyncio.sleep(0.05)

    assert forgotten == ["all"]


async def test_a_tenant_whose_expressions_end_the_worker_again_and_again_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("process.selectors.engine.MAX_LOSSES", 2)
    clock = Clock()
    async with stand_in(clock=clock) as process:
        for number in range(2):
            assert isinstance(await process.says(f"spin {number}", tenant="mallory"), tuple)

        assert await process.says("honest", tenant="mallory") is None
        assert await process.says("honest", tenant="alice") is True
        clock.now_s = WINDOW_S
        assert await process.says("honest, too", tenant="mallory") is True


async def test_what_was_killed_is_no_fault_of_the_expression() -> None:
    """A machine that is short of memory takes the worker first."""
    async with stand_in() as process:
        assert await process.says("kill") is None
        assert await process.says("honest") is True


async def test_a_slow_machine_is_no_fault_of_the_expression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("process.selectors.worker_process.MAX_SILENCE_S", 1.0)
    async with stand_in() as process:
        assert await process.says("stall") is None
        # A new process may start slowly beside others.
        monkeypatch.setattr("process.selectors.worker_process.MAX_SILENCE_S", 600.0)
        assert await process.says("honest") is True


@pytest.mark.parametrize("text", ["spin", "memory"])
async def test_the_kernel_stops_what_takes_too_much(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("process.selectors.worker_process.MAX_SILENCE_S", 600.0)
    async with stand_in(cpu_limit_s=30.0) as process:
        await process.says("honest")
        verdict = await process.says(text)
        honest = await process.says("honest, too")

    assert isinstance(verdict, tuple)
    assert "it took more memory or time than it may" in verdict[1]
    assert honest is True


async def test_the_worker_knows_nothing_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    async with stand_in() as process:
        verdict = await process.says("environment")

    assert isinstance(verdict, tuple)
    assert set(verdict[1].split(",")) <= {"LANG", "LC_CTYPE", "PYTHONPATH"}


async def test_a_worker_that_was_killed_between_two_questions_is_replaced() -> None:
    async with worker() as process:
        before = await process.ask(EXPRESSIONS[0])
        pid = process.pid
        os.kill(pid, signal.SIGKILL)
        worker_process = process.engine._worker
        assert worker_process is not None
        await until(lambda: worker_process.has_ended)

        assert await process.ask(EXPRESSIONS[1]) == [False]
        assert await process.ask(EXPRESSIONS[0]) == before
        assert process.pid != pid


async def test_a_worker_that_leaked_is_replaced_and_nobody_is_blamed() -> None:
    leaky = 'lists.range(300).all(i, quantity("2").add(quantity("1")).isGreaterThan(quantity("1")))'
    devices = [gpu(number) for number in range(160)]
    losses: list[None] = []
    async with worker(count_stopped=lambda: losses.append(None)) as process:
        await process.ask(EXPRESSIONS[0])
        pid = process.pid

        assert await process.ask(f"{leaky} && {A}.serial != ''", devices) == [True] * len(devices)
        assert await process.ask(EXPRESSIONS[1]) == [False]
        assert process.pid != pid
    assert losses == []


async def test_a_worker_that_does_not_start_is_not_started_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("process.selectors.engine.MAX_FAILURES", 2)
    lost: list[None] = []
    async with worker(
        command=(sys.executable, "-c", "pass"), count_stopped=lambda: lost.append(None)
    ) as process:
        answers = [await process.says("honest") for _ in range(4)]

    assert set(answers) == {None}
    assert len(lost) == 2


# --- threads --------------------------------------------------------------------------------------


async def test_a_thread_that_nobody_waits_for_waits_for_the_worker() -> None:
    async with worker() as process:
        blocking = process.engine.blocking()

        def ask(meter: Meter) -> list[Verdict]:
            with evaluating(engine=blocking, tenant="team-a", meter=meter):
                return verdicts_here(long(EXPRESSIONS[0]))

        assert await asyncio.to_thread(ask, Meter()) == [True]


async def test_a_thread_does_not_wait_once_the_engine_has_ended() -> None:
    """The end of a process waits for its threads."""
    async with worker() as process:
        assert await process.says("honest") is True
    blocking = process.engine.blocking()

    def ask() -> None:
        with evaluating(engine=blocking, tenant="team-a"):
            verdicts_here(long(EXPRESSIONS[0]))

    with pytest.raises(AnswersPending):
        async with asyncio.timeout(20):
            await asyncio.to_thread(ask)


async def test_a_thread_asks_for_no_more_than_its_budget() -> None:
    devices = [gpu(number) for number in range(500)]
    async with worker() as process:
        blocking = process.engine.blocking()

        def ask() -> None:
            with evaluating(engine=blocking, tenant="team-a", meter=Meter(1_000)):
                verdicts_here(long(f'{A}.serial != "x"'), devices)

        with pytest.raises(BudgetSpent):
            await asyncio.to_thread(ask)
