"""Nothing of a real node outlives the test run, also when that is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.node.namespaces import missing, missing_cgroups

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 180.0
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


UNIFIED = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
"""Runs a script in a mount namespace of its own."""
ON_UNIFIED = (*UNIFIED, 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"', "sh")
"""Runs a command where cgroups of version 2 are mounted, whichever the machine has."""


def unified_cgroups(name: str) -> list[str]:
    """Cgroups of version 2 with a name, and those below."""
    find = (*ON_UNIFIED, "find", "/sys/fs/cgroup", "-type", "d", "-path", f"*/{name}*")
    return subprocess.run(find, capture_output=True, text=True, check=True).stdout.split()


def left_over(name: str, folder: Path) -> list[str]:
    """Cgroups, mounts and processes of a node that are still there."""
    cgroups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{name}")]
    cgroups += unified_cgroups(name)
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


@pytest.mark.parametrize("prefix", [(), ON_UNIFIED], ids=["as mounted", "version 2"])
def test_a_run_that_is_killed_leaves_nothing_of_its_node(
    tmp_path: Path, prefix: tuple[str, ...]
) -> None:
    if why := missing():
        pytest.skip(why)
    name = f"killed-{os.getpid()}"
    words = [*prefix, sys.executable, "-c", RUN, str(tmp_path), name]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert "started" in run.stdout.readline()
        assert left_over(name, tmp_path)
        if prefix:
            folder = f"/sys/fs/cgroup/{name}"
            assert {folder, f"{folder}/init"} == set(unified_cgroups(name))

        run.kill()

    deadline = time.monotonic() + TIMEOUT_S
    while left_over_ := left_over(name, tmp_path):
        assert time.monotonic() < deadline, "\n".join(left_over_)
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ({"memory/cgroup.procs": ""}, ""),
        ({"cgroup.controllers": "cpuset cpu io memory pids\n"}, ""),
        ({"cgroup.controllers": "hugetlb\n"}, "the cgroup controllers cpu, memory, pids"),
        ({}, "cgroups of version 1 or 2"),
    ],
)
def test_what_a_machine_lacks_of_cgroups(tmp_path: Path, files: dict[str, str], want: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    reason = missing_cgroups(tmp_path)

    assert want in reason
    assert bool(want) is bool(reason)
