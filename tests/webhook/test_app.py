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
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def endpoint(registry: CollectorRegistry) -> AsyncIterator[Endpoint]:
    settings = ServeSettings(
        bind_address="127.0.0.1", port=0, drain_seconds=0.05, shutdown_seconds=0.1
    )
    metrics = WebhookMetrics(registry)
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


async def test_a_caller_that_goes_away_is_no_bug_of_ours(
    endpoint: Endpoint, registry: CollectorRegistry
) -> None:
    context = client_context(LEAF.authority)
    _, writer = await asyncio.open_connection(
        "127.0.0.1", endpoint.port, ssl=context, server_hostname=NAME
    )
    head = "POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: 9\r\n\r\n{{".encode())
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()

    def answered(code: str) -> float | None:
        labels = {"webhook": "/mutate", "code": code}
        return registry.get_sample_value("controller_runtime_webhook_requests_total", labels)

    await until(lambda: answered("400") == 1)
    assert answered("500") is None


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
