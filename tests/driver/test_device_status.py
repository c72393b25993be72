"""The devices in the status of a claim."""

from datetime import UTC, datetime
from typing import Final

import msgspec

from driver.model.inventory import NodeDevice
from driver.plan.prepare import NodeState, Preparation, prepare_claim
from driver.publish.device_status import DeviceStatus, status_document
from kube.api.resource import NetworkDeviceData
from kube.api.urls import RESOURCE_CLAIMS
from testing.allocation.builders import DRIVER, device, result
from testing.driver.builders import allocated_claim, document_of, node_state, prepared_checkpoint
from testing.fake_api_server import FakeApiServer, running, until

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
CLAIM: Final = allocated_claim(result("nic-0"))
NIC: Final = NodeDevice(
    device=device("nic-0"),
    network=NetworkDeviceData(interface_name="eth1", ips=("192.0.2.5/24",)),
)


def preparation(node: NodeState) -> Preparation:
    preparation = prepare_claim(CLAIM, CLAIM.metadata.uid, node, prepared_checkpoint())
    assert isinstance(preparation, Preparation)
    return preparation


def test_a_network_device_is_described() -> None:
    document = status_document(DRIVER, preparation(node_state(NIC)), NOW)

    (entry,) = document["status"]["devices"]
    assert {"interfaceName": "eth1", "ips": ("192.0.2.5/24",)} == msgspec.to_builtins(
        entry["networkData"]
    )
    (condition,) = entry["conditions"]
    assert ("Ready", "True", "2026-01-01T00:00:00Z") == (
        condition["type"],
        condition["status"],
        condition["lastTransitionTime"],
    )
    assert CLAIM.metadata.uid == document["metadata"]["uid"]


async def test_the_status_is_written_once_and_again_after_a_failure() -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.put(RESOURCE_CLAIMS, document_of(CLAIM))
        server.fail(500, times=2)
        status = DeviceStatus(client, DRIVER, lambda: NOW, jitter=lambda: 0.01)
        preparation_ = preparation(node_state(NIC))
        completed_again = msgspec.structs.replace(
            preparation_, record=preparation_.record.as_completed()
        )

        status.add(preparation_)
        status.add(completed_again)  # As after a restart of the kubelet.
        async with running(status.run):
            await until(lambda: len(server.calls) == 3)

    (document,) = server.objects(RESOURCE_CLAIMS)
    assert ["nic-0"] == [device_["device"] for device_ in document["status"]["devices"]]
    assert {"drawbridge-driver/gpu.example.com"} == {
        call.query["fieldManager"] for call in server.calls
    }


async def test_a_claim_that_is_gone_is_left_alone() -> None:
    async with FakeApiServer() as server, server.client() as client:
        status = DeviceStatus(client, DRIVER, lambda: NOW, jitter=lambda: 0.01)
        server.fail(404, times=1)
        status.add(preparation(node_state(NIC)))
        async with running(status.run):
            await until(lambda: bool(server.calls))

    assert [] == server.objects(RESOURCE_CLAIMS)
