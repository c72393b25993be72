"""Honest pods of one namespace beside an attacker in another, and the processes that serve both."""

import http.client
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from e2e.access import Access, Object
from e2e.bridge import Bridge
from e2e.memory_growth import resident_mib

POLL_S: Final = 0.02
TIMEOUT_S: Final = 360.0
PARTS: Final = ("sidecar", "scheduler")
CALLERS: Final = 4
MEBIBYTE: Final = 2**20


def clear(cluster: Access, namespaces: Sequence[str], *, timeout_s: float) -> None:
    """Delete pods, claims and groups of namespaces, and wait until the cluster has no pod and no claim."""
    for namespace in namespaces:
        for kind in ("pods", "resourceclaims", "podgroups"):
            cluster.request("DELETE", cluster.kind(kind).path(namespace))
    cluster.wait_until(
        lambda: not cluster.objects("pods") and not cluster.objects("resourceclaims"),
        "pods and claims are gone",
        timeout_s=timeout_s,
    )


class Answer(NamedTuple):
    """The answer to a call of an attacker; `message` is empty unless the call failed."""

    status: int
    message: str


class Attacker:
    """A user with rights in one namespace.

    Attributes:
        namespace: The namespace.
    """

    def __init__(self, cluster: Access, namespace: str, account: str) -> None:
        """Call nothing yet.

        Args:
            account: The service account with the rights of the user.
        """
        self.namespace = namespace
        self._cluster = cluster
        self._user = f"system:serviceaccount:{namespace}:{account}"

    def create(self, document: Object) -> Answer:
        """Create an object."""
        return self._ask("POST", self._path(document["kind"]), document)

    def create_all(self, documents: Sequence[Object]) -> None:
        """Create objects, some at a time; the API server has to let all of them through."""
        with ThreadPoolExecutor(CALLERS) as callers:
            for answer in callers.map(self.create, documents):
                assert answer.status == http.client.CREATED, answer.message[:1000]

    def patch(self, kind: str, name: str, patch: Object, *, subresource: str = "") -> Answer:
        """Change an object by a merge patch."""
        path = "/".join(filter(None, (self._path(kind, name), subresource)))
        return self._ask("PATCH", path, patch, content_type="application/merge-patch+json")

    def delete(self, kind: str, name: str) -> Answer:
        """Delete an object."""
        return self._ask("DELETE", self._path(kind, name))

    def _path(self, kind: str, name: str | None = None) -> str:
        return self._cluster.kind(kind).path(self.namespace, name)

    def _ask(self, method: str, path: str, body: object = None, **options: Any) -> Answer:
        status, text = self._cluster.request(method, path, body, user=self._user, **options)
        has_failed = status >= http.client.BAD_REQUEST
        return Answer(status, json.loads(text)["message"] if has_failed else "")


@contextmanager
def repeating(action: Callable[[int], Answer], *, pause_s: float) -> Iterator[list[Answer]]:
    """Repeat a call of an attacker while a block runs, with pauses; it gets the number of its turn.

    Yields:
        The answers so far.
    """
    ended = threading.Event()
    answers: list[Answer] = []

    def repeat() -> None:
        for number in itertools.count():
            answers.append(action(number))
            if ended.wait(pause_s):
                return

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(repeat)
        try:
            yield answers
        finally:
            ended.set()
        running.result()


def seconds_until_bound(cluster: Access, namespace: str, document: Object) -> float:
    """Create a pod, and return the time until it has a node."""
    began_s = time.monotonic()
    status, body = cluster.request("POST", cluster.kind("pods").path(namespace), document)
    assert status == http.client.CREATED, body.decode()
    wait_bound(cluster, namespace, document["metadata"]["name"])
    return time.monotonic() - began_s


def wait_bound(cluster: Access, namespace: str, *names: str) -> None:
    """Wait until pods have a node."""
    deadline_s = time.monotonic() + TIMEOUT_S
    for name in names:
        while not cluster.get("pods", name, namespace)["spec"].get("nodeName"):
            assert time.monotonic() < deadline_s, f"{name} is not bound: {cluster.complaints()}"
            time.sleep(POLL_S)


@contextmanager
def unharmed(bridge: Bridge) -> Iterator[None]:
    """Check that no process of the bridge ends while a block runs, or outgrows the limit of its container."""
    records = {part: bridge.child(part).record for part in PARTS}
    cpu_s = _cpu_s(bridge)
    yield
    assert records == {part: bridge.child(part).record for part in PARTS}
    mib = {part: resident_mib(bridge.child(part)) for part in PARTS}
    used_s = {part: round(spent_s - cpu_s[part], 1) for part, spent_s in _cpu_s(bridge).items()}
    print(f"{used_s} s of CPU, {mib} MiB")
    for part, size in mib.items():
        assert size < bridge.memory_limit(part) / MEBIBYTE, f"{part} is too large"


def _cpu_s(bridge: Bridge) -> Mapping[str, float]:
    """Return the CPU time of each process, in seconds."""
    times_s: dict[str, float] = {}
    for part in PARTS:
        record = bridge.child(part).record
        assert record is not None, f"{part} has ended: {bridge.child(part).tail()}"
        fields = Path(f"/proc/{record.pid}/stat").read_text().rpartition(")")[2].split()
        times_s[part] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return times_s
