"""`make up NODE=real`: docs/quickstart.md is walked through, and nothing is left of the node."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from e2e.local_command import ROOT, environment_of, run_local, state_folder
from e2e.node.namespaces import missing

PAGE: Final = ROOT / "docs" / "quickstart.md"
UP: Final = 'eval "$(make up NODE=real)"'
DOWN: Final = "make down"

_CHANGING: Final = (
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    # Before ages: 2d4h8 is none, and 24h5m would be one.
    (r"-gpu-[a-z0-9]{5}\b", "-gpu-SUFFIX"),
    (r"\b(?:\d+[dhms])+\b", "AGE"),
    (r"\d+\.\d s\b", "SECONDS"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\bworker-[0-9a-f]{10}-", "worker-HASH-"),
    (r"-namespaces-\d+", "-namespaces-ID"),
    (r" \(\d+\)", " (ID)"),
    (r"[ \t]+", " "),
    # What the first run on a machine builds.
    (r"(?m)^(?:e2e: (?:building|built)|go: downloading) .*\n", ""),
    # What kubectl logs of a watch that it ends itself.
    (r"(?m)^[IWE]\d{4} .*\n", ""),
)
"""The parts that differ each time, and the words in their place."""


class Command(NamedTuple):
    """A command of the page, and its output according to the page."""

    line: str
    output: str


def commands() -> list[Command]:
    """The commands of the page, from the first to the last."""
    blocks = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [Command(line, output) for line, _, output in (part.partition("\n") for part in parts)]


def stable(text: str) -> list[str]:
    """The lines of an output without parts that differ each time."""
    for pattern, word in _CHANGING:
        text = re.sub(pattern, word, text)
    return [line.strip() for line in text.strip().splitlines()]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    with state_folder(tmp_path) as folder:
        yield folder


def traces(state: Path) -> list[str]:
    """Mounts, cgroups and processes of a node that was started with a state folder."""
    mounts = [
        line for line in Path("/proc/self/mounts").read_text().splitlines() if str(state) in line
    ]
    names = ("*/worker-namespaces-*", "worker-namespaces-*")
    cgroups = [str(path) for name in names for path in Path("/sys/fs/cgroup").glob(name)]
    processes = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(state) in words and file.parent.name != str(os.getpid()):
            processes.append(words)
    return [*mounts, *cgroups, *processes]


def test_the_page_is_what_happens(state: Path) -> None:
    if why := missing():
        pytest.skip(why)
    steps = commands()
    assert (UP, DOWN) == (steps[0].line, steps[-1].line)
    others = {path for path in traces(state) if "worker-namespaces-" in path}

    started = run_local("up", state, "--node", "real")
    assert 0 == started.returncode, started.stderr
    assert stable(steps[0].output) == stable(started.stderr)[: len(stable(steps[0].output))]
    environment = environment_of(started)

    for line, output in steps[1:-1]:
        completed = subprocess.run(
            ["bash", "-c", line],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if "--for=delete" in line:
            continue  # It says which were there still, if any.
        assert stable(output) == stable(completed.stdout), line

    stopped = run_local("down", state)
    assert stable(steps[-1].output) == stable(stopped.stderr)
    assert [] == [trace for trace in traces(state) if trace not in others]


def test_what_is_missing_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    """A machine without runc; the other causes are found by the same function."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("unshare", "nsenter", "mount"):
        (programs / name).touch(mode=0o755)

    started = run_local("up", tmp_path / "state", "--node", "real", path=str(programs))

    assert 1 == started.returncode
    assert "make up NODE=real: a real node needs " in started.stderr
    assert "" == started.stdout
    assert not (tmp_path / "state").exists()
