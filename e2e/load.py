"""A steady stream of pod creations, and the outcome of each.

They are dry runs: all of admission takes place, and nothing is left to schedule.
"""

import http.client
import itertools
import json
import threading
import time
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from e2e.access import Access, Object
from e2e.translated import legacy_keys

CALLERS: Final = 4
"""Creations at a time, at most."""
PER_SECOND: Final = 40


class Created(NamedTuple):
    """One creation; seconds are since the load began."""

    at_s: float
    took_s: float
    message: str

    @property
    def failed(self) -> bool:
        """Return True if the pod was not created, or created with its keys."""
        return bool(self.message)


class Load:
    """`with Load(cluster, namespace, pod) as load: ...`; several pods take turns."""

    def __init__(
        self,
        cluster: Access,
        namespace: str,
        *documents: Object,
        kind: str = "pods",
        user: str = "",
        per_second: float = PER_SECOND,
    ) -> None:
        self._cluster = cluster
        self._user = user
        self._pause_s = CALLERS / per_second
        self._path = f"{cluster.kind(kind).path(namespace)}?dryRun=All"
        self._documents = itertools.cycle(documents)
        self._ended = threading.Event()
        self._began = time.monotonic()
        self._created: list[Created] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(CALLERS)]

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    @property
    def created(self) -> Sequence[Created]:
        """The requests so far, in order of their answers."""
        return tuple(self._created)

    @property
    def failures(self) -> list[Created]:
        """The requests that failed."""
        return [request for request in self.created if request.failed]

    def describe_event(self, event: str) -> str:
        """Describe the cost of an event."""
        took = sorted(request.took_s for request in self.created)
        slowest = f"median {took[len(took) // 2] * 1e3:.0f} ms, slowest {took[-1] * 1e3:.0f} ms"
        return f"{event}: {len(self.failures)} of {len(took)} creations failed; {slowest}"

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ended.is_set():
            began = time.monotonic()
            status, body = self._cluster.request(
                "POST", self._path, next(self._documents), user=self._user
            )
            now = time.monotonic()
            message = _fault(status, body)
            self._created.append(Created(began - self._began, now - began, message))
            due = max(due + self._pause_s, now - 1)
            self._ended.wait(due - now)


def _fault(status: int, body: bytes) -> str:
    """Describe the fault of an answer; empty if the object is as it should be."""
    answer = json.loads(body)
    if status != http.client.CREATED:
        return str(answer.get("message", body))
    keys = legacy_keys(answer) if answer["kind"] == "Pod" else ()
    return f"created with {', '.join(sorted(keys))}" if keys else ""
