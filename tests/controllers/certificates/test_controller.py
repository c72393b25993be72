"""The authorities in their Secret, and the caBundles in the configurations."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import jsonpatch
import msgspec
import pytest

from certs.authority import Authority
from certs.rotation import Authorities, decode_authorities
from controllers.certificates.controller import CertificateAuthorityController
from controllers.certificates.patches import ca_bundle_patch, secret_document
from controllers.settings import ControllerSettings, Settings
from kube.api.urls import MUTATING_WEBHOOK_CONFIGURATIONS, SECRETS, WEBHOOK_CONFIGURATIONS
from kube.names import ROTATE_ANNOTATION
from process.certificates import CertificateSettings, Secret, project_webhooks, read_signer
from process.durations import PositiveDuration
from testing.builders import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until

NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
DAY: Final = timedelta(days=1)
SETTINGS: Final = Settings(
    certificates=CertificateSettings(resync_period=PositiveDuration(0.02)),
    controllers=ControllerSettings(
        initial_backoff=PositiveDuration(0.01), max_backoff=PositiveDuration(0.02)
    ),
)
CERTIFICATES: Final = SETTINGS.certificates
AUTHORITY: Final = Authority.create("test", now=NOW, life=100 * DAY)
BUNDLE: Final = AUTHORITY.certificate_pem
TRUSTED: Final = b64encode(BUNDLE).decode()
TRUST: Final = Authorities(
    signer=AUTHORITY, trusted=(AUTHORITY.certificate,), signing_since=NOW - timedelta(minutes=1)
)


def now() -> datetime:
    return NOW


def configuration(*bundles: str | None) -> Document:
    """A configuration whose webhooks have these caBundles."""
    return {
        "metadata": {"name": CERTIFICATES.webhook_configuration},
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
    return [webhook["clientConfig"].get("caBundle") for webhook in (document or {})["webhooks"]]


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as made:
        yield made


def written(server: FakeApiServer) -> Document | None:
    return server.find(MUTATING_WEBHOOK_CONFIGURATIONS, CERTIFICATES.webhook_configuration)


def secret(server: FakeApiServer) -> Document | None:
    return server.find(SECRETS, CERTIFICATES.authority_secret, SETTINGS.namespace)


def stored(server: FakeApiServer) -> Authorities:
    found = secret(server)
    return (
        decode_authorities(msgspec.convert(found, Secret).values())[0] if found else Authorities()
    )


def told(server: FakeApiServer) -> list[str | None]:
    """Return the caBundle that the Secret asks for, as often as there are webhooks."""
    return [b64encode(stored(server).ca_bundle).decode()] * len(bundles(written(server)))


def put(server: FakeApiServer, trust: Authorities, **metadata: Any) -> None:
    document = msgspec.to_builtins(
        secret_document(trust, namespace=SETTINGS.namespace, name=CERTIFICATES.authority_secret)
    )
    document["metadata"] |= metadata
    server.put(SECRETS, document)


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
def test_ca_bundle_patch(row: Row) -> None:
    document = configuration(*row.before)
    steps = ca_bundle_patch(project_webhooks(msgspec.json.encode(document)), BUNDLE)

    assert row.steps == len(steps)
    assert [TRUSTED] * len(row.before) == bundles(jsonpatch.apply_patch(document, steps))


def test_a_list_that_changed_in_between_is_not_damaged() -> None:
    steps = ca_bundle_patch(project_webhooks(msgspec.json.encode(configuration(None))), BUNDLE)
    changed = configuration(None)
    changed["webhooks"][0]["name"] = "other.example.internal"

    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(changed, steps)


# --- the Secret -----------------------------------------------------------------------------------


class Clock:
    """A wall clock that the test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@asynccontextmanager
async def keeping(
    server: FakeApiServer, clock: Callable[[], datetime] = now
) -> AsyncIterator[CertificateAuthorityController]:
    async with server.client() as client:
        informers = quick_informers(client)
        keeper = CertificateAuthorityController(client, informers, SETTINGS, clock)
        async with running(informers.run, *(controller.run for controller in keeper.controllers)):
            yield keeper


async def looked(server: FakeApiServer) -> None:
    """Wait until the keeper knows that it has written what the server has."""
    before = server.counts["GET"]
    await until(lambda: server.counts["GET"] > before + 1)


async def test_the_first_authority_signs_and_is_trusted_at_once(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with keeping(server) as trust, server.client() as client:
        await until(lambda: bundles(written(server)) == told(server))
        signer = await read_signer(client, SETTINGS.namespace, CERTIFICATES.authority_secret)

    life = timedelta(seconds=CERTIFICATES.authority_duration)
    assert signer.not_after == NOW + life
    assert trust.not_after() == {"ca": NOW + life}
    assert (trust.trusted(), trust.is_published()) == (1, True)
    found = secret(server) or {}
    assert found["metadata"]["labels"] == {"app.kubernetes.io/name": "drawbridge"}


async def test_what_is_in_good_order_is_not_written(server: FakeApiServer) -> None:
    put(server, TRUST)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED, TRUSTED))
    async with keeping(server):
        await until(lambda: server.counts["GET"] > 10)

    assert {"GET", "WATCH"} == set(server.counts)


async def test_a_rotation_takes_three_steps_and_leaves_one_authority(
    server: FakeApiServer,
) -> None:
    put(server, TRUST)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    clock, control = Clock(), CERTIFICATES
    async with keeping(server, clock), server.client() as client:
        clock.now = NOW + 70 * DAY  # Of a hundred.
        await until(lambda: len(stored(server).trusted) == 2)
        await until(lambda: bundles(written(server)) == told(server))
        await looked(server)
        successor = stored(server).successor
        assert (
            await read_signer(client, SETTINGS.namespace, CERTIFICATES.authority_secret)
        ).certificate == AUTHORITY.certificate

        clock.now += timedelta(seconds=control.authority_publish_period)
        await until(lambda: stored(server).successor is None)
        await looked(server)
        assert successor is not None
        assert (
            await read_signer(client, SETTINGS.namespace, CERTIFICATES.authority_secret)
        ).certificate == successor.certificate
        assert AUTHORITY.certificate in stored(server).trusted

        clock.now += timedelta(seconds=CERTIFICATES.serving_duration) + DAY
        await until(lambda: stored(server).trusted == (successor.certificate,))
        await until(lambda: bundles(written(server)) == told(server))

    assert server.counts["PATCH"] == 5  # Three of the Secret, two of the configuration.


async def test_who_asks_gets_one_new_authority(server: FakeApiServer) -> None:
    put(server, TRUST, annotations={ROTATE_ANNOTATION: "", "team": "blue"})
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    async with keeping(server):
        await until(lambda: len(stored(server).trusted) == 2)
        await until(lambda: bundles(written(server)) == told(server))

    assert (secret(server) or {})["metadata"]["annotations"] == {"team": "blue"}


async def test_a_successor_that_could_not_be_told_does_not_sign(server: FakeApiServer) -> None:
    put(server, TRUST, annotations={ROTATE_ANNOTATION: ""})
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    is_configuration = "mutatingwebhookconfigurations/"
    server.fail(
        403,
        times=10**6,
        matches=lambda call: call.method == "PATCH" and is_configuration in call.path,
    )
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: stored(server).successor is not None)
        clock.now += DAY
        before = server.counts["GET"]
        await until(lambda: server.counts["GET"] > before + 5)

    assert stored(server).successor is not None


async def test_a_secret_that_was_deleted_leaves_served_leaves_trusted(
    server: FakeApiServer,
) -> None:
    put(server, TRUST)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: server.counts["GET"] > 3)
        server.remove(SECRETS, CERTIFICATES.authority_secret, SETTINGS.namespace)
        await until(lambda: stored(server).successor is not None)
        await until(lambda: bundles(written(server)) == told(server))
        assert AUTHORITY.certificate in stored(server).trusted
        assert stored(server).signer is None
        await looked(server)

        clock.now += timedelta(seconds=CERTIFICATES.authority_expedited_publish_period)
        await until(lambda: stored(server).signer is not None)

    assert AUTHORITY.certificate in stored(server).trusted


@pytest.mark.parametrize(
    "data",
    [None, {}, {"ca.crt": "", "ca.key": ""}, {"ca.crt": "%", "ca.key": "%", "bundle.crt": "%"}],
    ids=["no data", "nothing", "empty texts", "no base64"],
)
async def test_a_secret_of_ours_that_was_damaged_is_made_good(
    server: FakeApiServer, data: dict[str, str] | None
) -> None:
    server.put(
        SECRETS,
        {
            **secret_document(
                TRUST, namespace=SETTINGS.namespace, name=CERTIFICATES.authority_secret
            ),
            "data": data,
        },
    )
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: stored(server).successor is not None)
        await until(lambda: bundles(written(server)) == told(server))
        await looked(server)
        clock.now += DAY
        await until(lambda: stored(server).signer is not None)

    assert AUTHORITY.certificate in stored(server).trusted


async def test_a_secret_of_somebody_else_is_used_and_not_changed(server: FakeApiServer) -> None:
    put(server, TRUST, labels={}, annotations={ROTATE_ANNOTATION: ""})
    before = secret(server)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with keeping(server):
        await until(lambda: bundles(written(server)) == [TRUSTED])

    assert before == secret(server)


async def test_a_secret_of_somebody_else_without_an_authority_is_left_alone(
    server: FakeApiServer,
) -> None:
    put(server, Authorities(), labels={})
    before = secret(server)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    async with keeping(server):
        await until(lambda: server.counts["GET"] > 5)

    assert before == secret(server)
    assert bundles(written(server)) == [TRUSTED]


async def test_of_two_that_write_one_does(server: FakeApiServer) -> None:
    """A leader that does not know yet that it is none any more loses, and reads again."""
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with keeping(server) as first, keeping(server) as second:
        await until(lambda: first.trusted() == second.trusted() == 1)
        await until(lambda: first.is_published() and second.is_published())

    assert len(stored(server).trusted) == 1
    assert first.not_after() == second.not_after()


# --- the caBundle ---------------------------------------------------------------------------------


async def test_a_bundle_is_written_once_and_healed_after_an_apply(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with keeping(server):
        await until(lambda: None not in bundles(written(server)))
        assert bundles(written(server)) == told(server)
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration("", None))

        await until(lambda: all(bundles(written(server))))

    assert server.counts["PATCH"] == 2


async def test_what_the_watch_tells_before_a_write_is_answered_counts(
    server: FakeApiServer,
) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    answered = server.delay(lambda call: call.method == "PATCH")
    async with keeping(server):
        await until(lambda: None not in bundles(written(server)))
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
        await asyncio.sleep(0.05)  # The watch tells; if it is later, there is nothing to see.
        answered.set()

        await until(lambda: None not in bundles(written(server)))


async def test_a_configuration_that_comes_later_is_written(server: FakeApiServer) -> None:
    async with keeping(server):
        await until(lambda: server.watching == len(WEBHOOK_CONFIGURATIONS))
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))

        await until(lambda: None not in bundles(written(server)))


async def test_other_configurations_are_left_alone(server: FakeApiServer) -> None:
    other = configuration(None)
    other["metadata"]["name"] = "other"
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, other)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with keeping(server):
        await until(lambda: None not in bundles(written(server)))

    assert bundles(server.find(MUTATING_WEBHOOK_CONFIGURATIONS, "other")) == [None]


async def test_both_configurations_trust_the_same_authority(server: FakeApiServer) -> None:
    for resource in WEBHOOK_CONFIGURATIONS:
        server.put(resource, configuration(None))

    def trusted() -> list[list[str | None]]:
        name = CERTIFICATES.webhook_configuration
        return [bundles(server.find(resource, name)) for resource in WEBHOOK_CONFIGURATIONS]

    async with keeping(server):
        await until(lambda: [None] not in trusted())

    assert [told(server)] * 2 == trusted()


async def test_trouble_is_tried_again(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    server.fail(500, times=3, matches=lambda call: call.method in {"POST", "PATCH"})
    async with keeping(server):
        await until(lambda: None not in bundles(written(server)))
