"""The serving certificate of a replica: signed or mounted, and always the newest."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from certs.authority import Authority
from certs.serving import ServingCertificate, client_tls_context, issue_serving_certificate
from controllers.certificates.patches import serving_document
from kube.api.urls import SECRETS
from kube.client.client import Client
from kube.names import NAMESPACE
from process.certificates.certificates import CertificateSettings, Clock
from testing.client_certificates import client_context, is_accepted
from testing.fake_api_server import FakeApiServer, running, until
from webhook.serving_certificate import (
    CertificateWatcher,
    MountedCertificates,
    SecretCertificates,
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
    async with FakeApiServer() as fake_server:
        yield fake_server


def serving_certificate(authority: Authority, life: timedelta = 7 * DAY) -> ServingCertificate:
    return issue_serving_certificate(authority, ["w.n.svc"], now=NOW, life=life)


def put(server: FakeApiServer, certificate: ServingCertificate) -> None:
    document = serving_document(certificate, namespace=NAMESPACE, name=SETTINGS.serving_secret)
    server.put(SECRETS, dict(document))


def watcher_of(client: Client, clock: Clock = now) -> CertificateWatcher:
    source = SecretCertificates(client, NAMESPACE, SETTINGS.serving_secret)
    return CertificateWatcher(source, clock, resync_s=0.01)


def current(watcher: CertificateWatcher) -> ServingCertificate:
    certificate = watcher.certificate()
    assert certificate is not None
    return certificate


# --- from the Secret ------------------------------------------------------------------------------


async def test_the_first_certificate_is_waited_for(server: FakeApiServer) -> None:
    async with server.client() as client:
        watcher = watcher_of(client)
        assert watcher.check() == "none yet"

        async def wait() -> None:
            await watcher.wait_first()

        async with running(wait):
            await until(lambda: bool(server.calls))
            put(server, first := serving_certificate(AUTHORITY))
            await until(lambda: watcher.check() == "")

    assert watcher.certificate() == first
    assert watcher.not_after() == {"serving": first.not_after}


async def test_a_certificate_follows_the_secret_and_outlives_it(server: FakeApiServer) -> None:
    put(server, first := serving_certificate(AUTHORITY))
    async with server.client() as client:
        watcher = watcher_of(client)
        await watcher.wait_first()
        async with running(watcher.run):
            server.remove(SECRETS, SETTINGS.serving_secret, NAMESPACE)
            await wait_reconciled(server)
            assert current(watcher) == first
            metadata = {"name": SETTINGS.serving_secret, "namespace": NAMESPACE}
            server.put(SECRETS, {"metadata": metadata, "data": {"tls.crt": "%"}})
            await wait_reconciled(server)
            assert current(watcher) == first
            server.remove(SECRETS, SETTINGS.serving_secret, NAMESPACE)
            put(server, second := serving_certificate(OTHER))
            await until(lambda: current(watcher) == second)


async def wait_reconciled(server: FakeApiServer) -> None:
    """Wait until the Secret was read again."""
    call_count = len(server.calls)
    await until(lambda: len(server.calls) > call_count + 3)


async def test_a_certificate_that_has_expired_is_replaced_before_the_next_resync(
    server: FakeApiServer,
) -> None:
    put(server, serving_certificate(AUTHORITY, timedelta(seconds=1)))
    async with server.client() as client:
        source = SecretCertificates(client, NAMESPACE, SETTINGS.serving_secret)
        watcher = CertificateWatcher(source, lambda: NOW + DAY, resync_s=1000)
        await watcher.wait_first()
        assert watcher.check() == "expired"
        async with running(watcher.run):
            server.remove(SECRETS, SETTINGS.serving_secret, NAMESPACE)
            put(server, second := serving_certificate(AUTHORITY))
            await until(lambda: current(watcher) == second)


@pytest.mark.parametrize(
    ("later", "want"),
    [(8 * DAY, "expired"), (-2 * timedelta(hours=1), "not valid yet"), (DAY, "")],
)
async def test_a_certificate_that_is_not_valid_is_not_ready(
    server: FakeApiServer, later: timedelta, want: str
) -> None:
    put(server, serving_certificate(AUTHORITY))
    clock = [NOW]
    async with server.client() as client:
        watcher = watcher_of(client, lambda: clock[0])
        await watcher.wait_first()
    clock[0] += later

    assert watcher.check() == want


# --- mounted --------------------------------------------------------------------------------------


def mount(directory: Path, certificate: ServingCertificate, **texts: bytes) -> None:
    files = {
        "tls.crt": certificate.certificate,
        "tls.key": certificate.key,
        "ca.crt": certificate.authority,
    }
    for name, text in (files | {f"tls.{name}": text for name, text in texts.items()}).items():
        (directory / name).write_bytes(text)


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


# --- the authorities of clients -------------------------------------------------------------------


class OneCertificate:
    """A source with a certificate that stays."""

    def __init__(self) -> None:
        self.certificate = serving_certificate(AUTHORITY)

    async def renew(self, current: ServingCertificate | None) -> ServingCertificate | None:
        return None if current == self.certificate else self.certificate


def client_authority(life: timedelta = DAY) -> Authority:
    return Authority.create("clients", now=datetime.now(UTC), life=life)  # noqa: TID251  As TLS does.


@pytest.mark.parametrize("text", [None, b"", b"no certificate"], ids=["absent", "empty", "garbage"])
async def test_nobody_is_answered_before_the_authorities_of_clients_are_known(
    tmp_path: Path, text: bytes | None
) -> None:
    file, authority = tmp_path / "ca.crt", client_authority()
    if text is not None:
        file.write_bytes(text)
    source = OneCertificate()
    watcher = CertificateWatcher(source, now, resync_s=0.01, client_authority_file=file)

    assert str(file) in await watcher._renew()
    assert (watcher.listener, watcher.check()) == (None, "none yet")

    file.write_bytes(authority.certificate_pem)
    listener = await watcher.wait_first()
    known = client_context(authority, "kube-apiserver", source.certificate, tmp_path)
    assert is_accepted(listener, known)
    assert not is_accepted(listener, client_tls_context(source.certificate.authority))


async def test_the_authorities_of_clients_follow_their_file(tmp_path: Path) -> None:
    file, source = tmp_path / "ca.crt", OneCertificate()
    authorities = [client_authority() for _ in range(3)]
    clients = [
        client_context(authority, "kube-apiserver", source.certificate, tmp_path)
        for authority in authorities
    ]
    first, second, third = (authority.certificate_pem for authority in authorities)
    file.write_bytes(first)
    watcher = CertificateWatcher(source, now, resync_s=0.01, client_authority_file=file)
    listener = await watcher.wait_first()

    def accepted() -> list[bool]:
        return [is_accepted(listener, client) for client in clients]

    async with running(watcher.run):
        assert accepted() == [True, False, False]
        file.write_bytes("# Für die API-Server\n".encode() + first + second)
        await until(lambda: accepted() == [True, True, False])
        with capture_logs() as lines:
            file.write_bytes(b"no certificate")
            await until(lambda: any(str(file) in line.get("error", "") for line in lines))
        assert accepted() == [True, True, False], "those that were read before stay"
        source.certificate = serving_certificate(OTHER)
        await until(lambda: current(watcher) == source.certificate)
        assert accepted() == [True, True, False], "another serving certificate changes nothing"
        file.write_bytes(third)
        await until(lambda: accepted() == [False, False, True])

    assert watcher.not_after()["client-ca"] == authorities[2].not_after


async def test_an_authority_of_clients_that_has_expired_does_not_hide_its_successor(
    tmp_path: Path,
) -> None:
    file, successor = tmp_path / "ca.crt", client_authority(2 * DAY)
    file.write_bytes(successor.certificate_pem + client_authority().certificate_pem)
    watcher = CertificateWatcher(OneCertificate(), now, resync_s=0.01, client_authority_file=file)
    await watcher.wait_first()

    assert watcher.not_after()["client-ca"] == successor.not_after
