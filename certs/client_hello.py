"""A check of the hello of a TLS client, before OpenSSL works on it.

A client chooses the group in which keys are exchanged. A key of ffdhe8192 takes OpenSSL 3.0 120 ms, one of ffdhe3072
takes 3.5 2 ms, and one of X25519 takes 0.2 ms. Python's `ssl` cannot take single groups from OpenSSL's list.
"""

from typing import Final

_CLIENT_HELLO: Final = b"\x01"
_HEAD_BYTES: Final = 4
_KEY_SHARE: Final = b"\x00\x33"
_FINITE_FIELDS: Final = b"\x01"
"""The first byte of the numbers of groups that are finite fields (RFC 7919), and of no others."""


class ClientHellos:
    """The hellos of one client, as their bytes arrive: a second one comes if it is told to choose another group."""

    def __init__(self) -> None:
        """Begin without a byte."""
        self._messages = b""

    def take(self, part: bytes) -> bool:
        """Take the next bytes of messages; return False if a hello that ends in them has a costly key.

        Args:
            part: Bytes of records of the handshake. Encrypted ones pass for the beginning of another message.
        """
        self._messages += part
        while self._messages.startswith(_CLIENT_HELLO):
            end = _HEAD_BYTES + int.from_bytes(self._messages[1:_HEAD_BYTES])
            if len(self._messages) < end:
                break
            hello, self._messages = self._messages[:end], self._messages[end:]
            if has_costly_key(hello):
                return False
        return True


def has_costly_key(hello: bytes) -> bool:
    """Return True if a hello has a key in a finite field; a malformed one is OpenSSL's to reject.

    Clients that know such groups list them last, and send a key for one only if they are told to.

    Source: RFC 8446, 4.1.2 and 4.2.8.
    """
    at = _HEAD_BYTES + 2 + 32  # Behind version and random number.
    for width in (1, 2, 1):  # Session, ciphers, compression.
        at += width + int.from_bytes(hello[at : at + width])
    at += 2
    while at < len(hello):
        end = at + 4 + int.from_bytes(hello[at + 2 : at + 4])
        key = at + 6 if hello[at : at + 2] == _KEY_SHARE else end
        while key < end:
            if hello[key : key + 1] == _FINITE_FIELDS:
                return True
            key += 4 + int.from_bytes(hello[key + 2 : key + 4])
        at = end
    return False
