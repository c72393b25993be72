"""Probes of the webhook as the kubelet sends them, all through a story."""

import http.client
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from e2e.drawbridge import CERTIFICATES, WEBHOOK, Drawbridge

TIMEOUT_S: Final = 1.0
FAILURE_THRESHOLD: Final = 2
"""The failures in a row of the readiness probe in manifests/base/webhook.yaml."""
PERIOD_S: Final = 0.5


@contextmanager
def watched_probes(
    drawbridge: Drawbridge, paths: Sequence[str] = ("/livez",)
) -> Iterator[list[str]]:
    """Probe the webhook until the end of the block; collects the failures that the kubelet would act on.

    Those do not count while another process, which nobody attacks, does not answer either: the machine is busy.
    """
    problems: list[str] = []
    in_a_row: dict[str, list[str]] = {path: [] for path in paths}
    event = threading.Event()

    def probe() -> None:
        while not event.wait(PERIOD_S):
            for path in paths:
                problem = _problem(drawbridge, WEBHOOK, path)
                if problem and _problem(drawbridge, CERTIFICATES, "/livez"):
                    problem = ""
                in_a_row[path] = [*in_a_row[path], problem] if problem else []
                if len(in_a_row[path]) >= FAILURE_THRESHOLD:
                    problems.extend(in_a_row[path])

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield problems
    finally:
        event.set()
        thread.join()


def _problem(drawbridge: Drawbridge, process: str, path: str) -> str:
    """Return the fault of the answer to a probe; empty without one."""
    port = drawbridge.endpoints.probes[process]
    connection = http.client.HTTPConnection(drawbridge.endpoints.host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as fault:
        return f"{path}: {fault}"
    finally:
        connection.close()
    return "" if status == http.client.OK else f"{path}: {status}"
