"""Claims that are prepared and no longer allocated are found, and nothing else is taken for one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from driver.model.record import State
from driver.publish.sweep import ClaimSweep
from kube.api.urls import RESOURCE_CLAIMS
from kube.client.client import Client
from testing.allocation.builders import device, result
from testing.driver.builders import allocated_claim, document_of, node_state, prepared_checkpoint
from testing.driver.nodes import FolderNode
from testing.fake_api_server import FakeApiServer, running, until

CLAIM = allocated_claim(result("gpu-0"))
UID = CLAIM.metadata.uid


@pytest.fixture
def node(tmp_path: Path) -> FolderNode:
    folder_node = FolderNode(tmp_path, node_state(device("gpu-0"), device("gpu-1")))
    folder_node.checkpoint_file().store(prepared_checkpoint(CLAIM))
    return folder_node


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        api_server.put(RESOURCE_CLAIMS, document_of(CLAIM))
        yield api_server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with server.client(timeout_s=30) as client_:
        yield client_


def sweep_of(node: FolderNode, client: Client) -> ClaimSweep:
    return ClaimSweep(
        client, node.current, node.checkpoint_file(), node.preparer(client), period_s=0.01
    )


async def test_a_claim_that_is_deleted_is_released(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    async with running(sweep_of(node, client).run):
        await until(lambda: len(server.calls) > 2)
        assert frozenset() == node.current.released_claims

        server.remove(RESOURCE_CLAIMS, "claim-0", "default")
        await until(lambda: node.current.released_claims == {UID})

        server.put(RESOURCE_CLAIMS, document_of(CLAIM))
        await until(lambda: node.current.released_claims == frozenset())


@pytest.mark.parametrize(
    "instead",
    [allocated_claim(result("gpu-0"), uid="another"), allocated_claim(result("gpu-1"))],
    ids=["another claim of the name", "another allocation"],
)
async def test_a_claim_in_the_place_of_another_is_no_other(
    node: FolderNode, client: Client, server: FakeApiServer, instead: object
) -> None:
    server.remove(RESOURCE_CLAIMS, "claim-0", "default")
    server.put(RESOURCE_CLAIMS, document_of(instead))  # type: ignore[arg-type]

    async with running(sweep_of(node, client).run):
        await until(lambda: node.current.released_claims == {UID})


async def test_without_an_answer_everything_stays_as_it_was(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    server.remove(RESOURCE_CLAIMS, "claim-0", "default")
    async with running(sweep_of(node, client).run):
        await until(lambda: node.current.released_claims == {UID})
        server.fail(500, times=10**6)
        before = len(server.calls)
        await until(lambda: len(server.calls) > before + 3)

        assert {UID} == node.current.released_claims


async def test_a_claim_that_was_unprepared_is_forgotten(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    server.remove(RESOURCE_CLAIMS, "claim-0", "default")
    async with running(sweep_of(node, client).run):
        await until(lambda: node.current.released_claims == {UID})

        node.checkpoint_file().store(prepared_checkpoint())

        await until(lambda: node.current.released_claims == frozenset())


async def test_a_claim_that_was_never_completed_is_unprepared(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    node.checkpoint_file().store(prepared_checkpoint(CLAIM, state=State.STARTED))
    server.remove(RESOURCE_CLAIMS, "claim-0", "default")

    async with running(sweep_of(node, client).run):
        await until(lambda: not node.states)

    assert frozenset() == node.current.released_claims


async def test_claims_are_read_one_by_one_and_never_listed(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    async with running(sweep_of(node, client).run):
        await until(lambda: len(server.calls) > 3)

    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/claim-0"
    assert {("GET", path)} == {(call.method, call.path) for call in server.calls}
