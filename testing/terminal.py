"""The command on a terminal, in a process of its own."""

import errno
import os
import pty
import select
import signal
import subprocess
import sys
from typing import Self

from testing.command import ROOT

_CHUNK = 65536
_SILENT_S = 10
"""Seconds without output after which a person presses ^C again."""
_LOOKS = 6
"""So many times without output a call hangs."""


class TerminalCall:
    """A call with a terminal as standard output, and a pipe as standard error."""

    def __init__(self, *arguments: object, **environment: str) -> None:
        self._terminal, end = pty.openpty()
        self._process = subprocess.Popen(
            # Under a shell in the background, SIGINT is ignored.
            ["env", "--default-signal=INT", sys.executable, "-m", "cli", *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=end,
            stderr=subprocess.PIPE,
        )
        os.close(end)
        self._output = b""
        self._is_interrupted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with self._process:
            os.close(self._terminal)

    def read_until(self, text: str) -> None:
        """Return as soon as the output has a text, or has ended."""
        while text not in self._text() and (chunk := self._read()):
            self._output += chunk

    def interrupt(self) -> None:
        """Send the signal of ^C."""
        self._is_interrupted = True
        self._process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Return the exit status and both outputs, once the process has ended."""
        while chunk := self._read():
            self._output += chunk
        _, errors = self._process.communicate()
        return self._process.returncode, self._text(), errors.decode()

    def _text(self) -> str:
        return self._output.decode(errors="replace").replace("\r\n", "\n")

    def _read(self) -> bytes:
        for _ in range(_LOOKS):
            ready, _, _ = select.select([self._terminal], [], [], _SILENT_S)
            if ready:
                break
            if self._is_interrupted:
                # Python drops the exception of a signal that comes while an object is finalized.
                self.interrupt()
        else:
            raise AssertionError(f"no more output after {self._text()!r}")
        try:
            return os.read(self._terminal, _CHUNK)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # The process has closed its end.
