"""Ports of loopback for servers of tests, reserved for one run of them at a time."""

import fcntl
import itertools
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO, Final

_RESERVED_PORTS: Final[list[IO[bytes]]] = []
"""Locks that last as long as this process, so that no other run of these stories takes its ports."""


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody uses, all different, and reserve them for this run."""
    # Below the range that outgoing connections take theirs from, so that none is lost to one of
    # those between this moment and the start of its server.
    candidates = random.sample(range(20000, 32000), 1000)
    return list(itertools.islice(filter(_reserve, candidates), count))


def _reserve(port: int) -> bool:
    folder = Path(tempfile.gettempdir(), f"drawbridge-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    lock = (folder / str(port)).open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        lock.close()
        return False
    _RESERVED_PORTS.append(lock)
    return True
