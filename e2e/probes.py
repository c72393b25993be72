"""Probes of the webhook as the kubelet sends them, all through a story."""

import http.client
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from e2e.drawbridge import WEBHOOK, Drawbridge

TIMEOUT_S: Final = 1.0
"""The kubelet's by default."""
PERIOD_S: Final = 0.5


@contextmanager
def watched_probes(
    drawbridge: Drawbridge, paths: Sequence[str] = ("/livez",)
) -> Iterator[list[str]]:
    """Probe the webhook until the end of the block; collects what went wrong."""
    problems: list[str] = []
    event = threading.Event()

    def probe() -> None:
        while not event.wait(PERIOD_S):
            problems.extend(problem for path in paths if (problem := _problem(drawbridge, path)))

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield problems
    finally:
        event.set()
        thread.join()


def _problem(drawbridge: Drawbridge, path: str) -> str:
    """Return what is wrong with the answer to a probe; empty where nothing is."""
    port = drawbridge.endpoints.probes[WEBHOOK]
    connection = http.client.HTTPConnection(drawbridge.endpoints.host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as fault:
        return f"{path}: {fault}"
    finally:
        connection.close()
    return "" if status == http.client.OK else f"{path}: {status}"
