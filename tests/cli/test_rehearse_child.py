"""The process of a rehearsal ends with the command that started it."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from testing.command import ROOT

CHILD: Final = """
import signal, sys, time
from pathlib import Path
def end(number, _):
    Path(sys.argv[1], "cleaned").write_text("")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
Path(sys.argv[1], "began").write_text("")
time.sleep(60)
"""
COMMAND: Final = """
import sys
from pathlib import Path
from cli.verbs.rehearse.child import exit_on_sigterm, run_child
with exit_on_sigterm():
    run_child([sys.executable, "-c", sys.argv[1], sys.argv[2]], Path(sys.argv[2]), {})
"""


def test_sigterm_ends_the_child_and_waits_for_it(tmp_path: Path) -> None:
    """It ended the command alone, and a control plane ran on."""
    process = subprocess.Popen([sys.executable, "-c", COMMAND, CHILD, str(tmp_path)], cwd=ROOT)
    deadline = time.monotonic() + 60
    while not (tmp_path / "began").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)

    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "cleaned").exists()


def test_the_status_of_the_child_comes_back(tmp_path: Path) -> None:
    words = [sys.executable, "-c", COMMAND.replace("    run_child", "    code = run_child")]
    words[-1] += "sys.exit(code)\n"

    status = subprocess.run([*words, "raise SystemExit(3)", str(tmp_path)], cwd=ROOT, check=False)

    assert status.returncode == 3
