"""Hellos of clients, one with a key that is costly to answer and one without."""

import ssl
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from certs.authority import Authority
from certs.client_hello import ClientHellos, has_costly_key
from certs.serving import Listener, issue_serving_certificate

NOW: Final = datetime.now(UTC)  # noqa: TID251  TLS compares with the clock.
LIFE: Final = timedelta(days=1)
AUTHORITY: Final = Authority.create("test", now=NOW, life=LIFE)
LISTENER: Final = Listener(issue_serving_certificate(AUTHORITY, ["w.n.svc"], now=NOW, life=LIFE))

X25519: Final = (0x1D, 32)
HYBRID: Final = (0x11EC, 1216)
UNKNOWN: Final = (0x6A6A, 1)
FFDHE2048: Final = (0x100, 256)
FFDHE8192: Final = (0x104, 1024)

Group = tuple[int, int]
"""The number of a group, and the length of its keys."""


def number(value: int, width: int) -> bytes:
    return value.to_bytes(width, "big")


def counted(content: bytes, width: int) -> bytes:
    """Return bytes behind their number."""
    return number(len(content), width) + content


def hello_of(groups: list[Group], keys: list[Group]) -> bytes:
    """Return the hello of a client of TLS 1.3."""
    names = b"".join(number(group, 2) for group, _ in groups)
    # 4 is a key of every group of RFC 7919, and of X25519.
    shares = b"".join(number(group, 2) + counted(number(4, size), 2) for group, size in keys)
    extensions = {
        0: counted(b"\x00" + counted(b"w.n.svc", 2), 2),
        10: counted(names, 2),
        13: counted(b"\x04\x03", 2),
        43: counted(b"\x03\x04", 1),
        51: counted(shares, 2),
    }
    encoded = b"".join(number(kind, 2) + counted(text, 2) for kind, text in extensions.items())
    head = b"\x03\x03" + bytes(32) + counted(bytes(32), 1)
    ciphers = counted(b"\x13\x01", 2)
    return b"\x01" + counted(head + ciphers + counted(b"\x00", 1) + counted(encoded, 2), 3)


def records_of(message: bytes, size: int = 2**14) -> bytes:
    """Return a message in records of a size."""
    parts = (message[begin : begin + size] for begin in range(0, len(message), size))
    return b"".join(b"\x16\x03\x01" + counted(part, 2) for part in parts)


class Server:
    """The server of one client that is not there."""

    def __init__(self) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._end = LISTENER.context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    def answer(self, sent: bytes, piece: int = 2**14) -> bytes:
        """Return the answer to bytes that arrive in pieces."""
        for begin in range(0, len(sent), piece):
            self.incoming.write(sent[begin : begin + piece])
            with pytest.raises(ssl.SSLWantReadError):
                self._end.do_handshake()
        return self.outgoing.read()


@pytest.mark.parametrize("keys", [[], [X25519], [HYBRID, X25519], [UNKNOWN, X25519]])
@pytest.mark.parametrize("size", [100, 2**14])
@pytest.mark.parametrize("piece", [1, 2**14])
def test_usual_keys_are_answered_in_whatever_pieces(
    keys: list[Group], size: int, piece: int
) -> None:
    hello = hello_of([UNKNOWN, HYBRID, X25519, FFDHE2048], keys)

    assert not has_costly_key(hello)
    assert Server().answer(records_of(hello, size), piece)


@pytest.mark.parametrize("keys", [[FFDHE2048], [FFDHE8192], [UNKNOWN, FFDHE8192, X25519]])
@pytest.mark.parametrize("size", [100, 2**14])
@pytest.mark.parametrize("piece", [1, 2**14])
def test_a_costly_key_is_no_work_for_openssl(keys: list[Group], size: int, piece: int) -> None:
    hello = hello_of([*keys, X25519], keys)
    server = Server()

    assert has_costly_key(hello)
    with pytest.raises(ssl.SSLError, match="a key in a finite field"):
        server.answer(records_of(hello, size), piece)
    assert not server.outgoing.pending


def test_a_client_that_is_told_to_choose_another_group_sends_no_costly_key_either() -> None:
    server = Server()
    assert server.answer(records_of(hello_of([FFDHE8192], [])))

    with pytest.raises(ssl.SSLError, match="a key in a finite field"):
        server.answer(records_of(hello_of([FFDHE8192], [FFDHE8192])))


def test_two_hellos_in_one_record_are_two() -> None:
    hellos = hello_of([FFDHE8192], []) + hello_of([FFDHE8192], [FFDHE8192])
    assert not ClientHellos().take(hellos)


@pytest.mark.parametrize("length", range(0, 140, 7))
def test_a_hello_that_ends_anywhere_is_left_to_openssl(length: int) -> None:
    part = hello_of([X25519], [X25519])[4:length]
    assert not has_costly_key(b"\x01" + counted(part, 3))


def test_what_is_encrypted_is_not_taken_for_a_hello() -> None:
    finished = b"\x01" + bytes(39)  # Of TLS 1.2: a number that begins like a hello, and 32 bytes.
    assert ClientHellos().take(finished)
