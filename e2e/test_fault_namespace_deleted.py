"""A namespace is deleted while pods are created in it, and the controllers write templates there."""

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Final

import pytest

from e2e.access import Access, stream
from e2e.drawbridge import CONTROLLER, Drawbridge
from e2e.objects import deployment, pod

pytestmark = pytest.mark.usefixtures("fleet")

TIMEOUT_S: Final = 120.0
NAMESPACE: Final = "doomed"
DEPLOYMENTS: Final = 6
LINES_PER_POD: Final = 8
"""The lines of the controller's log: attempts at a template that end with the pod."""
QUIET_S: Final = 2.5
"""Longer than `maxBackoff` of the stories."""


class Creator(threading.Thread):
    """Creates pods, each with a template of its own, until the namespace is gone."""

    def __init__(self, cluster: Access) -> None:
        super().__init__()
        self._cluster = cluster
        self._ended = threading.Event()
        self.created = 0
        self.refused: list[str] = []

    def run(self) -> None:
        path = self._cluster.kind("pods").path(NAMESPACE)
        for number in range(10_000):
            if self._ended.wait(0.02):
                return
            limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 300 + number}
            document = pod(f"late-{number}", limits=limits)
            status, answer = self._cluster.request("POST", path, document)
            if status == http.client.CREATED:
                self.created += 1
            else:
                self.refused.append(str(json.loads(answer).get("message", "")))

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.fixture
def creator(cluster: Access, drawbridge: Drawbridge) -> Iterator[Creator]:
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.wait_for("serviceaccounts", "default", NAMESPACE)
    running = Creator(cluster)
    running.start()
    yield running
    running.end()
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


def counter(text: str, name: str) -> float:
    """The sum of a metric of the controllers of templates."""
    lines = re.findall(rf'^{name}{{[^}}]*name="template[^}}]*}} (\S+)$', text, re.MULTILINE)
    return sum(map(float, lines))


@pytest.mark.long
def test_nothing_is_left_and_nobody_tries_for_ever(
    cluster: Access, drawbridge: Drawbridge, creator: Creator, namespace: str
) -> None:
    serving = [
        deployment(
            f"serving-{number}",
            pod("pod", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 200 + number}),
            replicas=2,
        )
        for number in range(DEPLOYMENTS)
    ]
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=stream(serving))
    cluster.wait_until(lambda: creator.created > 20, "pods are created")
    before = drawbridge.log(CONTROLLER).count("\n")

    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")

    # Whoever has nothing to do with it is served meanwhile.
    honest = pod("honest", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100})
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(honest))
    cluster.wait_running("honest", namespace, timeout_s=TIMEOUT_S)
    cluster.wait_gone("namespaces", NAMESPACE, timeout_s=TIMEOUT_S)
    creator.end()
    drawbridge.wait_ready()
    # Nobody was refused but by the end of the namespace.
    words = ("is being terminated", f'namespaces "{NAMESPACE}" not found', "serviceaccount")
    assert [text for text in creator.refused if not any(word in text for word in words)] == []
    lines = drawbridge.log(CONTROLLER).splitlines()[before:]
    about = [line for line in lines if NAMESPACE in line]
    pods = creator.created + 2 * DEPLOYMENTS
    assert len(about) <= LINES_PER_POD * pods, about[-5:]
    assert "Traceback" not in "\n".join(lines)

    cluster.wait_until(
        lambda: counter(drawbridge.metrics(CONTROLLER), "workqueue_depth") == 0, "nothing waits"
    )
    time.sleep(QUIET_S)
    retries = counter(drawbridge.metrics(CONTROLLER), "workqueue_retries_total")
    log = drawbridge.log(CONTROLLER).count(NAMESPACE)
    time.sleep(QUIET_S)
    assert retries == counter(drawbridge.metrics(CONTROLLER), "workqueue_retries_total")
    assert log == drawbridge.log(CONTROLLER).count(NAMESPACE)
    for kind in ("resourceclaimtemplates", "resourceclaims", "pods"):
        namespaces = {stored["metadata"]["namespace"] for stored in cluster.objects(kind)}
        assert NAMESPACE not in namespaces
