"""The process of a rehearsal ends with the command that started it."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from testing.command import ROOT

CHILD: Final = """
import signal, sys, time
from pathlib import Path
from e2e.processes import end_with_input
def end(number, _):
    Path(sys.argv[1], "cleaned").write_text("")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
end_with_input()
Path(sys.argv[1], "began").write_text("")
time.sleep(60)
"""
COMMAND: Final = """
import sys
from pathlib import Path
from cli.verbs.rehearse.child import exit_on_sigterm, run_child
with exit_on_sigterm():
    run_child([sys.executable, "-c", sys.argv[1], sys.argv[2]], Path.cwd(), {})
"""


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, file
        time.sleep(0.01)


def test_sigterm_ends_the_child_and_waits_for_it(tmp_path: Path) -> None:
    """It ended the command alone, and a control plane ran on."""
    process = subprocess.Popen([sys.executable, "-c", COMMAND, CHILD, str(tmp_path)], cwd=ROOT)
    wait_for(tmp_path / "began")

    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "cleaned").exists()


def test_the_child_ends_when_the_command_is_killed(tmp_path: Path) -> None:
    """A control plane and the scripts of the plan ran on."""
    process = subprocess.Popen([sys.executable, "-c", COMMAND, CHILD, str(tmp_path)], cwd=ROOT)
    wait_for(tmp_path / "began")

    assert not (tmp_path / "cleaned").exists()
    process.kill()

    wait_for(tmp_path / "cleaned")
    process.wait(60)


@pytest.mark.parametrize(
    "watch", ["", "from e2e.processes import end_with_input\nend_with_input()\n"]
)
def test_the_status_of_the_child_comes_back(tmp_path: Path, watch: str) -> None:
    words = [sys.executable, "-c", COMMAND.replace("    run_child", "    code = run_child")]
    words[-1] += "sys.exit(code)\n"

    status = subprocess.run(
        [*words, f"{watch}raise SystemExit(3)", str(tmp_path)], cwd=ROOT, check=False
    )

    assert status.returncode == 3
