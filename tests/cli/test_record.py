"""`drawbridge record`: the objects and times that it writes, the fields it leaves out, and its end."""

import asyncio
import errno
import gzip
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from answers.recording.delta import Delta
from answers.recording.lines import (
    Change,
    Entry,
    Gap,
    Header,
    Mark,
    Moment,
    decode_entries,
    decode_header,
)
from cli.verbs.record import command, follow
from cli.verbs.record.file import RecordingFile
from kube.api.urls import DEVICE_CLASSES, NODES, PODS, SECRETS
from testing.command import ROOT, drawbridge
from testing.fake_api_server import FakeApiServer, quick_informers, until
from testing.kubeconfig import kubeconfig_of
from testing.live_pod import live_pod
from testing.recorder import recorder_beside


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.put(NODES, node("node-0"))
        server.put(DEVICE_CLASSES, {"metadata": {"name": "gpu.example.com"}, "spec": {}})
        server.put(SECRETS, {"metadata": {"name": "hunter2", "namespace": "team"}})
        yield server


def node(name: str, *, heartbeat: str = "8:00", cpu: str = "8") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "annotations": {"example.com/seen": heartbeat},
            "managedFields": [{"manager": "kubelet", "time": heartbeat}],
        },
        "status": {
            "allocatable": {"cpu": cpu},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}],
        },
    }


def bound_pod() -> dict[str, Any]:
    pod = live_pod()
    return {**pod, "spec": {**pod["spec"], "nodeName": "node-0"}}


class Recording(NamedTuple):
    """The output of a recorder: file and text."""

    header: Header
    entries: Sequence[Entry]

    @property
    def first(self) -> list[str]:
        """The objects of the first state."""
        return [name_of(change.delta) for change in self._changes[: self._state]]

    @property
    def later(self) -> list[str]:
        """The changes behind it, with the fields that they set."""
        return [
            f"{name_of(change.delta)} {'deleted' if change.delta.deleted else ' '.join(change.delta.set)}"
            for change in self._changes[self._state :]
        ]

    @property
    def marks(self) -> list[Mark]:
        return [entry.mark for entry in self.entries if isinstance(entry, Moment)]

    @property
    def _changes(self) -> list[Change]:
        return [entry for entry in self.entries if isinstance(entry, Change)]

    @property
    def _state(self) -> int:
        return next(n for n, entry in enumerate(self.entries) if isinstance(entry, Moment))


def name_of(delta: Delta) -> str:
    return f"{delta.object.kind}/{delta.object.name}"


def read(file: Path) -> Recording:
    content = file.read_bytes()
    text = gzip.decompress(content) if file.suffix == ".gz" else content
    first, *others = text.splitlines(keepends=True)
    return Recording(decode_header(first, file.name), list(decode_entries(others, file.name)))


@pytest.mark.parametrize("name", ["day.json", "day.json.gz"])
async def test_the_first_state_and_then_what_changes_is_written(
    name: str, server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with recorder_beside(server, tmp_path, monkeypatch, output=name) as recorder:
        server.put(PODS, live_pod())
        server.put(PODS, bound_pod())
        server.remove(PODS, "train", "team")
        await recorder.changes(3)

    recording, printed = read(recorder.file), recorder.result.stderr
    assert recorder.result.exit_code == 0, recorder.result.output
    assert sorted(recording.first) == ["DeviceClass/gpu.example.com", "Node/node-0"]
    assert recording.later == [
        "Pod/train metadata spec status",
        "Pod/train spec",
        "Pod/train deleted",
    ]
    assert recording.marks == [Mark.STATE, Mark.END]
    assert recording.header.server == server.url
    assert recording.header.context == "here"
    assert stat.S_IMODE(recorder.file.stat().st_mode) == 0o600
    assert "recording: 2 objects in the first state; ^C ends it\n" in printed
    assert "3 changes in " in printed
    assert ", 2 objects at the end, " in printed
    assert "next: drawbridge replay --snapshot " in printed


async def test_a_recorder_ends_after_its_time(server: FakeApiServer, tmp_path: Path) -> None:
    call = ("record", "-o", "-", "--kubeconfig", kubeconfig_of(server, tmp_path))

    async with asyncio.timeout(60):
        result = await asyncio.to_thread(drawbridge, *call, "--context", "here", "--for", "10ms")

    # It may end before the first state is complete, which is an error.
    assert result.exit_code in {0, 2}


async def test_what_decides_nothing_is_not_written(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with recorder_beside(server, tmp_path, monkeypatch) as recorder:
        for heartbeat in ("8:10", "8:20", "8:30"):
            server.put(NODES, node("node-0", heartbeat=heartbeat))
        server.put(NODES, node("node-0", cpu="4"))
        await recorder.changes(1)

    assert read(recorder.file).later == ["Node/node-0 status"]


async def test_secrets_and_command_lines_are_not_written(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with recorder_beside(server, tmp_path, monkeypatch) as recorder:
        server.put(PODS, live_pod())
        await recorder.changes(1)

    assert read(recorder.file).later == ["Pod/train metadata spec status"]
    assert b"hunter2" not in recorder.file.read_bytes()
    assert server.counts["LIST secrets"] == 0


async def test_a_lost_connection_is_a_gap_and_the_recording_goes_on(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "TICK_S", 0.05)
    monkeypatch.setattr(command, "InformerFactory", quick_informers)
    async with recorder_beside(server, tmp_path, monkeypatch) as recorder:
        await recorder.until(lambda: server.watching == len(follow.RECORDED))
        await server.refuse()
        server.put(PODS, bound_pod())
        server.remove(NODES, "node-0")
        server.expire()
        await asyncio.sleep(0.3)
        await server.accept()
        await recorder.changes(2)
        await recorder.until(lambda: "pods" in gaps_of(recorder.entries))

    recording = read(recorder.file)
    assert sorted(recording.later) == [
        "Node/node-0 deleted",
        "Pod/train metadata spec status",
    ]
    gaps = gaps_of(recording.entries)
    assert all(gap.at - gap.since > 0.2 for gap in gaps.values())
    assert f"{len(gaps)} gap" in recorder.result.stderr


def gaps_of(entries: Sequence[Entry]) -> dict[str, Gap]:
    """Return the gaps by resource."""
    return {entry.resource: entry for entry in tuple(entries) if isinstance(entry, Gap)}


async def test_an_existing_file_is_not_overwritten(server: FakeApiServer, tmp_path: Path) -> None:
    file = tmp_path / "day.json"
    file.write_text("a day")
    call = ("record", "-o", file, "--kubeconfig", kubeconfig_of(server, tmp_path))

    result = await asyncio.to_thread(drawbridge, *call, "--context", "here", "--for", "1s")

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{file}: File exists" in result.stderr
    assert file.read_text() == "a day"


async def test_kinds_that_may_not_be_listed_are_named(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fail(403, times=100, matches=lambda call: "devicetaintrules" in call.path)

    async with recorder_beside(server, tmp_path, monkeypatch) as recorder:
        pass

    assert recorder.result.exit_code == 0
    note = "note: devicetaintrules cannot be read, and are left out: "
    assert note in recorder.result.stderr
    assert read(recorder.file).header.unreadable == ("devicetaintrules",)


async def test_without_pods_there_is_nothing_to_record(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail(403, times=100, matches=lambda call: call.path.endswith("/pods"))
    call = ("record", "-o", tmp_path / "day.json", "--kubeconfig", kubeconfig_of(server, tmp_path))

    result = await asyncio.to_thread(drawbridge, *call, "--context", "here", "--for", "500ms")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
    assert not (tmp_path / "day.json").exists()


async def test_an_end_before_the_first_state_is_an_error(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail(
        500,
        times=100,
        matches=lambda call: "slices" in call.path and call.query.get("limit") != "1",
    )
    call = ("record", "-o", tmp_path / "day.json", "--kubeconfig", kubeconfig_of(server, tmp_path))

    result = await asyncio.to_thread(drawbridge, *call, "--context", "here", "--for", "500ms")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "day.json: ended before the first state was complete" in result.stderr


async def test_a_cluster_that_does_not_answer_leaves_no_file(
    server: FakeApiServer, tmp_path: Path
) -> None:
    call = ("record", "-o", tmp_path / "day.json", "--kubeconfig", kubeconfig_of(server, tmp_path))

    result = await asyncio.to_thread(drawbridge, *call)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "127.0.0.1:1" in result.stderr
    assert not (tmp_path / "day.json").exists()


@pytest.mark.parametrize("duration", ["0s", "soon", "5"])
def test_a_duration_is_one(duration: str, tmp_path: Path) -> None:
    result = drawbridge("record", "-o", tmp_path / "day.json", "--for", duration)

    assert result.exit_code == 2
    assert "--for" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_a_signal_ends_it_and_only_the_last_leaves_a_file_without_end(
    number: signal.Signals, server: FakeApiServer, tmp_path: Path
) -> None:
    file = tmp_path / "day.json.gz"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "record", "-o", str(file)),
        *("--kubeconfig", str(kubeconfig_of(server, tmp_path)), "--context", "here"),
        cwd=ROOT,
        env={**os.environ},
        stderr=asyncio.subprocess.PIPE,
    )
    await until(lambda: server.watching == len(follow.RECORDED), timeout_s=30)
    # The first state is flushed at once.
    await until(lambda: file.exists() and file.stat().st_size > 0)
    process.send_signal(number)
    await process.communicate()

    inventory = await asyncio.to_thread(drawbridge, "inventory", "--snapshot", file, "-o", "json")
    assert inventory.exit_code == 0, inventory.output
    if number is signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
        with pytest.raises(EOFError):
            gzip.decompress(file.read_bytes())
    else:
        assert process.returncode == 0
        assert read(file).marks == [Mark.STATE, Mark.END]


async def test_a_full_disk_ends_it_with_one_line(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: RecordingFile) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RecordingFile, "flush", fail)
    call = ("record", "-o", tmp_path / "day.json", "--kubeconfig", kubeconfig_of(server, tmp_path))

    result = await asyncio.to_thread(drawbridge, *call, "--context", "here")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("Error: No space left on device\n")


async def test_standard_output_takes_the_lines_as_well(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with recorder_beside(server, tmp_path, monkeypatch, output="-") as recorder:
        pass

    assert recorder.result.exit_code == 0
    lines = recorder.result.stdout.splitlines()
    assert '"kind":"Recording"' in lines[0]
    assert lines[-1].endswith('"mark":"end"}')
    assert "wrote standard output: 0 changes in " in recorder.result.stderr
