"""The drivers that the gates leave to the bridge, from the fence and the ownership in the cluster."""

from collections.abc import AsyncIterator

import pytest

from admission.fence import OPEN_PATCH, fence_documents
from controllers.quotas.driver_owners import HANDED_OVER, DriverOwners
from kube.api.ownership import OWNERSHIP
from kube.api.urls import ALLOCATOR_OWNERSHIPS, VALIDATING_ADMISSION_POLICIES
from quotas.gates.waiting_note import OWNED
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until

GPU = "gpu.example.com"
NIC = "nic.example.com"
DRIVERS = (GPU, NIC)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        yield api_server


def fence(*drivers: str) -> Document:
    """Return the policy that keeps others from some drivers."""
    policy, *_ = fence_documents(drivers)
    return dict(policy)


def ownership(*drivers: str) -> Document:
    return {
        "metadata": {"name": OWNERSHIP},
        "spec": {"drivers": [{"name": driver} for driver in drivers]},
    }


async def test_gates_leave_a_driver_alone_from_the_fence_on_until_it_is_gone(
    server: FakeApiServer,
) -> None:
    handed_over, owned = ({GPU: text.format(driver=GPU)} for text in (HANDED_OVER, OWNED))
    async with server.client() as client:
        informers = quick_informers(client)
        owners = DriverOwners(informers)
        async with running(informers.run):
            await until(lambda: server.watching == len(owners.subscriptions))
            assert owners.withheld(DRIVERS) == {}

            server.put(VALIDATING_ADMISSION_POLICIES, fence(GPU))
            await until(lambda: owners.withheld(DRIVERS) == handed_over)
            server.put(ALLOCATOR_OWNERSHIPS, ownership(GPU))
            await until(lambda: owners.withheld(DRIVERS) == owned)

            # A fence that was opened keeps nobody from the devices.
            server.put(VALIDATING_ADMISSION_POLICIES, opened(fence(GPU)))
            server.put(ALLOCATOR_OWNERSHIPS, ownership())
            await until(lambda: owners.withheld(DRIVERS) == {})

            server.put(VALIDATING_ADMISSION_POLICIES, fence(GPU))
            await until(lambda: owners.withheld(DRIVERS) == handed_over)
            server.put(VALIDATING_ADMISSION_POLICIES, fence(NIC))
            await until(lambda: set(owners.withheld(DRIVERS)) == {NIC})


def opened(policy: Document) -> Document:
    """Return a policy after a rescue."""
    return {**policy, "spec": {**policy["spec"], **OPEN_PATCH["spec"]}}
