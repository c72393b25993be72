"""The engine with a worker process that answers questions beside the decisions that need them.

A decision never waits for the worker. It ends with `AnswersPending`; its caller has the questions answered
(`WorkerEngine.answer`) and makes the decision again, and other decisions are made meanwhile. A thread
that blocks no other turn waits for the answers in place (`BlockingEngine`).

The worker answers one tenant after the other, each for a share of time (`process.fairness.turns`). An expression
that takes more than a second of CPU on one device is stopped, and not tried again for an hour. A tenant
whose expressions end the worker again and again is blocked for a minute; other tenants are not.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeVar

from kube.cel.device import NamedDevice
from kube.cel.engine import Names
from kube.cel.library import Environment
from kube.cel.scope import AnswersPending, current_scope
from kube.errors import CelError
from kube.logs import get_logger
from process.fairness.turns import FairQueue
from process.selectors.answers import AnswerStore, digest
from process.selectors.deferring import DeferringEngine, Demand
from process.selectors.protocol import (
    MAX_PROJECTION_BYTES,
    Compiled,
    Question,
    Rejected,
)
from process.selectors.worker_process import COMMAND, WorkerFailed, WorkerLost, WorkerProcess

CPU_S: Final = 1.0
"""CPU time of one evaluation, and of the compilation of one expression."""
START_S: Final = 30.0
"""CPU time until the first answer of a new worker."""
SHARE_S: Final = 0.05
"""CPU time of a turn while others wait; one evaluation may take longer."""
ALONE_S: Final = 0.2
"""The same while nobody else waits: somebody may come."""
MAX_LOSSES: Final = 6
"""Lost workers of one tenant within a minute; starting another takes others half a second."""
MAX_FAILURES: Final = 30
"""The same where no expression is to blame, of all tenants together."""
NOBODY: Final = "\0"
"""The tenant that failures without a guilty expression are counted for; no namespace has this name.
"""
WINDOW_S: Final = 60.0
MAX_TENANTS: Final = 4096
RETRY_PERIOD_S: Final = 600.0
"""The time between two removals of answers about stopped expressions, which may then be tried
again."""
_GREETING: Final = Question("true", Environment.STORED)

T = TypeVar("T")

log = get_logger()


class Answered(NamedTuple):
    """The outcome of a demand.

    Attributes:
        is_complete: Everything was answered. Otherwise there was no worker for it, or no time.
    """

    is_complete: bool


class BlockingEngine:
    """A `SelectorEngine` for threads that nobody waits for: they wait for the worker in place."""

    def __init__(self, engine: "WorkerEngine", loop: asyncio.AbstractEventLoop) -> None:
        """Begin; `WorkerEngine.blocking` is the public way.

        Args:
            loop: The event loop that runs the engine; never that of the thread that asks.
        """
        self._engine = engine
        self._loop = loop

    def compile(self, expression: str, environment: Environment) -> Names:
        """Compile a selector; see `SelectorEngine`."""
        return self._answered(lambda engine: engine.compile(expression, environment))

    def verdicts(
        self, expression: str, environment: Environment, devices: Sequence[NamedDevice]
    ) -> list[bool | CelError]:
        """Return verdicts; see `SelectorEngine`."""
        return self._answered(lambda engine: engine.verdicts(expression, environment, devices))

    def _answered(self, ask: Callable[[DeferringEngine], T]) -> T:
        """Return an answer that may have to be waited for.

        Raises:
            AnswersPending: There is no worker for it.
        """
        while True:
            engine = self._engine.deferring(charges_demand=True)
            try:
                return ask(engine)
            except AnswersPending:
                scope = current_scope()
                answer = self._engine.answer(
                    engine.demand, tenant=scope.tenant, question=scope.question
                )
                answered = asyncio.run_coroutine_threadsafe(answer, self._loop).result()
                if not answered.is_complete:
                    raise


class _Request:
    """A demand that is being answered, slice by slice.

    Attributes:
        charge: Called with the CPU seconds of each slice.
        answered: Done once the demand is answered or given up; cancelled when nobody waits.
    """

    def __init__(
        self, demand: Demand, tenant: str, question: str | None, charge: Callable[[float], None]
    ) -> None:
        self.tenant = tenant
        self.question = question
        self.charge = charge
        self.answered: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._left = deque(
            (expression, environment, deque(projections))
            for (expression, environment), projections in demand.questions.items()
        )

    @property
    def is_complete(self) -> bool:
        return not self._left

    def next_question(self, share_s: float, store: AnswerStore) -> Question | None:
        """Return the next slice, without the verdicts in the store; None without a question."""
        expression, environment, projections = self._left[0]
        key = digest(expression, environment)
        answers = store.find(key, self.tenant, self.question)
        verdicts = answers.verdicts if answers is not None else {}
        size, missing = 0, list[bytes]()
        while projections:
            projection = projections[0]
            if projection not in verdicts:
                size += len(projection)
                if size > MAX_PROJECTION_BYTES:
                    break
                missing.append(projection)
            projections.popleft()
        projections.extendleft(reversed(missing))
        if answers is not None and not missing:
            return None
        return Question(expression, environment, tuple(missing), share_s)

    def advance(self, count: int) -> None:
        """Take note that so many projections of the last slice are answered."""
        _, _, projections = self._left[0]
        for _ in range(count):
            projections.popleft()

    def end_slice(self) -> None:
        """Take note that the last slice is answered, as far as its share of time went."""
        _, _, projections = self._left[0]
        if not projections:
            self._left.popleft()

    def skip(self) -> None:
        """Take note that the expression of the last slice needs no further answer."""
        self._left.popleft()

    def finish(self, *, is_complete: bool) -> None:
        """Pass the outcome to the waiting caller."""
        if not self.answered.done():
            self.answered.set_result(Answered(is_complete))


class WorkerEngine:
    """Keeps a worker process, and its answers. Its methods are called on the event loop.

    Nothing is answered before `run`.
    """

    def __init__(
        self,
        command: tuple[str, ...] = COMMAND,
        *,
        count_stopped: Callable[[], None] = lambda: None,
        cpu_limit_s: float = CPU_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a worker.

        Args:
            count_stopped: Called with each worker that is lost.
            cpu_limit_s: The limit of CPU time on one device, by default `CPU_S`.
            clock: Monotonic seconds.
        """
        self._command = command
        self._count_stopped = count_stopped
        self._cpu_limit_s = cpu_limit_s
        self._clock = clock
        self._store = AnswerStore(clock=clock)
        self._queue = FairQueue[_Request](clock=clock)
        self._worker: WorkerProcess | None = None
        # When workers were lost, by the tenant whose expressions did it; empty where nobody's did.
        self._losses: OrderedDict[str, deque[float]] = OrderedDict()
        self._has_ended = False

    def deferring(self, *, charges_demand: bool = False) -> DeferringEngine:
        """Return the engine of one attempt.

        Args:
            charges_demand: The meter in force bounds what is asked of the worker, too.
        """
        return DeferringEngine(self._store, charges_demand=charges_demand)

    def blocking(self) -> BlockingEngine:
        """Return an engine for threads that nobody waits for."""
        return BlockingEngine(self, asyncio.get_running_loop())

    def release(self, question: str) -> None:
        """Keep the answers that a question needed no longer than the rest."""
        self._store.release(question)

    def submit(
        self,
        demand: Demand,
        *,
        tenant: str,
        question: str | None = None,
        charge: Callable[[float], None] = lambda _cpu_s: None,
    ) -> asyncio.Future[Answered]:
        """Have a demand answered; the future is done when it is, or when there is no worker for it.

        Whoever cancels the future gives it up. What was answered by then is kept. After the end of `run` nothing is
        answered, so that no thread waits for ever while the process ends.

        Args:
            tenant: Takes turns with others, and is charged for what is kept.
            question: The unfinished question that needs the answers, if there is one.
            charge: Called with the CPU seconds of the worker as it uses them, also for what is given up.
        """
        request = _Request(demand, tenant, question, charge)
        if self._has_ended:
            request.finish(is_complete=False)
            return request.answered
        self._queue.put(tenant, request)
        # What nobody waits for does not stay behind one that takes minutes.
        request.answered.add_done_callback(lambda _: self._queue.discard(tenant, request))
        return request.answered

    async def answer(
        self,
        demand: Demand,
        *,
        tenant: str,
        question: str | None = None,
        charge: Callable[[float], None] = lambda _cpu_s: None,
    ) -> Answered:
        """Have a demand answered, as `submit` does, and wait for it."""
        return await self.submit(demand, tenant=tenant, question=question, charge=charge)

    async def run(self, wait_ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """Answer until cancelled.

        Args:
            wait_ready: The worker is started after it, so that it slows no start; without, the first
                question starts it.
        """
        try:
            if wait_ready is not None:
                await wait_ready()
                with suppress(WorkerFailed):
                    await self._start()
            while True:
                tenant, request = await self._queue.get()
                if request.answered.done():
                    continue
                began_s = self._clock()
                try:
                    await self._answer_slice(request)
                except asyncio.CancelledError:
                    request.finish(is_complete=False)
                    raise
                self._queue.charge(tenant, self._clock() - began_s)
                if request.is_complete:
                    request.finish(is_complete=True)
                elif not request.answered.done():
                    self._queue.put_first(tenant, request)
        finally:
            self._has_ended = True
            await self.close()
            while (left := self._queue.take()) is not None:
                left[1].finish(is_complete=False)

    async def run_retries(
        self, forget: Callable[[], None], *, period_s: float = RETRY_PERIOD_S
    ) -> None:
        """Have answers forgotten that were given of stopped expressions, until cancelled.

        Args:
            forget: Drops what was kept of answers, on the event loop.
            period_s: The time between two removals.
        """
        while True:
            await asyncio.sleep(period_s)
            if self._store.take_forgiven():
                forget()

    async def close(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.kill()

    async def _answer_slice(self, request: _Request) -> None:
        """Have the next questions of a request answered, for a share of time."""
        question = request.next_question(SHARE_S if len(self._queue) else ALONE_S, self._store)
        if question is None:  # Another request has asked it since.
            request.end_slice()
            return
        key = digest(question.expression, question.environment)
        if self._store.stop_reason(key) is not None:
            request.skip()
            return
        if self._is_blocked(request.tenant) or self._is_blocked(NOBODY):
            request.finish(is_complete=False)
            return
        try:
            worker = await self._start()
        except WorkerFailed as failure:
            await self._lose(NOBODY, question, str(failure))
            request.finish(is_complete=False)
            return
        before_s = worker.cpu_s() or 0.0
        try:
            await self._ask(worker, request, question)
        except WorkerFailed as failure:
            await self._lose(NOBODY, question, str(failure))
            request.finish(is_complete=False)
        except WorkerLost as loss:
            self._store.stop(key, str(loss))
            await self._lose(request.tenant, question, str(loss))
            request.charge(self._cpu_limit_s)
            request.skip()
        else:
            request.charge(max(0.0, (worker.cpu_s() or before_s) - before_s))

    async def _ask(self, worker: WorkerProcess, request: _Request, question: Question) -> None:
        """Ask, and keep the answers as they come.

        Raises:
            WorkerLost: See `WorkerProcess.ask`.
            WorkerFailed: Likewise.
        """
        key = digest(question.expression, question.environment)
        add = partial(self._store.add, key, tenant=request.tenant, question=request.question)
        count, names, is_worn = 0, None, False
        async for answer in worker.ask(question, self._cpu_limit_s):
            if isinstance(answer, Rejected):
                add(answer.fault, ())
                request.skip()
                return
            if isinstance(answer, Compiled):
                names = answer.names
                add(names, ())
                continue
            if names is None or count + len(answer.verdicts) > len(question.projections):
                raise WorkerLost("it answered something else")
            answered = question.projections[count : count + len(answer.verdicts)]
            add(names, tuple(zip(answered, answer.verdicts, strict=True)))
            count += len(answered)
            request.advance(len(answered))
            is_worn = answer.is_worn
        request.end_slice()
        if is_worn:
            await self.close()

    async def _start(self) -> WorkerProcess:
        """Return the worker, started if need be.

        Raises:
            WorkerFailed: It does not start.
        """
        worker = self._worker
        if worker is not None and not worker.has_ended:
            return worker
        if (
            worker is not None
        ):  # Nobody asked it anything: it is not the fault of the next expression.
            await self.close()
        worker = self._worker = await WorkerProcess.start(self._command)
        try:
            # Else a costly expression would pass for a worker that does not start.
            async for _ in worker.ask(_GREETING, START_S):
                pass
        except (WorkerLost, WorkerFailed) as error:
            raise WorkerFailed("does not start") from error
        return worker

    async def _lose(self, tenant: str, question: Question, why: str) -> None:
        """Take note of a lost worker."""
        await self.close()
        self._count_stopped()
        losses = self._losses.setdefault(tenant, deque(maxlen=MAX_FAILURES))
        losses.append(self._clock())
        self._losses.move_to_end(tenant)
        if len(self._losses) > MAX_TENANTS:
            self._losses.popitem(last=False)
        key = digest(question.expression, question.environment)
        log.warning("selector.stopped", reason=why, namespace=tenant, expression=key.hex()[:16])

    def _is_blocked(self, tenant: str) -> bool:
        """Return True if too many workers were lost within a minute."""
        losses = self._losses.get(tenant, ())
        since_s = self._clock() - WINDOW_S
        limit = MAX_FAILURES if tenant == NOBODY else MAX_LOSSES
        return sum(lost_s > since_s for lost_s in losses) >= limit
