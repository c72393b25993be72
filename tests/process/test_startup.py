"""The imports of a process; they decide on the time until it is ready."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
UNUSED: Final = ("pydantic", "requests", "urllib3", "kubernetes.client", "jsonpatch", "rich")

IMPORTS: Final = """
import sys
sys.argv = ["-m"]
import {process}.__main__
import gc
print([name for name in {unused} if name in sys.modules], gc.isenabled())
from process.running.startup import start_collecting
start_collecting()
print(gc.isenabled(), gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize("process", ["webhook", "controllers", "observer", "sidecar", "driver"])
def test_a_process_imports_nothing_that_it_does_not_use(process: str) -> None:
    program = IMPORTS.format(process=process, unused=UNUSED)

    completed = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT
    )

    assert ["[] False", "True True"] == completed.stdout.splitlines()
