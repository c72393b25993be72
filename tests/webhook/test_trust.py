"""The authority in its Secret, the caBundle in the configuration, the leaf in the webhook."""

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import jsonpatch
import msgspec
import pytest
from cryptography import x509

from certs.authority import Authority, CertificateError
from certs.serving import issue_leaf
from kube.informer import InformerSettings
from tests.builders import Document
from tests.fake_api_server import FakeApiServer, running, until
from webhook.resources import MUTATING_WEBHOOK_CONFIGURATIONS, SECRETS, WEBHOOK_CONFIGURATIONS
from webhook.settings import ControlSettings, Settings
from webhook.trust import (
    BundleWriter,
    LeafKeeper,
    Secret,
    authority_of,
    is_due,
    kept_webhooks,
    made_authority,
    secret_of,
    trusting,
)

NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
DAY: Final = timedelta(days=1)
SETTINGS: Final = Settings(
    control=ControlSettings(retry_first_seconds=0.01, retry_most_seconds=0.02)
)
AUTHORITY: Final = Authority.make("test", now=NOW, life=100 * DAY)
BUNDLE: Final = AUTHORITY.certificate_pem
TRUSTED: Final = b64encode(BUNDLE).decode()


def now() -> datetime:
    return NOW


def configuration(*bundles: str | None) -> Document:
    """A configuration whose webhooks have these caBundles."""
    return {
        "metadata": {"name": SETTINGS.webhook_configuration},
        "webhooks": [
            {
                "name": f"{number}.example.internal",
                "clientConfig": {"url": "https://127.0.0.1"}
                | ({} if bundle is None else {"caBundle": bundle}),
            }
            for number, bundle in enumerate(bundles)
        ],
    }


def bundles(document: Document | None) -> list[str | None]:
    return [each["clientConfig"].get("caBundle") for each in (document or {})["webhooks"]]


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as made:
        yield made


def written(server: FakeApiServer) -> Document | None:
    return server.find(MUTATING_WEBHOOK_CONFIGURATIONS, SETTINGS.webhook_configuration)


def stored(server: FakeApiServer) -> Authority:
    found = server.find(SECRETS, SETTINGS.authority_secret, SETTINGS.namespace)
    return authority_of(msgspec.convert(found, Secret))


# --- the patch ------------------------------------------------------------------------------------


class Row(NamedTuple):
    name: str
    before: tuple[str | None, ...]
    steps: int


ROWS = (
    Row("nobody is trusted yet", (None,), 2),
    Row("somebody else is trusted", ("b3RoZXI=",), 2),
    Row("we are trusted", (TRUSTED,), 0),
    Row("one of two webhooks trusts us", (TRUSTED, None), 2),
    Row("a configuration without webhooks", (), 0),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_trusting(row: Row) -> None:
    document = configuration(*row.before)
    steps = trusting(kept_webhooks(msgspec.json.encode(document)), BUNDLE)

    assert row.steps == len(steps)
    assert [TRUSTED] * len(row.before) == bundles(jsonpatch.apply_patch(document, steps))


def test_a_list_that_changed_in_between_is_not_damaged() -> None:
    steps = trusting(kept_webhooks(msgspec.json.encode(configuration(None))), BUNDLE)
    changed = configuration(None)
    changed["webhooks"][0]["name"] = "other.example.internal"

    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(changed, steps)


# --- the Secret -----------------------------------------------------------------------------------


def test_a_secret_holds_what_was_put_in() -> None:
    secret = msgspec.convert(secret_of(AUTHORITY, SETTINGS), Secret)

    assert authority_of(secret).key_pem == AUTHORITY.key_pem
    assert b64decode((secret.data or {})["bundle.crt"]) == BUNDLE


@pytest.mark.parametrize(
    "data",
    [None, {}, {"ca.crt": "", "ca.key": ""}, {"ca.crt": "%", "ca.key": "%"}],
    ids=["no data", "nothing", "empty texts", "no base64"],
)
def test_a_secret_without_an_authority(data: dict[str, str] | None) -> None:
    with pytest.raises(CertificateError):
        authority_of(Secret(data=data))


async def test_the_authority_is_made_once(server: FakeApiServer) -> None:
    async with server.client() as client:
        first = await made_authority(client, SETTINGS, NOW)
        second = await made_authority(client, SETTINGS, NOW)

    assert first.key_pem == second.key_pem == stored(server).key_pem
    assert first.not_after == NOW + timedelta(seconds=SETTINGS.control.authority_seconds)


async def test_who_comes_second_takes_what_is_there(server: FakeApiServer) -> None:
    server.put(SECRETS, dict(secret_of(AUTHORITY, SETTINGS)))
    server.fail(404, matches=lambda call: call.method == "GET")

    async with server.client() as client:
        found = await made_authority(client, SETTINGS, NOW)

    assert found.key_pem == AUTHORITY.key_pem


async def test_a_secret_of_somebody_else_is_not_overwritten(server: FakeApiServer) -> None:
    foreign = {"metadata": dict(secret_of(AUTHORITY, SETTINGS)["metadata"]), "data": {"a": "Yg=="}}
    server.put(SECRETS, foreign)

    async with server.client() as client:
        with pytest.raises(CertificateError):
            await made_authority(client, SETTINGS, NOW)

    found: Any = server.find(SECRETS, SETTINGS.authority_secret, SETTINGS.namespace)
    assert found["data"] == {"a": "Yg=="}


# --- the caBundle ---------------------------------------------------------------------------------


async def test_a_bundle_is_written_once_and_healed_after_an_apply(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with server.client() as client:
        writer = BundleWriter(
            client, SETTINGS, now, informer_settings=InformerSettings(backoff_s=0.01)
        )
        async with running(writer.run):
            await until(lambda: None not in bundles(written(server)))
            assert bundles(written(server)) == [b64encode(stored(server).certificate_pem).decode()]
            server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration("", None))

            await until(lambda: all(bundles(written(server))))

    assert server.counts["PATCH"] == 2
    assert set(writer.not_after()) == {"ca"}


async def test_a_configuration_that_comes_later_is_written(server: FakeApiServer) -> None:
    async with server.client() as client, running(BundleWriter(client, SETTINGS, now).run):
        await until(lambda: server.watching == len(WEBHOOK_CONFIGURATIONS))
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))

        await until(lambda: None not in bundles(written(server)))


async def test_other_configurations_are_left_alone(server: FakeApiServer) -> None:
    other = configuration(None)
    other["metadata"]["name"] = "other"
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, other)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with server.client() as client, running(BundleWriter(client, SETTINGS, now).run):
        await until(lambda: None not in bundles(written(server)))

    assert bundles(server.find(MUTATING_WEBHOOK_CONFIGURATIONS, "other")) == [None]


async def test_both_configurations_trust_the_same_authority(server: FakeApiServer) -> None:
    for resource in WEBHOOK_CONFIGURATIONS:
        server.put(resource, configuration(None))

    def trusted() -> list[list[str | None]]:
        name = SETTINGS.webhook_configuration
        return [bundles(server.find(resource, name)) for resource in WEBHOOK_CONFIGURATIONS]

    async with server.client() as client, running(BundleWriter(client, SETTINGS, now).run):
        await until(lambda: [None] not in trusted())

    assert [[b64encode(stored(server).certificate_pem).decode()]] * 2 == trusted()


async def test_a_secret_that_was_deleted_is_made_anew_and_trusted(server: FakeApiServer) -> None:
    """Else the next replica would wait for its leaf until the controller restarts."""
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with server.client() as client:
        writer = BundleWriter(client, SETTINGS, now, look_s=0.02)
        async with running(writer.run):
            await until(lambda: None not in bundles(written(server)))
            first = bundles(written(server))
            server.remove(SECRETS, SETTINGS.authority_secret, SETTINGS.namespace)

            await until(lambda: bundles(written(server)) != first)

    assert bundles(written(server)) == [b64encode(stored(server).certificate_pem).decode()]


async def test_trouble_is_tried_again(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    server.fail(500, times=3, matches=lambda call: call.method in {"POST", "PATCH"})
    async with server.client() as client, running(BundleWriter(client, SETTINGS, now).run):
        await until(lambda: None not in bundles(written(server)))


# --- the leaf -------------------------------------------------------------------------------------


class Due(NamedTuple):
    name: str
    later: timedelta
    authority: Authority
    want: bool


DUES = (
    Due("a fresh leaf", timedelta(), AUTHORITY, want=False),
    Due("before two thirds of its life", 1.9 * DAY, AUTHORITY, want=False),
    Due("after two thirds of its life", 2.1 * DAY, AUTHORITY, want=True),
    Due(
        "the authority is another one",
        timedelta(),
        Authority.make("test", now=NOW, life=DAY),
        want=True,
    ),
)


@pytest.mark.parametrize("row", DUES, ids=lambda row: row.name)
def test_is_due(row: Due) -> None:
    leaf = issue_leaf(AUTHORITY, ["a.example"], now=NOW, life=3 * DAY)

    assert row.want == is_due(leaf, row.authority, NOW + row.later, 2 / 3)


async def test_the_first_leaf_waits_for_the_authority(server: FakeApiServer) -> None:
    async with server.client() as client:
        keeper = LeafKeeper(client, SETTINGS, now)
        assert keeper.check() == "none yet"

        async def wait() -> None:
            await keeper.first()

        async with running(wait):
            await until(lambda: bool(server.calls))
            server.put(SECRETS, dict(secret_of(AUTHORITY, SETTINGS)))
            await until(lambda: keeper.check() == "")

    certificate = x509.load_pem_x509_certificate(keeper.leaf().certificate)
    certificate.verify_directly_issued_by(AUTHORITY.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName)[0] == "drawbridge-webhook.drawbridge-system.svc"
    assert set(keeper.not_after()) == {"ca", "leaf"}


async def test_a_leaf_that_has_ended_is_told(server: FakeApiServer) -> None:
    server.put(SECRETS, dict(secret_of(AUTHORITY, SETTINGS)))
    clock = [NOW]
    async with server.client() as client:
        keeper = LeafKeeper(client, SETTINGS, lambda: clock[0])
        await keeper.first()
    clock[0] += 8 * DAY

    assert keeper.check() == "has ended"


async def test_an_authority_that_has_ended_is_waited_out(server: FakeApiServer) -> None:
    server.put(SECRETS, dict(secret_of(AUTHORITY, SETTINGS)))
    async with server.client() as client:
        keeper = LeafKeeper(client, SETTINGS, lambda: NOW + 101 * DAY)

        async def wait() -> None:
            await keeper.first()

        async with running(wait):
            await until(lambda: len(server.calls) > 1)

    assert keeper.check() == "none yet"
