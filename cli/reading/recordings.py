"""Recordings of clusters, read from files line by line."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from answers.recording.lines import (
    MAX_LINE,
    Entry,
    Header,
    Torn,
    decode_entries,
    decode_header,
)
from cli.output.standard_error import print_line
from kube.manifests.source import raise_at

_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = 16 + zlib.MAX_WBITS
_CHUNK: Final = 2**16
_MAX_UNPACKED: Final = 2**20
"""Bytes that are decompressed at once."""


class RecordingReader:
    """A recording in a file.

    Attributes:
        header: Its first line.
        name: The name of the file.
    """

    def __init__(self, name: str, header: Header) -> None:
        self.name = name
        self.header = header
        self._is_noted = False

    def entries(self) -> Iterator[Entry]:
        """Yield the entries; a line that is cut off at the end is noted, and left out.

        Raises:
            ObjectFileError: A line is not what a recorder writes; the message names file and line.
            OSError: The file cannot be read.
        """
        lines = _lines(self.name)
        next(lines)
        try:
            yield from decode_entries(lines, self.name)
        except Torn as cut:
            if self._is_noted:
                return
            self._is_noted = True
            print_line(f"note: {cut}, as where a recorder was killed; that line is left out")


def open_recording(name: str) -> RecordingReader:
    """Return the recording in a file.

    Raises:
        ObjectFileError: It is none.
        OSError: The file cannot be read.
    """
    return RecordingReader(name, decode_header(next(_lines(name), b""), name))


def _lines(name: str) -> Iterator[bytes]:
    """Yield the lines of a file with their ends; the last one may have none."""
    rest = b""
    number = 1
    for text in _texts(name):
        parts = (rest + text).split(b"\n") if rest else text.split(b"\n")
        rest = parts.pop()
        for part in parts:
            yield part + b"\n"
            number += 1
        if len(rest) > MAX_LINE:
            raise_at(name, number, f"a line of more than {MAX_LINE} bytes")
    if rest:
        yield rest


def _texts(name: str) -> Iterator[bytes]:
    """Yield the text of a file piece by piece; of gzip that is cut off, the part that is there."""
    with Path(name).open("rb") as stream:
        chunk = stream.read(_CHUNK)
        if not chunk.startswith(_GZIP_MAGIC):
            while chunk:
                yield chunk
                chunk = stream.read(_CHUNK)
            return
        unpacker = zlib.decompressobj(wbits=_GZIP)
        while chunk and not unpacker.eof:
            try:
                text = unpacker.decompress(chunk, _MAX_UNPACKED)
            except zlib.error as fault:
                raise_at(name, 1, f"not a valid gzip file: {fault}")
            if text:
                yield text
            chunk = unpacker.unconsumed_tail or stream.read(_CHUNK)
