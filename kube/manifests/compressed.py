"""Decompress gzip files, such as those of `drawbridge snapshot -o FILE.gz`, within a limit on size."""

import zlib
from typing import Final

from kube.errors import ObjectFileError
from kube.manifests.source import MAX_BYTES

_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = 16 + zlib.MAX_WBITS


def decompress(content: bytes, source: str) -> bytes:
    """Return the text of a gzip file; other content is returned as it is.

    At most one byte more than `MAX_BYTES` is decompressed, so a small file cannot fill the memory.

    Raises:
        ObjectFileError: The file is cut off or damaged.

    >>> decompress(b"kind: Pod", "pod.yaml")
    b'kind: Pod'
    """
    if not content.startswith(_MAGIC):
        return content
    parts: list[bytes] = []
    size = 0
    # A gzip file may have several members, one after the other.
    while content and size <= MAX_BYTES:
        member = zlib.decompressobj(wbits=_GZIP)
        try:
            part = member.decompress(content, MAX_BYTES + 1 - size)
        except zlib.error as fault:
            raise ObjectFileError(f"{source}:1: not a valid gzip file: {fault}") from fault
        parts.append(part)
        size += len(part)
        if not member.eof and size <= MAX_BYTES:
            raise ObjectFileError(f"{source}:1: the gzip file is cut off")
        content = member.unused_data
    return b"".join(parts)
