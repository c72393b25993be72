"""`drawbridge record --decisions` beside a sidecar, and `drawbridge replay` of its file."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

from answers.recording.lines import (
    Decisions,
    Header,
    Mark,
    Moment,
    decode_entries,
    encode_entry,
    encode_header,
)
from cli.verbs.record.decisions import DecisionFollower
from testing.command import drawbridge
from testing.fake_api_server import FakeApiServer, until
from testing.kubeconfig import kubeconfig_of
from testing.recorder import TIMEOUT_S, recorder_beside
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)


async def recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, pods: int
) -> Result:
    """Return the result of a recorder beside a sidecar that places so many pods."""
    async with FakeApiServer() as server:
        publish(server, "node-a", "node-b", "node-c")
        async with sidecar_beside(server, folder) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            options = ("--decisions", sidecar.socket)
            recorder = recorder_beside(server, folder, monkeypatch, *options, output=name)
            async with recorder as running:
                await place(server, sidecar, scheduler, pods)
            return running.result


async def place(
    server: FakeApiServer, sidecar: Sidecar, scheduler: FakeScheduler, pods: int
) -> None:
    """Have pods decided about once decisions are logged."""
    service = sidecar.service
    assert service is not None
    await until(lambda: service.decisions.is_followed, timeout_s=TIMEOUT_S)
    for number in range(pods):
        put_claim(server, f"pod-{number}")
        pod = put_pod(server, f"pod-{number}", f"pod-{number}")
        answer = await scheduler.prefilter(pod)
        scheduler.reserve(pod, answer["nodes"][0]["name"])


async def test_decisions_are_recorded_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await recorded(tmp_path, monkeypatch, "day.json.gz", pods=4)

    assert result.exit_code == 0, result.output
    # Devices are chosen once the scheduler says that it reserved a node, which is when the next pod comes.
    assert "7 decisions of the bridge\n" in result.stderr
    call = ("replay", "--snapshot", tmp_path / "day.json.gz", "--strategy", "stock")
    text = drawbridge(*call).stdout
    assert (
        "Decisions of the bridge, made again: 4 of 4 answers about the nodes of a pod are the same, and "
        "3 of 3 choices of its devices\n"
    ) in text
    decisions = json.loads(drawbridge(*call, "-o", "json").stdout)["decisions"]
    assert (decisions["sameAnswers"], decisions["samePlacements"]) == (4, 3)


async def test_a_reading_at_the_end_beside_another_one_reads_no_decision_twice(
    tmp_path: Path,
) -> None:
    views: list[Mapping[str, msgspec.Raw]] = []
    async with FakeApiServer() as server:
        publish(server, "node-a", "node-b", "node-c")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            follower = DecisionFollower(str(sidecar.socket), views.append)
            await asyncio.gather(follower.read(), follower.read())
            await place(server, sidecar, scheduler, 2)
            await asyncio.gather(follower.read(), follower.read())

    entries = [msgspec.json.decode(view["entries"], type=list[dict[str, Any]]) for view in views]
    numbers = [entry["number"] for part in entries for entry in part]
    kinds = [entry["entry"]["type"] for part in entries for entry in part]
    assert numbers == list(range(1, len(numbers) + 1))
    assert kinds.count("beginning") == 1
    assert follower.decisions == kinds.count("decided") + kinds.count("placed") == 3


async def test_a_decision_that_comes_out_otherwise_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(tmp_path, monkeypatch, "day.json", pods=2)
    file = tmp_path / "day.json"
    changed = file.read_text().replace('"nodes":3,"digest":"', '"nodes":3,"digest":"0', 1)
    file.write_text(changed)

    answer = drawbridge("replay", "--snapshot", file, "--strategy", "stock")

    assert answer.exit_code == 0
    assert "1 of 2 answers about the nodes of a pod are the same" in answer.stdout
    assert "  the others, by cause: other 1\n  other: default/pod-0: 3 nodes from " in answer.stdout


async def test_without_a_decision_the_recorder_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await recorded(tmp_path, monkeypatch, "day.json", pods=0)
    assert (
        "note: no decision of the bridge: its sidecar made none, or does not lead" in result.stderr
    )


async def test_a_socket_that_is_none_ends_the_recorder(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        call = ("record", "-o", tmp_path / "day", "--kubeconfig", kubeconfig_of(server, tmp_path))
        options = ("--context", "here", "--decisions", tmp_path / "none.sock")

        result = await asyncio.to_thread(drawbridge, *call, *options)

    assert result.exit_code == 2
    assert "none.sock: not the socket of a sidecar that runs" in result.stderr
    assert not (tmp_path / "day").exists()


@pytest.mark.parametrize(
    "view",
    [
        b"7",
        b'{"instance":"i","entries":[{"number":1,"ageS":0,"entry":{"type":"lie"}}]}',
        b"[" * 9000,
    ],
)
def test_decisions_that_no_sidecar_writes_end_the_replay(view: bytes, tmp_path: Path) -> None:
    file = tmp_path / "day.json"
    lines = [
        encode_header(Header()),
        encode_entry(Moment(at=0.0, mark=Mark.STATE)),
        b'{"at":1,"mark":"decisions","decisions":' + view + b"}\n",
    ]
    file.write_bytes(b"".join(lines))

    result = drawbridge("replay", "--snapshot", file)

    assert result.exit_code == 2
    assert "day.json:3: not " in result.stderr


def test_a_line_of_decisions_is_read_as_it_was_written() -> None:
    line = encode_entry(Decisions(at=1.5, view={"instance": msgspec.Raw(b'"i"')}))
    assert line == b'{"at":1.5,"mark":"decisions","decisions":{"instance":"i"}}\n'
    (entry,) = decode_entries([line], "file")
    assert isinstance(entry, Decisions)
    assert (entry.at, bytes(entry.view["instance"])) == (1.5, b'"i"')
