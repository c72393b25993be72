"""Nothing of a real node outlives the test run, also when that is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.node.namespaces import missing

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 60.0
RUN = """
import sys, time
from pathlib import Path
from e2e.access import Access
from e2e.node.namespaces import Namespaces

folder, name = Path(sys.argv[1]), sys.argv[2]
access = Access(kubectl=Path("kubectl"), kubeconfig=folder / "kubeconfig", directory=folder)
access._keep()
namespaces = Namespaces(access, name, folder / "node")
namespaces.start()
access.run("sleeper", namespaces.command("sleep", "1000"))
print("started", flush=True)
time.sleep(1000)
"""


def left_over(name: str, folder: Path) -> list[str]:
    """Cgroups, mounts and processes of a node that are still there."""
    cgroups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{name}")]
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if name in line]
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().replace("\0", " ")
        except OSError:
            continue
        if str(folder) in words and path.parent.name != str(os.getpid()):
            processes.append(words)
    return [*cgroups, *mounts, *processes]


def test_a_run_that_is_killed_leaves_nothing_of_its_node(tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    name = f"killed-{os.getpid()}"
    words = [sys.executable, "-c", RUN, str(tmp_path), name]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert "started" in run.stdout.readline()
        assert left_over(name, tmp_path)

        run.kill()

    deadline = time.monotonic() + TIMEOUT_S
    while left_over_ := left_over(name, tmp_path):
        assert time.monotonic() < deadline, "\n".join(left_over_)
        time.sleep(0.05)
