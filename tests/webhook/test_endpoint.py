"""The endpoint's life: it answers while it drains, and knows if the API server gets through."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientConnectorError, ClientError, ClientSession, TCPConnector
from prometheus_client import CollectorRegistry

from admission.webhook_configuration import MUTATE_PATH
from certs.authority import Authority
from certs.serving import (
    Listener,
    ServingCertificate,
    client_tls_context,
    issue_serving_certificate,
)
from process.model.durations import Duration
from testing.builders import pod, translation_snapshot
from testing.client_certificates import client_context
from testing.fake_api_server import running, until
from testing.review_runner import review_runner
from testing.signing import fixed_signing
from testing.webhook_endpoint import FixedEvaluator, review
from testing.webhook_paths import fixed_path
from translation.cluster.snapshot import TranslationOptions
from webhook.endpoint import Endpoint
from webhook.metrics import WebhookMetrics
from webhook.mutate import PodReviewHandler
from webhook.self_check import SelfCheck
from webhook.settings import WebhookSettings

NAME: Final = "w.n.svc"


def serving_certificate() -> ServingCertificate:
    now, life = datetime.now(UTC), timedelta(days=1)  # noqa: TID251  TLS compares with the clock.
    return issue_serving_certificate(
        Authority.create("test", now=now, life=life), [NAME], now=now, life=life
    )


LEAF: Final = serving_certificate()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@asynccontextmanager
async def started(
    registry: CollectorRegistry,
    listener: Listener,
    **fields: Any,
) -> AsyncIterator[Endpoint]:
    chosen = {"port": 0, "drain": 0.05, "shutdown_grace_period": 0.1, **fields}
    settings = WebhookSettings(bind_address="127.0.0.1", **chosen)
    metrics = WebhookMetrics(registry)
    mutation = PodReviewHandler(
        translation_snapshot,
        TranslationOptions(),
        metrics,
        review_runner(metrics),
        signing=fixed_signing,
        evaluator=FixedEvaluator(translation_snapshot),
    )
    started_endpoint = Endpoint(
        settings,
        {MUTATE_PATH: mutation.handle},
        metrics,
        find_path=fixed_path,
        chance=lambda: 0.5,
        is_outdated=listener.is_outdated,
    )
    await started_endpoint.start(listener.context)
    async with running(started_endpoint.run):
        yield started_endpoint
        await started_endpoint.stop()


@pytest.fixture
async def endpoint(registry: CollectorRegistry) -> AsyncIterator[Endpoint]:
    async with started(registry, Listener(LEAF)) as started_endpoint:
        yield started_endpoint


def session(endpoint: Endpoint) -> ClientSession:
    context = client_tls_context(LEAF.authority)
    context.check_hostname = False
    return ClientSession(f"https://127.0.0.1:{endpoint.port}", connector=TCPConnector(ssl=context))


async def test_a_draining_endpoint_is_unready_and_answers_before_it_closes(
    endpoint: Endpoint,
) -> None:
    async with session(endpoint) as client, asyncio.TaskGroup() as group:
        assert endpoint.check() == ""
        draining = group.create_task(endpoint.drain())
        await until(lambda: endpoint.draining)

        assert (await client.post(MUTATE_PATH, json={})).status == 400
        assert endpoint.check() == "draining"
        await draining

    async with session(endpoint) as another:
        with pytest.raises(ClientConnectorError):
            await another.post(MUTATE_PATH, json={})


async def test_a_draining_endpoint_waits_for_quiet_and_closes_connections(
    registry: CollectorRegistry,
) -> None:
    async with started(registry, Listener(LEAF), drain=Duration(1.5)) as endpoint:
        loop = asyncio.get_running_loop()
        async with session(endpoint) as client, asyncio.TaskGroup() as group:
            draining = group.create_task(endpoint.drain())
            await until(lambda: endpoint.draining)
            last = loop.time()
            for _ in range(4):  # Together longer than it would be quiet.
                answer = await client.post("/mutate", json={})
                assert (answer.status, answer.headers["Connection"]) == (400, "close")
                last = loop.time()
                await asyncio.sleep(0.5)
            assert not draining.done()
            await draining

        assert 1.4 < loop.time() - last < 30


async def test_no_client_can_keep_an_endpoint_from_ending(registry: CollectorRegistry) -> None:
    settings: dict[str, Any] = {"drain": 60, "max_drain": 0.05}
    async with (
        started(registry, Listener(LEAF), **settings) as started_endpoint,
        asyncio.timeout(30),
    ):
        await started_endpoint.drain()


# --- callers --------------------------------------------------------------------------------------


def caller(authority: Authority, name: str, directory: Path) -> ssl.SSLContext:
    """Return the TLS context of a client that has a certificate for a name."""
    return client_context(authority, name, LEAF, directory)


async def request_status(endpoint: Endpoint, context: ssl.SSLContext) -> int:
    """Return the status of a review that is none."""
    url = f"https://127.0.0.1:{endpoint.port}"
    async with ClientSession(url, connector=TCPConnector(ssl=context)) as client:
        return (await client.post("/mutate", json={})).status


async def test_only_named_clients_of_a_trusted_authority_are_allowed(
    registry: CollectorRegistry, tmp_path: Path
) -> None:
    now = datetime.now(UTC)  # noqa: TID251  As above.
    ours, theirs = (Authority.create("c", now=now, life=timedelta(days=1)) for _ in range(2))
    listener = Listener(LEAF, ours.certificate_pem)
    listener.replace(LEAF)  # What is swapped in is as strict.
    stranger = client_tls_context(LEAF.authority)
    stranger.check_hostname = False
    async with started(registry, listener, client_ca_file="set") as endpoint:
        assert await request_status(endpoint, caller(ours, "kube-apiserver", tmp_path)) == 400
        assert await request_status(endpoint, caller(ours, "system:node:a", tmp_path)) == 403
        for context in (caller(theirs, "kube-apiserver", tmp_path), stranger):
            with pytest.raises((ClientError, OSError)):
                await request_status(endpoint, context)
        # Our own look at it has no certificate, and sees that it is asked for one.
        check = SelfCheck(endpoint, lambda: LEAF, host="127.0.0.1", name=NAME, retry_s=0.01)
        async with running(check.run):
            await until(lambda: check.check() != "not called yet")
        assert check.check() == ""


async def test_clients_of_authorities_that_are_replaced_get_one_more_answer(
    registry: CollectorRegistry, tmp_path: Path
) -> None:
    now = datetime.now(UTC)  # noqa: TID251  As above.
    old, new = (Authority.create("c", now=now, life=timedelta(days=1)) for _ in range(2))
    listener = Listener(LEAF, old.certificate_pem)

    def client(served: Endpoint, authority: Authority) -> ClientSession:
        context = caller(authority, "kube-apiserver", tmp_path)
        url = f"https://127.0.0.1:{served.port}"
        return ClientSession(url, connector=TCPConnector(ssl=context, limit=1))

    async def connection_header(session_: ClientSession) -> str:
        answer = await session_.post(MUTATE_PATH, json=review(pod()))
        assert answer.status == 200
        return answer.headers.get("Connection", "")

    async with (
        started(registry, listener, client_ca_file="set") as served,
        client(served, old) as old_client,
        client(served, new) as new_client,
    ):
        assert await connection_header(old_client) == ""
        listener.replace(LEAF)  # Another serving certificate ends no connection.
        assert await connection_header(old_client) == ""

        listener.replace_client_authorities(old.certificate_pem + new.certificate_pem)
        assert await connection_header(old_client) == "close"
        assert await connection_header(old_client) == ""  # It is as good as before.
        listener.replace_client_authorities(new.certificate_pem)
        assert await connection_header(old_client) == "close"
        with pytest.raises((ClientError, OSError)):
            await connection_header(old_client)
        assert await connection_header(new_client) == ""


async def test_a_client_that_disconnects_is_no_internal_error(
    endpoint: Endpoint, registry: CollectorRegistry
) -> None:
    context = client_tls_context(LEAF.authority)
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
    [(LEAF, NAME, True), (serving_certificate(), NAME, False), (LEAF, "other.n.svc", False)],
    ids=["as the API server does", "with another authority", "by another name"],
)
async def test_the_self_check_trusts_what_the_api_server_trusts(
    trusted: ServingCertificate, name: str, is_content: bool, endpoint: Endpoint
) -> None:
    check = SelfCheck(endpoint, lambda: trusted, host="127.0.0.1", name=name, retry_s=0.01)
    assert check.check() == "not called yet"

    async with running(check.run):
        await until(lambda: check.check() != "not called yet")

    assert is_content == (check.check() == "")
