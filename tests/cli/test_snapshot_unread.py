"""Kinds that an API server does not list, in `drawbridge snapshot` and `--live`."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from answers.model.snapshot_kinds import CUSTOM_KINDS
from cli.reading.live_snapshot import LiveSnapshot, read_snapshot
from cli.verbs.snapshot.command import encode_snapshot
from kube.errors import KubeError
from testing.builders import gpus, pod
from testing.command import drawbridge
from testing.custom_workloads import workload_of
from testing.documents import namespace
from testing.example_objects import store
from testing.fake_api_server import FakeApiServer
from testing.kubeconfig import kubeconfig_of
from testing.migration import plugin_node, workload
from translation.reading.workload_kinds import WORKLOAD_KIND

RAY, OLD_RAY = CUSTOM_KINDS["RayCluster.ray.io"]
VOLCANO: Final = CUSTOM_KINDS["Job.batch.volcano.sh"][0]


def custom(api_version: str, kind: str) -> dict[str, Any]:
    """A workload of another project with GPUs for its next pods."""
    spec = pod(gpus(1, mem=3000))["spec"]
    return {**workload_of(WORKLOAD_KIND[api_version, kind], spec), "apiVersion": api_version}


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        web = workload("web", {"nvidia.com/gpu": "1"}, ["node"], namespace="team")
        store(server, [plugin_node("node"), namespace("team"), *web])
        yield server


async def read(server: FakeApiServer) -> LiveSnapshot:
    async with server.client() as client:
        return await read_snapshot(client, lambda _count: None)


@pytest.mark.parametrize("status", [403, 500])
async def test_without_discovery_every_version_is_asked_for(
    server: FakeApiServer, status: int
) -> None:
    server.put(OLD_RAY, custom("ray.io/v1alpha1", "RayCluster"))
    server.fail(status, matches=lambda call: call.path == "/apis/ray.io")
    server.fail(404, matches=lambda call: call.path == RAY.path())

    state = await read(server)

    versions = [item["apiVersion"] for item in state.items if item["kind"] == "RayCluster"]
    assert (["ray.io/v1alpha1"], ()) == (versions, state.unreadable)


@pytest.mark.parametrize("status", [403, 429, 500, 503])
async def test_a_kind_of_another_project_is_left_out_with_the_reason(
    server: FakeApiServer, tmp_path: Path, status: int
) -> None:
    """A webhook that converts the objects of one kind may be down."""
    server.put(RAY, custom("ray.io/v1", "RayCluster"))
    paths = {"/apis/ray.io", *(resource.path() for resource in (RAY, OLD_RAY))}
    server.fail(status, times=100, matches=lambda call: call.path in paths)

    state = await read(server)
    words = ("--live", "--kubeconfig", kubeconfig_of(server, tmp_path), "--context", "here")
    result = await asyncio.to_thread(drawbridge, "assess", *map(str, words))

    (unread,) = state.unreadable
    assert "rayclusters.ray.io" == unread.resource
    assert unread.reason
    assert "Deployment" in {item["kind"] for item in state.items}
    assert result.exit_code in {0, 1}
    assert "note: rayclusters.ray.io cannot be read" in result.stderr


async def test_a_kind_of_kubernetes_that_is_not_listed_ends_the_reading(
    server: FakeApiServer,
) -> None:
    server.fail(500, times=100, matches=lambda call: call.path.endswith("/pods"))

    with pytest.raises(KubeError):
        await read(server)


async def test_jobs_of_volcano_are_not_those_of_kubernetes(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.put(VOLCANO, custom("batch.volcano.sh/v1alpha1", "Job"))
    server.fail(403, matches=lambda call: call.path == "/apis/batch/v1/jobs")
    file = tmp_path / "cluster.json"
    file.write_bytes(encode_snapshot(await read(server), "2026-11-20T08:00:00Z"))

    result = drawbridge("assess", "--snapshot", file, "-o", "json")

    assert ["jobs"] == json.loads(result.stdout)["unreadable"]
    assert "note: jobs cannot be read" in result.stderr
