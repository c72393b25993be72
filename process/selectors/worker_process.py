"""One worker process: started, asked, watched, killed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from process.selectors.protocol import (
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    Answer,
    Question,
    Rejected,
    Verdicts,
    decode_answer,
    frame,
)

COMMAND: Final = (sys.executable, "-m", "process.selectors.worker")
ENDING_S: Final = 1.0
"""Wall time from a worker's last byte until it has ended."""
LOOK_S: Final = 0.1
"""Wall time between two looks at the CPU time of a worker that is silent."""
MAX_SILENCE_S: Final = 20.0
"""Wall time for one evaluation, however slow the machine is; and for the worker to take a question."""


class WorkerLost(Exception):
    """The worker died or stalled, possibly because of the expression that it was evaluating."""


class WorkerFailed(Exception):
    """The worker did not answer, for a reason unrelated to the question; the message has it."""


class WorkerProcess:
    """A process and its pipes. Not for several tasks."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Take over a process that was started; `start` is the public way."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._questions, self._answers = process.stdin, process.stdout

    @staticmethod
    async def start(command: tuple[str, ...] = COMMAND) -> "WorkerProcess":
        """Start a process.

        Raises:
            WorkerFailed: It cannot be started.
        """
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        try:
            # No credential, address or setting of this process is in the environment of the worker.
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={"PYTHONPATH": path, "LANG": "C.UTF-8"},
            )
        except OSError as error:
            raise WorkerFailed("does not start") from error
        return WorkerProcess(process)

    @property
    def has_ended(self) -> bool:
        """True if the process is gone."""
        return self._process.returncode is not None

    async def ask(self, question: Question, limit_s: float) -> AsyncIterator[Answer]:
        """Yield the answers to a question.

        Args:
            limit_s: CPU time of one evaluation, and of the compilation.

        Raises:
            WorkerLost: It ended, or took too long for one evaluation.
            WorkerFailed: Somebody killed it, or the machine gave it no time.
        """
        self._questions.write(frame(question))
        try:
            async with asyncio.timeout(MAX_SILENCE_S):
                await self._questions.drain()
        except TimeoutError as error:
            raise WorkerFailed("takes no question") from error
        except ConnectionError as error:
            raise await self._ending() from error
        while True:
            answer = await self._next(limit_s)
            yield answer
            if isinstance(answer, Rejected) or (isinstance(answer, Verdicts) and answer.is_last):
                return

    async def _next(self, limit_s: float) -> Answer:
        """Return the next answer; it comes after every evaluation that takes a while."""
        began_s, began_cpu_s = time.monotonic(), self.cpu_s() or 0.0
        reading = asyncio.ensure_future(self._read())
        try:
            while not reading.done():
                await asyncio.wait({reading}, timeout=LOOK_S)
                if reading.done():
                    break
                cpu_s = self.cpu_s()
                if cpu_s is not None and cpu_s - began_cpu_s >= limit_s:
                    raise WorkerLost("it took too long")
                if time.monotonic() - began_s >= MAX_SILENCE_S:
                    raise WorkerFailed("got no time from this machine")
        finally:
            reading.cancel()
        try:
            return reading.result()
        except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError) as error:
            raise await self._ending() from error

    async def _read(self) -> Answer:
        size = int.from_bytes(await self._answers.readexactly(HEADER_BYTES), "big")
        if size > MAX_FRAME_BYTES:
            raise WorkerLost("it answered too much")
        return decode_answer(await self._answers.readexactly(size))

    async def _ending(self) -> WorkerLost | WorkerFailed:
        """Describe the exit of the worker, or its malformed reply."""
        try:
            async with asyncio.timeout(ENDING_S):
                status = await self._process.wait()
        except TimeoutError:
            return WorkerLost("it answered something else")
        if status == -signal.SIGKILL:
            # Its own limits end it otherwise: a machine that is short of memory ends it first.
            return WorkerFailed("was killed")
        return WorkerLost("it took more memory or time than it may")

    def cpu_s(self) -> float | None:
        """Return the CPU seconds that it has had; None if it has ended.

        Source: clock_getcpuclockid(3), whose identifier Linux makes of a process in this way.
        """
        try:
            return time.clock_gettime(~self._process.pid << 3 | 2)
        except OSError:
            return None

    async def kill(self) -> None:
        """End the process at once."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._questions.close()
