"""The authorities in their Secret, and the caBundles in the configurations."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import jsonpatch
import msgspec
import pytest

from certs.authority import Authority
from certs.rotation import Trust, trust_of
from kube.client import Client
from kube.informer import InformerSettings
from kube.product import ROTATE_ANNOTATION
from tests.builders import Document
from tests.fake_api_server import FakeApiServer, running, until
from webhook.resources import MUTATING_WEBHOOK_CONFIGURATIONS, SECRETS, WEBHOOK_CONFIGURATIONS
from webhook.settings import ControlSettings, Settings
from webhook.trust import Secret, TrustKeeper, kept_webhooks, read_signer, secret_of, trusting

NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
DAY: Final = timedelta(days=1)
SETTINGS: Final = Settings(
    look_seconds=0.02, control=ControlSettings(retry_first_seconds=0.01, retry_most_seconds=0.02)
)
AUTHORITY: Final = Authority.make("test", now=NOW, life=100 * DAY)
BUNDLE: Final = AUTHORITY.certificate_pem
TRUSTED: Final = b64encode(BUNDLE).decode()
TRUST: Final = Trust(
    signer=AUTHORITY, trusted=(AUTHORITY.certificate,), since=NOW - timedelta(minutes=1)
)


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


def secret(server: FakeApiServer) -> Document | None:
    return server.find(SECRETS, SETTINGS.authority_secret, SETTINGS.namespace)


def stored(server: FakeApiServer) -> Trust:
    found = secret(server)
    return trust_of(msgspec.convert(found, Secret).texts())[0] if found else Trust()


def told(server: FakeApiServer) -> list[str | None]:
    """Return the caBundle that the Secret asks for, as often as there are webhooks."""
    return [b64encode(stored(server).bundle).decode()] * len(bundles(written(server)))


def put(server: FakeApiServer, trust: Trust, **metadata: Any) -> None:
    document = msgspec.to_builtins(secret_of(trust, SETTINGS))
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


class Clock:
    """A wall clock that the test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def keeper(client: Client, clock: Callable[[], datetime] = now) -> TrustKeeper:
    return TrustKeeper(client, SETTINGS, clock, informer_settings=InformerSettings(backoff_s=0.01))


async def looked(server: FakeApiServer) -> None:
    """Wait until the keeper knows that it has written what the server has."""
    before = server.counts["GET"]
    await until(lambda: server.counts["GET"] > before + 1)


async def test_the_first_authority_signs_and_is_trusted_at_once(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with server.client() as client:
        trust = keeper(client)
        async with running(trust.run):
            await until(lambda: bundles(written(server)) == told(server))
            signer = await read_signer(client, SETTINGS)

    life = timedelta(seconds=SETTINGS.control.authority_seconds)
    assert signer.not_after == NOW + life
    assert trust.not_after() == {"ca": NOW + life}
    assert (trust.trusted(), trust.is_told()) == (1, True)
    found = secret(server) or {}
    assert found["metadata"]["labels"] == {"app.kubernetes.io/name": "drawbridge"}


async def test_what_is_in_good_order_is_not_written(server: FakeApiServer) -> None:
    put(server, TRUST)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED, TRUSTED))
    async with server.client() as client, running(keeper(client).run):
        await until(lambda: server.counts["GET"] > 10)

    assert {"GET", "WATCH"} == set(server.counts)


async def test_a_rotation_takes_three_steps_and_leaves_one_authority(
    server: FakeApiServer,
) -> None:
    put(server, TRUST)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    clock, control = Clock(), SETTINGS.control
    async with server.client() as client, running(keeper(client, clock).run):
        clock.now = NOW + 70 * DAY  # Of a hundred.
        await until(lambda: len(stored(server).trusted) == 2)
        await until(lambda: bundles(written(server)) == told(server))
        await looked(server)
        successor = stored(server).successor
        assert (await read_signer(client, SETTINGS)).certificate == AUTHORITY.certificate

        clock.now += timedelta(seconds=control.authority_published_seconds)
        await until(lambda: stored(server).successor is None)
        await looked(server)
        assert successor is not None
        assert (await read_signer(client, SETTINGS)).certificate == successor.certificate
        assert AUTHORITY.certificate in stored(server).trusted

        clock.now += timedelta(seconds=SETTINGS.serve.leaf_seconds) + DAY
        await until(lambda: stored(server).trusted == (successor.certificate,))
        await until(lambda: bundles(written(server)) == told(server))

    assert server.counts["PATCH"] == 5  # Three of the Secret, two of the configuration.


async def test_who_asks_gets_one_new_authority(server: FakeApiServer) -> None:
    put(server, TRUST, annotations={ROTATE_ANNOTATION: "", "team": "blue"})
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    async with server.client() as client, running(keeper(client).run):
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
    async with server.client() as client, running(keeper(client, clock).run):
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
    async with server.client() as client, running(keeper(client, clock).run):
        await until(lambda: server.counts["GET"] > 3)
        server.remove(SECRETS, SETTINGS.authority_secret, SETTINGS.namespace)
        await until(lambda: stored(server).successor is not None)
        await until(lambda: bundles(written(server)) == told(server))
        assert AUTHORITY.certificate in stored(server).trusted
        assert stored(server).signer is None
        await looked(server)

        clock.now += timedelta(seconds=SETTINGS.control.authority_hurried_seconds)
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
    server.put(SECRETS, {**secret_of(TRUST, SETTINGS), "data": data})
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    clock = Clock()
    async with server.client() as client, running(keeper(client, clock).run):
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
    async with server.client() as client, running(keeper(client).run):
        await until(lambda: bundles(written(server)) == [TRUSTED])

    assert before == secret(server)


async def test_a_secret_of_somebody_else_without_an_authority_is_left_alone(
    server: FakeApiServer,
) -> None:
    put(server, Trust(), labels={})
    before = secret(server)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    async with server.client() as client, running(keeper(client).run):
        await until(lambda: server.counts["GET"] > 5)

    assert before == secret(server)
    assert bundles(written(server)) == [TRUSTED]


async def test_of_two_that_write_one_does(server: FakeApiServer) -> None:
    """A leader that does not know yet that it is none any more loses, and reads again."""
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with server.client() as client:
        first, second = keeper(client), keeper(client)
        async with running(first.run, second.run):
            await until(lambda: first.trusted() == second.trusted() == 1)
            await until(lambda: first.is_told() and second.is_told())

    assert len(stored(server).trusted) == 1
    assert first.not_after() == second.not_after()


# --- the caBundle ---------------------------------------------------------------------------------


async def test_a_bundle_is_written_once_and_healed_after_an_apply(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with server.client() as client, running(keeper(client).run):
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
    async with server.client() as client, running(keeper(client).run):
        await until(lambda: None not in bundles(written(server)))
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
        await asyncio.sleep(0.05)  # The watch tells; if it is later, there is nothing to see.
        answered.set()

        await until(lambda: None not in bundles(written(server)))


async def test_a_configuration_that_comes_later_is_written(server: FakeApiServer) -> None:
    async with server.client() as client, running(keeper(client).run):
        await until(lambda: server.watching == len(WEBHOOK_CONFIGURATIONS))
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))

        await until(lambda: None not in bundles(written(server)))


async def test_other_configurations_are_left_alone(server: FakeApiServer) -> None:
    other = configuration(None)
    other["metadata"]["name"] = "other"
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, other)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with server.client() as client, running(keeper(client).run):
        await until(lambda: None not in bundles(written(server)))

    assert bundles(server.find(MUTATING_WEBHOOK_CONFIGURATIONS, "other")) == [None]


async def test_both_configurations_trust_the_same_authority(server: FakeApiServer) -> None:
    for resource in WEBHOOK_CONFIGURATIONS:
        server.put(resource, configuration(None))

    def trusted() -> list[list[str | None]]:
        name = SETTINGS.webhook_configuration
        return [bundles(server.find(resource, name)) for resource in WEBHOOK_CONFIGURATIONS]

    async with server.client() as client, running(keeper(client).run):
        await until(lambda: [None] not in trusted())

    assert [told(server)] * 2 == trusted()


async def test_trouble_is_tried_again(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    server.fail(500, times=3, matches=lambda call: call.method in {"POST", "PATCH"})
    async with server.client() as client, running(keeper(client).run):
        await until(lambda: None not in bundles(written(server)))
