"""Decompress gzip files, such as those of `drawbridge snapshot -o FILE.gz`, within a limit on size."""

import zlib
from typing import Final

from kube.errors import ObjectFileError
from kube.manifests.source import MAX_BYTES

MAX_MEMBERS: Final = 1000
"""Parts of a gzip file; each costs time, however little it holds."""
_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = 16 + zlib.MAX_WBITS
_CHUNK: Final = 2**16


def decompress(content: bytes, source: str) -> bytes:
    """Return the text of a gzip file; other content is returned as it is.

    At most one byte more than `MAX_BYTES` is decompressed, so a small file cannot fill the memory.

    Raises:
        ObjectFileError: The file is cut off or damaged, or has too many parts.

    >>> decompress(b"kind: Pod", "pod.yaml")
    b'kind: Pod'
    """
    if not content.startswith(_MAGIC):
        return content
    parts: list[bytes] = []
    size = members = at = 0
    # A gzip file may have several members, one after the other.
    while at < len(content) and size <= MAX_BYTES:
        members += 1
        if members > MAX_MEMBERS:
            raise ObjectFileError(f"{source}:1: the gzip file has more than {MAX_MEMBERS} parts")
        member = zlib.decompressobj(wbits=_GZIP)
        while not member.eof and size <= MAX_BYTES:
            # What is left over is copied, so it is little.
            chunk = content[at : at + _CHUNK]
            if not chunk:
                raise ObjectFileError(f"{source}:1: the gzip file is cut off")
            try:
                part = member.decompress(chunk, MAX_BYTES + 1 - size)
            except zlib.error as fault:
                raise ObjectFileError(f"{source}:1: not a valid gzip file: {fault}") from fault
            at += len(chunk) - len(member.unused_data) - len(member.unconsumed_tail)
            parts.append(part)
            size += len(part)
    return b"".join(parts)
