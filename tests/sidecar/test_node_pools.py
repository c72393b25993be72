"""Caps of pools of nodes over the sidecar's socket: promises count at once, and waiting pods are woken."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kube.api.urls import ALLOCATOR_OWNERSHIPS, NODES, RESOURCE_CLAIMS
from sidecar.model.settings import SidecarSettings
from testing.allocation.builders import DRIVER, node
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    document,
    publish,
    put_claim,
    put_fence,
    put_pod,
    sidecar_beside,
)

SMALL = {"name": "small", "nodeSelector": {"matchLabels": {"pool": "small"}}}


def own(server: FakeApiServer, *pools: Mapping[str, Any], **settings: Any) -> None:
    spec = {"drivers": [{"name": DRIVER, **settings, "pools": list(pools)}]}
    server.put(ALLOCATOR_OWNERSHIPS, {"metadata": {"name": "default"}, "spec": spec})


class Stage(NamedTuple):
    """A leading sidecar that owns the driver of two nodes with three GPUs, one of the pool."""

    server: FakeApiServer
    sidecar: Sidecar
    scheduler: FakeScheduler
    pods: Mapping[str, Document]

    async def fitting(self, name: str) -> list[str]:
        answer = await self.scheduler.prefilter(self.pods[name])
        if answer["verdict"] != "fits":
            assert answer["code"] == "noDevices"
            return []
        return sorted(fit["name"] for fit in answer["nodes"])

    async def woken(self) -> list[str]:
        pods: list[str] = (await self.scheduler.wake()).get("pods", [])
        return pods


@asynccontextmanager
async def stage(path: Path, *pools: Mapping[str, Any]) -> AsyncIterator[Stage]:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=3)
        server.put(NODES, document(node("node-1", pool="small")))
        pods = {name: put_pod(server, name, f"gpu-{name}") for name in "abc"}
        for name in pods:
            put_claim(server, f"gpu-{name}")
        put_fence(server, DRIVER)
        own(server, *pools)
        async with sidecar_beside(server, path, SidecarSettings()) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            yield Stage(server, sidecar, scheduler, pods)


async def change(on_stage: Stage) -> None:
    """Wait until the sidecar has seen a change."""
    version = on_stage.sidecar.state.version
    await until(lambda: on_stage.sidecar.state.version > version)


async def test_what_is_promised_counts_at_once_and_its_end_wakes_one_pod(tmp_path: Path) -> None:
    async with stage(tmp_path, {**SMALL, "maxConsumersPerNode": 2}) as on_stage:
        for name in "ab":
            assert await on_stage.fitting(name) == ["node-1"]
            on_stage.scheduler.reserve(on_stage.pods[name], "node-1")
        assert await on_stage.fitting("c") == []
        assert await on_stage.woken() == []

        await on_stage.scheduler.unreserve(on_stage.pods["a"])

        assert await on_stage.woken() == ["default/c"]
        assert await on_stage.fitting("c") == ["node-1"]


async def test_a_claim_that_is_released_wakes_one_pod(tmp_path: Path) -> None:
    async with stage(tmp_path, {**SMALL, "maxConsumersPerNode": 1}) as on_stage:
        assert await on_stage.fitting("a") == ["node-1"]
        on_stage.scheduler.reserve(on_stage.pods["a"], "node-1")
        await on_stage.scheduler.prebind(on_stage.pods["a"])
        assert [await on_stage.fitting(name) for name in "bc"] == [[], []]

        on_stage.server.remove(RESOURCE_CLAIMS, "gpu-a", "default")
        await change(on_stage)

        assert await on_stage.woken() == ["default/b"]


async def test_pools_and_labels_count_as_soon_as_they_change(tmp_path: Path) -> None:
    async with stage(tmp_path) as on_stage:
        assert await on_stage.fitting("a") == ["node-1"]
        on_stage.scheduler.reserve(on_stage.pods["a"], "node-1")

        own(on_stage.server, {**SMALL, "maxConsumersPerNode": 1})
        await change(on_stage)
        assert await on_stage.fitting("b") == []

        on_stage.server.put(NODES, document(node("node-1", pool="large")))
        await change(on_stage)
        assert sorted(await on_stage.woken()) == ["default/b", "default/c"]
        assert await on_stage.fitting("b") == ["node-1"]
