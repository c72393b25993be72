"""The feature gates of an API server: found out by a dry run, published, and followed by snapshots."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from clusterstate.autoscalers import ObjectName
from clusterstate.published_gates import project_gates
from clusterstate.snapshot_cache import SnapshotCache
from controllers.gates.controller import FeatureGateController
from controllers.model.settings import ControllerSettings, Settings
from kube.api.urls import CONFIG_MAPS, RESOURCE_CLAIM_TEMPLATES
from kube.names import NAMESPACE
from process.model.durations import PositiveDuration
from testing.builders import profiles
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until

NAME = "drawbridge-inventory"
FAST = Settings(
    controllers=ControllerSettings(
        feature_gate_period=PositiveDuration(0.02), inventory_update_period=PositiveDuration(0.02)
    )
)


def drop_capacity(document: Document) -> None:
    for request in document.get("spec", {}).get("spec", {}).get("devices", {}).get("requests", ()):
        request["exactly"].pop("capacity", None)


def config_map(**data: str) -> Document:
    return {"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": data}


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.put(CONFIG_MAPS, config_map(seen="{}"))
        yield server


@asynccontextmanager
async def controlling(server: FakeApiServer) -> AsyncIterator[SnapshotCache]:
    async with server.client() as client:
        informers = quick_informers(client)
        snapshots = SnapshotCache(
            informers, profiles(), inventory=ObjectName(CONFIG_MAPS, NAMESPACE, NAME)
        )
        (controller,) = FeatureGateController(client, informers, FAST).controllers
        async with running(informers.run, controller.run):
            yield snapshots


def stored(server: FakeApiServer) -> Any:
    document = server.find(CONFIG_MAPS, NAME, NAMESPACE)
    assert document is not None
    return document["data"]


async def test_a_gate_that_is_off_is_told_to_snapshots(server: FakeApiServer) -> None:
    server.drop_fields = drop_capacity
    async with controlling(server) as snapshots:
        await until(lambda: not snapshots.snapshot().consumable_capacity)

        assert stored(server) == {"seen": "{}", "featureGates": '{"DRAConsumableCapacity":false}'}
        # The cluster is upgraded while we run.
        server.drop_fields = lambda _document: None
        await until(lambda: snapshots.snapshot().consumable_capacity)

    assert server.objects(RESOURCE_CLAIM_TEMPLATES) == []


async def test_gates_are_written_once(server: FakeApiServer) -> None:
    async with controlling(server):
        await until(lambda: server.counts["POST"] > 2)

    assert server.counts["PATCH"] == 1


async def test_gates_wait_for_the_config_map(server: FakeApiServer) -> None:
    server.remove(CONFIG_MAPS, NAME, NAMESPACE)
    async with controlling(server):
        await until(lambda: server.watching > 0)
        assert server.counts["POST"] == server.counts["PATCH"] == 0
        server.put(CONFIG_MAPS, config_map())
        await until(lambda: "featureGates" in stored(server))


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        ('{"DRAConsumableCapacity": false}', {"DRAConsumableCapacity": False}),
        ('{"Unknown": false}', {}),
        ("{", {}),
        ("[" * 5000, {}),
        ('{"DRAConsumableCapacity": "no"}', {}),
        ("", {}),
    ],
)
def test_texts_that_make_no_sense_tell_no_gates(text: str, gates: dict[str, bool]) -> None:
    assert project_gates(msgspec.json.encode(config_map(featureGates=text))) == gates
