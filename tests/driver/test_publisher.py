"""The node's slices stay as planned, in spite of deletions and changes by others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry

from driver.model.health import UNHEALTHY, Fault
from driver.model.inventory import Inventory
from driver.model.limits import DEVICES_PER_SLICE
from driver.plan.driver_taints import IN_USE
from driver.plan.prepare import NodeState
from driver.plan.slices import plan_pools, plan_writes
from driver.prepare.metrics import DriverMetrics
from driver.publish.publisher import Publisher
from kube.api.urls import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from kube.client.client import Client
from testing.allocation.builders import DRIVER, NODE, device, result
from testing.driver.builders import (
    PUBLICATION,
    allocated_claim,
    document_of,
    node_state,
    prepared_checkpoint,
)
from testing.driver.nodes import FolderNode, ref_of
from testing.fake_api_server import FakeApiServer, quick_informers, running, until

NAME: Final = (
    plan_writes(plan_pools(PUBLICATION, node_state(device()).inventory), ())
    .to_apply[0]
    .metadata.name
)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        api_server.put(NODES, {"metadata": {"name": NODE, "uid": "node-uid"}})
        yield api_server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with server.client(timeout_s=30) as client_:
        yield client_


@pytest.fixture
def node(tmp_path: Path) -> FolderNode:
    return FolderNode(tmp_path, node_state(device("gpu-0"), device("gpu-1")))


@asynccontextmanager
async def publishing(node: FolderNode, client: Client) -> AsyncIterator[Publisher]:
    """A publisher that runs."""
    informers = quick_informers(client)
    publisher = Publisher(
        client,
        informers,
        node.current,
        node.checkpoint_file(),
        DriverMetrics(CollectorRegistry()),
        publication=PUBLICATION,
        lock=node.state / "publisher.lock",
        jitter=lambda: 0.01,
    )
    async with running(informers.run, publisher.run):
        await asyncio.sleep(0)
        yield publisher


def devices(server: FakeApiServer) -> dict[str, Any]:
    """Device to its published form."""
    return {
        device_["name"]: device_
        for object_ in server.objects(RESOURCE_SLICES)
        for device_ in object_["spec"].get("devices", ())
    }


async def test_devices_are_published(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    async with publishing(node, client) as publisher:
        await until(lambda: not publisher.problem())

    (object_,) = server.objects(RESOURCE_SLICES)
    assert {"name": NODE, "generation": 1, "resourceSliceCount": 1} == object_["spec"]["pool"]
    assert ["gpu-0", "gpu-1"] == list(devices(server))
    assert "node-uid" == object_["metadata"]["ownerReferences"][0]["uid"]


async def test_nothing_is_written_where_all_is_as_planned(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    async with publishing(node, client) as publisher:
        await until(lambda: not publisher.problem())
    before = server.counts["PATCH"]

    async with publishing(node, client) as publisher:
        await until(lambda: not publisher.problem())

    assert before == server.counts["PATCH"]


async def test_slices_that_somebody_deletes_come_back(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    async with publishing(node, client) as publisher:
        await until(lambda: not publisher.problem())
        before = server.objects(RESOURCE_SLICES)

        server.remove(RESOURCE_SLICES, NAME)
        await until(lambda: bool(server.objects(RESOURCE_SLICES)))

    (old,), (new,) = before, server.objects(RESOURCE_SLICES)
    assert old["spec"] == new["spec"]


async def test_slices_that_somebody_changes_are_put_right(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    async with publishing(node, client) as publisher:
        await until(lambda: not publisher.problem())
        (object_,) = server.objects(RESOURCE_SLICES)
        object_["spec"]["devices"] = []

        server.put(RESOURCE_SLICES, object_)

        await until(lambda: len(devices(server)) == 2)


async def test_other_devices_are_published(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    async with publishing(node, client) as publisher:
        await until(lambda: not publisher.problem())

        node.current.set_inventory(node_state(device("gpu-2")).inventory)
        await until(lambda: list(devices(server)) == ["gpu-2"])

        node.current.set_inventory(Inventory())
        await until(lambda: not server.objects(RESOURCE_SLICES))


async def test_devices_of_released_claims_are_tainted_until_they_are_unprepared(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    claim = allocated_claim(result("gpu-0"))
    node.checkpoint_file().store(prepared_checkpoint(claim, devices=[device("gpu-0")]))
    async with publishing(node, client) as publisher:
        await until(lambda: not publisher.problem())

        node.current.set_released(frozenset({claim.metadata.uid}))
        await until(lambda: "taints" in devices(server)["gpu-0"])
        assert "taints" not in devices(server)["gpu-1"]

        node.checkpoint_file().store(prepared_checkpoint())
        node.current.set_released(frozenset())
        await until(lambda: "taints" not in devices(server)["gpu-0"])
    assert 1 == server.objects(RESOURCE_SLICES)[0]["spec"]["pool"]["generation"]


async def test_devices_that_were_refused_are_tainted_until_they_are_free(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    tenant, rival = (allocated_claim(result("gpu-0"), name=name) for name in ("tenant", "rival"))
    for claim in (tenant, rival):
        server.put(RESOURCE_CLAIMS, document_of(claim))
    preparer = node.preparer(client)
    async with publishing(node, client):
        await until(lambda: devices(server).keys() == {"gpu-0", "gpu-1"})
        await preparer.prepare([ref_of(tenant)])
        assert "taints" not in devices(server)["gpu-0"]

        await preparer.prepare([ref_of(rival)])
        await until(lambda: "taints" in devices(server)["gpu-0"])
        assert [IN_USE.key] == [taint["key"] for taint in devices(server)["gpu-0"]["taints"]]

        await preparer.unprepare([ref_of(tenant)])
        await until(lambda: "taints" not in devices(server)["gpu-0"])

        # Whoever has it next has it rightly.
        await preparer.prepare([ref_of(rival)])
        assert frozenset() == node.current.contested_devices


async def test_unhealthy_devices_are_tainted_until_they_recover(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    fault = Fault(kind="lost", message="it has fallen off the bus")
    async with publishing(node, client):
        await until(lambda: devices(server).keys() == {"gpu-0", "gpu-1"})

        node.current.set_faults({"gpu-0": (fault, datetime(2026, 1, 1, tzinfo=UTC))})
        await until(lambda: "taints" in devices(server)["gpu-0"])
        (taint,) = devices(server)["gpu-0"]["taints"]
        assert (UNHEALTHY, "lost", "NoExecute", "2026-01-01T00:00:00Z") == (
            taint["key"], taint["value"], taint["effect"], taint["timeAdded"]
        )  # fmt: skip
        assert "taints" not in devices(server)["gpu-1"]

        node.current.set_faults({})
        await until(lambda: "taints" not in devices(server)["gpu-0"])


async def test_a_failure_is_reported_and_repeated(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    server.fail(503, times=3, matches=lambda call: call.method == "PATCH")

    async with publishing(node, client) as publisher:
        await until(lambda: "cannot publish" in publisher.problem())
        await until(lambda: not publisher.problem())

    assert 2 == len(devices(server))


async def test_a_failed_write_among_several_is_repeated(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    names = [f"gpu-{number}" for number in range(5 * DEVICES_PER_SLICE)]
    node.current.set_inventory(node_state(*map(device, names)).inventory)
    server.fail(503, times=1, matches=lambda call: "-0002" in call.path and call.method == "PATCH")

    async with publishing(node, client) as publisher:
        await until(lambda: not publisher.problem())

    assert set(names) == devices(server).keys()
    generations = {
        object_["spec"]["pool"]["generation"] for object_ in server.objects(RESOURCE_SLICES)
    }
    assert {1} == generations, "what was written stays"


async def test_a_node_that_was_made_anew_owns_its_slices(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    async with publishing(node, client) as publisher:
        await until(lambda: not publisher.problem())
        server.remove(NODES, NODE)
        server.put(NODES, {"metadata": {"name": NODE, "uid": "another-uid"}})

        server.remove(RESOURCE_SLICES, NAME)  # As the garbage collector does.

        await until(lambda: bool(server.objects(RESOURCE_SLICES)))
    (object_,) = server.objects(RESOURCE_SLICES)
    assert "another-uid" == object_["metadata"]["ownerReferences"][0]["uid"]


async def test_slices_of_other_nodes_and_drivers_are_left_alone(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    for name, spec in (
        ("other-node", {"driver": DRIVER, "nodeName": "node-2"}),
        ("other-driver", {"driver": "other", "nodeName": NODE}),
    ):
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        server.put(RESOURCE_SLICES, {"metadata": {"name": name}, "spec": {**spec, "pool": pool}})

    async with publishing(node, client) as publisher:
        await until(lambda: not publisher.problem())

    assert {"other-node", "other-driver", NAME} == {
        object_["metadata"]["name"] for object_ in server.objects(RESOURCE_SLICES)
    }


async def test_of_two_instances_one_publishes(
    node: FolderNode, client: Client, server: FakeApiServer, tmp_path: Path
) -> None:
    second = FolderNode.__new__(FolderNode)
    second.__dict__.update(node.__dict__)
    second.current = type(node.current)(PUBLICATION)
    other: NodeState = node_state(device("gpu-9"))
    second.current.set_inventory(other.inventory)

    async with publishing(node, client) as publisher:
        await until(lambda: not publisher.problem())
        async with publishing(second, client) as waiting:
            await asyncio.sleep(0.1)
            assert ["gpu-0", "gpu-1"] == list(devices(server))
            assert waiting.problem() == ""

    async with publishing(second, client):
        await until(lambda: list(devices(server)) == ["gpu-9"])
