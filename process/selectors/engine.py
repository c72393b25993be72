"""The engine that keeps a worker: starts it, waits for so long, kills it, and remembers what for.

Calls come from the threads that evaluate rules, never from the event loop.
"""

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from kube.api.resource import Device
from kube.cel.engine import Names, require_wanted
from kube.cel.library import Environment
from kube.errors import CelError, SelectorTooCostly, UnsupportedSelector
from kube.logs import get_logger
from kube.sized_cache import SizedCache
from process.selectors.protocol import (
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    Answer,
    Call,
    Compiled,
    Fault,
    Verdict,
    decode_answer,
    frame,
)

DEADLINE_S: Final = 1.0
"""Wall time of one question."""
STALLED: Final = 0.1
"""Share of that time: what got less of a core was not too costly, the machine had no time for it."""
START_S: Final = 30.0
"""Wall time until the first answer of a new worker."""
ENDING_S: Final = 1.0
"""Wall time from a worker's last byte until it has ended."""
MAX_RESTARTS_PER_MINUTE: Final = 30
TRY_AGAIN_S: Final = 60.0
"""After which expressions are asked again that were not looked at."""
MAX_REMEMBERED: Final = 4096
MAX_REMEMBERED_BYTES: Final = 2**20
_GREETING: Final = frame(Call("true", Environment.STORED))
COMMAND: Final = (sys.executable, "-m", "process.selectors.worker")

V = TypeVar("V")

log = get_logger()


class _WorkerLost(Exception):
    """The worker did not answer, and what it was asked may be why; the message says how."""


class _WorkerFailed(Exception):
    """The worker did not answer, whatever it was asked; the message says why."""


class WorkerEngine:
    """A `SelectorEngine` in a process of its own. Safe for several threads.

    An expression during which the worker was lost is not tried again while this process lives: a
    changed expression is another one. One that was not looked at, since there was no worker, or no time or
    memory for it, is no worse than others; those who keep answers have to forget them then (`run_retries`).
    """

    def __init__(
        self,
        command: tuple[str, ...] = COMMAND,
        *,
        count_stopped: Callable[[], None] = lambda: None,
        deadline_s: float = DEADLINE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = command
        self._deadline_s = deadline_s
        self._count_stopped = count_stopped
        self._clock = clock
        self._lock = threading.RLock()
        self._worker: _Worker | None = None
        self._lost_s: list[float] = []
        self._has_unasked = False
        self._stopped: SizedCache[bytes, str] = _small_cache()
        self._compiled: SizedCache[bytes, Compiled | Fault] = _small_cache()

    async def run(self, wait_ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """Keep the worker until cancelled.

        Args:
            wait_ready: The worker is started after it, so that it slows no start; without, the first
                call starts it.
        """
        try:
            if wait_ready is not None:
                await wait_ready()
                await asyncio.to_thread(self.start)
            await asyncio.Event().wait()
        finally:
            self.close()

    async def run_retries(
        self, forget: Callable[[], None], *, period_s: float = TRY_AGAIN_S
    ) -> None:
        """Have answers forgotten now and then that were given without a look, until cancelled.

        Args:
            forget: Drops what was kept of answers, on the event loop.
            period_s: Between two times.
        """
        while True:
            await asyncio.sleep(period_s)
            has_unasked, self._has_unasked = self._has_unasked, False
            if has_unasked:
                forget()

    def start(self) -> None:
        """Start the worker without waiting for it."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            if self._worker is not None:
                self._worker.kill()
                self._worker = None

    def compile(self, expression: str, environment: Environment) -> Names:
        """Compile a selector; see `SelectorEngine`."""
        key = _digest(expression, environment)
        with self._lock:
            self._require_not_stopped(key)
            answer: Answer | None = self._compiled.get(key)
            if answer is None:
                answer = self._ask(key, Call(expression, environment))
                if not isinstance(answer, Verdict):
                    self._compiled.put(key, answer, size=_size(answer))
        if isinstance(answer, Compiled):
            return answer.names
        raise _error(answer)

    def matches(
        self, expression: str, environment: Environment, driver: str, device: Device
    ) -> bool:
        """Return whether a device satisfies a selector; see `SelectorEngine`."""
        key = _digest(expression, environment)
        answer = self._ask(key, Call(expression, environment, driver, device))
        if isinstance(answer, Verdict):
            return answer.matches
        raise _error(answer)

    def _ask(self, key: bytes, call: Call) -> Answer:
        with self._lock:
            require_wanted()
            self._require_not_stopped(key)
            worker = self._running()
            try:
                if not worker.has_answered:
                    # Else a costly expression would pass for a worker that does not start.
                    self._greet(worker)
                return worker.ask(frame(call), self._deadline_s)
            except _WorkerFailed as failure:
                self._replace(worker, key, str(failure))
                self._has_unasked = True
                raise UnsupportedSelector(
                    f"the process that evaluates expressions {failure}"
                ) from failure
            except _WorkerLost as loss:
                self._replace(worker, key, str(loss))
                message = (
                    f"its evaluation was stopped ({loss}); it is not tried again until it changes"
                )
                self._stopped.put(key, message, size=len(message))
                raise SelectorTooCostly(message) from loss

    def _greet(self, worker: "_Worker") -> None:
        try:
            worker.ask(_GREETING, START_S)
        except (_WorkerLost, _WorkerFailed) as error:
            raise _WorkerFailed("does not start") from error

    def _require_not_stopped(self, key: bytes) -> None:
        stop_reason = self._stopped.get(key)
        if stop_reason is not None:
            raise SelectorTooCostly(stop_reason)

    def _replace(self, worker: "_Worker", key: bytes, why: str) -> None:
        worker.kill()
        self._worker = None
        self._count_stopped()
        self._lost_s.append(self._clock())
        log.warning("selector.stopped", reason=why, expression=key.hex()[:16])

    def _running(self) -> "_Worker":
        if self._worker is not None and self._worker.has_ended:
            # Nobody asked it anything: it is not the fault of the next expression.
            self._worker.kill()
            self._worker = None
        if self._worker is None:
            now_s = self._clock()
            self._lost_s = [lost_s for lost_s in self._lost_s if now_s - lost_s < 60]
            if len(self._lost_s) >= MAX_RESTARTS_PER_MINUTE:
                self._has_unasked = True
                raise UnsupportedSelector("too many evaluations had to be stopped in a minute")
            self._worker = _Worker(self._command)
        return self._worker


class _Worker:
    """One process and its pipes.

    Attributes:
        has_answered: It has started.
    """

    def __init__(self, command: tuple[str, ...]) -> None:
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        # No credential, address or setting of this process is in the environment of the worker.
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={"PYTHONPATH": path, "LANG": "C.UTF-8"},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout
        self.has_answered = False

    @property
    def has_ended(self) -> bool:
        """Return whether the process is gone."""
        return self._process.poll() is not None

    def ask(self, question: bytes, deadline_s: float) -> Answer:
        """Return the answer to an encoded question.

        Raises:
            _WorkerLost: It ended, or took too long.
            _WorkerFailed: Somebody killed it, or it got no time.
        """
        began_cpu_s = self._cpu_s()
        ends_s = time.monotonic() + deadline_s
        try:
            self._questions.write(question)
            size = int.from_bytes(self._read(HEADER_BYTES, ends_s), "big")
            if size > MAX_FRAME_BYTES:
                raise _WorkerLost("it answered too much")
            answer = decode_answer(self._read(size, ends_s))
        except TimeoutError as error:
            if self._cpu_s() - began_cpu_s < deadline_s * STALLED:
                raise _WorkerFailed("got no time from this machine") from error
            raise _WorkerLost("it took too long") from error
        except (OSError, msgspec.DecodeError) as error:
            raise self._ended() from error
        self.has_answered = True
        return answer

    def _read(self, size: int, ends_s: float) -> bytes:
        data = b""
        while len(data) < size:
            left_s = ends_s - time.monotonic()
            ready, _, _ = select.select([self._answers], [], [], max(left_s, 0))
            if not ready:
                raise TimeoutError
            part = self._answers.read(size - len(data))
            if not part:
                raise BrokenPipeError
            data += part
        return data

    def _ended(self) -> _WorkerLost | _WorkerFailed:
        """Return why it ended by itself, or what it answered is no answer."""
        try:
            status = self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            return _WorkerLost("it answered something else")
        if status == -signal.SIGKILL:
            # Its own limits end it otherwise: a machine that is short of memory ends it first.
            return _WorkerFailed("was killed")
        return _WorkerLost("it took more memory or time than it may")

    def _cpu_s(self) -> float:
        """Return the CPU time that it has had; where nothing tells, the time that has passed.

        Source: clock_getcpuclockid(3), whose identifier Linux makes of a process in this way.
        """
        try:
            return time.clock_gettime(~self._process.pid << 3 | 2)
        except OSError:
            return time.monotonic()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._questions.close()
        self._answers.close()


def _small_cache() -> SizedCache[bytes, V]:
    return SizedCache(max_entries=MAX_REMEMBERED, max_bytes=MAX_REMEMBERED_BYTES)


def _digest(expression: str, environment: Environment) -> bytes:
    text = f"{environment}:{expression}".encode(errors="surrogatepass")
    return sha256(text).digest()


def _size(answer: Compiled | Fault) -> int:
    if isinstance(answer, Fault):
        return 100 + len(answer.message)
    names = (*(answer.names.attributes or ()), *(answer.names.capacities or ()))
    return 100 + sum(100 + len(domain) + len(identifier) for domain, identifier in names)


def _error(answer: Answer) -> CelError:
    if isinstance(answer, Fault):
        return answer.error()
    return UnsupportedSelector("the process that evaluates expressions answered something else")
