"""How much of what a client sends OpenSSL works on: its handshake and its records are bounded.

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

    def meter(self, received: ssl.MemoryBIO, records: ssl.MemoryBIO) -> None:
        """Begin.

        Args:
            received: What the client sent.
            records: What OpenSSL reads.
        """
        self._received = received
        self._records = records
        self._head = b""
        self._missing = 0  # Bytes of the record that was begun.
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
                if not self._pass_record(most_bytes=MAX_HANDSHAKE_BYTES):
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
                data = super().read(*arguments, **keywords)
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

    def _pass_record(self, most_bytes: int | None = None) -> bool:
        """Pass on what has arrived of a record; return True if that is all of it.

        Args:
            most_bytes: The bytes of all records, this one included; None for any number.

        Raises:
            ssl.SSLError: There are too many records, or too many bytes.
        """
        if not self._missing:
            self._head += self._received.read(_HEAD_BYTES - len(self._head))
            if len(self._head) < _HEAD_BYTES:
                return False
            head, self._head = self._head, b""
            self._missing = int.from_bytes(head[3:])
            self._record_count += 1
            self._record_bytes += _HEAD_BYTES + self._missing
            if self._record_count > MAX_RECORDS + self._data_bytes // BYTES_PER_RECORD:
                raise ssl.SSLError("too many records")
            if most_bytes is not None and self._record_bytes > most_bytes:
                raise ssl.SSLError("the handshake is too long")
            self._records.write(head)
        arrived = self._received.read(self._missing) if self._missing else b""
        self._missing -= len(arrived)
        self._records.write(arrived)
        return not self._missing
