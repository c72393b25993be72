"""The serving certificate: what is in it, and that it can be swapped while connections are open."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from cryptography import x509

from certs.authority import Authority, CertificateError
from certs.serving import Leaf, Listener, client_context, issue_leaf

NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY: Final = timedelta(days=1)
AUTHORITY: Final = Authority.make("drawbridge", now=NOW, life=100 * DAY)
NAMES: Final = ("w.n.svc", "w.n", "127.0.0.1", "::1")


def certificate(leaf: Leaf) -> x509.Certificate:
    return x509.load_pem_x509_certificate(leaf.certificate)


def fresh_leaf(authority: Authority | None = None) -> Leaf:
    """Return a leaf that is good at the time of the test."""
    now = datetime.now(UTC)  # noqa: TID251  TLS compares with the real clock.
    return issue_leaf(authority or fresh_authority(), NAMES, now=now, life=DAY)


def fresh_authority() -> Authority:
    return Authority.make("drawbridge", now=datetime.now(UTC), life=DAY)  # noqa: TID251  As above.


def test_every_name_is_in_it() -> None:
    leaf = issue_leaf(AUTHORITY, NAMES, now=NOW, life=DAY)
    names = certificate(leaf).extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["w.n.svc", "w.n"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_it_verifies_against_its_authority() -> None:
    leaf = issue_leaf(AUTHORITY, NAMES, now=NOW, life=DAY)

    certificate(leaf).verify_directly_issued_by(AUTHORITY.certificate)


def test_strict_clients_find_the_key_of_the_authority() -> None:
    leaf = issue_leaf(AUTHORITY, NAMES, now=NOW, life=DAY)
    named = certificate(leaf).extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    own = AUTHORITY.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value

    assert named.key_identifier == own.digest


def test_an_authority_that_has_ended_signs_nothing() -> None:
    with pytest.raises(CertificateError, match="ended at 2027-02-28"):
        issue_leaf(AUTHORITY, NAMES, now=NOW + 101 * DAY, life=DAY)


def test_it_ends_no_later_than_its_authority() -> None:
    leaf = issue_leaf(AUTHORITY, NAMES, now=NOW, life=1000 * DAY)

    assert leaf.not_after == AUTHORITY.not_after


def test_it_is_renewed_at_a_part_of_its_life() -> None:
    leaf = issue_leaf(AUTHORITY, NAMES, now=NOW, life=3 * DAY)

    assert leaf.renewed_at(2 / 3) == NOW + 2 * DAY


def test_a_service_name_longer_than_a_common_name_may_be() -> None:
    name = f"{'w' * 63}.{'n' * 63}.svc"
    leaf = issue_leaf(AUTHORITY, [name], now=NOW, life=DAY)
    names = certificate(leaf).extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert [name] == names.get_values_for_type(x509.DNSName)


# --- on the wire ----------------------------------------------------------------------------------


@asynccontextmanager
async def echoing(listener: Listener) -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=listener.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(port: int, leaf: Leaf, name: str | None = "w.n.svc") -> Connection:
    context = client_context(leaf.authority)
    if name is None:
        context.check_hostname = False
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name or "")


async def said(connection: Connection) -> bytes:
    reader, writer = connection
    writer.write(b"hello\n")
    return await reader.readline()


async def closed(*connections: Connection) -> None:
    for _, writer in connections:
        writer.close()
        await writer.wait_closed()


async def test_a_client_of_the_authority_believes_the_leaf() -> None:
    leaf = fresh_leaf()
    async with echoing(Listener(leaf)) as port:
        connection = await connected(port, leaf)

        assert await said(connection) == b"hello\n"
        await closed(connection)


async def test_new_connections_get_the_new_leaf_and_open_ones_go_on() -> None:
    first, second = fresh_leaf(), fresh_leaf()
    listener = Listener(first)
    async with echoing(listener) as port:
        before = await connected(port, first)
        listener.replace(second)
        after = await connected(port, second)

        assert await said(before) == b"hello\n"
        assert await said(after) == b"hello\n"
        with pytest.raises(ssl.SSLCertVerificationError):
            await connected(port, first)
        await closed(before, after)


async def test_a_client_that_names_no_server_gets_the_new_leaf_too() -> None:
    listener = Listener(fresh_leaf())
    second = fresh_leaf()
    listener.replace(second)
    async with echoing(listener) as port:
        connection = await connected(port, second, name=None)

        assert await said(connection) == b"hello\n"
        await closed(connection)


async def test_ciphers_without_forward_secrecy_are_refused() -> None:
    leaf = fresh_leaf()
    context = client_context(leaf.authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA256")
    async with echoing(Listener(leaf)) as port:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="w.n.svc")
