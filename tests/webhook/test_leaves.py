"""The leaf of a replica: signed by the cluster's authority or mounted, and always the newest."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from cryptography import x509

from certs.authority import Authority
from certs.rotation import Trust
from certs.serving import Leaf, issue_leaf
from kube.client import Client
from tests.builders import Document
from tests.fake_api_server import FakeApiServer, running, until
from webhook.leaves import LeafKeeper, MountedLeaves, SignedLeaves, is_due
from webhook.resources import SECRETS
from webhook.settings import Settings
from webhook.trust import Clock, secret_of

NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
DAY: Final = timedelta(days=1)
SETTINGS: Final = Settings()
AUTHORITY: Final = Authority.make("test", now=NOW, life=100 * DAY)
OTHER: Final = Authority.make("test", now=NOW, life=100 * DAY)


def now() -> datetime:
    return NOW


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as made:
        yield made


def secret(signer: Authority) -> Document:
    """Return a Secret in which somebody signs."""
    trust = Trust(signer=signer, trusted=(signer.certificate,), since=NOW)
    return dict(secret_of(trust, SETTINGS))


def signed(client: Client, clock: Clock = now) -> LeafKeeper:
    source = SignedLeaves(client, SETTINGS, clock, chance=lambda: 0.5)
    return LeafKeeper(source, clock, look_s=0.01)


def certificate(leaf: Leaf) -> x509.Certificate:
    return x509.load_pem_x509_certificate(leaf.certificate)


# --- signed ---------------------------------------------------------------------------------------


class Due(NamedTuple):
    name: str
    later: timedelta
    signer: Authority
    want: bool


DUES = (
    Due("a fresh leaf", timedelta(), AUTHORITY, want=False),
    Due("before two thirds of its life", 1.9 * DAY, AUTHORITY, want=False),
    Due("after two thirds of its life", 2.1 * DAY, AUTHORITY, want=True),
    Due("the authority is another one", timedelta(), OTHER, want=True),
)


@pytest.mark.parametrize("row", DUES, ids=lambda row: row.name)
def test_is_due(row: Due) -> None:
    leaf = issue_leaf(AUTHORITY, ["a.example"], now=NOW, life=3 * DAY)

    assert row.want == is_due(leaf, row.signer, NOW + row.later, 2 / 3)


async def test_the_first_leaf_waits_for_the_authority(server: FakeApiServer) -> None:
    async with server.client() as client:
        keeper = signed(client)
        assert keeper.check() == "none yet"

        async def wait() -> None:
            await keeper.first()

        async with running(wait):
            await until(lambda: bool(server.calls))
            server.put(SECRETS, secret(AUTHORITY))
            await until(lambda: keeper.check() == "")

    certificate(keeper.leaf()).verify_directly_issued_by(AUTHORITY.certificate)
    names = certificate(keeper.leaf()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert (
        names.value.get_values_for_type(x509.DNSName)[0]
        == "drawbridge-webhook.drawbridge-system.svc"
    )
    assert set(keeper.not_after()) == {"ca", "leaf"}


async def test_a_leaf_is_renewed_a_little_sooner_as_chance_has_it(server: FakeApiServer) -> None:
    server.put(SECRETS, secret(AUTHORITY))
    clock = [NOW]
    life = timedelta(seconds=SETTINGS.serve.leaf_seconds)
    async with server.client() as client:
        keeper = signed(client, lambda: clock[0])
        await keeper.first()
        first = keeper.leaf()
        async with running(keeper.run):
            clock[0] = NOW + life * 0.62
            seen = len(server.calls)
            await until(lambda: len(server.calls) > seen + 3)
            assert keeper.leaf() == first
            clock[0] = NOW + life * 0.64  # 2/3 * (1 - 0.1 * 0.5) is 0.633.
            await until(lambda: keeper.leaf() != first)

    assert keeper.leaf().not_after == NOW + life * 1.64


async def test_a_leaf_follows_the_signer_and_outlives_a_secret_without_one(
    server: FakeApiServer,
) -> None:
    server.put(SECRETS, secret(AUTHORITY))
    async with server.client() as client:
        keeper = signed(client)
        await keeper.first()
        async with running(keeper.run):
            server.remove(SECRETS, SETTINGS.authority_secret, SETTINGS.namespace)
            seen = len(server.calls)
            await until(lambda: len(server.calls) > seen + 3)
            assert keeper.leaf().authority == AUTHORITY.certificate_pem
            trust = Trust(successor=OTHER, trusted=(OTHER.certificate,))
            server.put(SECRETS, dict(secret_of(trust, SETTINGS)))
            seen = len(server.calls)
            await until(lambda: len(server.calls) > seen + 3)
            assert (keeper.check(), keeper.leaf().authority) == ("", AUTHORITY.certificate_pem)
            server.put(SECRETS, secret(OTHER))
            await until(lambda: keeper.leaf().authority == OTHER.certificate_pem)


async def test_a_leaf_that_has_ended_is_told(server: FakeApiServer) -> None:
    server.put(SECRETS, secret(AUTHORITY))
    clock = [NOW]
    async with server.client() as client:
        keeper = signed(client, lambda: clock[0])
        await keeper.first()
    clock[0] += 8 * DAY

    assert keeper.check() == "has ended"


async def test_an_authority_that_has_ended_is_waited_out(server: FakeApiServer) -> None:
    server.put(SECRETS, secret(AUTHORITY))
    async with server.client() as client:
        keeper = signed(client, lambda: NOW + 101 * DAY)

        async def wait() -> None:
            await keeper.first()

        async with running(wait):
            await until(lambda: len(server.calls) > 1)

    assert keeper.check() == "none yet"


# --- mounted --------------------------------------------------------------------------------------


def mount(directory: Path, leaf: Leaf, **texts: bytes) -> None:
    files = {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": leaf.authority}
    for name, text in (files | {f"tls.{name}": text for name, text in texts.items()}).items():
        (directory / name).write_bytes(text)


def leaf_of(authority: Authority, life: timedelta = DAY) -> Leaf:
    return issue_leaf(authority, ["w.n.svc"], now=NOW, life=life)


async def test_a_mounted_leaf_is_taken_when_it_is_there_and_when_it_changes(
    tmp_path: Path,
) -> None:
    keeper = LeafKeeper(MountedLeaves(tmp_path), now, look_s=0.01)

    async def serve() -> None:
        await keeper.first()
        await keeper.run()

    async with running(serve):
        mount(tmp_path, first := leaf_of(AUTHORITY))
        await until(lambda: keeper.check() == "")
        assert keeper.leaf() == first
        mount(tmp_path, second := leaf_of(OTHER, 2 * DAY))
        await until(lambda: keeper.leaf() == second)

    assert keeper.not_after() == {"leaf": NOW + 2 * DAY}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("key", leaf_of(OTHER).key),
        ("key", b""),
        ("crt", b"no"),
        ("crt", leaf_of(OTHER).certificate),
    ],
    ids=["another key", "no key", "no certificate", "another certificate"],
)
async def test_a_mounted_pair_that_is_none_does_not_replace_a_good_one(
    tmp_path: Path, name: str, text: bytes
) -> None:
    mount(tmp_path, leaf := leaf_of(AUTHORITY))
    keeper = LeafKeeper(MountedLeaves(tmp_path), now, look_s=0.01)
    await keeper.first()
    mount(tmp_path, leaf, **{name: text})

    assert await keeper._looked()
    assert keeper.leaf() == leaf


def test_what_is_mounted_reads_as_what_was_signed() -> None:
    leaf = leaf_of(AUTHORITY)

    assert leaf == Leaf.read(leaf.certificate, leaf.key, leaf.authority)
