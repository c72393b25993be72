"""`drawbridge snapshot`: the content of the file, the parts left out, and its permissions."""

import asyncio
import gzip
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from answers.model.redaction import redact
from answers.model.snapshot_kinds import KINDS
from cli.__main__ import main
from cli.reading.live_snapshot import read_snapshot
from kube.api.urls import DEVICE_CLASSES, NODES, PODS, SECRETS, Resource
from kube.errors import ObjectFileError
from kube.manifests.compressed import decompress
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from kube.manifests.source import MAX_BYTES
from testing import fake_api_server
from testing.command import drawbridge
from testing.fake_api_server import FakeApiServer
from testing.live_pod import SPEC, live_pod
from testing.slice_cases import MIXED_LAYOUT

DEPLOYMENTS = Resource(group="apps", version="v1", plural="deployments")


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.put(NODES, {"metadata": {"name": "node-0"}})
        server.put(DEVICE_CLASSES, {"metadata": {"name": "gpu.nvidia.com"}, "spec": {}})
        server.put(PODS, live_pod())
        server.put(
            DEPLOYMENTS,
            {"metadata": {"name": "d", "namespace": "team"}, "spec": {"template": {"spec": SPEC}}},
        )
        server.put(SECRETS, {"metadata": {"name": "hunter2", "namespace": "team"}})
        yield server


async def take_snapshot(server: FakeApiServer, folder: Path, name: str) -> tuple[int, str, Path]:
    """Return exit status, standard error and file of a snapshot of the server."""
    file = folder / name
    kubeconfig = folder / "kubeconfig"
    user = {"name": "u", "user": {}}
    cluster = {"name": "c", "cluster": {"server": server.url}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "contexts": [context],
                "clusters": [cluster],
                "users": [user],
            }
        )
    )
    call = ("snapshot", "-o", file, "--kubeconfig", kubeconfig)
    result = await asyncio.to_thread(drawbridge, *call)
    return result.exit_code, result.stderr, file


def test_a_pod_keeps_its_devices_and_loses_its_secrets() -> None:
    pod = redact(live_pod())

    assert "hunter2" not in json.dumps(pod)
    assert "password" not in json.dumps(pod)
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert container["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    assert container["securityContext"] == {"privileged": True}
    assert pod["spec"]["schedulerName"] == "hami-scheduler"
    assert pod["metadata"]["annotations"] == {"hami.io/gpu-scheduler-policy": "binpack"}
    assert pod["status"] == {
        "phase": "Running",
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu"}],
    }


@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.gz"])
async def test_other_commands_read_the_file(
    name: str, server: FakeApiServer, tmp_path: Path
) -> None:
    code, _, file = await take_snapshot(server, tmp_path, name)

    assert code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kinds = [source.kind for source in read_paths([str(file)])]
    assert kinds == ["Snapshot", "Node", "Deployment", "Pod", "DeviceClass"]
    inventory = drawbridge("inventory", "--snapshot", file, "-o", "json")
    assert [entry["name"] for entry in json.loads(inventory.stdout)["classes"]] == [
        "gpu.nvidia.com"
    ]
    text = gzip.decompress(file.read_bytes()) if name.endswith(".gz") else file.read_bytes()
    assert b"hunter2" not in text


async def test_check_validates_by_the_version_of_the_cluster(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices beside counters are accepted by 1.34, and rejected by newer versions."""
    monkeypatch.setattr(fake_api_server, "VERSION", "v1.34.4")
    _, _, file = await take_snapshot(server, tmp_path, "cluster.json.gz")

    result = drawbridge(*("check", "-f", "-", "--snapshot", file), stdin=dump_yaml([MIXED_LAYOUT]))

    assert result.exit_code == 0, result.stdout
    assert "warning: ResourceSlice/mixed" in result.stdout


async def test_kinds_that_may_not_be_read_are_named(server: FakeApiServer, tmp_path: Path) -> None:
    server.fail(403, matches=lambda call: call.path.endswith("/pods"))

    code, stderr, file = await take_snapshot(server, tmp_path, "cluster.json")

    assert code == 0
    assert "pods cannot be read" in stderr
    (origin,) = (source for source in read_paths([str(file)]) if source.kind == "Snapshot")
    assert origin.document["unreadable"] == ["pods"]


async def test_a_user_without_rights_gets_one_note(server: FakeApiServer, tmp_path: Path) -> None:
    server.fail(403, times=100, matches=lambda call: call.path != "/version")

    code, stderr, _ = await take_snapshot(server, tmp_path, "cluster.json")

    (note,) = (line for line in stderr.splitlines() if line.startswith("note: "))
    assert code == 0
    assert "resources cannot be read, and are left out: nodes, namespaces, " in note


async def test_a_cluster_that_does_not_answer_leaves_the_old_file(
    server: FakeApiServer, tmp_path: Path
) -> None:
    (tmp_path / "cluster.json").write_text("the old one")
    server.fail(500, times=100)

    code, stderr, file = await take_snapshot(server, tmp_path, "cluster.json")

    assert code == 2, stderr
    assert file.read_text() == "the old one"
    names = await asyncio.to_thread(lambda: sorted(path.name for path in tmp_path.iterdir()))
    assert names == ["cluster.json", "kubeconfig"]


async def test_the_plugin_of_kubectl_assesses_the_cluster_of_the_context(
    server: FakeApiServer, tmp_path: Path
) -> None:
    await take_snapshot(server, tmp_path, "cluster.json")

    result = await asyncio.to_thread(
        CliRunner().invoke,
        main,
        ["assess", "-o", "json", "--kubeconfig", str(tmp_path / "kubeconfig")],
        prog_name="kubectl drawbridge",
    )

    rows = {row["object"] for row in json.loads(result.stdout)["workloads"]}
    assert rows == {"Deployment/team/d", "Pod/team/train"}


async def test_secrets_are_never_listed(server: FakeApiServer) -> None:
    async with server.client() as client:
        state = await read_snapshot(client, lambda _count: None)

    assert "Secret" not in KINDS
    assert {item["kind"] for item in state.items} == {"Node", "Deployment", "Pod", "DeviceClass"}


async def test_only_the_kinds_of_a_question_are_listed(server: FakeApiServer) -> None:
    async with server.client() as client:
        state = await read_snapshot(client, lambda _count: None, ("Node", "ResourceSlice"))

    assert {item["kind"] for item in state.items} == {"Node"}


# --- compressed files -----------------------------------------------------------------------------


def test_a_file_of_several_gzip_members_is_read_whole() -> None:
    content = gzip.compress(b"kind: ") + gzip.compress(b"Pod")

    assert decompress(content, "pods.gz") == b"kind: Pod"


def test_a_file_of_too_many_gzip_members_is_rejected() -> None:
    with pytest.raises(ObjectFileError, match="more than 1000 parts"):
        decompress(gzip.compress(b"") * 2_000_000, "pods.gz")


@pytest.mark.parametrize(
    "content", [b"\x1f\x8bnot gzip", gzip.compress(b"kind: Pod" * 99)[:-20]], ids=["no gzip", "cut"]
)
def test_a_damaged_file_is_an_error(content: bytes) -> None:
    with pytest.raises(ObjectFileError, match=r"pods.gz:1: .*gzip"):
        decompress(content, "pods.gz")


def test_a_bomb_is_read_up_to_the_limit_of_files(tmp_path: Path) -> None:
    file = tmp_path / "bomb.json.gz"
    file.write_bytes(gzip.compress(b" " * (MAX_BYTES + 2**20), compresslevel=1))

    with pytest.raises(ObjectFileError, match="larger than 128 MiB"):
        read_paths([str(file)])


async def test_a_pipe_is_written_to_and_stays(server: FakeApiServer, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # An open reader, so that the writer does not wait for one. The text fits into the pipe.
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        code, _, _ = await take_snapshot(server, tmp_path, "pipe")
        text = os.read(reader, 65536) if pipe.is_fifo() else b""
    finally:
        os.close(reader)

    assert 0 == code
    assert pipe.is_fifo()
    assert "Snapshot" == json.loads(text)["items"][0]["kind"]


@pytest.mark.parametrize("exists", [True, False])
async def test_of_a_link_the_file_that_it_names_is_written(
    exists: bool, server: FakeApiServer, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "cluster.json", tmp_path / "link.json"
    if exists:
        target.write_text("the old one")
    link.symlink_to(target)

    code, _, _ = await take_snapshot(server, tmp_path, "link.json")

    assert (0, True) == (code, link.is_symlink())
    assert "SnapshotList" in target.read_text()
