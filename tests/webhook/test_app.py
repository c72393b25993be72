"""The endpoint's life: it answers while it drains, and knows whether the API server gets through."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from aiohttp import ClientConnectorError, ClientSession, TCPConnector
from prometheus_client import CollectorRegistry

from certs.authority import Authority
from certs.serving import Leaf, Listener, client_context, issue_leaf
from tests.builders import world
from tests.fake_api_server import running, until
from webhook.app import Endpoint, SelfCheck
from webhook.handlers import Mutation
from webhook.metrics import WebhookMetrics
from webhook.settings import ServeSettings
from webhook.world import Options

NAME: Final = "w.n.svc"


def leaf() -> Leaf:
    now, life = datetime.now(UTC), timedelta(hours=1)  # noqa: TID251  TLS compares with the clock.
    return issue_leaf(Authority.make("test", now=now, life=life), [NAME], now=now, life=life)


LEAF: Final = leaf()


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    settings = ServeSettings(
        bind_address="127.0.0.1", port=0, drain_seconds=0.05, shutdown_seconds=0.1
    )
    metrics = WebhookMetrics(CollectorRegistry())
    mutation = Mutation(world, Options(), metrics, read_timeout_s=1.0)
    made = Endpoint(settings, mutation, metrics, chance=lambda: 0.5)
    await made.start(Listener(LEAF).context, {"drain": made.check})
    yield made
    await made.stop()


def session(endpoint: Endpoint) -> ClientSession:
    context = client_context(LEAF.authority)
    context.check_hostname = False
    return ClientSession(f"https://127.0.0.1:{endpoint.port}", connector=TCPConnector(ssl=context))


async def test_a_draining_endpoint_is_unready_answers_on_and_then_takes_nobody_new(
    endpoint: Endpoint,
) -> None:
    async with session(endpoint) as client, asyncio.TaskGroup() as group:
        assert (await client.get("/readyz")).status == 200
        draining = group.create_task(endpoint.drain())
        await until(lambda: endpoint.draining)

        ready = await client.get("/readyz")
        assert (ready.status, await ready.text()) == (503, "[-]drain draining\n")
        await draining
        assert (await client.get("/livez")).status == 200  # On the open connection.

    async with session(endpoint) as another:
        with pytest.raises(ClientConnectorError):
            await another.get("/livez")


@pytest.mark.parametrize(
    ("trusted", "name", "is_content"),
    [(LEAF, NAME, True), (leaf(), NAME, False), (LEAF, "other.n.svc", False)],
    ids=["as the API server does", "with another authority", "by another name"],
)
async def test_the_self_check_believes_what_the_api_server_believes(
    trusted: Leaf, name: str, is_content: bool, endpoint: Endpoint
) -> None:
    check = SelfCheck(endpoint, lambda: trusted, host="127.0.0.1", name=name, retry_s=0.01)
    assert check.check() == "not tried yet"

    async with running(check.run):
        await until(lambda: check.check() != "not tried yet")

    assert is_content == (check.check() == "")
