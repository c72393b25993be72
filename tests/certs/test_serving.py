"""The serving certificate: its fields, and its replacement while connections are open."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509

from certs.authority import Authority, CertificateError
from certs.serving import (
    NO_COMPRESSED_CERTIFICATES,
    Listener,
    ServingCertificate,
    client_tls_context,
    issue_serving_certificate,
)
from testing.client_certificates import client_context

NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY: Final = timedelta(days=1)
AUTHORITY: Final = Authority.create("drawbridge", now=NOW, life=100 * DAY)
NAMES: Final = ("w.n.svc", "w.n", "127.0.0.1", "::1")


def parse(serving: ServingCertificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(serving.certificate)


def fresh_certificate(authority: Authority | None = None) -> ServingCertificate:
    """Return a certificate that is valid while the test runs."""
    now = datetime.now(UTC)  # noqa: TID251  TLS compares with the real clock.
    return issue_serving_certificate(authority or fresh_authority(), NAMES, now=now, life=DAY)


def fresh_authority() -> Authority:
    return Authority.create("drawbridge", now=datetime.now(UTC), life=DAY)  # noqa: TID251  As above.


def test_a_certificate_has_every_name() -> None:
    serving = issue_serving_certificate(AUTHORITY, NAMES, now=NOW, life=DAY)
    names = parse(serving).extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["w.n.svc", "w.n"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_a_certificate_verifies_against_its_authority() -> None:
    serving = issue_serving_certificate(AUTHORITY, NAMES, now=NOW, life=DAY)

    parse(serving).verify_directly_issued_by(AUTHORITY.certificate)


def test_a_certificate_names_the_key_of_its_authority_for_strict_clients() -> None:
    serving = issue_serving_certificate(AUTHORITY, NAMES, now=NOW, life=DAY)
    value = parse(serving).extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    own = AUTHORITY.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value

    assert value.key_identifier == own.digest


def test_an_expired_authority_issues_nothing() -> None:
    with pytest.raises(CertificateError, match="expired at 2027-02-28"):
        issue_serving_certificate(AUTHORITY, NAMES, now=NOW + 101 * DAY, life=DAY)


def test_a_certificate_expires_no_later_than_its_authority() -> None:
    serving = issue_serving_certificate(AUTHORITY, NAMES, now=NOW, life=1000 * DAY)

    assert serving.not_after == AUTHORITY.not_after


def test_renewal_time_is_a_fraction_of_the_lifetime() -> None:
    serving = issue_serving_certificate(AUTHORITY, NAMES, now=NOW, life=3 * DAY)

    assert serving.renewal_time(2 / 3) == NOW + 2 * DAY


def test_a_service_name_may_be_longer_than_a_common_name() -> None:
    name = f"{'w' * 63}.{'n' * 63}.svc"
    serving = issue_serving_certificate(AUTHORITY, [name], now=NOW, life=DAY)
    names = parse(serving).extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert [name] == names.get_values_for_type(x509.DNSName)


# --- on the wire ----------------------------------------------------------------------------------


@asynccontextmanager
async def echo_server(listener: Listener) -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=listener.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(
    port: int, serving: ServingCertificate, name: str | None = "w.n.svc"
) -> Connection:
    context = client_tls_context(serving.authority)
    if name is None:
        context.check_hostname = False
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name or "")


async def exchange(connection: Connection) -> bytes:
    reader, writer = connection
    writer.write(b"hello\n")
    return await reader.readline()


async def close(*connections: Connection) -> None:
    for _, writer in connections:
        writer.close()
        await writer.wait_closed()


async def test_a_client_of_the_authority_trusts_the_certificate() -> None:
    serving = fresh_certificate()
    async with echo_server(Listener(serving)) as port:
        connection = await connect(port, serving)

        assert await exchange(connection) == b"hello\n"
        await close(connection)


@pytest.mark.parametrize("comment", ["# Société\n".encode(), "# Société\n".encode("latin-1")])
async def test_comments_and_a_key_without_a_newline_are_served_and_trusted(comment: bytes) -> None:
    issued = fresh_certificate()
    serving = ServingCertificate.read(
        comment + issued.certificate, issued.key.rstrip(), comment + issued.authority + comment
    )
    async with echo_server(Listener(serving)) as port:
        connection = await connect(port, serving)

        assert await exchange(connection) == b"hello\n"
        await close(connection)


def test_a_client_needs_certificates_of_authorities() -> None:
    with pytest.raises(CertificateError, match="not the certificates of authorities"):
        client_tls_context(b"# none\n")


async def test_new_connections_get_the_new_certificate_and_open_ones_continue() -> None:
    first, second = fresh_certificate(), fresh_certificate()
    listener = Listener(first)
    async with echo_server(listener) as port:
        before = await connect(port, first)
        listener.replace(second)
        after = await connect(port, second)

        assert await exchange(before) == b"hello\n"
        assert await exchange(after) == b"hello\n"
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(port, first)
        await close(before, after)


async def test_a_client_without_a_server_name_gets_the_new_certificate() -> None:
    listener = Listener(fresh_certificate())
    second = fresh_certificate()
    listener.replace(second)
    async with echo_server(listener) as port:
        connection = await connect(port, second, name=None)

        assert await exchange(connection) == b"hello\n"
        await close(connection)


async def test_a_server_name_that_is_not_ascii_is_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", faults.append)
    serving = fresh_certificate()
    sent = ssl.MemoryBIO()
    client = client_tls_context(serving.authority).wrap_bio(
        ssl.MemoryBIO(), sent, server_hostname="n" * 30
    )
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()

    async with echo_server(Listener(serving)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent.read().replace(b"n" * 30, b"\xff" * 30))
        answer = await reader.read(1)
        writer.close()

    assert (answer[:1], faults) == (b"\x16", [])


async def test_ciphers_without_forward_secrecy_are_rejected() -> None:
    serving = fresh_certificate()
    context = client_tls_context(serving.authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA256")
    async with echo_server(Listener(serving)) as port:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="w.n.svc")


# --- client certificates --------------------------------------------------------------------------


async def is_served(port: int, context: ssl.SSLContext) -> bool:
    """Return True if a client gets an answer; TLS 1.3 rejects its certificate after the handshake."""
    try:
        connection = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        answer = await exchange(connection)
        connection[1].close()
    except OSError:  # ssl.SSLError is one.
        return False
    return answer == b"hello\n"


async def test_replaced_authorities_of_clients_count_from_the_next_handshake(
    tmp_path: Path,
) -> None:
    serving = fresh_certificate()
    old, new = fresh_authority(), fresh_authority()
    clients = {
        authority: client_context(authority, "kube-apiserver", serving, tmp_path)
        for authority in (old, new)
    }
    listener = Listener(serving, old.certificate_pem)
    async with echo_server(listener) as port:
        assert [await is_served(port, clients[authority]) for authority in (old, new)] == [
            True,
            False,
        ]
        before = await asyncio.open_connection("127.0.0.1", port, ssl=clients[old])
        assert await exchange(before) == b"hello\n"

        listener.replace_client_authorities(new.certificate_pem)

        assert [await is_served(port, clients[authority]) for authority in (old, new)] == [
            False,
            True,
        ]
        assert not await is_served(port, client_tls_context(serving.authority))
        assert await exchange(before) == b"hello\n"
        await close(before)


async def test_authorities_of_clients_that_cannot_be_read_replace_nothing(tmp_path: Path) -> None:
    serving, authority = fresh_certificate(), fresh_authority()
    client = client_context(authority, "kube-apiserver", serving, tmp_path)
    listener = Listener(serving, authority.certificate_pem)

    with pytest.raises(CertificateError, match="OpenSSL rejects"):
        listener.replace_client_authorities(b"no certificate")

    async with echo_server(listener) as port:
        assert await is_served(port, client)
        assert not await is_served(port, client_tls_context(serving.authority))


async def test_a_client_without_certificate_stays_accepted() -> None:
    listener = Listener(fresh_certificate())

    with pytest.raises(RuntimeError):
        listener.replace_client_authorities(fresh_authority().certificate_pem)


async def test_with_client_certificates_no_session_can_be_resumed(tmp_path: Path) -> None:
    """TLS 1.2 resumes sessions by an id, also after the authority of the client was replaced."""
    serving, authority = fresh_certificate(), fresh_authority()
    client = client_context(authority, "kube-apiserver", serving, tmp_path)
    async with echo_server(Listener(serving, authority.certificate_pem)) as port:
        assert await is_served(port, client)
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        assert not await is_served(port, client)


def test_no_certificate_of_a_client_is_decompressed() -> None:
    listener = Listener(fresh_certificate(), fresh_authority().certificate_pem)
    assert listener.context.newest().options & NO_COMPRESSED_CERTIFICATES
