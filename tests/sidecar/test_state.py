"""The objects that the sidecar has to know before it answers."""

import asyncio

import pytest

from kube.api.urls import DEVICE_COMPATIBILITY_POLICIES
from testing.fake_api_server import Call, FakeApiServer, quick_informers, running, until
from testing.sidecar.scenes import state_with
from testing.sidecar.scheduler import publish

POLICIES = DEVICE_COMPATIBILITY_POLICIES.plural


def is_of_policies(call: Call) -> bool:
    return POLICIES in call.path


@pytest.mark.parametrize("status", [500, 503, None])
async def test_policies_that_cannot_be_read_for_a_moment_are_waited_for(status: int | None) -> None:
    async with FakeApiServer() as server, server.client() as client:
        publish(server, "node-1")
        server.fail(status, times=10**6, matches=is_of_policies)
        informers = quick_informers(client)
        state = state_with(informers)
        async with running(informers.run):
            await state.wait_synced()
            await until(lambda: len(list(filter(is_of_policies, server.calls))) > 3)

            assert POLICIES in state.check()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await state.wait_complete()


@pytest.mark.parametrize("resource", [POLICIES, "podgroups"])
@pytest.mark.parametrize("status", [403, 404])
async def test_what_a_cluster_does_not_have_is_not(status: int, resource: str) -> None:
    async with FakeApiServer() as server, server.client() as client:
        publish(server, "node-1")
        server.fail(status, times=10**6, matches=lambda call: f"/{resource}" in call.path)
        informers = quick_informers(client)
        state = state_with(informers)
        async with running(informers.run):
            await state.wait_complete()
            assert not state.check()


@pytest.mark.parametrize("status", [500, None])
async def test_nor_are_they_while_the_api_server_of_such_a_cluster_is_away(
    status: int | None,
) -> None:
    """Or each of its restarts that takes long would end the scheduler."""
    async with FakeApiServer() as server, server.client() as client:
        publish(server, "node-1")
        server.fail(404, times=1, matches=is_of_policies)
        server.fail(status, times=10**6, matches=is_of_policies)
        informers = quick_informers(client)
        state = state_with(informers)
        async with running(informers.run), asyncio.timeout(60):
            await state.wait_complete()
            await until(lambda: len(list(filter(is_of_policies, server.calls))) > 3)

            assert not state.check()
