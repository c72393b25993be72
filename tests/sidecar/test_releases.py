"""PostFilter waits for releases that help a pod, and waiting pods are tried again."""

import asyncio
from pathlib import Path
from typing import Any

from kube.api.urls import PODS, RESOURCE_CLAIMS
from testing.documents import Document
from testing.fake_api_server import Call, FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)


async def greeted(sidecar: Sidecar) -> FakeScheduler:
    scheduler = FakeScheduler(sidecar.socket)
    assert (await scheduler.hello())["ready"]
    return scheduler


def put_allocated(server: FakeApiServer, name: str, device: str, *uids: str) -> None:
    """Store a claim that has a device such as `node-1/gpu-0`, for these pods."""
    stored = server.find(RESOURCE_CLAIMS, name, "default") or put_claim(server, name)
    pool, device_name = device.split("/")
    result = {
        "request": "req-0",
        "driver": "gpu.example.com",
        "pool": pool,
        "device": device_name,
    }
    stored["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in uids],
    }
    server.put(RESOURCE_CLAIMS, stored)


def release(server: FakeApiServer, name: str) -> None:
    stored = server.find(RESOURCE_CLAIMS, name, "default")
    assert stored is not None
    server.put(RESOURCE_CLAIMS, {**stored, "status": {}})


async def verdict(scheduler: FakeScheduler, pod: Document) -> str:
    """Return the answer of PostFilter after an attempt that failed."""
    assert (await scheduler.prefilter(pod))["verdict"] != "fits"
    fields: dict[str, Any] = {"podUID": pod["metadata"]["uid"]}
    status, answer = await scheduler.call("postfilter", **fields)
    assert status == 200, answer
    return str(answer["verdict"])


async def test_a_pod_that_waited_for_a_release_is_tried_again_whomever_it_helped(
    tmp_path: Path,
) -> None:
    """Another pod gets the device first. Then this one may evict a pod."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        put_claim(server, "gpu-a")
        put_allocated(server, "gpu-v", "node-1/gpu-0", "uid-gone")
        pod = put_pod(server, "a", "gpu-a", priority=5)
        put_pod(server, "b", "gpu-b", nodeName="node-1")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            assert await verdict(scheduler, pod) == "wait"
            assert (await scheduler.wake()).get("pods", []) == []

            put_allocated(server, "gpu-b", "node-1/gpu-0", "uid-b")
            release(server, "gpu-v")
            await until(lambda: not sidecar.state.consumers.releasing)

            assert (await scheduler.wake())["pods"] == ["default/a"]
            assert await verdict(scheduler, pod) == "continue"
            version = put_claim(server, "news")["metadata"]["resourceVersion"]
            assert (await scheduler.wake(version)).get("pods", []) == []


async def test_a_release_that_helps_another_pod_only_is_not_waited_for(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", "node-2", per_node=1)
        put_claim(server, "gpu-a")
        put_allocated(server, "gpu-v", "node-1/gpu-0", "uid-gone")
        put_allocated(server, "gpu-b", "node-2/gpu-0", "uid-b")
        put_pod(server, "b", "gpu-b", nodeName="node-2")
        pod = put_pod(server, "a", "gpu-a", priority=5, nodeSelector={"zone": "b"})
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)

            assert sidecar.state.consumers.releasing == {("default", "gpu-v")}
            assert await verdict(scheduler, pod) == "continue"


async def test_a_claim_for_extended_resources_is_not_being_released_while_its_pod_is_there(
    tmp_path: Path,
) -> None:
    """Another scheduler made it; the spec of the pod names no claim."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        put_claim(server, "gpu-a")
        put_allocated(server, "extended", "node-1/gpu-0", "uid-b")
        theirs = put_pod(server, "b", nodeName="node-1")
        theirs["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "extended"}
        server.put(PODS, theirs)
        pod = put_pod(server, "a", "gpu-a", priority=5)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)

            assert await verdict(scheduler, pod) == "continue"
            assert (await scheduler.prefilter(pod))["verdict"] == "unschedulable", (
                "the other pod could be evicted"
            )
            server.put(PODS, {**theirs, "status": {**theirs["status"], "phase": "Succeeded"}})
            server.remove(PODS, "b", "default")
            await until(lambda: bool(sidecar.state.consumers.releasing))
            assert await verdict(scheduler, pod) == "wait"


async def test_a_scheduler_that_does_not_wait_for_the_end_of_a_release_gets_it_nevertheless(
    tmp_path: Path,
) -> None:
    """The API server is slower than the scheduler's timeout."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=3)
        for name in ("gpu-1", "gpu-2", "gpu-3"):
            put_claim(server, name)
        pod = put_pod(server, "a", "gpu-1", "gpu-2", "gpu-3")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await scheduler.prefilter(pod)
            scheduler.reserve(pod, "node-1")
            server.fail(403, matches=lambda call: "gpu-3" in call.path and call.method == "PATCH")
            assert (await scheduler.prebind(pod))["verdict"] == "error"
            assert sidecar.devices_of("gpu-1")
            assert sidecar.devices_of("gpu-2")

            def is_first_release(call: Call) -> bool:
                return call.method == "PATCH" and "gpu-1" in call.path

            may_answer = server.delay(is_first_release)
            async with asyncio.TaskGroup() as group:
                calling = group.create_task(scheduler.unreserve(pod))
                await until(lambda: not sidecar.devices_of("gpu-1"))
                calling.cancel()
            may_answer.set()

            await until(lambda: not sidecar.devices_of("gpu-2"))
            assert not sidecar.state.holds
