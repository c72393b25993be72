"""The command without modules of Unix, as on Windows: files are read, and answers printed."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from cli.__main__ import COMMANDS
from testing.command import EXAMPLES, ROOT, drawbridge

MISSING: Final = ("fcntl", "grp", "pwd", "resource", "termios", "uvloop")
WITHOUT: Final = f"import sys\nsys.modules.update(dict.fromkeys({MISSING}))\n"
"""The beginning of a program in which an import of these modules fails."""
IMPORT_ALL: Final = """
from importlib import import_module
for name in sys.argv[1:]:
    try:
        import_module(f"cli.verbs.{name}.command")
    except ImportError as error:
        print(f"{name}: {error}")
"""
CALL: Final = "from cli.__main__ import main\nmain()\n"


def without_modules(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program without the modules to its end."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def test_every_command_can_be_imported() -> None:
    names = [name.replace("-", "_") for name in COMMANDS]

    result = without_modules(IMPORT_ALL, *names)

    assert (0, "", "") == (result.returncode, result.stdout, result.stderr)


def test_replay_reads_its_files() -> None:
    folder = EXAMPLES / "replay"
    files = ("--snapshot", folder / "cluster.yaml", "--pods", folder / "pods.csv")

    result = without_modules(CALL, "replay", *files, "--strategy", "CompactFirst")

    assert (0, "") == (result.returncode, result.stderr)
    assert "CompactFirst  0     7       1" in result.stdout


def test_a_step_of_a_plan_says_where_it_can_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.yaml").write_text("")
    monkeypatch.setitem(sys.modules, "fcntl", None)

    result = drawbridge("wave", "next", "--plan", tmp_path)

    assert 2 == result.exit_code
    assert result.stderr.startswith("Error: the scripts of a plan need bash 4.4 or later and locks")
