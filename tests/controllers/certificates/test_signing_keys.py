"""The signing keys in their Secret: created, renewed, healed, followed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
from structlog.testing import capture_logs

from controllers.certificates.settings import CertificateControllerSettings, Settings
from controllers.certificates.signing_keys import SigningKeyController
from kube.api.urls import SECRETS
from kube.names import NAMESPACE, ROTATE_ANNOTATION, SIGNING_SECRET
from process.certificates.certificates import CertificateSettings, Secret
from process.certificates.signing import KEYS, SigningKeyCache
from process.model.durations import PositiveDuration
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from testing.signing import signing_secret
from translation.record.signature import Keys, SigningKey, decode_keys

NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
SETTINGS: Final = Settings(
    certificates=CertificateSettings(resync_period=PositiveDuration(0.02)),
    certificate_controller=CertificateControllerSettings(
        initial_backoff=PositiveDuration(0.01), max_backoff=PositiveDuration(0.02)
    ),
)
YOUNG: Final = SigningKey(id="00000001", created=NOW - timedelta(days=1), secret=b"a" * 32)
OLD: Final = SigningKey(id="00000002", created=NOW - timedelta(days=91), secret=b"b" * 32)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as fake_server:
        yield fake_server


@asynccontextmanager
async def controlled(server: FakeApiServer) -> AsyncIterator[SigningKeyCache]:
    async with server.client() as client:
        informers = quick_informers(client)
        keys = SigningKeyController(client, informers, SETTINGS, lambda: NOW)
        followed = SigningKeyCache(informers, NAMESPACE, SETTINGS.signing)
        async with running(informers.run, *(controller.run for controller in keys.controllers)):
            yield followed


def stored(server: FakeApiServer) -> Keys:
    stored_secret = server.find(SECRETS, SIGNING_SECRET, NAMESPACE)
    value = msgspec.convert(stored_secret, Secret).values().get(KEYS) if stored_secret else None
    return decode_keys(value) if value else ()


def put(server: FakeApiServer, *keys: SigningKey, **metadata: Any) -> None:
    document = signing_secret(*keys)
    document["metadata"] |= metadata
    server.put(SECRETS, document)


def empty() -> Document:
    document = signing_secret()
    del document["data"]
    return document


async def test_a_key_is_created_and_followed(server: FakeApiServer) -> None:
    async with controlled(server) as followed:
        assert followed.check() == "no signing key yet"
        await followed.wait_first()

    assert [key.created for key in stored(server)] == [NOW]
    assert followed.keys == stored(server)
    assert followed.check() == ""


async def test_the_empty_secret_of_the_manifests_is_filled(server: FakeApiServer) -> None:
    server.put(SECRETS, empty())

    async with controlled(server):
        await until(lambda: bool(stored(server)))

    assert not any(call.method == "POST" for call in server.calls)


async def test_a_young_key_is_left_alone(server: FakeApiServer) -> None:
    put(server, YOUNG)

    async with controlled(server) as followed:
        await followed.wait_first()
        await until(lambda: sum(call.method == "GET" for call in server.calls) > 4)

    assert stored(server) == (YOUNG,)


async def test_an_old_key_gets_a_successor_and_still_verifies(server: FakeApiServer) -> None:
    put(server, OLD)

    async with controlled(server) as followed:
        await until(lambda: len(followed.keys) == 2)

    assert stored(server)[0] == OLD
    assert stored(server)[1].created == NOW


async def test_the_withdrawal_of_a_key_is_reported(server: FakeApiServer) -> None:
    olds = [
        SigningKey(id=f"0000001{n}", created=NOW - timedelta(days=200 - n), secret=b"a" * 32)
        for n in range(SETTINGS.signing.max_keys)
    ]
    put(server, *olds)

    with capture_logs() as log:
        async with controlled(server) as followed:
            await until(lambda: len(followed.keys) == len(olds) and olds[0] not in followed.keys)

    (withdrawal,) = [line for line in log if line["event"] == "signing_keys.withdrawn"]
    assert (withdrawal["keys"], withdrawal["log_level"]) == ([olds[0].id], "warning")


async def test_a_rotation_is_requested_once(server: FakeApiServer) -> None:
    put(server, YOUNG, annotations={ROTATE_ANNOTATION: "now", "other": "stays"})

    async with controlled(server) as followed:
        await until(lambda: len(followed.keys) == 2)
        await until(lambda: sum(call.method == "GET" for call in server.calls) > 6)

    stored_secret = server.find(SECRETS, SIGNING_SECRET, NAMESPACE) or {}
    assert stored_secret["metadata"]["annotations"] == {"other": "stays"}
    assert len(stored(server)) == 2


async def test_a_deleted_secret_revokes_its_keys(server: FakeApiServer) -> None:
    put(server, YOUNG)

    async with controlled(server) as followed:
        await followed.wait_first()
        server.remove(SECRETS, SIGNING_SECRET, NAMESPACE)
        # Until there is a new one the old key signs, so that no pod is left without.
        await until(lambda: followed.keys != (YOUNG,))

    assert YOUNG not in followed.keys
    assert followed.keys == stored(server)


async def test_damaged_keys_are_replaced(server: FakeApiServer) -> None:
    document = signing_secret(YOUNG)
    document["data"] = {KEYS: "bm90IGtleXM="}
    server.put(SECRETS, document)

    async with controlled(server) as followed:
        await followed.wait_first()

    assert followed.keys == stored(server)


async def test_a_secret_without_our_label_is_used_and_never_changed(server: FakeApiServer) -> None:
    put(server, OLD, labels={})

    async with controlled(server) as followed:
        await followed.wait_first()
        await until(lambda: sum(call.method == "GET" for call in server.calls) > 4)

    assert followed.keys == (OLD,)
    assert stored(server) == (OLD,)
