"""Readiness knows whether API servers would believe the certificate, as far as it may look."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from certs.authority import Authority
from certs.serving import issue_leaf
from kube.informer import InformerSettings
from tests.builders import Document
from tests.fake_api_server import FakeApiServer, running, until
from webhook.resources import MUTATING_WEBHOOK_CONFIGURATIONS
from webhook.vouching import PATIENCE_S, Vouching

NAME: Final = "zz-drawbridge"
NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
LIFE: Final = timedelta(days=1)
OURS, OTHER = (Authority.make("a", now=NOW, life=LIFE) for _ in range(2))
LEAF: Final = issue_leaf(OURS, ["a"], now=NOW, life=LIFE)
DOUBT: Final = "the caBundle does not vouch for the certificate"


def bundle(*authorities: Authority) -> str:
    return b64encode(b"".join(each.certificate_pem for each in authorities)).decode()


def configuration(*bundles: str) -> Document:
    webhooks = [{"name": "a", "clientConfig": {"caBundle": text}} for text in bundles]
    return {"metadata": {"name": NAME}, "webhooks": webhooks}


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as made:
        yield made


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def looking(server: FakeApiServer, clock: Clock | None = None) -> AsyncIterator[Vouching]:
    async with server.client() as client:
        made = Vouching(
            client,
            NAME,
            lambda: LEAF,
            settings=InformerSettings(backoff_s=0.01),
            clock=clock or Clock(),
        )
        async with running(made.run):
            yield made


@pytest.mark.parametrize(
    ("bundles", "want"),
    [
        ([bundle(OURS)], ""),
        ([bundle(OTHER, OURS)], ""),
        ([bundle(OTHER)], DOUBT),
        ([""], DOUBT),
        (["%"], DOUBT),
        ([bundle(OURS), bundle(OTHER)], DOUBT),
        ([], ""),
    ],
    ids=[
        "ours",
        "during a rotation",
        "somebody else's",
        "not written yet",
        "no certificates",
        "one of two webhooks does not trust us",
        "a configuration without webhooks calls nobody",
    ],
)
async def test_a_new_replica_waits_until_it_would_be_believed(
    bundles: list[str], want: str, server: FakeApiServer
) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(*bundles))
    async with looking(server) as made:
        await made.informer.synced.wait()

        assert want == made.check()


async def test_nobody_is_ready_before_the_first_look(server: FakeApiServer) -> None:
    server.hang()
    async with looking(server) as made:
        assert made.check() == "not looked yet"


async def test_one_that_was_believed_is_given_time(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(bundle(OURS)))
    clock = Clock()
    async with looking(server, clock) as made:
        await made.informer.synced.wait()
        assert made.check() == ""
        before = made.informer.store["", NAME]
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(bundle(OTHER)))
        await until(lambda: made.informer.store["", NAME] != before)

        clock.now = PATIENCE_S
        assert made.check() == ""
        clock.now += 1
        assert made.check() == DOUBT

        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(bundle(OURS)))
        await until(lambda: made.check() == "")


async def test_who_may_not_look_knows_nothing(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(bundle(OTHER)))
    server.fail(403, times=10**6)
    async with looking(server) as made:
        await until(lambda: made.informer.failures > 2)

        assert made.check() == ""


async def test_where_there_is_no_configuration_nobody_asks(server: FakeApiServer) -> None:
    async with looking(server) as made:
        await made.informer.synced.wait()

        assert made.check() == ""
