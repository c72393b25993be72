"""Readiness checks that API servers trust the certificate, as far as it may read the caBundle."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from certs.authority import Authority
from certs.serving import issue_serving_certificate
from kube.api.urls import MUTATING_WEBHOOK_CONFIGURATIONS
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from webhook.ca_bundle_check import GRACE_PERIOD_S, CaBundleCheck

NAME: Final = "zz-drawbridge"
NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
LIFE: Final = timedelta(days=1)
OURS, OTHER = (Authority.create("a", now=NOW, life=LIFE) for _ in range(2))
CERTIFICATE: Final = issue_serving_certificate(OURS, ["a"], now=NOW, life=LIFE)
NOT_TRUSTED: Final = "the caBundle does not contain the authority of the serving certificate"


def bundle_of(*authorities: Authority) -> str:
    return b64encode(b"".join(authority.certificate_pem for authority in authorities)).decode()


def configuration(*bundles: str) -> Document:
    webhooks = [{"name": "a", "clientConfig": {"caBundle": text}} for text in bundles]
    return {"metadata": {"name": NAME}, "webhooks": webhooks}


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as check:
        yield check


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def checking(
    server: FakeApiServer, clock: Clock | None = None
) -> AsyncIterator[CaBundleCheck]:
    async with server.client() as client:
        informers = quick_informers(client)
        check = CaBundleCheck(informers, NAME, lambda: CERTIFICATE, clock=clock or Clock())
        async with running(informers.run):
            yield check


@pytest.mark.parametrize(
    ("bundles", "want"),
    [
        ([bundle_of(OURS)], ""),
        ([bundle_of(OTHER, OURS)], ""),
        ([bundle_of(OTHER)], NOT_TRUSTED),
        ([""], NOT_TRUSTED),
        (["%"], NOT_TRUSTED),
        ([bundle_of(OURS), bundle_of(OTHER)], NOT_TRUSTED),
        ([], ""),
    ],
    ids=[
        "ours",
        "during a rotation",
        "another authority's",
        "not written yet",
        "no certificates",
        "one of two webhooks has another caBundle",
        "a configuration without webhooks",
    ],
)
async def test_a_new_replica_is_ready_once_it_is_trusted(
    bundles: list[str], want: str, server: FakeApiServer
) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(*bundles))
    async with checking(server) as check:
        await check.configurations.synced.wait()

        assert want == check.check()


async def test_a_replica_is_not_ready_before_it_has_read_the_configuration(
    server: FakeApiServer,
) -> None:
    server.hang()
    async with checking(server) as check:
        assert check.check() == "the webhook configuration was not read yet"


async def test_a_replica_that_was_trusted_has_a_grace_period(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(bundle_of(OURS)))
    clock = Clock()
    async with checking(server, clock) as check:
        await check.configurations.synced.wait()
        assert check.check() == ""
        before = check.configurations.store["", NAME]
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(bundle_of(OTHER)))
        await until(lambda: check.configurations.store["", NAME] != before)

        clock.now = GRACE_PERIOD_S
        assert check.check() == ""
        clock.now += 1
        assert check.check() == NOT_TRUSTED

        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(bundle_of(OURS)))
        await until(lambda: check.check() == "")


async def test_without_permission_to_read_the_check_passes(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(bundle_of(OTHER)))
    server.fail(403, times=10**6)
    async with checking(server) as check:
        await until(lambda: check.configurations.failures > 2)

        assert check.check() == ""


async def test_without_a_configuration_the_check_passes(server: FakeApiServer) -> None:
    async with checking(server) as check:
        await check.configurations.synced.wait()

        assert check.check() == ""
