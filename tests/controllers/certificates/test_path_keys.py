"""The keys of the webhook's paths: created, named, replaced so that no call fails, recovered."""

import random
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import jsonpatch
import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from admission.webhook_configuration import (
    PODS_WEBHOOK,
    ROUTING_WEBHOOK,
    UPDATES_WEBHOOK,
    WEBHOOK_PATHS,
    configuration,
    validating_configuration,
)
from controllers.certificates.controller import CertificateController
from controllers.certificates.metrics import PathKeyCollector
from controllers.certificates.path_keys import (
    PATHS,
    SETTLED,
    KeyHistory,
    KeyUse,
    Rotation,
    choose_key,
    is_settled,
    keys_of,
    named_keys,
    path_patch,
    update_keys,
)
from controllers.certificates.secret_documents import stored_keys
from controllers.certificates.settings import CertificateControllerSettings, Settings
from kube.api.urls import SECRETS, WEBHOOK_CONFIGURATIONS
from kube.names import ROTATE_ANNOTATION
from process.certificates.certificates import (
    CertificateSettings,
    RegisteredWebhook,
    Secret,
    project_webhooks,
)
from process.certificates.webhook_paths import (
    PATH_KEYS,
    PathKey,
    PathKeys,
    decode_path_keys,
    find_path,
    split_path,
)
from process.model.durations import Duration, PositiveDuration
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from testing.webhook_paths import path_secret

NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
DAY: Final = 24 * HOUR
MUTATE: Final = "/mutate"
A, B, C, D = "a" * 32, "b" * 32, "c" * 32, "d" * 32


def key(name: str, age: timedelta = HOUR, path: str = MUTATE) -> PathKey:
    return PathKey(path=path, created=NOW - age, key=name)


# --- which keys there are -------------------------------------------------------------------------


class Update(NamedTuple):
    name: str
    stored: PathKeys
    expected: tuple[str, ...]
    """Those of /mutate; keys that are created are called 0, 1 and so on."""
    named: tuple[str, ...] = ()
    published: PathKeys = ()
    abandoned: PathKeys = ()
    renew_after: timedelta | None = DAY
    requested: bool = False


OLD, PRESENT, NEXT, FRESH = key(A, 2 * DAY), key(B, DAY), key(C), key(D)
UPDATES: Final = (
    Update("a path without keys gets one and a successor", (), ("0", "1")),
    Update("good keys stay", (PRESENT, NEXT), (B, C), named=(B,)),
    Update("a lost key is that of the configuration", (), (A, "0"), named=(A,)),
    Update("and so is each of two", (), (A, B), named=(A, B)),
    Update("a successor that is lost is created anew", (PRESENT,), (B, "0"), named=(B,)),
    Update(
        "a key that only a configuration knows is not taken over from it",
        (PRESENT, NEXT), (B, C), named=(A,),
    ),
    Update("keys that are old enough get a successor", (OLD, PRESENT), (A, B, "0"), named=(A,)),
    Update("but not where they are for ever", (OLD, PRESENT), (A, B), renew_after=None),
    Update("who asks gets two", (PRESENT, NEXT), (B, C, "0", "1"), requested=True),
    Update(
        "also where they are for ever",
        (OLD, PRESENT), (A, B, "0", "1"), renew_after=None, requested=True,
    ),
    Update(
        "a key of a clock that was ahead does not put off the next one",
        (key(A, -365 * DAY), key(B, -365 * DAY)), (A, B, "0"),
    ),
    Update(
        "a key that is still called stays",
        (OLD, PRESENT, NEXT), (A, B, C), named=(A, B), published=(OLD, PRESENT, NEXT),
    ),
    Update(
        "a key that nobody calls goes",
        (OLD, PRESENT, NEXT), (B, C), named=(B,), published=(PRESENT,), abandoned=(OLD, NEXT),
    ),
    Update(
        "but not while its successors may be unknown",
        (OLD, PRESENT, NEXT), (A, B, C), named=(B,), abandoned=(OLD,),
    ),
    Update(
        "a key that waits for others to be known stays, however long it waited",
        (PRESENT, NEXT, FRESH, key("9")), (B, C, D, "9"), named=(B,),
        published=(PRESENT, NEXT), abandoned=(NEXT,),
    ),
    Update(
        "the next rotation waits for the end of this one",
        (key(A, 4 * DAY), key(B, 3 * DAY), key(C, 2 * DAY)), (A, B, C), named=(A,),
    ),
    Update(
        "and begins with it",
        (key(A, 4 * DAY), key(B, 3 * DAY), key(C, 2 * DAY)), (B, C, "0"), named=(B,),
        published=(key(B, 3 * DAY),), abandoned=(key(A, 4 * DAY),),
    ),
)  # fmt: skip


def updated(row: Update, *others: PathKey) -> PathKeys:
    """Return the keys after an update; those of other paths are created, too."""
    numbers = count()
    use = KeyUse(
        named={MUTATE: row.named},
        published=frozenset(row.published),
        abandoned=frozenset(row.abandoned),
    )
    rotation = Rotation(now=NOW, renew_after=row.renew_after, requested=row.requested)
    return update_keys((*row.stored, *others), use, rotation, lambda: str(next(numbers)))


@pytest.mark.parametrize("row", UPDATES, ids=lambda row: row.name)
def test_update_keys(row: Update) -> None:
    keys = keys_of(MUTATE, updated(row))

    assert tuple(key.key for key in keys) == row.expected
    assert all(key.created == NOW for key in keys if key not in row.stored)


@pytest.mark.parametrize("row", UPDATES, ids=lambda row: row.name)
def test_updated_keys_are_not_updated_again(row: Update) -> None:
    keys = updated(row)
    use = KeyUse(named={MUTATE: row.named})

    again = update_keys(keys, use, Rotation(now=NOW, renew_after=row.renew_after), lambda: "no")

    assert tuple(again) == tuple(keys)


def test_every_path_has_keys_of_its_own() -> None:
    numbers = count()
    keys = update_keys((), KeyUse(), Rotation(now=NOW, renew_after=DAY), lambda: str(next(numbers)))

    assert set(WEBHOOK_PATHS.values()) == {key.path for key in keys}
    assert len({key.key for key in keys}) == len(keys) == SETTLED * len(PATHS)


def test_keys_of_paths_of_another_version_stay() -> None:
    foreign = key(A, 9 * DAY, "/validate/others")

    assert foreign in updated(UPDATES[0], foreign)


def test_a_path_that_is_rotated_is_not_settled() -> None:
    assert is_settled((PRESENT, NEXT))
    assert not is_settled((OLD, PRESENT, NEXT))


# --- which one the configurations name ------------------------------------------------------------


class Choice(NamedTuple):
    name: str
    keys: PathKeys
    published: PathKeys
    named: str
    expected: str


CHOICES: Final = (
    Choice("the key before the newest", (PRESENT, NEXT), (PRESENT, NEXT), B, B),
    Choice("after a rotation what was the successor", (OLD, PRESENT, NEXT), (OLD, PRESENT), A, B),
    Choice("the only key", (PRESENT,), (PRESENT,), A, B),
    Choice("a new key waits", (OLD, PRESENT, FRESH, NEXT), (OLD, PRESENT), A, B),
    Choice("until all replicas know it", (OLD, PRESENT, FRESH, NEXT), (OLD, FRESH, NEXT), B, D),
    Choice("a new leader changes nothing", (OLD, PRESENT, NEXT), (), A, A),
    Choice("nor what was changed before it", (OLD, PRESENT, NEXT), (), C, C),
    Choice("a path without key gets the oldest", (PRESENT, NEXT), (), "", B),
    Choice("and so does one with a wrong key", (PRESENT, NEXT), (), A, B),
)  # fmt: skip


@pytest.mark.parametrize("row", CHOICES, ids=lambda row: row.name)
def test_choose_key(row: Choice) -> None:
    use = KeyUse(published=frozenset(row.published))

    assert choose_key(row.keys, use, row.named).key == row.expected


def test_named_keys_are_those_of_our_webhooks_by_path() -> None:
    webhooks = [
        webhook(PODS_WEBHOOK, **service(f"/mutate/{A}")),
        webhook(UPDATES_WEBHOOK, url=f"https://lb/gpu/mutate/{B}"),
        webhook(ROUTING_WEBHOOK, **service("/route")),
        webhook("a.example.com", **service(f"/mutate/{C}")),
    ]

    assert named_keys(webhooks) == {MUTATE: [A, B]}


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
    operations = path_patch([row.webhook], lambda _path, _named: A)

    assert [entry.get("value") for entry in operations if entry["op"] == "add"] == (
        [] if row.expected is None else [row.expected]
    )


def test_the_patch_of_a_list_that_has_changed_fails() -> None:
    operations = path_patch([webhook(url="https://h/mutate")], lambda _path, _named: A)

    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch({"webhooks": [{"name": "other", "clientConfig": {}}]}, operations)


# --- a cluster in which everybody is late ---------------------------------------------------------

GRACE: Final = 7
"""Ticks."""


class Reader:
    """A reader of the state of up to some ticks ago, and never of an older one than before."""

    def __init__(self, chance: random.Random, lag: int) -> None:
        self._chance = chance
        self._lag = lag
        self._read_at = 0

    def read(self, history: Sequence[Any]) -> Any:
        last = len(history) - 1
        self._read_at = self._chance.randint(max(self._read_at, last - self._lag), last)
        return history[self._read_at]


@pytest.mark.parametrize("seed", range(20))
def test_every_replica_knows_the_key_that_any_api_server_calls(seed: int) -> None:
    chance, numbers = random.Random(seed), count()
    keys = update_keys(
        (), KeyUse(), Rotation(now=NOW, renew_after=None), lambda: f"{next(numbers)}"
    )
    # Before the webhook has answered, nothing is called.
    first = {name: keys_of(path, keys)[0].key for name, path in WEBHOOK_PATHS.items()}
    secrets, configurations = [keys], [first]
    replicas = [Reader(chance, GRACE - 1) for _ in range(2)]
    api_servers = [Reader(chance, GRACE // 2) for _ in range(2)]
    leader = Reader(chance, GRACE // 2)
    history, requested, called = KeyHistory(), False, set[str]()
    for tick in range(600):
        if chance.random() < 0.02:  # Another leader.
            history = KeyHistory()
        requested = requested or chance.random() < 0.03
        present = leader.read(configurations)
        named = {
            path: [present[name] for name, other in WEBHOOK_PATHS.items() if other == path]
            for path in PATHS
        }
        rotation = Rotation(
            now=NOW + tick * HOUR,
            renew_after=40 * HOUR,
            requested=requested and is_settled(keys),
        )
        use = history.observe(keys, named, tick, GRACE)
        if chance.random() < 0.8:  # Else the API server does not answer.
            keys = update_keys(keys, use, rotation, lambda: f"{next(numbers)}")
            use = history.observe(keys, named, tick, GRACE)
            requested = requested and not rotation.requested
        secrets.append(keys)
        changed = dict(configurations[-1])
        for name, path in WEBHOOK_PATHS.items():
            chosen = choose_key(keys_of(path, keys), use, present[name])
            history.choose(chosen, tick)
            # The patch tests what it replaces.
            if present[name] == changed[name] and chance.random() < 0.7:
                changed[name] = chosen.key
        configurations.append(changed)
        known = [{(key.path, key.key) for key in replica.read(secrets)} for replica in replicas]
        for api_server in api_servers:
            for name, key in api_server.read(configurations).items():
                assert all((WEBHOOK_PATHS[name], key) in keys_ for keys_ in known), (tick, name)
                called.add(key)
        assert len(keys) <= 2 * SETTLED * len(PATHS)
    assert len(called) > 8 * len(PATHS), "keys were replaced all the time"


# --- the Secret and the configurations ------------------------------------------------------------

SETTINGS: Final = Settings(
    certificates=CertificateSettings(resync_period=PositiveDuration(0.02)),
    certificate_controller=CertificateControllerSettings(
        initial_backoff=PositiveDuration(0.01), max_backoff=PositiveDuration(0.02)
    ),
)
NAME: Final = SETTINGS.certificates.webhook_configuration
GRACE_PERIOD: Final = timedelta(seconds=SETTINGS.certificates.path_key_grace_period)


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


class Clock:
    """Wall clock and monotonic clock, moved by the test; the wall clock may be ahead of the server's."""

    def __init__(self) -> None:
        self.passed = timedelta()
        self.ahead = timedelta()

    def now(self) -> datetime:
        return self.server_now() + self.ahead

    def server_now(self) -> datetime:
        return NOW + self.passed

    def monotonic(self) -> float:
        return self.passed.total_seconds()


@asynccontextmanager
async def keeping(
    server: FakeApiServer, clock: Clock | None = None, settings: Settings = SETTINGS
) -> AsyncIterator[CertificateController]:
    clock = clock or Clock()
    server.now = clock.server_now

    async def check(_webhook: RegisteredWebhook) -> str:
        return ""

    async with server.client() as client:
        informers = quick_informers(client)
        keeper = CertificateController(
            client, informers, settings, clock.now, check, clock=clock.monotonic
        )
        async with running(informers.run, *(controller.run for controller in keeper.controllers)):
            yield keeper


def stored(server: FakeApiServer) -> PathKeys:
    """Return the keys of the Secret; none if it cannot be read."""
    secret = server.find(SECRETS, SETTINGS.certificates.path_secret, SETTINGS.namespace)
    keys, _ = stored_keys(
        msgspec.convert(secret, Secret) if secret else None, PATH_KEYS, decode_path_keys
    )
    return keys


def webhooks(server: FakeApiServer) -> list[RegisteredWebhook]:
    return [
        registered
        for resource in WEBHOOK_CONFIGURATIONS
        for registered in project_webhooks(msgspec.json.encode(server.find(resource, NAME)))
    ]


def are_accepted(server: FakeApiServer, keys: PathKeys | None = None) -> bool:
    """Return True if a webhook with these keys, or the present ones, accepts the API server's reviews."""
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

    assert len(stored(server)) == SETTLED * len(PATHS)
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

    await until(lambda: bool(stored(server)))
    assert are_accepted(server, before)
    assert are_accepted(server)
    lost = {key.key for key in before} - {key.key for key in stored(server)}
    assert len(lost) == len(PATHS), "successors that nobody knows are new"


async def test_the_one_key_of_the_version_before_stays_valid_until_each_path_has_its_own(
    server: FakeApiServer,
) -> None:
    one_key = [{"authority": "a" * 16, "created": "2026-11-19T00:00:00Z", "key": A}]
    text = b64encode(msgspec.json.encode(one_key)).decode()
    server.put(SECRETS, {**path_secret(), "data": {PATH_KEYS: text}})
    apply(server, **{name.partition(".")[0]: f"{path}/{A}" for name, path in WEBHOOK_PATHS.items()})
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: bool(stored(server)))
        assert {(key.path, A) for key in stored(server)} == set_named(server)
        await reconciled(server)
        clock.passed += DAY
        await until(lambda: not {key for _, key in set_named(server)} & {A})
        assert len({key for _, key in set_named(server)}) == len(PATHS)
        assert A in {key.key for key in stored(server)}
        clock.passed += GRACE_PERIOD
        await until(lambda: A not in {key.key for key in stored(server)})

    assert are_accepted(server)


async def test_a_configuration_that_is_applied_with_the_fixed_path_gets_the_key_back(
    server: FakeApiServer,
) -> None:
    async with keeping(server):
        await until(lambda: bool(stored(server)) and are_accepted(server))
        before, keys = set_named(server), stored(server)
        apply(server, pods="/mutate")
        await until(lambda: are_accepted(server))

    assert (before, keys) == (set_named(server), stored(server))


async def test_keys_are_replaced_by_time_and_the_old_ones_go_last(server: FakeApiServer) -> None:
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: bool(stored(server)) and are_accepted(server))
        first, known = set_named(server), stored(server)
        clock.passed += GRACE_PERIOD  # No rotation yet.
        await reconciled(server)
        assert (first, known) == (set_named(server), stored(server))

        clock.passed += DAY
        await until(lambda: not first & set_named(server))
        assert are_accepted(server, known), "they were in the Secret all the time"
        await reconciled(server)
        assert first <= {(key.path, key.key) for key in stored(server)}
        assert len(stored(server)) == 3 * len(PATHS)

        clock.passed += GRACE_PERIOD
        await until(lambda: not first & {(key.path, key.key) for key in stored(server)})

    assert are_accepted(server)
    assert len(stored(server)) == SETTLED * len(PATHS)


@pytest.mark.parametrize("ahead", [2 * DAY, -2 * DAY], ids=["ahead", "behind"])
async def test_a_clock_that_jumps_replaces_no_key(server: FakeApiServer, ahead: timedelta) -> None:
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: bool(stored(server)) and are_accepted(server))
        before = stored(server)
        clock.ahead = ahead
        await reconciled(server)
        assert stored(server) == before

        apply(server, pods="/mutate")  # What is due at once is still written.
        await until(lambda: are_accepted(server))
        clock.passed += DAY
        await until(lambda: len(stored(server)) == 3 * len(PATHS))

    assert {(key.created - NOW) // DAY for key in stored(server)} == {0, 1}


async def test_who_asks_gets_keys_that_were_waiting_at_once_and_then_new_ones(
    server: FakeApiServer,
) -> None:
    clock = Clock()
    never = msgspec.structs.replace(
        SETTINGS,
        certificates=msgspec.structs.replace(
            SETTINGS.certificates, path_key_renew_period=Duration(0)
        ),
    )
    async with keeping(server, clock, never):
        await until(lambda: bool(stored(server)) and are_accepted(server))
        first, known = set_named(server), stored(server)
        clock.passed += 100 * DAY
        await reconciled(server)
        assert (first, known) == (set_named(server), stored(server)), "they are for ever"

        annotate(server)
        await until(lambda: not first & set_named(server))
        assert are_accepted(server, known)
        assert annotations(server) == {"team": "blue"}
        second = set_named(server)

        annotate(server)  # It waits for the first rotation.
        await reconciled(server)
        assert (second, 4 * len(PATHS)) == (set_named(server), len(stored(server)))

        clock.passed += GRACE_PERIOD
        await until(lambda: not second & set_named(server))
        assert not set_named(server) & {(key.path, key.key) for key in known}
        await until(lambda: not first & {(key.path, key.key) for key in stored(server)})
        assert second <= {(key.path, key.key) for key in stored(server)}
        assert ROTATE_ANNOTATION in annotations(server)

        third = set_named(server)
        clock.passed += GRACE_PERIOD
        await until(lambda: not third & set_named(server))
        assert annotations(server) == {"team": "blue"}


async def test_keys_that_a_configuration_cannot_be_rid_of_stay_valid(server: FakeApiServer) -> None:
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: bool(stored(server)) and are_accepted(server))
        server.fail(
            403,
            times=10**6,
            matches=lambda call: call.method == "PATCH" and "/validatingweb" in call.path,
        )
        first = set_named(server)
        clock.passed += DAY
        await until(lambda: bool(set_named(server) - first))
        for _ in range(3):
            clock.passed += GRACE_PERIOD
            await reconciled(server)

        assert are_accepted(server)
        stayed = {path for path, _ in first & set_named(server)}
        assert stayed == {path for path in PATHS if path.startswith("/validate")}
        gone = first - {(key.path, key.key) for key in stored(server)}
        assert {path for path, _ in gone} == set(PATHS) - stayed


async def test_a_new_leader_waits_before_it_withdraws(server: FakeApiServer) -> None:
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: bool(stored(server)) and are_accepted(server))
        first = set_named(server)
        clock.passed += DAY
        await until(lambda: not first & set_named(server))
        assert len(stored(server)) == 3 * len(PATHS)
    clock.passed += GRACE_PERIOD - timedelta(seconds=1)
    async with keeping(server, clock):
        await reconciled(server)
        clock.passed += timedelta(seconds=2)
        await reconciled(server)
        assert len(stored(server)) == 3 * len(PATHS)
        clock.passed += GRACE_PERIOD
        await until(lambda: len(stored(server)) == SETTLED * len(PATHS))


async def test_the_keys_are_shown_without_their_text(server: FakeApiServer) -> None:
    async with keeping(server) as keeper:
        await until(lambda: bool(stored(server)) and are_accepted(server))
        registry = CollectorRegistry()
        registry.register(PathKeyCollector(keeper.path_keys))
        text = generate_latest(registry).decode()

    for path in PATHS:
        assert f'drawbridge_path_keys{{path="{path}"}} 2.0' in text
        name = "drawbridge_path_key_created_timestamp_seconds"
        assert registry.get_sample_value(name, {"path": path}) == NOW.timestamp()
    assert not any(key.key in text for key in stored(server))


async def test_a_secret_of_somebody_else_is_used_and_not_written(server: FakeApiServer) -> None:
    keys = tuple(key(A, path=path) for path in PATHS)
    put_foreign(server, *keys)
    async with keeping(server):
        await until(lambda: are_accepted(server, keys))

    assert stored(server) == keys


async def test_nothing_is_called_while_the_secret_of_somebody_else_lacks_a_key(
    server: FakeApiServer,
) -> None:
    keys = tuple(key(A, path=path) for path in PATHS[1:])
    put_foreign(server, *keys)
    async with keeping(server) as keeper:
        (controller,) = keeper.controllers
        await until(lambda: controller.queue.retried > 1)

    assert stored(server) == keys
    assert not any(registered.rules for registered in webhooks(server))


def put_foreign(server: FakeApiServer, *keys: PathKey) -> None:
    """Store a Secret that is not managed."""
    secret = path_secret(*keys)
    secret["metadata"]["labels"] = {}
    server.put(SECRETS, secret)


def set_named(server: FakeApiServer) -> set[tuple[str, str]]:
    """Return the paths and keys that the configurations name."""
    return {
        (WEBHOOK_PATHS[registered.name], split_path(registered.path)[1])
        for registered in webhooks(server)
    }


def annotate(server: FakeApiServer) -> None:
    """Request a rotation."""
    secret: Any = server.find(SECRETS, SETTINGS.certificates.path_secret, SETTINGS.namespace)
    secret["metadata"]["annotations"] = {ROTATE_ANNOTATION: "now", "team": "blue"}
    server.put(SECRETS, secret)


def annotations(server: FakeApiServer) -> Mapping[str, str]:
    secret: Any = server.find(SECRETS, SETTINGS.certificates.path_secret, SETTINGS.namespace)
    return dict(secret["metadata"].get("annotations") or {})


async def reconciled(server: FakeApiServer) -> None:
    """Wait until the Secrets were read a few times more."""
    before = server.counts["GET"]
    await until(lambda: server.counts["GET"] > before + 6)
