"""Bounds on the records and on the handshake of a client: both ends of TLS, without a network."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from certs.authority import Authority
from certs.serving import Listener, issue_serving_certificate
from certs.tls_records import (
    BYTES_PER_EMPTY_RECORD,
    BYTES_PER_RECORD,
    MAX_HANDSHAKE_BYTES,
    MAX_SPARE_BYTES,
)
from testing.client_certificates import client_context

NOW: Final = datetime.now(UTC)  # noqa: TID251  TLS compares with the clock.
LIFE: Final = timedelta(days=1)
AUTHORITY: Final = Authority.create("test", now=NOW, life=LIFE)
LEAF: Final = issue_serving_certificate(AUTHORITY, ["w.n.svc"], now=NOW, life=LIFE)
ANY_CLIENT: Final = Listener(LEAF)
MAX_RECORDS: Final = MAX_SPARE_BYTES // BYTES_PER_RECORD
KNOWN_CLIENTS: Final = Listener(LEAF, AUTHORITY.certificate_pem)


class Ends:
    """A client and the server, and the bytes between them."""

    def __init__(self, listener: Listener, client: ssl.SSLContext) -> None:
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        self.to_server, self.to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.incoming = ssl.MemoryBIO()
        self.client = client.wrap_bio(self.to_client, self.to_server)
        self.server = listener.context.wrap_bio(self.incoming, self.to_client, server_side=True)

    def shake_hands(self, piece: int = 2**20) -> None:
        """Complete the handshake; the bytes of the client arrive in pieces."""
        for _ in range(4):
            try_handshake(self.client)
            while sent := self.to_server.read(piece):
                self.incoming.write(sent)
                try_handshake(self.server)

    def received(self, piece: int = 2**20) -> bytes:
        """Return the data of the client; its bytes arrive in pieces."""
        data = b""
        while sent := self.to_server.read(piece):
            self.incoming.write(sent)
            while self.incoming.pending or self.server.pending():
                try:
                    data += self.server.read(2**18)
                except ssl.SSLWantReadError:
                    break
        return data


class RecordWriter:
    """Writes records that no library for TLS writes: those of a client, given the secret of its connection."""

    def __init__(self, secret: bytes) -> None:
        self._key = AESGCM(_expanded(secret, b"key", 32))
        self._nonce = int.from_bytes(_expanded(secret, b"iv", 12))
        self._count = 0

    def record(self, data: bytes) -> bytes:
        """Return the next record of a connection."""
        head = b"\x17\x03\x03" + (len(data) + 17).to_bytes(2, "big")
        nonce = (self._nonce ^ self._count).to_bytes(12, "big")
        self._count += 1
        return head + self._key.encrypt(nonce, data + b"\x17", head)


def _expanded(secret: bytes, name: bytes, length: int) -> bytes:
    """Return a key or a nonce of a connection (RFC 8446, 7.1)."""
    label = b"tls13 " + name
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + b"\x00"
    return HKDFExpand(SHA384(), length, info).derive(secret)


def try_handshake(end: ssl.SSLObject) -> None:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return


def plain_client() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("piece", [1, 7, 16 * 1024, 2**20])
def test_data_arrives_whole_in_whatever_pieces(version: ssl.TLSVersion, piece: int) -> None:
    client = plain_client()
    client.maximum_version = version
    ends = Ends(ANY_CLIENT, client)
    ends.shake_hands(piece)
    data = bytes(range(256)) * (200 if piece < 100 else 4_000)

    ends.client.write(b"head")
    for begin in range(0, len(data), 16_000):
        ends.client.write(data[begin : begin + 16_000])

    assert ends.received(piece) == b"head" + data


def test_records_with_little_data_have_an_end() -> None:
    ends = Ends(ANY_CLIENT, plain_client())
    ends.shake_hands()
    few = MAX_RECORDS // 2
    for _ in range(few):
        ends.client.write(b"a")
    assert ends.received() == b"a" * few

    for _ in range(MAX_RECORDS):
        ends.client.write(b"a")
    with pytest.raises(ssl.SSLError, match="too many records"):
        ends.received()


def test_records_with_data_have_none() -> None:
    ends = Ends(ANY_CLIENT, plain_client())
    ends.shake_hands()
    record = b"a" * BYTES_PER_RECORD
    for _ in range(20):
        for _ in range(MAX_RECORDS):
            ends.client.write(record)
        assert ends.received() == record * MAX_RECORDS


def test_data_saves_up_few_records() -> None:
    ends = Ends(ANY_CLIENT, plain_client())
    ends.shake_hands()
    data = b"a" * (2 * MAX_SPARE_BYTES)
    ends.client.write(data)
    assert ends.received() == data

    for _ in range(2 * MAX_RECORDS):
        ends.client.write(b"a")
    with pytest.raises(ssl.SSLError, match="too many records"):
        ends.received()


def test_a_record_without_data_counts_as_many_with_little(tmp_path: Path) -> None:
    """OpenSSL may replace keys for each, in 20 times the time of a record with little data."""
    client = plain_client()
    client.keylog_filename = str(tmp_path / "secrets")
    ends = Ends(ANY_CLIENT, client)
    ends.shake_hands()
    assert ends.client.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
    lines = (tmp_path / "secrets").read_text().splitlines()
    secret = next(line for line in lines if line.startswith("CLIENT_TRAFFIC_SECRET_0"))
    writer = RecordWriter(bytes.fromhex(secret.split()[-1]))
    data = b"a" * (BYTES_PER_EMPTY_RECORD + 2 * BYTES_PER_RECORD)

    for _ in range(100):
        ends.to_server.write(writer.record(b"") + writer.record(data))
        assert ends.received() == data

    for _ in range(MAX_SPARE_BYTES // BYTES_PER_EMPTY_RECORD):
        ends.to_server.write(writer.record(b"") + writer.record(b"a"))
    with pytest.raises(ssl.SSLError, match="too many records"):
        ends.received()


def test_a_handshake_has_an_end(tmp_path: Path) -> None:
    names = [x509.DNSName(f"{number}.example") for number in range(MAX_HANDSHAKE_BYTES // 10)]
    long_certificate = client_context(
        AUTHORITY,
        "kube-apiserver",
        LEAF,
        tmp_path,
        extensions=[x509.SubjectAlternativeName(names)],
    )
    ends = Ends(KNOWN_CLIENTS, long_certificate)
    with pytest.raises(ssl.SSLError, match="the handshake is too long"):
        ends.shake_hands()

    short_certificate = client_context(AUTHORITY, "kube-apiserver", LEAF, tmp_path)
    ends = Ends(KNOWN_CLIENTS, short_certificate)
    ends.shake_hands()
    ends.client.write(b"a")
    assert ends.received() == b"a"


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff", b"\x80\x2e\x01"]
)
def test_what_is_no_tls_is_an_error_or_waited_for(sent: bytes) -> None:
    ends = Ends(ANY_CLIENT, plain_client())
    ends.incoming.write(sent)
    with pytest.raises(ssl.SSLError):
        ends.server.do_handshake()


def test_the_end_of_tls_is_seen() -> None:
    ends = Ends(ANY_CLIENT, plain_client())
    ends.shake_hands()
    with pytest.raises(ssl.SSLWantReadError):
        ends.client.unwrap()
    ends.incoming.write(ends.to_server.read())

    ends.server.unwrap()
