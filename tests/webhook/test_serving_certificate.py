"""The serving certificate of a replica: signed or mounted, and always the newest."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from cryptography import x509

from certs.authority import Authority
from certs.rotation import Authorities
from certs.serving import ServingCertificate, issue_serving_certificate
from controllers.certificates.patches import secret_document
from kube.api.urls import SECRETS
from kube.client.client import Client
from kube.names import NAMESPACE
from process.certificates import CertificateSettings, Clock
from testing.builders import Document
from testing.fake_api_server import FakeApiServer, running, until
from webhook.serving_certificate import (
    CertificateWatcher,
    MountedCertificates,
    SignedCertificates,
    needs_renewal,
)

NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
DAY: Final = timedelta(days=1)
SETTINGS: Final = CertificateSettings()
AUTHORITY: Final = Authority.create("test", now=NOW, life=100 * DAY)
OTHER: Final = Authority.create("test", now=NOW, life=100 * DAY)


def now() -> datetime:
    return NOW


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as made:
        yield made


def secret(signer: Authority) -> Document:
    """Return a Secret in which somebody signs."""
    trust = Authorities(signer=signer, trusted=(signer.certificate,), signing_since=NOW)
    return dict(secret_document(trust, namespace=NAMESPACE, name=SETTINGS.authority_secret))


def signed(client: Client, clock: Clock = now) -> CertificateWatcher:
    source = SignedCertificates(client, NAMESPACE, SETTINGS, clock, chance=lambda: 0.5)
    return CertificateWatcher(source, clock, resync_s=0.01)


def current(watcher: CertificateWatcher) -> ServingCertificate:
    certificate = watcher.certificate()
    assert certificate is not None
    return certificate


def parsed(certificate: ServingCertificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate.certificate)


# --- signed ---------------------------------------------------------------------------------------


class Renewal(NamedTuple):
    name: str
    later: timedelta
    signer: Authority
    want: bool


DUES = (
    Renewal("a fresh certificate", timedelta(), AUTHORITY, want=False),
    Renewal("before two thirds of its life", 1.9 * DAY, AUTHORITY, want=False),
    Renewal("after two thirds of its life", 2.1 * DAY, AUTHORITY, want=True),
    Renewal("the authority is another one", timedelta(), OTHER, want=True),
)


@pytest.mark.parametrize("row", DUES, ids=lambda row: row.name)
def test_needs_renewal(row: Renewal) -> None:
    certificate = issue_serving_certificate(AUTHORITY, ["a.example"], now=NOW, life=3 * DAY)

    assert row.want == needs_renewal(certificate, row.signer, NOW + row.later, 2 / 3)


async def test_the_first_certificate_waits_for_the_authority(server: FakeApiServer) -> None:
    async with server.client() as client:
        watcher = signed(client)
        assert watcher.check() == "none yet"

        async def wait() -> None:
            await watcher.wait_first()

        async with running(wait):
            await until(lambda: bool(server.calls))
            server.put(SECRETS, secret(AUTHORITY))
            await until(lambda: watcher.check() == "")

    parsed(current(watcher)).verify_directly_issued_by(AUTHORITY.certificate)
    names = parsed(current(watcher)).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert (
        names.value.get_values_for_type(x509.DNSName)[0]
        == "drawbridge-webhook.drawbridge-system.svc"
    )
    assert set(watcher.not_after()) == {"ca", "serving"}


async def test_a_certificate_is_renewed_at_a_random_time_before_it_is_due(
    server: FakeApiServer,
) -> None:
    server.put(SECRETS, secret(AUTHORITY))
    clock = [NOW]
    life = timedelta(seconds=SETTINGS.serving_duration)
    async with server.client() as client:
        watcher = signed(client, lambda: clock[0])
        await watcher.wait_first()
        first = watcher.certificate()
        async with running(watcher.run):
            clock[0] = NOW + life * 0.62
            seen = len(server.calls)
            await until(lambda: len(server.calls) > seen + 3)
            assert watcher.certificate() == first
            clock[0] = NOW + life * 0.64  # 2/3 * (1 - 0.1 * 0.5) is 0.633.
            await until(lambda: watcher.certificate() != first)

    assert current(watcher).not_after == NOW + life * 1.64


async def test_a_certificate_follows_the_signer_and_outlives_a_lost_secret(
    server: FakeApiServer,
) -> None:
    server.put(SECRETS, secret(AUTHORITY))
    async with server.client() as client:
        watcher = signed(client)
        await watcher.wait_first()
        async with running(watcher.run):
            server.remove(SECRETS, SETTINGS.authority_secret, NAMESPACE)
            seen = len(server.calls)
            await until(lambda: len(server.calls) > seen + 3)
            assert current(watcher).authority == AUTHORITY.certificate_pem
            trust = Authorities(successor=OTHER, trusted=(OTHER.certificate,))
            server.put(
                SECRETS,
                dict(secret_document(trust, namespace=NAMESPACE, name=SETTINGS.authority_secret)),
            )
            seen = len(server.calls)
            await until(lambda: len(server.calls) > seen + 3)
            assert (watcher.check(), current(watcher).authority) == (
                "",
                AUTHORITY.certificate_pem,
            )
            server.put(SECRETS, secret(OTHER))
            await until(lambda: current(watcher).authority == OTHER.certificate_pem)


async def test_an_expired_certificate_is_not_ready(server: FakeApiServer) -> None:
    server.put(SECRETS, secret(AUTHORITY))
    clock = [NOW]
    async with server.client() as client:
        watcher = signed(client, lambda: clock[0])
        await watcher.wait_first()
    clock[0] += 8 * DAY

    assert watcher.check() == "expired"


async def test_an_authority_that_has_ended_is_waited_out(server: FakeApiServer) -> None:
    server.put(SECRETS, secret(AUTHORITY))
    async with server.client() as client:
        watcher = signed(client, lambda: NOW + 101 * DAY)

        async def wait() -> None:
            await watcher.wait_first()

        async with running(wait):
            await until(lambda: len(server.calls) > 1)

    assert watcher.check() == "none yet"


# --- mounted --------------------------------------------------------------------------------------


def mount(directory: Path, certificate: ServingCertificate, **texts: bytes) -> None:
    files = {
        "tls.crt": certificate.certificate,
        "tls.key": certificate.key,
        "ca.crt": certificate.authority,
    }
    for name, text in (files | {f"tls.{name}": text for name, text in texts.items()}).items():
        (directory / name).write_bytes(text)


def serving_certificate(authority: Authority, life: timedelta = DAY) -> ServingCertificate:
    return issue_serving_certificate(authority, ["w.n.svc"], now=NOW, life=life)


async def test_a_mounted_certificate_is_used_when_it_appears_and_when_it_changes(
    tmp_path: Path,
) -> None:
    watcher = CertificateWatcher(MountedCertificates(tmp_path), now, resync_s=0.01)

    async def serve() -> None:
        await watcher.wait_first()
        await watcher.run()

    async with running(serve):
        mount(tmp_path, first := serving_certificate(AUTHORITY))
        await until(lambda: watcher.check() == "")
        assert watcher.certificate() == first
        mount(tmp_path, second := serving_certificate(OTHER, 2 * DAY))
        await until(lambda: watcher.certificate() == second)

    assert watcher.not_after() == {"serving": NOW + 2 * DAY}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("key", serving_certificate(OTHER).key),
        ("key", b""),
        ("crt", b"no"),
        ("crt", serving_certificate(OTHER).certificate),
    ],
    ids=["another key", "no key", "no certificate", "another certificate"],
)
async def test_a_mounted_pair_that_is_none_does_not_replace_a_good_one(
    tmp_path: Path, name: str, text: bytes
) -> None:
    mount(tmp_path, certificate := serving_certificate(AUTHORITY))
    watcher = CertificateWatcher(MountedCertificates(tmp_path), now, resync_s=0.01)
    await watcher.wait_first()
    mount(tmp_path, certificate, **{name: text})

    assert await watcher._renew()
    assert watcher.certificate() == certificate


def test_what_is_mounted_reads_as_what_was_signed() -> None:
    certificate = serving_certificate(AUTHORITY)

    assert certificate == ServingCertificate.read(
        certificate.certificate, certificate.key, certificate.authority
    )
