"""The file that a recorder writes: lines, flushed now and then, compressed if the name says so.

Whatever was flushed can be read, also when the recorder is killed.
"""

import os
import sys
import zlib
from typing import BinaryIO, Final, Self

from answers.recording.lines import Entry, Header, encode_entry, encode_header

_GZIP: Final = 16 + zlib.MAX_WBITS
_BUFFER: Final = 2**16
"""Bytes of lines that are collected before they are compressed and written."""


class RecordingFile:
    """A file that is being written.

    Attributes:
        bytes_written: Bytes of the file so far.
    """

    def __init__(self, stream: BinaryIO, *, is_compressed: bool) -> None:
        """Begin with nothing.

        Args:
            stream: The stream to write to.
            is_compressed: Write gzip.
        """
        self._stream = stream
        self._compressor = zlib.compressobj(wbits=_GZIP) if is_compressed else None
        self._lines = bytearray()
        self.bytes_written = 0

    @classmethod
    def create(cls, name: str) -> Self:
        """Create a file that its owner alone can read; `-` is standard output.

        Raises:
            FileExistsError: There is one of this name: a recording may be of days.
            OSError: It cannot be created.
        """
        if name == "-":
            return cls(sys.stdout.buffer, is_compressed=False)
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return cls(os.fdopen(descriptor, "wb", buffering=0), is_compressed=name.endswith(".gz"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file as it is."""
        if self._stream is not sys.stdout.buffer:
            self._stream.close()

    def begin(self, header: Header) -> None:
        """Write the first line."""
        self._lines += encode_header(header)

    def add(self, entry: Entry) -> None:
        """Write a line, now or with one of the next ones."""
        self._lines += encode_entry(entry)
        if len(self._lines) >= _BUFFER:
            self._write(self._pack())

    def flush(self) -> None:
        """Write all lines, so that they can be read from now on."""
        if not self._lines:
            return
        text = self._pack()
        if self._compressor is not None:
            text += self._compressor.flush(zlib.Z_SYNC_FLUSH)
        self._write(text)

    def end(self) -> None:
        """Write the rest; the file is whole."""
        text = self._pack()
        if self._compressor is not None:
            text += self._compressor.flush(zlib.Z_FINISH)
        self._write(text)
        if self._stream is not sys.stdout.buffer:
            os.fsync(self._stream.fileno())

    def _pack(self) -> bytes:
        lines, self._lines = bytes(self._lines), bytearray()
        return lines if self._compressor is None else self._compressor.compress(lines)

    def _write(self, text: bytes) -> None:
        left = memoryview(text)
        while left:  # A raw file may take a part.
            left = left[self._stream.write(left) :]
        self.bytes_written += len(text)
        self._stream.flush()
