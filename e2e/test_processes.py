"""Children end with their parent, however that ends, and nobody else's process is touched."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from e2e.processes import RECORD, Child, Record, running, stop_recorded, write_records

ROOT = Path(__file__).parent.parent

PARENT = """
import sys, time
from pathlib import Path
from e2e.processes import Child, Keeper, write_records
directory = Path(sys.argv[1])
keeper = Keeper(directory)
keeper.start()
child = Child("sleeper", ("sleep", "600"), directory / "sleeper.log", None)
child.start()
write_records(directory, [child])
print("started", flush=True)
time.sleep(600)
"""


def sleeper(directory: Path) -> Child:
    child = Child("sleeper", ("sleep", "600"), directory / "sleeper.log", None)
    child.start()
    return child


def test_children_of_a_killed_parent_are_stopped(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, tmp_path], cwd=ROOT, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        assert [record.name for record in running(tmp_path)] == ["sleeper"]

        parent.kill()

    deadline = time.monotonic() + 60
    while running(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert running(tmp_path) == ()


def test_a_later_command_stops_what_was_recorded(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    write_records(tmp_path, [child])

    assert [record.name for record in stop_recorded(tmp_path)] == ["sleeper"]

    assert child.wait(60)
    assert child.exit_status == -signal.SIGTERM
    assert stop_recorded(tmp_path) == ()


def test_a_process_that_took_over_the_id_is_left_alone(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    assert child.record is not None
    earlier = Record(name="earlier", pid=child.record.pid, started=child.record.started - 1)
    (tmp_path / RECORD).write_bytes(msgspec.json.encode([earlier]))

    assert stop_recorded(tmp_path) == ()

    assert child.exit_status is None
    child.stop()


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    child = Child("deaf", ("sh", "-c", script), tmp_path / "deaf.log", None)
    child.start()
    while "ready" not in child.tail():
        time.sleep(0.01)

    child.stop(grace_s=2.0)

    assert child.exit_status == -signal.SIGKILL
