"""The real Kubernetes packages, asked over a pipe.

One small Go program (main.go and its neighbours) reads JSON questions and writes JSON answers, line
by line. It is built once and kept in the cache folder under a hash of its sources.
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tools.go import go_command

SOURCES: Final = Path(__file__).parent

_BATCH_BYTES: Final = 1 << 14
"""Questions on their way at once. No pipe is smaller, so writing them never waits for Go, which may
be waiting for us to read its answers."""


class Oracle:
    """A running oracle; a context manager, for one thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [built_path()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1 << 16
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.communicate(timeout=30)
            self._process = None

    def ask(self, questions: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Return one answer per question, in their order."""
        lines = (json.dumps(question).encode() + b"\n" for question in questions)
        return [answer for batch in _batches(lines) for answer in self._ask(batch)]

    def _ask(self, lines: list[bytes]) -> list[Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("the oracle is not running")
        process.stdin.write(b"".join(lines))
        process.stdin.flush()
        answers = [process.stdout.readline() for _ in lines]
        if not answers[-1]:
            raise RuntimeError(f"the oracle ended with status {process.wait()}")
        return [json.loads(answer) for answer in answers]


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines in lists that fit into a pipe, or of one line."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and size + len(line) > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


def built_path() -> Path:
    """Return the oracle's binary, built when its sources are new.

    Raises:
        subprocess.CalledProcessError: It does not build; the compiler's words are on stderr.
    """
    sources = (SOURCES / "go.mod", SOURCES / "go.sum", *sorted(SOURCES.glob("*.go")))
    content = b"\0".join(source.read_bytes() for source in sources)
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    binary = Path(home) / "drawbridge" / f"oracle-{hashlib.sha256(content).hexdigest()[:16]}"
    if not binary.exists():
        binary.parent.mkdir(parents=True, exist_ok=True)
        temporary = binary.with_suffix(f".{os.getpid()}")
        environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
        build = [
            str(go_command()),
            "build",
            "-trimpath",
            "-mod=readonly",
            # As the control plane of the stories is built: packages of both are compiled once.
            "-gcflags=all=-dwarf=false",
            "-o",
            str(temporary),
            ".",
        ]
        subprocess.run(build, cwd=SOURCES, env=environment, check=True)
        # A rename is atomic: whoever looks sees no binary or a whole one.
        temporary.rename(binary)
    return binary
