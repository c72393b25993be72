"""Child processes that are stopped exactly, in any case.

Every child leads a process group of its own, so a Ctrl-C at the terminal reaches only us and we
decide the order of stopping: the last that was started first. Each is written down with its start time, because a process id alone
may mean somebody else tomorrow. A keeper, one more child, waits on a pipe that only we hold open:
when we die without stopping our children, it stops them.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

GRACE_S: Final = 10.0
"""The time for a process after SIGTERM before it gets SIGKILL."""

TAIL_LINES: Final = 25
RECORD: Final = "processes.json"
AFTERWARDS: Final = "afterwards.json"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A process that we started; `started` is as in /proc, 0 if there is none."""

    name: str
    pid: int
    started: int


class Child:
    """One program with its log file; it can be stopped and started again."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        env: Mapping[str, str] | None,
        *,
        ending: signal.Signals = signal.SIGTERM,
    ) -> None:
        """Name the program; it does not run yet.

        Args:
            name: The name in records and messages.
            command: Program and arguments.
            log: Its output is appended to this file.
            env: The variables to add to our environment.
            ending: The first signal of `stop`; SIGKILL where nobody needs what it would do in its last seconds.
        """
        self.name = name
        self._ending = ending
        self.command = tuple(command)
        self.log = log
        self.env = env
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program; its output is appended to the log."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                env={**os.environ, **(self.env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def record(self) -> Record | None:
        """The identity of the running program; None when it does not run."""
        if self._process is None or self._process.poll() is not None:
            return None
        pid = self._process.pid
        return Record(name=self.name, pid=pid, started=_started(pid))

    @property
    def exit_status(self) -> int | None:
        """The status that the program ended with; None while it runs or before it was started."""
        return None if self._process is None else self._process.poll()

    def stop(self, grace_s: float = GRACE_S) -> None:
        """End the program and its group, SIGTERM first if not told otherwise; fine when it has ended."""
        if self.exit_status is not None or self._process is None:
            return
        self.signal(self._ending)
        if not (self.wait(grace_s) and self._wait_group(grace_s)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self.wait(grace_s)
            self._wait_group(grace_s)

    def signal(self, number: int) -> None:
        """Send a signal to the program's group, if it still runs."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the program; return True if it ended in time."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _wait_group(self, timeout_s: float) -> bool:
        """Wait for the program's children; return True if they have ended: `nsenter` ends before its own."""
        deadline = time.monotonic() + timeout_s
        while self._process is not None and _is_group(self._process.pid):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The end of the log."""
        if not self.log.exists():
            return ""
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join(text[-lines:])


def log_tails(children: Iterable[Child], lines: int = TAIL_LINES) -> str:
    """The end of the log of each program."""
    return "\n".join(f"--- {child.log}\n{child.tail(lines)}" for child in children)


def stop_all(children: Iterable[Child], grace_s: float = GRACE_S) -> None:
    """End the given programs one after the other, the last first, as each may need earlier ones."""
    for child in reversed(tuple(children)):
        child.stop(grace_s)


def write_records(directory: Path, children: Iterable[Child]) -> None:
    """Write down the running processes, for the keeper and for a later command."""
    records = [child.record for child in children]
    partial = directory / f"{RECORD}.partial"
    partial.write_bytes(msgspec.json.encode([record for record in records if record]))
    partial.rename(directory / RECORD)


def write_afterwards(directory: Path, commands: Mapping[str, Sequence[str]]) -> None:
    """Write down the commands to run when the processes of a directory have ended, by name."""
    partial = directory / f"{AFTERWARDS}.partial"
    partial.write_bytes(msgspec.json.encode(commands))
    partial.rename(directory / AFTERWARDS)


def run_afterwards(directory: Path) -> None:
    """Run the commands written down for the end of the processes of a directory; once."""
    path = directory / AFTERWARDS
    if not path.exists():
        return
    commands = msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])
    for command in commands.values():
        subprocess.run(command, check=False)
    path.unlink()


def running(directory: Path) -> tuple[Record, ...]:
    """The recorded processes of a directory that still run and are still the same ones."""
    return tuple(record for record in _recorded(directory) if _is_same(record))


def recorded_names(directory: Path) -> frozenset[str]:
    """The names of all processes that were started, running or not."""
    return frozenset(record.name for record in _recorded(directory))


def _recorded(directory: Path) -> tuple[Record, ...]:
    path = directory / RECORD
    return msgspec.json.decode(path.read_bytes(), type=tuple[Record, ...]) if path.exists() else ()


def stop_recorded(directory: Path, grace_s: float = GRACE_S) -> tuple[Record, ...]:
    """End the recorded processes of a directory, the last first, and return these."""
    running_pod = running(directory)
    for record in reversed(running_pod):
        _signal(record, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while _is_same(record):
            if time.monotonic() > deadline:
                _signal(record, signal.SIGKILL)
            time.sleep(0.02)
    run_afterwards(directory)
    return running_pod


class Keeper:
    """Stops the recorded processes of a directory when this process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start watching this process."""
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._directory],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """Stop watching; the recorded processes are left as they are."""
        if self._process is None:
            return
        self._process.terminate()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def end_with_input() -> None:
    """Send SIGTERM to this process when its standard input ends; the starter holds that open."""

    def watch() -> None:
        # A buffered reader's lock would make the interpreter abort if it ends first.
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _keep(directory: Path) -> None:
    sys.stdin.buffer.read()  # Ends when the last holder of the other end is gone.
    stop_recorded(directory)


def _signal(record: Record, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(record.pid, number)


def _is_same(record: Record) -> bool:
    try:
        os.kill(record.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False  # It ended; with PermissionError, somebody else has its id now.
    return _started(record.pid) == record.started


def _is_group(pid: int) -> bool:
    """Return True if a process group has any process."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _started(pid: int) -> int:
    """Return the start time of a process, in ticks since boot; 0 if there is no /proc, or no process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The second field is the program's name in parentheses and may hold anything; a zombie has
    # ended for our purposes.
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] == "Z" else int(fields[19])


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
