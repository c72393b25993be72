"""Bounds on the handshake and the records of a client, before OpenSSL works on them.

OpenSSL takes any number of records without data in one call: 256 KiB of KeyUpdate messages hold the event loop for
220 ms, and it parses a chain of 300 certificates of a client, in 60 ms, to reject it. So it gets one record at a
time. Their lengths are readable without keys.
"""

import ssl
from typing import Any, Final

from certs.client_hello import ClientHellos

MAX_HANDSHAKE_BYTES: Final = 16 * 1024
"""The bytes of a client until the end of its handshake; a chain of three long certificates has 6 KiB."""
BYTES_PER_RECORD: Final = 256
"""The bytes of data for which a connection may send one more record; a review has more in each."""
BYTES_PER_EMPTY_RECORD: Final = 4096
"""The same for a record without data, such as a KeyUpdate; clients send one for gigabytes, if ever."""
MAX_SPARE_BYTES: Final = 128 * 1024
"""The bytes for which a connection may send records at first; nor does it save up more by sending data."""
_HEAD_BYTES: Final = 5
_HANDSHAKE: Final = 22


class MeteredConnection(ssl.SSLObject):
    """The server's end of a TLS connection; `meter` comes first."""

    def meter(self, incoming: ssl.MemoryBIO, records: ssl.MemoryBIO) -> None:
        """Begin.

        Args:
            incoming: The bytes of the client.
            records: The bytes for OpenSSL.
        """
        self._incoming = incoming
        self._records = records
        self._head = b""
        self._missing_bytes = 0  # Of the record that has begun to arrive.
        self._kind = 0  # Of the same.
        self._hellos: ClientHellos | None = ClientHellos()  # None after the handshake.
        self._handshake_bytes = 0
        self._spare_bytes = MAX_SPARE_BYTES

    def do_handshake(self) -> None:
        """Go on with the handshake.

        Raises:
            ssl.SSLError: It failed, or would take too long.
        """
        while True:
            try:
                super().do_handshake()
            except ssl.SSLWantReadError:
                if not self._pass_record():
                    raise
            else:
                self._hellos = None
                return

    def read(self, *arguments: Any, **keywords: Any) -> Any:
        """Return the data of the next record that has some.

        Raises:
            ssl.SSLError: There is none yet, or there are too many records.
        """
        while True:
            is_whole = not super().pending() and self._pass_record()
            try:
                data: Any = super().read(*arguments, **keywords)
            except ssl.SSLWantReadError:
                if not is_whole:
                    raise
                self._charge(BYTES_PER_EMPTY_RECORD)
            else:
                size = data if isinstance(data, int) else len(data)
                self._spare_bytes = min(self._spare_bytes + size, MAX_SPARE_BYTES)
                return data

    def unwrap(self) -> Any:
        """Go on with the end of TLS.

        Raises:
            ssl.SSLError: The client's end is not there yet, or there are too many records.
        """
        while True:
            try:
                return super().unwrap()
            except ssl.SSLWantReadError:
                if not self._pass_record():
                    raise
                self._charge(BYTES_PER_EMPTY_RECORD)

    def _pass_record(self) -> bool:
        """Pass on the next part of a record; return True at its end.

        Raises:
            ssl.SSLError: There are too many records, or the handshake would take too long.
        """
        if not self._missing_bytes:
            self._head += self._incoming.read(_HEAD_BYTES - len(self._head))
            if len(self._head) < _HEAD_BYTES:
                return False
            head, self._head = self._head, b""
            self._kind = head[0]
            self._missing_bytes = int.from_bytes(head[3:])
            self._charge(BYTES_PER_RECORD)
            self._records.write(head)
        rest = self._incoming.read(self._missing_bytes) if self._missing_bytes else b""
        if self._hellos is not None:
            self._check_handshake(self._hellos, rest)
        self._missing_bytes -= len(rest)
        self._records.write(rest)
        return not self._missing_bytes

    def _check_handshake(self, hellos: ClientHellos, part: bytes) -> None:
        """Look at bytes of a handshake before OpenSSL does.

        Raises:
            ssl.SSLError: There are too many, or they end a hello that would take too long.
        """
        self._handshake_bytes += len(part)
        if self._handshake_bytes > MAX_HANDSHAKE_BYTES:
            raise ssl.SSLError("the handshake is too long")
        if self._kind == _HANDSHAKE and not hellos.take(part):
            raise ssl.SSLError("a key in a finite field")

    def _charge(self, size: int) -> None:
        """Charge a record, in bytes of data.

        Raises:
            ssl.SSLError: There are too many records.
        """
        self._spare_bytes -= size
        if self._spare_bytes < 0:
            raise ssl.SSLError("too many records")
