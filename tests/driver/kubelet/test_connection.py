"""The kubelet's calls over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import grpc
import pytest
from prometheus_client import CollectorRegistry

from driver.faults.prepare_failures import PrepareFailures
from driver.kubelet.api import dra_health_v1_pb2 as health_api
from driver.kubelet.api import dra_v1_pb2 as api
from driver.kubelet.api import pluginregistration_v1_pb2 as registration_api
from driver.kubelet.connection import KubeletConnection
from driver.kubelet.health import Health
from driver.kubelet.plugin import Plugin
from driver.kubelet.sockets import Sockets, sockets
from driver.model.health import Fault
from driver.plan.prepare import Preparation
from driver.prepare.current import CurrentNode
from driver.prepare.metrics import DriverMetrics
from kube.api.resource import ResourceClaim
from kube.api.urls import RESOURCE_CLAIMS
from testing.allocation.builders import DRIVER, device, result
from testing.driver.builders import (
    allocated_claim,
    document_of,
    injected_device,
    node_state,
    share,
    shared_gpu,
)
from testing.driver.nodes import FolderNode
from testing.fake_api_server import FakeApiServer, running, until

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
DRA: Final = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
CLAIM: Final = allocated_claim(
    share("shared", request="gpu/large"), result("gpu-0", request="gpu/large")
)


class Kubelet:
    """The kubelet, as its protos describe it."""

    def __init__(self, paths: Sockets, connection: KubeletConnection, current: CurrentNode) -> None:
        self.connection = connection
        self.current = current
        self.paths = paths
        self.prepared: list[Preparation] = []

    async def call(self, path: Path, method: str, request: Any, answer: Any) -> Any:
        async with grpc.aio.insecure_channel(f"unix://{path}") as channel:
            call = channel.unary_unary(
                method,
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            return await cast(Any, call(request))

    async def prepare(self, *claims: ResourceClaim) -> Any:
        request = api.NodePrepareResourcesRequest(claims=[_claim(claim) for claim in claims])
        method = f"{DRA}/NodePrepareResources"
        answer = await self.call(
            self.paths.service, method, request, api.NodePrepareResourcesResponse
        )
        return answer.claims

    async def unprepare(self, *claims: ResourceClaim) -> Any:
        request = api.NodeUnprepareResourcesRequest(claims=[_claim(claim) for claim in claims])
        method = f"{DRA}/NodeUnprepareResources"
        answer = await self.call(
            self.paths.service, method, request, api.NodeUnprepareResourcesResponse
        )
        return answer.claims


def _claim(claim: ResourceClaim) -> api.Claim:
    metadata = claim.metadata
    return api.Claim(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[Kubelet]:
    nodes = node_state(
        injected_device(device("gpu-0"), cdi_devices=("nvidia.com/gpu=0",)), shared_gpu("shared")
    )
    node = FolderNode(folder, nodes)
    for name in ("registry", "plugins"):
        (folder / name).mkdir()
    paths = sockets(DRIVER, "", folder / "registry", folder / "plugins")
    async with FakeApiServer() as server, server.client() as client:
        server.put(RESOURCE_CLAIMS, document_of(CLAIM))
        prepared: list[Preparation] = []
        plugin = Plugin(
            DRIVER,
            node.preparer(client),
            DriverMetrics(CollectorRegistry()),
            on_prepared=prepared.append,
            failures=PrepareFailures(),
        )

        async def settled() -> None:
            return

        health = Health(node.current, lambda: NOW)
        connection = KubeletConnection(
            DRIVER,
            paths,
            (plugin.service(), health.service()),
            on_settled=settled,
            ending=health.end,
        )
        async with running(connection.run):
            await until(paths.registration.exists)
            kubelet = Kubelet(paths, connection, node.current)
            kubelet.prepared = prepared
            yield kubelet
    assert not paths.registration.exists()
    assert not paths.service.exists()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: that of a socket is limited to 107 bytes."""
    with TemporaryDirectory(prefix="kubelet-") as path:
        yield Path(path)


@pytest.fixture
async def kubelet(folder: Path) -> AsyncIterator[Kubelet]:
    async with connected(folder) as kubelet_:
        yield kubelet_


async def test_registration(kubelet: Kubelet) -> None:
    path, service = kubelet.paths.registration, "/pluginregistration.Registration"

    info = await kubelet.call(
        path, f"{service}/GetInfo", registration_api.InfoRequest(), registration_api.PluginInfo
    )

    assert ("DRAPlugin", DRIVER) == (info.type, info.name)
    assert str(kubelet.paths.service) == info.endpoint
    assert ["v1.DRAPlugin", "v1.DRAResourceHealth"] == list(info.supported_versions)
    for is_registered, words in ((False, "the kubelet refused: busy"), (True, "")):
        status = registration_api.RegistrationStatus(
            plugin_registered=is_registered, error="" if is_registered else "busy"
        )
        method = f"{service}/NotifyRegistrationStatus"
        answer = registration_api.RegistrationStatusResponse
        await kubelet.call(path, method, status, answer)
        assert words == kubelet.connection.problem()


async def test_a_claim_that_is_prepared_comes_with_its_devices(kubelet: Kubelet) -> None:
    answers = await kubelet.prepare(CLAIM)

    answer = answers[CLAIM.metadata.uid]
    assert answer.error == ""
    shared, whole = answer.devices
    assert (["gpu"], "node-1", "shared") == (
        list(shared.request_names),
        shared.pool_name,
        shared.device_name,
    )
    assert shared.HasField("share_id")
    assert not whole.HasField("share_id")
    uid = CLAIM.metadata.uid
    assert [f"gpu.example.com/claim={uid}-1", "nvidia.com/gpu=0"] == list(whole.cdi_device_ids)
    assert [CLAIM.metadata.uid] == [preparation.record.uid for preparation in kubelet.prepared]


async def test_every_claim_has_an_answer(kubelet: Kubelet) -> None:
    unknown = allocated_claim(result("gpu-0"), name="unknown")

    answers = await kubelet.prepare(CLAIM, unknown)

    assert {CLAIM.metadata.uid, unknown.metadata.uid} == set(answers)
    assert "does not exist" in answers[unknown.metadata.uid].error
    undone = await kubelet.unprepare(CLAIM, unknown)
    assert {CLAIM.metadata.uid: "", unknown.metadata.uid: ""} == {
        uid: answer.error for uid, answer in undone.items()
    }


@asynccontextmanager
async def health_stream(kubelet: Kubelet) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"unix://{kubelet.paths.service}") as channel:
        call = channel.unary_stream(
            "/v1.DRAResourceHealth/NodeWatchResources",
            request_serializer=health_api.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=health_api.NodeWatchResourcesResponse.FromString,
        )
        async with asyncio.timeout(60):
            yield cast(Any, call(health_api.NodeWatchResourcesRequest()))


async def test_the_health_of_all_devices_is_reported(kubelet: Kubelet) -> None:
    async with health_stream(kubelet) as stream:
        report = await stream.read()

        assert [("node-1", "gpu-0"), ("node-1", "shared")] == [
            (device_.device.pool_name, device_.device.device_name) for device_ in report.devices
        ]
        assert {health_api.HEALTHY} == {device_.health for device_ in report.devices}
        assert {int(NOW.timestamp())} == {device_.last_updated_time for device_ in report.devices}

        kubelet.current.set_faults({"gpu-0": (Fault(kind="lost", message="it is gone"), NOW)})
        report = await stream.read()

        assert [(health_api.UNHEALTHY, "lost: it is gone"), (health_api.HEALTHY, "")] == [
            (device_.health, device_.message) for device_ in report.devices
        ]


async def test_a_fault_without_effect_leaves_the_health_unknown(kubelet: Kubelet) -> None:
    kubelet.current.set_faults({"gpu-0": (Fault(kind="unmonitored"), NOW)})

    async with health_stream(kubelet) as stream:
        report = await stream.read()

    assert [health_api.UNKNOWN, health_api.HEALTHY] == [
        device_.health for device_ in report.devices
    ]


async def test_the_stream_ends_with_the_driver(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        driver = connected(folder)
        stream = await stack.enter_async_context(health_stream(await driver.__aenter__()))
        await stream.read()

        await driver.__aexit__(None, None, None)

        assert grpc.aio.EOF is await stream.read(), "it was cut off"
