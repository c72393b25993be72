"""Keys of paths: the accepted ones, the content of a Secret, and the ones followed."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import pytest

from kube.api.urls import SECRETS
from kube.names import NAMESPACE
from process.certificates.certificates import CertificateSettings
from process.certificates.webhook_paths import (
    MAX_KEYS,
    PathKey,
    PathKeyCache,
    PathKeysError,
    decode_path_keys,
    encode_path_keys,
    find_path,
)
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from testing.webhook_paths import path_secret

NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
OLD: Final = PathKey(path="/mutate", created=NOW, key="a" * 32)
NEW: Final = PathKey(path="/mutate", created=NOW, key="0123456789abcdef" * 2)
OBJECTS: Final = PathKey(path="/validate/objects", created=NOW, key="c" * 32)
KEYS: Final = (OLD, NEW, OBJECTS)


@pytest.mark.parametrize("key", KEYS, ids=["the old key", "the new key", "the key of another path"])
def test_the_paths_of_all_keys_are_accepted(key: PathKey) -> None:
    assert find_path(f"{key.path}/{key.key}", KEYS) == key.path


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/mutate", OBJECTS),
        ("/validate/objects", OLD),
        ("/validate/objects", NEW),
        ("/route", NEW),
        ("/validate", OBJECTS),
        ("", OLD),
    ],
)
def test_a_key_opens_no_other_path(path: str, key: PathKey) -> None:
    assert find_path(f"{path}/{key.key}", KEYS) is None


@pytest.mark.parametrize(
    "path",
    [
        "/mutate",
        "/mutate/",
        "",
        "/",
        f"/mutate/{'b' * 32}",
        f"/mutate/{OLD.key.upper()}",
        f"/mutate/{OLD.key[:-1]}",
        f"/mutate/{OLD.key}0",
        f"/mutate/{OLD.key}/",
        f"/mutate/{OLD.key}%00",
        f"/mutate//{OLD.key}",
        f"//mutate/{OLD.key}",
        f"/proxy/mutate/{OLD.key}",
        f"/validate/objects/{OBJECTS.key}/mutate/{OBJECTS.key}",
        "/mutate/" + "\u0430" * 32,
        "/mutate/\udc61" + "a" * 31,
    ],
)
def test_no_other_path_is_accepted(path: str) -> None:
    assert find_path(path, KEYS) is None


def test_without_keys_no_path_is_accepted() -> None:
    assert find_path("/mutate/", ()) is None


def test_keys_are_read_as_they_were_written() -> None:
    assert decode_path_keys(encode_path_keys(KEYS)) == KEYS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"?", "not path keys"),
        (b"{}", "not path keys"),
        (b"\xff", "not path keys"),
        (b'[{"key": "\xff"}]', "not path keys"),
        (b"[" * 100_000, "not path keys"),
        (b'[{"authority": "a", "created": "2026-11-20T00:00:00Z", "key": "a"}]', "not path keys"),
        (encode_path_keys((OLD,) * (MAX_KEYS + 1)), "65 path keys, and at most 64 are read"),
        (
            encode_path_keys((PathKey(path="/mutate", created=NOW, key=""),)),
            "32 hexadecimal digits",
        ),
        (
            encode_path_keys((PathKey(path="/mutate", created=NOW, key="../" + "a" * 29),)),
            "32 hexadecimal digits",
        ),
        (
            encode_path_keys(
                (PathKey(path="/mutate", created=NOW.replace(tzinfo=None), key="a" * 32),)
            ),
            "without time zone",
        ),
    ],
)
def test_a_damaged_value_is_refused_with_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(PathKeysError, match=reason):
        decode_path_keys(text)


def test_no_key_is_written_to_a_log() -> None:
    assert NEW.key not in f"{NEW!r} {NEW}"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as fake_server:
        yield fake_server


async def test_known_keys_stay_valid_while_the_secret_is_gone(server: FakeApiServer) -> None:
    settings = CertificateSettings()
    async with server.client() as client:
        informers = quick_informers(client)
        cache = PathKeyCache(informers, NAMESPACE, settings)
        async with running(informers.run):
            assert cache.check() == "no path key yet"
            server.put(SECRETS, path_secret(OLD))
            await cache.wait_first()
            assert (cache.check(), cache.find(f"/mutate/{OLD.key}")) == ("", "/mutate")

            server.remove(SECRETS, settings.path_secret, NAMESPACE)
            await until(lambda: not cache.subscription.store)
            assert (cache.check(), cache.find(f"/mutate/{OLD.key}")) == ("", "/mutate")

            server.put(SECRETS, path_secret(NEW))
            await until(lambda: cache.keys == (NEW,))
            assert cache.find(f"/mutate/{OLD.key}") is None
