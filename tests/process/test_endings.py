"""The ends of a process: none is silent."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from process.running.signals import run_forever

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = """
import os, signal, sys
from process.running.command import Command, run_command
from process.model.settings import ProcessSettings

class Settings(ProcessSettings, frozen=True, kw_only=True):
    pass

async def start(process):
    {body}

command = Command(
    package="example", description="", kind=Settings, section="example", variables={{}}, start=start
)
sys.exit(run_command(command, []))
"""


def run(body: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(body=body)
    words = [sys.executable, "-c", program]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)


def test_a_crash_outside_of_python_says_where_it_was() -> None:
    completed = run("os.kill(os.getpid(), signal.SIGSEGV)")

    assert completed.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in completed.stderr
    assert "in start" in completed.stderr


def test_an_orderly_end_is_logged() -> None:
    completed = run("pass")

    assert completed.returncode == 0
    assert "process.ended" in completed.stderr


async def test_a_loop_that_is_cancelled_from_within_ends_the_process() -> None:
    """As by a future that another caller has cancelled."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()

    async def wait() -> None:
        await future

    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            group.create_task(run_forever(wait))

    (error,) = raised.value.exceptions
    assert "was cancelled from within" in str(error)


async def test_a_loop_that_somebody_cancels_ends() -> None:

    async def wait() -> None:
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_forever(wait))
        await asyncio.sleep(0)
        task.cancel()

    assert task.cancelled()
