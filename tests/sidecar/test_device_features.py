"""Features of devices and requests on their way through the sidecar: taints, mode All, admin access,
binding conditions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from allocator.pods.claims import allocation_of
from kube.api.urls import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from testing.allocation.builders import (
    DRIVER,
    device,
    device_class,
    devices,
    node,
    slice_of,
    taint,
    tolerates,
)
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    document,
    put_claim,
    put_pod,
    sidecar_beside,
)

READY = "drawbridge.test/ready"
FAILED = "drawbridge.test/failed"


class Scene(NamedTuple):
    """A sidecar with two nodes, and a pod that waits with a claim."""

    server: FakeApiServer
    sidecar: Sidecar
    scheduler: FakeScheduler
    pod: Document

    async def code(self) -> str:
        """Return code or verdict of PreFilter."""
        answer = await self.scheduler.prefilter(self.pod)
        return str(answer.get("code") or answer["verdict"])

    async def bind(self, node_name: str) -> Document:
        """Bind the pod to a node."""
        await self.scheduler.prefilter(self.pod)
        self.scheduler.reserve(self.pod, node_name)
        return await self.scheduler.prebind(self.pod)


@asynccontextmanager
async def scene(
    tmp_path: Path, published: dict[str, tuple[Any, ...]], **request: Any
) -> AsyncIterator[Scene]:
    """Publish the devices of each node, and have a pod wait with one request."""
    async with FakeApiServer() as server:
        server.put(DEVICE_CLASSES, document(device_class()))
        for name, of_node in published.items():
            server.put(NODES, document(node(name)))
            server.put(RESOURCE_SLICES, document(slice_of(*of_node, node=name, pool=name)))
        put_claim(server, "gpu-a", **request)
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path, binder={"binding_timeout_s": 3.0}) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            yield Scene(server, sidecar, scheduler, pod)


@pytest.mark.parametrize(
    ("tolerations", "code"),
    [((), "noDevices"), ((tolerates("broken", operator="Exists"),), "fits")],
    ids=["not tolerated", "tolerated"],
)
async def test_a_tainted_device_goes_to_those_that_tolerate_it(
    tmp_path: Path, tolerations: tuple[Any, ...], code: str
) -> None:
    published = {"node-1": devices("gpu-0", taints=(taint(),))}
    async with scene(tmp_path, published, tolerations=tolerations) as scene_:
        assert await scene_.code() == code


async def test_a_taint_rule_that_comes_and_goes(tmp_path: Path) -> None:
    rule = {
        "metadata": {"name": "maintenance"},
        "spec": {
            "deviceSelector": {"driver": DRIVER, "pool": "node-1"},
            "taint": {"key": "maintenance", "effect": "NoSchedule"},
        },
    }
    async with scene(tmp_path, {"node-1": devices("gpu-0")}) as scene_:
        assert await scene_.code() == "fits"
        server, state = scene_.server, scene_.sidecar.state

        version = state.version
        server.put(DEVICE_TAINT_RULES, rule)
        await until(lambda: state.version > version)
        assert await scene_.code() == "noDevices"

        version = state.version
        server.remove(DEVICE_TAINT_RULES, "maintenance")
        await until(lambda: state.version > version)
        assert await scene_.code() == "fits"


async def test_all_devices_of_a_node_or_none(tmp_path: Path) -> None:
    published = {"node-1": devices("gpu-0", "gpu-1"), "node-2": devices("gpu-0", "gpu-1")}
    async with scene(tmp_path, published, count=None) as scene_:
        put_claim(scene_.server, "gpu-b")
        other = put_pod(scene_.server, "b", "gpu-b")
        await scene_.scheduler.prefilter(other)
        scene_.scheduler.reserve(other, "node-1")

        assert (await scene_.bind("node-2"))["verdict"] == "ok"

        assert scene_.sidecar.devices_of("gpu-a") == ["node-2/gpu-0", "node-2/gpu-1"]


async def test_admin_access_takes_nothing_from_others(tmp_path: Path) -> None:
    async with scene(tmp_path, {"node-1": devices("gpu-0")}, admin_access=True) as scene_:
        assert (await scene_.bind("node-1"))["verdict"] == "ok"
        put_claim(scene_.server, "gpu-b")
        other = put_pod(scene_.server, "b", "gpu-b")

        assert (await scene_.scheduler.prefilter(other))["verdict"] == "fits"
        scene_.scheduler.reserve(other, "node-1")
        assert (await scene_.scheduler.prebind(other))["verdict"] == "ok"

        assert scene_.sidecar.devices_of("gpu-a") == scene_.sidecar.devices_of("gpu-b")
        (result,) = scene_.sidecar.claim("gpu-a")["status"]["allocation"]["devices"]["results"]
        assert result["adminAccess"] is True


@pytest.mark.parametrize(
    ("condition", "verdict"), [(READY, "ok"), (FAILED, "unschedulable")], ids=["ready", "failed"]
)
async def test_prebind_waits_for_binding_conditions(
    tmp_path: Path, condition: str, verdict: str
) -> None:
    attached = device(
        binding_conditions=(READY,), binding_failure_conditions=(FAILED,), binds_to_node=True
    )
    async with scene(tmp_path, {"node-1": (attached,)}) as scene_:
        async with asyncio.TaskGroup() as group:
            binding = group.create_task(scene_.bind("node-1"))
            await until(lambda: bool(scene_.sidecar.devices_of("gpu-a")))
            assert not binding.done()
            stored = scene_.sidecar.claim("gpu-a")
            (result,) = stored["status"]["allocation"]["devices"]["results"]
            report = {key: result[key] for key in ("driver", "pool", "device")}
            report["conditions"] = [{"type": condition, "status": "True"}]
            scene_.server.put(
                RESOURCE_CLAIMS, {**stored, "status": {**stored["status"], "devices": [report]}}
            )

        assert binding.result()["verdict"] == verdict


ATTACHED_LATE = device(
    binding_conditions=(READY,), binding_failure_conditions=(FAILED,), binds_to_node=True
)


def allocate(scene_: Scene, timestamp: str, *conditions: str) -> None:
    """Store that the claim has the device of `node-1`, for the pod, since a moment."""
    stored = scene_.sidecar.claim("gpu-a")
    identity = {"driver": DRIVER, "pool": "node-1", "device": "gpu-0"}
    result = {
        "request": "req-0",
        **identity,
        "bindingConditions": [READY],
        "bindingFailureConditions": [FAILED],
    }
    uid = scene_.pod["metadata"]["uid"]
    report = [{"type": condition, "status": "True"} for condition in conditions]
    stored["status"] = {
        "allocation": {"devices": {"results": [result]}, "allocationTimestamp": timestamp},
        "devices": [{**identity, "conditions": report}],
        "reservedFor": [{"resource": "pods", "name": "a", "uid": uid}],
    }
    scene_.server.put(RESOURCE_CLAIMS, stored)


IN_TIME, TOO_LATE = "2026-11-20T23:59:59Z", "2026-11-20T23:59:50Z"
"""Allocated one second ago, and ten, of three."""


@pytest.mark.parametrize(
    ("timestamp", "conditions", "code", "verdict"),
    [
        (IN_TIME, (), "fits", "continue"),
        (TOO_LATE, (READY,), "fits", "continue"),
        (TOO_LATE, (), "bindingFailed", "released"),
        (IN_TIME, (FAILED,), "bindingFailed", "released"),
    ],
    ids=["may become ready", "ready", "timed out", "failed"],
)
async def test_devices_that_do_not_become_ready_are_released(
    tmp_path: Path, timestamp: str, conditions: tuple[str, ...], code: str, verdict: str
) -> None:
    async with scene(tmp_path, {"node-1": (ATTACHED_LATE,)}) as scene_:
        allocate(scene_, timestamp, *conditions)
        await until(lambda: not is_open(scene_))

        assert await scene_.code() == code
        uid = scene_.pod["metadata"]["uid"]
        _, answer = await scene_.scheduler.call("postfilter", podUID=uid)

        assert answer["verdict"] == verdict
        assert bool(scene_.sidecar.devices_of("gpu-a")) is (verdict != "released")


async def test_a_second_attempt_waits_no_longer_than_the_first(tmp_path: Path) -> None:
    """The time for binding conditions begins with the allocation, for any pod that waits."""
    async with scene(tmp_path, {"node-1": (ATTACHED_LATE,)}) as scene_:
        assert await scene_.code() == "fits"
        allocate(scene_, TOO_LATE)
        await until(lambda: not is_open(scene_))
        scene_.scheduler.reserve(scene_.pod, "node-1")

        async with asyncio.timeout(4.5):
            answer = await scene_.scheduler.prebind(scene_.pod)

        assert (answer["verdict"], answer["code"]) == ("unschedulable", "bindingFailed")


async def test_a_claim_that_is_deallocated_while_its_devices_become_ready_binds_no_pod(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, {"node-1": (ATTACHED_LATE,)}) as scene_:
        async with asyncio.TaskGroup() as group:
            binding = group.create_task(scene_.bind("node-1"))
            await until(lambda: bool(scene_.sidecar.devices_of("gpu-a")))
            stored = scene_.sidecar.claim("gpu-a")
            scene_.server.put(RESOURCE_CLAIMS, {**stored, "status": {}})

        answer = binding.result()
        assert (answer["verdict"], answer["code"]) == ("unschedulable", "devicesGone")


def is_open(scene_: Scene) -> bool:
    """Return True if the sidecar sees the claim without devices."""
    return allocation_of(scene_.sidecar.state.claims.store["default", "gpu-a"]) is None
