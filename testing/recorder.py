"""`drawbridge record` in a thread beside a test, ended by the test."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import Result

from answers.recording.lines import Change, Entry, Mark, Moment
from cli.verbs.record import command
from cli.verbs.record.file import RecordingFile
from testing.command import drawbridge
from testing.fake_api_server import FakeApiServer, until
from testing.kubeconfig import kubeconfig_of

TIMEOUT_S = 60.0
"""Seconds for what a test waits for; a busy machine takes long."""


class RecorderBesideTest:
    """A recorder that runs until the test leaves its context.

    Attributes:
        file: The file that it writes.
        entries: The entries so far, written or not.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.entries: list[Entry] = []
        self._is_over = threading.Event()
        self._result: Result | None = None

    @property
    def result(self) -> Result:
        """The result of the command, after its end."""
        assert self._result is not None
        return self._result

    @property
    def has_first_state(self) -> bool:
        """Return True if the first state is complete."""
        return any(
            isinstance(entry, Moment) and entry.mark is Mark.STATE for entry in tuple(self.entries)
        )

    async def changes(self, count: int) -> None:
        """Wait until so many changes came after the first state."""
        await self.until(lambda: self._later() >= count)

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until something is true."""
        await until(is_true, timeout_s=TIMEOUT_S)

    def _later(self) -> int:
        entries = tuple(self.entries)
        marks = [number for number, entry in enumerate(entries) if isinstance(entry, Moment)]
        return sum(isinstance(entry, Change) for entry in entries[marks[0] :]) if marks else 0

    async def run(self, call: Sequence[object]) -> None:
        """Run the command to its end."""
        self._result = await asyncio.to_thread(drawbridge, *call)

    def end(self) -> None:
        """Let the command end."""
        self._is_over.set()

    async def wait_end(self, _duration: float | None) -> None:
        """Wait in the command's thread until the test is through."""
        while not self._is_over.is_set():  # noqa: ASYNC110 - the event is another thread's.
            await asyncio.sleep(0.01)


@asynccontextmanager
async def recorder_beside(
    server: FakeApiServer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *options: object,
    output: str = "day.json",
) -> AsyncIterator[RecorderBesideTest]:
    """Run a recorder; the context begins with its first state, and ends with the command.

    Args:
        server: The cluster.
        folder: The folder of the file.
        monkeypatch: Takes the place of the command's wait for its end.
        options: Further options.
        output: The name of the file; `-` for standard output.
    """
    recorder = RecorderBesideTest(folder / output)
    add = RecordingFile.add

    def note(file: RecordingFile, entry: Entry) -> None:
        add(file, entry)
        recorder.entries.append(entry)

    monkeypatch.setattr(RecordingFile, "add", note)
    monkeypatch.setattr(command, "wait_end", recorder.wait_end)
    name = output if output == "-" else recorder.file
    call = (
        "record",
        "-o",
        name,
        "--kubeconfig",
        kubeconfig_of(server, folder),
        "--context",
        "here",
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run((*call, *options)))
        try:
            await recorder.until(lambda: recorder.has_first_state or task.done())
            yield recorder
        finally:
            recorder.end()
