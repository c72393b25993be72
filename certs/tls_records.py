"""Bounds on the handshake and the records of a client, before OpenSSL works on them.

OpenSSL takes any number of records without data in one call: 256 KiB of KeyUpdate messages hold the event loop for
220 ms, and it parses a chain of 300 certificates of a client, in 60 ms, to reject it. So it gets one record at a
time. Their lengths are readable without keys.
"""

import ssl
from typing import Any, Final

MAX_HANDSHAKE_BYTES: Final = 16 * 1024
"""The bytes of a client until the end of its handshake; a chain of three long certificates has 6 KiB."""
MAX_RECORDS: Final = 128
"""The records of a connection, beside those for which it has sent data."""
BYTES_PER_RECORD: Final = 256
"""The bytes of data for which a connection may send one more record; a review has more in each."""
_HEAD_BYTES: Final = 5


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
        self._record_count = 0
        self._record_bytes = 0
        self._data_bytes = 0

    def do_handshake(self) -> None:
        """Go on with the handshake.

        Raises:
            ssl.SSLError: It failed, or is too long.
        """
        while True:
            try:
                super().do_handshake()
            except ssl.SSLWantReadError:
                if not self._pass_record(max_bytes=MAX_HANDSHAKE_BYTES):
                    raise
            else:
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
            else:
                self._data_bytes += data if isinstance(data, int) else len(data)
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

    def _pass_record(self, max_bytes: int | None = None) -> bool:
        """Pass on the next part of a record; return True at its end.

        Args:
            max_bytes: The bytes of all records, this one included; None for any number.

        Raises:
            ssl.SSLError: There are too many records, or too many bytes.
        """
        if not self._missing_bytes:
            self._head += self._incoming.read(_HEAD_BYTES - len(self._head))
            if len(self._head) < _HEAD_BYTES:
                return False
            head, self._head = self._head, b""
            self._missing_bytes = int.from_bytes(head[3:])
            self._record_count += 1
            self._record_bytes += _HEAD_BYTES + self._missing_bytes
            if self._record_count > MAX_RECORDS + self._data_bytes // BYTES_PER_RECORD:
                raise ssl.SSLError("too many records")
            if max_bytes is not None and self._record_bytes > max_bytes:
                raise ssl.SSLError("the handshake is too long")
            self._records.write(head)
        rest = self._incoming.read(self._missing_bytes) if self._missing_bytes else b""
        self._missing_bytes -= len(rest)
        self._records.write(rest)
        return not self._missing_bytes
