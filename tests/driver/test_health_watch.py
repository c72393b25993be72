"""Faults as they reach slices and the kubelet."""

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from driver.model.health import Fault, Healths, Recovery
from driver.node.health_file import NAME, HealthFile
from driver.prepare.current import CurrentNode
from driver.publish.health_watch import HealthWatch
from testing.driver.builders import BOOT, PUBLICATION

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class ToldFaults:
    """A source of faults that the test tells."""

    def __init__(self) -> None:
        self.faults: Mapping[str, Fault] = {}

    def read(self) -> Mapping[str, Fault]:
        return self.faults


def watch_of(folder: Path, seconds: Iterable[float], *sources: ToldFaults) -> HealthWatch:
    """A process that looks at these moments."""
    moments = iter(seconds)
    return HealthWatch(
        CurrentNode(PUBLICATION),
        sources,
        Recovery(first_s=30, max_s=300),
        {},
        file=HealthFile(folder, BOOT),
        now=lambda: NOW,
        clock=lambda: next(moments),
    )


def test_faults_of_all_sources_come_and_go(tmp_path: Path) -> None:
    first, second = ToldFaults(), ToldFaults()
    watch = watch_of(tmp_path, (0.0, 1.0, 2.0, 40.0), first, second)

    watch.inspect()
    assert {} == watch.faults

    first.faults = {"gpu-0": Fault(kind="xid")}
    second.faults = {"gpu-0": Fault(kind="lost"), "eth0": Fault(kind="linkDown")}
    watch.inspect()
    assert {"gpu-0": "lost", "eth0": "linkDown"} == {
        name: fault.kind for name, (fault, _) in watch.faults.items()
    }

    first.faults, second.faults = {}, {"eth0": Fault(kind="linkDown")}
    watch.inspect()
    assert {"gpu-0", "eth0"} == watch.faults.keys()
    watch.inspect()
    assert {"eth0"} == watch.faults.keys()


# --- over a restart -------------------------------------------------------------------------------


def inspect(watch: HealthWatch, times: int = 1) -> None:
    for _ in range(times):
        watch.inspect()


def test_a_restart_forgets_no_relapse(tmp_path: Path) -> None:
    source = ToldFaults()
    first = watch_of(tmp_path, (0.0, 1.0, 31.0, 32.0, 33.0), source)
    source.faults = {"gpu-0": Fault(kind="xid")}
    inspect(first)
    source.faults = {}
    inspect(first, 2)
    assert {} == first.faults
    source.faults = {"gpu-0": Fault(kind="xid")}
    inspect(first)
    source.faults = {}
    inspect(first)

    # The second fault has to be away for twice as long, also for the next process.
    second = watch_of(tmp_path, (62.0, 91.0, 93.0), source)
    assert {"gpu-0"} == second.faults.keys()
    inspect(second, 2)
    assert {"gpu-0"} == second.faults.keys()
    inspect(second)
    assert {} == second.faults


def test_a_boot_begins_anew(tmp_path: Path) -> None:
    source = ToldFaults()
    source.faults = {"gpu-0": Fault(kind="xid")}
    inspect(watch_of(tmp_path, (0.0,), source))

    assert {"gpu-0"} == HealthFile(tmp_path, BOOT).load().keys()
    assert {} == HealthFile(tmp_path, "another boot").load()


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"bootId": 1}', b'{"boot_id": "\xff"}', b"[" * 100_000]
)
def test_a_file_that_cannot_be_read_is_as_none(tmp_path: Path, text: bytes) -> None:
    (tmp_path / NAME).write_bytes(text)

    assert {} == HealthFile(tmp_path, BOOT).load()


def test_a_pipe_in_place_of_the_file_holds_up_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)

    assert {} == HealthFile(tmp_path, BOOT).load()


def test_a_fault_that_goes_on_is_written_once(tmp_path: Path) -> None:
    stored: list[Healths] = []

    class CountingFile(HealthFile):
        def store(self, healths: Healths) -> None:
            stored.append(healths)

    source = ToldFaults()
    source.faults = {"gpu-0": Fault(kind="xid")}
    watch = HealthWatch(
        CurrentNode(PUBLICATION),
        (source,),
        Recovery(first_s=30, max_s=300),
        {},
        file=CountingFile(tmp_path, BOOT),
        now=lambda: NOW,
        clock=iter(float(second) for second in range(9)).__next__,
    )

    inspect(watch, 9)

    assert 1 == len(stored)


def test_a_full_disk_ends_nothing(tmp_path: Path) -> None:
    source = ToldFaults()
    source.faults = {"gpu-0": Fault(kind="xid")}
    watch = watch_of(tmp_path / "absent", (0.0,), source)

    inspect(watch)

    assert {"gpu-0"} == watch.faults.keys()
