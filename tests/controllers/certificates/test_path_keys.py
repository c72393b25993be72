"""The keys of the webhook's paths: created, followed, kept while they are called, recovered."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import jsonpatch
import msgspec
import pytest

from admission.webhook_configuration import (
    PODS_WEBHOOK,
    ROUTING_WEBHOOK,
    WEBHOOK_PATHS,
    configuration,
    validating_configuration,
)
from certs.rotation import Authorities
from controllers.certificates.controller import CertificateController
from controllers.certificates.path_keys import (
    EXTERNAL,
    authority_ids,
    choose_key,
    named_keys,
    path_patch,
    update_keys,
)
from controllers.certificates.settings import CertificateControllerSettings, Settings
from kube.api.urls import SECRETS, WEBHOOK_CONFIGURATIONS
from kube.names import ROTATE_ANNOTATION
from process.certificates import (
    CertificateSettings,
    RegisteredWebhook,
    Secret,
    project_webhooks,
)
from process.durations import PositiveDuration
from process.webhook_paths import PATH_KEYS, PathKey, PathKeys, decode_path_keys, find_path
from testing.builders import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from testing.webhook_paths import path_secret

NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
PROPAGATION: Final = 2 * MINUTE
A, B, C = "a" * 32, "b" * 32, "c" * 32


def key(name: str, authority: str, age: timedelta = timedelta(days=1)) -> PathKey:
    return PathKey(authority=authority, created=NOW - age, key=name)


# --- which keys there are -------------------------------------------------------------------------


class Update(NamedTuple):
    name: str
    stored: PathKeys
    authorities: tuple[str, ...]
    named: tuple[str, ...]
    expected: tuple[tuple[str, str], ...]
    """Authority and key; keys that are created are called 0, 1 and so on."""


UPDATES: Final = (
    Update("the first authority gets a key", (), ("one",), (), (("one", "0"),)),
    Update("a good key stays", (key(A, "one"),), ("one",), (A,), (("one", A),)),
    Update(
        "a successor gets a key of its own",
        (key(A, "one"),), ("two", "one"), (A,), (("one", A), ("two", "0")),
    ),
    Update(
        "the key of an authority that is trusted no more goes",
        (key(A, "one"), key(B, "two")), ("two",), (B,), (("two", B),),
    ),
    Update(
        "but not while a configuration names it",
        (key(A, "one"), key(B, "two")), ("two",), (A,), (("one", A), ("two", B)),
    ),
    Update("a lost key is the one of the configuration", (), ("one",), (A,), (("one", A),)),
    Update(
        "and so is each of two",
        (), ("two", "one"), (A, B), (("one", A), ("one", B), ("two", "0")),
    ),
    Update(
        "a key that only a configuration knows is not taken over from it",
        (key(A, "one"),), ("one",), (B,), (("one", A),),
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", UPDATES, ids=lambda row: row.name)
def test_update_keys(row: Update) -> None:
    numbers = count()

    keys = update_keys(row.stored, row.authorities, row.named, NOW, lambda: str(next(numbers)))

    assert tuple((key.authority, key.key) for key in keys) == row.expected


def test_updated_keys_are_not_updated_again() -> None:
    keys = update_keys((), ("two", "one"), (A,), NOW, lambda: B)

    assert tuple(update_keys(keys, ("two", "one"), (A,), NOW, lambda: C)) == tuple(keys)


def test_where_others_keep_authorities_there_is_one_key() -> None:
    assert authority_ids(Authorities()) == [EXTERNAL]


# --- which one the configurations name ------------------------------------------------------------


class Choice(NamedTuple):
    name: str
    keys: PathKeys
    named: str
    expected: str


CHOICES: Final = (
    Choice("the key of the signer", (key(A, "old"), key(B, "signer")), A, B),
    Choice("a young key of the signer waits", (key(A, "old"), key(B, "signer", MINUTE)), A, A),
    Choice("until all replicas know it", (key(A, "old"), key(B, "signer", PROPAGATION)), A, B),
    Choice("a path without key gets one at once", (key(B, "signer", MINUTE),), "", B),
    Choice("and so does one with a wrong key", (key(B, "signer", MINUTE),), C, B),
    Choice(
        "the oldest key, where the signer's is young",
        (key(A, "old"), key(B, "signer", MINUTE)), C, A,
    ),
    Choice("a key of a clock that was ahead", (key(B, "signer", -MINUTE),), "", B),
)  # fmt: skip


@pytest.mark.parametrize("row", CHOICES, ids=lambda row: row.name)
def test_choose_key(row: Choice) -> None:
    assert choose_key(row.keys, "signer", row.named, NOW, PROPAGATION) == row.expected


def webhook(name: str = PODS_WEBHOOK, **config: Any) -> RegisteredWebhook:
    return msgspec.convert({"name": name, "clientConfig": config}, RegisteredWebhook)


def service(path: str) -> Document:
    return {"service": {"name": "drawbridge-webhook", "namespace": "n", "path": path}}


class Patch(NamedTuple):
    name: str
    webhook: RegisteredWebhook
    expected: str | None


PATCHES: Final = (
    Patch("a service without path", webhook(**service("")), f"/mutate/{A}"),
    Patch("a service with the fixed path", webhook(**service("/mutate")), f"/mutate/{A}"),
    Patch("a service with another path", webhook(**service(f"/other/{A}")), f"/mutate/{A}"),
    Patch("a service with the right path", webhook(**service(f"/mutate/{A}")), None),
    Patch(
        "the URL of a balancer",
        webhook(url="https://lb:8443/gpu/mutate"), f"https://lb:8443/gpu/mutate/{A}",
    ),
    Patch("another key in a URL", webhook(url=f"https://h/mutate/{B}"), f"https://h/mutate/{A}"),
    Patch("the right URL", webhook(url=f"https://h/mutate/{A}"), None),
    Patch("a URL with a path that is not ours", webhook(url="https://h/translate"), None),
    Patch("a webhook that is not ours", webhook("a.example.com", **service("/mutate")), None),
)  # fmt: skip


@pytest.mark.parametrize("row", PATCHES, ids=lambda row: row.name)
def test_path_patch(row: Patch) -> None:
    operations = path_patch([row.webhook], lambda _named: A)

    assert [entry.get("value") for entry in operations if entry["op"] == "add"] == (
        [] if row.expected is None else [row.expected]
    )


def test_the_patch_of_a_list_that_has_changed_fails() -> None:
    operations = path_patch([webhook(url="https://h/mutate")], lambda _named: A)

    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch({"webhooks": [{"name": "other", "clientConfig": {}}]}, operations)


# --- the Secret and the configurations ------------------------------------------------------------

SETTINGS: Final = Settings(
    certificates=CertificateSettings(resync_period=PositiveDuration(0.02)),
    certificate_controller=CertificateControllerSettings(
        initial_backoff=PositiveDuration(0.01), max_backoff=PositiveDuration(0.02)
    ),
)
NAME: Final = SETTINGS.certificates.webhook_configuration


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as fake_server:
        apply(fake_server)
        yield fake_server


def apply(server: FakeApiServer, **paths: str) -> None:
    """Apply both configurations as the manifests have them.

    Args:
        paths: Webhook, by the first word of its name, to its path.
    """
    documents = (configuration([]), validating_configuration([]))
    for resource, document in zip(WEBHOOK_CONFIGURATIONS, documents, strict=True):
        applied: Any = msgspec.json.decode(msgspec.json.encode(document))
        for entry in applied["webhooks"]:
            if path := paths.get(entry["name"].partition(".")[0]):
                entry["clientConfig"]["service"]["path"] = path
        server.put(resource, applied)


@asynccontextmanager
async def keeping(
    server: FakeApiServer, clock: Callable[[], datetime] = lambda: NOW
) -> AsyncIterator[None]:
    server.now = clock

    async def check(_webhook: RegisteredWebhook) -> str:
        return ""

    async with server.client() as client:
        informers = quick_informers(client)
        keeper = CertificateController(client, informers, SETTINGS, clock, check)
        async with running(informers.run, *(controller.run for controller in keeper.controllers)):
            yield


def stored(server: FakeApiServer) -> PathKeys:
    secret = server.find(SECRETS, SETTINGS.certificates.path_secret, SETTINGS.namespace)
    value = msgspec.convert(secret, Secret).values().get(PATH_KEYS) if secret else None
    return decode_path_keys(value) if value else ()


def webhooks(server: FakeApiServer) -> list[RegisteredWebhook]:
    return [
        registered
        for resource in WEBHOOK_CONFIGURATIONS
        for registered in project_webhooks(msgspec.json.encode(server.find(resource, NAME)))
    ]


def are_accepted(server: FakeApiServer, keys: PathKeys | None = None) -> bool:
    """Return whether a webhook with these keys, or the present ones, accepts the API server's reviews."""
    keys = stored(server) if keys is None else keys
    return all(
        find_path(urlsplit(registered.path).path, keys) == WEBHOOK_PATHS[registered.name]
        for registered in webhooks(server)
    )


async def test_all_paths_get_a_key_before_there_are_rules(server: FakeApiServer) -> None:
    async with keeping(server):
        await until(
            lambda: all(
                registered.rules
                for registered in webhooks(server)
                if registered.name != ROUTING_WEBHOOK
            )
        )

    assert len(stored(server)) == 1
    assert are_accepted(server)
    patched = [str(call.body) for call in server.calls if call.method == "PATCH"]
    rules = next(number for number, text in enumerate(patched) if "/rules" in text)
    assert sum("/path" in text for text in patched[:rules]) == len(WEBHOOK_CONFIGURATIONS)


async def test_the_empty_secret_of_the_manifests_is_filled(server: FakeApiServer) -> None:
    secret = path_secret()
    del secret["data"]
    server.put(SECRETS, secret)
    async with keeping(server):
        await until(lambda: bool(stored(server)) and are_accepted(server))


@pytest.mark.parametrize("damaged", [True, False], ids=["damaged", "deleted"])
async def test_a_lost_secret_is_recovered_from_the_configuration(
    server: FakeApiServer, *, damaged: bool
) -> None:
    async with keeping(server):
        await until(lambda: bool(stored(server)) and are_accepted(server))
        before = stored(server)
        if damaged:
            server.put(SECRETS, {**path_secret(), "data": {PATH_KEYS: "e30="}})
        else:
            server.remove(SECRETS, SETTINGS.certificates.path_secret, SETTINGS.namespace)
        calls = server.counts["GET"]
        await until(lambda: server.counts["GET"] > calls + 6)

    assert [key.key for key in stored(server)] == [key.key for key in before]
    assert are_accepted(server, before)


async def test_a_configuration_that_is_applied_with_the_fixed_path_gets_the_key_back(
    server: FakeApiServer,
) -> None:
    async with keeping(server):
        await until(lambda: bool(stored(server)) and are_accepted(server))
        apply(server, pods="/mutate")
        await until(lambda: are_accepted(server))

    assert len(stored(server)) == 1


async def test_a_rotation_names_the_new_key_once_it_is_known_and_drops_the_old_one_last(
    server: FakeApiServer,
) -> None:
    time = [NOW]
    async with keeping(server, lambda: time[0]):
        await until(lambda: bool(stored(server)) and are_accepted(server))
        first = stored(server)
        authority: Any = server.find(SECRETS, "drawbridge-ca", SETTINGS.namespace)
        authority["metadata"]["annotations"] = {ROTATE_ANNOTATION: "now"}
        server.put(SECRETS, authority)
        await until(lambda: len(stored(server)) == 2)
        assert are_accepted(server, first)

        time[0] += timedelta(seconds=SETTINGS.certificates.authority_publish_period)
        await until(lambda: not set(named_keys(webhooks(server))) & {first[0].key})
        await until(lambda: are_accepted(server))
        assert stored(server)[0] == first[0], "the old path stays valid with its authority"

        time[0] += timedelta(seconds=SETTINGS.certificates.serving_duration) + timedelta(days=1)
        await until(lambda: len(stored(server)) == 1)

    assert stored(server)[0] != first[0]
    assert are_accepted(server)


async def test_a_secret_of_somebody_else_is_used_and_not_written(server: FakeApiServer) -> None:
    secret = path_secret(key(A, "mine"))
    secret["metadata"]["labels"] = {}
    server.put(SECRETS, secret)
    async with keeping(server):
        await until(lambda: are_accepted(server))

    assert stored(server) == (key(A, "mine"),)
