"""`drawbridge top --watch`: the answer again and again."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import Result

from answers.cluster.top import Top
from cli.output.progress import INTERRUPTED
from cli.verbs.top import command
from cli.verbs.top.watch import CLEAR, MAX_REASON, Answer, watch
from kube.api.urls import DEVICE_CLASSES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from kube.errors import ConfigError, KubeError
from testing.command import EXAMPLES, ROOT, drawbridge
from testing.fake_api_server import FakeApiServer
from testing.kubeconfig import kubeconfig_of
from testing.simulated_cluster import device_class, holding, node, slice_of
from testing.terminal import TerminalCall

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


# --- the loop -------------------------------------------------------------------------------------


class Watched:
    """A watch of looks that are known before, with all that it does, in order."""

    def __init__(self, *looks: Answer | Exception) -> None:
        self.events: list[str] = []
        self._looks = list(looks)

    def run(self) -> None:
        with pytest.raises(KeyboardInterrupt):
            watch(self._look, self._show, self.events.append, self._pause)

    def _look(self) -> Answer:
        look = self._looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look

    def _show(self, answer: Answer) -> None:
        self.events.append(f"shown {answer.lines}")

    def _pause(self) -> None:
        self.events.append("-")
        if not self._looks:
            raise KeyboardInterrupt


ONE, TWO = Answer(Top(), ("one",)), Answer(Top(), ("two",))
REFUSED, BUSY = KubeError("connection refused"), KubeError("busy")


@pytest.mark.parametrize(
    ("looks", "want"),
    [
        ((ONE, TWO), ["shown ('one',)", "-", "shown ('two',)", "-"]),
        ((ONE, REFUSED, TWO), ["shown ('one',)", "-", "connection refused", "-", "shown ('two',)", "-"]),
        ((ONE, REFUSED, REFUSED, BUSY), ["shown ('one',)", "-", "connection refused", "-", "-", "busy", "-"]),
        (
            (ONE, BUSY, ONE, BUSY),
            ["shown ('one',)", "-", "busy", "-", "shown ('one',)", "-", "busy", "-"],
        ),
    ],
    ids=["answers", "outage", "a reason is said once", "a second outage"],
)  # fmt: skip
def test_a_watch_outlives_a_cluster_that_does_not_answer(
    looks: Sequence[Answer | Exception], want: list[str]
) -> None:
    watched = Watched(*looks)

    watched.run()

    assert want == watched.events


def test_the_reason_of_an_outage_is_bounded() -> None:
    watched = Watched(ONE, KubeError("\x1b[2J" + "a very long page of a proxy " * 9999))

    watched.run()

    reason = watched.events[2]
    assert reason.startswith(r"\x1b[2Ja very long page")
    assert len(reason) <= MAX_REASON


@pytest.mark.parametrize(
    "looks", [(REFUSED,), (ONE, ConfigError("no kubeconfig"))], ids=["first look", "wrong call"]
)
def test_what_no_second_look_changes_ends_the_watch(looks: Sequence[Answer | Exception]) -> None:
    watched = Watched(*looks)

    with pytest.raises((KubeError, ConfigError), match=str(looks[-1])):
        watch(watched._look, watched._show, watched.events.append, watched._pause)


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.put(DEVICE_CLASSES, device_class())
        server.put(NODES, node("node-a"))
        server.put(RESOURCE_SLICES, slice_of("node-a"))
        yield server


class Pauses:
    """The module `time` with pauses that change the cluster; ^C ends the last one."""

    def __init__(self, *changes: Callable[[], object]) -> None:
        self.seconds: list[float] = []
        self._changes = list(changes)

    def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if not self._changes:
            raise KeyboardInterrupt
        self._changes.pop(0)()


async def watched(server: FakeApiServer, folder: Path, *options: object) -> Result:
    kubeconfig = kubeconfig_of(server, folder)
    flags = ("--live", "--kubeconfig", kubeconfig, "--context", "here")
    return await asyncio.to_thread(drawbridge, "top", "nodes", "--watch", *flags, *options)


def use_a_device(server: FakeApiServer) -> Callable[[], object]:
    return lambda: server.put(RESOURCE_CLAIMS, holding("held", "gpu-0", "node-a"))


async def test_each_answer_has_its_time_and_the_devices_of_then(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses(use_a_device(server))
    monkeypatch.setattr(command, "time", pauses)

    result = await watched(server, tmp_path)

    assert (INTERRUPTED, "interrupted\n") == (result.exit_code, result.stderr)
    assert [command.DEFAULT_INTERVAL_S] * 2 == pauses.seconds
    first, second = result.stdout.removesuffix("\n\n").split("\n\n")
    for answer, in_use in ((first, "0/2"), (second, "1/2")):
        time, head, row = answer.splitlines()
        assert TIME.fullmatch(time)
        assert head.startswith("NODE ")
        assert ["node-a", "gpu.example.com", in_use] == row.split()[:3]


async def test_json_is_a_document_a_line(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses(use_a_device(server))
    monkeypatch.setattr(command, "time", pauses)

    result = await watched(server, tmp_path, "-o", "json", "--interval", 30)

    assert [30, 30] == pauses.seconds
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [0, 1] == [entry["nodes"][0]["drivers"][0]["inUse"] for entry in documents]
    schema = json.loads((ROOT / "docs/reference/schemas/top.json").read_text())
    for document in documents:
        jsonschema.Draft202012Validator(schema).validate(document)


async def test_yaml_is_a_stream(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "time", Pauses(use_a_device(server)))

    result = await watched(server, tmp_path, "-o", "yaml")

    documents = list(yaml.load_all(result.stdout, Loader=yaml.CSafeLoader))
    assert [0, 1] == [entry["nodes"][0]["drivers"][0]["inUse"] for entry in documents]


async def test_an_outage_is_told_and_the_next_answer_comes(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        server.fail(500, times=1, matches=lambda call: call.path.endswith("/nodes"))

    monkeypatch.setattr(command, "time", Pauses(fail, use_a_device(server)))

    result = await watched(server, tmp_path, "-o", "json")

    assert 2 == len(result.stdout.splitlines())
    outage, end = result.stderr.splitlines()
    assert TIME.match(outage)
    assert " the cluster cannot be read, trying again: " in outage
    assert "interrupted" == end


async def test_notes_are_printed_when_they_are_new(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fail(403, times=2, matches=lambda call: call.path.endswith("/resourceclaims"))
    monkeypatch.setattr(command, "time", Pauses(list, list))

    result = await watched(server, tmp_path, "-o", "json")

    assert 3 == len(result.stdout.splitlines())
    assert 1 == result.stderr.count("resourceclaims")


async def test_a_cluster_that_never_answered_is_a_wrong_call(
    server: FakeApiServer, tmp_path: Path
) -> None:
    result = await watched(server, tmp_path, "--context", "elsewhere")

    assert (2, "") == (result.exit_code, result.stdout)
    assert 1 == len(result.stderr.splitlines())


async def test_a_terminal_shows_the_last_answer_only(server: FakeApiServer, tmp_path: Path) -> None:
    server.fail(403, matches=lambda call: call.path.endswith("/resourceclaims"))
    kubeconfig = kubeconfig_of(server, tmp_path)
    call = ("top", "nodes", "-w", "--interval", "86400", "--live", "--color", "never")

    def run() -> tuple[int, str, str]:
        with TerminalCall(*call, "--kubeconfig", kubeconfig, "--context", "here") as terminal:
            terminal.read_until("0/2     0\n")
            terminal.interrupt()
            return terminal.end()

    status, output, errors = await asyncio.to_thread(run)

    first_line, *table = output.splitlines()
    assert INTERRUPTED == status
    assert first_line.startswith(CLEAR)
    assert TIME.fullmatch(first_line.removeprefix(CLEAR))
    assert ["NODE", "node-a"] == [line.split()[0] for line in table]
    assert errors.startswith("note: resourceclaims")
    assert errors.endswith("interrupted\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--watch", "--snapshot", EXAMPLES / "busy"), "--watch requires a live cluster: use --live"),
        (("--watch", "--offline"), "--watch requires a live cluster: use --live"),
        (("--watch",), "--watch requires a live cluster: use --live"),
        (("-w", "--live", "--snapshot", EXAMPLES / "busy"), "are mutually exclusive"),
        (("--interval", "9", "--snapshot", EXAMPLES / "busy"), "--interval requires --watch"),
        (("--watch", "--live", "--interval", "0"), "0 is not in the range 1<=x<=86400"),
    ],
)  # fmt: skip
def test_wrong_calls(options: tuple[object, ...], message: str) -> None:
    result = drawbridge("top", *options)

    assert (2, "") == (result.exit_code, result.stdout)
    assert message in result.stderr.splitlines()[-1]
