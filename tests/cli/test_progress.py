"""The progress of a long run, and its end by ^C."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.output.progress import INTERRUPTED, SILENT_S, LongRun
from testing.command import ROOT


class Clock:
    """A clock that goes on by a second with every reading."""

    def __init__(self, step: float = 1.0) -> None:
        self.now = 0.0
        self._step = step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


def test_a_short_run_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with LongRun("tried", 5, Clock(SILENT_S / 10)) as run:
        assert list(run.track("abcde")) == list("abcde")

    assert capsys.readouterr() == ("", "")


def test_a_long_run_prints_how_much_is_done_how_fast_and_how_long_it_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LongRun("tried", 40, Clock()) as run:
        list(run.track(range(40)))

    # Each line comes after twice the time of the one before.
    assert capsys.readouterr().err.splitlines() == [
        "tried: 2 of 40, 1/s, 38 s left",
        "tried: 6 of 40, 1/s, 34 s left",
        "tried: 14 of 40, 1/s, 26 s left",
        "tried: 30 of 40, 1/s, 10 s left",
    ]


@pytest.fixture(autouse=True)
def _python_handles_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGINT, also if a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_interrupt_ends_a_run_after_the_current_object(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    letters = []
    with LongRun("tried", 5) as run:
        for letter in run.track("abcde"):
            if letter == "b":
                os.kill(os.getpid(), signal.SIGINT)
            letters.append(letter)

    assert (letters, run.is_interrupted) == (["a", "b"], True)
    assert signal.getsignal(signal.SIGINT) is before
    assert "interrupted: tried 2 of 5" in capsys.readouterr().err


def test_the_second_interrupt_ends_the_process() -> None:
    def run_twice_interrupted() -> None:
        with LongRun("tried", 5):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_twice_interrupted()


def test_a_run_whose_part_is_no_answer_ends_at_once() -> None:
    run = LongRun("translated", 5, is_divisible=False)

    with pytest.raises(KeyboardInterrupt), run:
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupted_command_has_the_status_of_no_answer(tmp_path: Path) -> None:
    """Status 1 of `assess`, `plan` and `verify` means that something is wrong."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            json.dumps(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": address}}],
                    "users": [{"name": "u", "user": {}}],
                }
            )
        )
        call = ("assess", "--live", "--kubeconfig", kubeconfig)
        with subprocess.Popen(
            [sys.executable, "-m", "cli", *call],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            connection, _ = silent.accept()  # The command waits for an answer now.
            with connection:
                process.send_signal(signal.SIGINT)
                output, errors = process.communicate(timeout=60)

    assert (process.returncode, output, errors) == (INTERRUPTED, "", "interrupted\n")
