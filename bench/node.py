"""The node driver on a real node: its start, and what the kubelet waits for.

Calls are timed by the kubelet itself: one pod at a time is started and ended, and the sum of its
histogram of DRA operations grows by what that pod took, the kubelet's own part and the driver's fsync
included.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from bench.report import Result, below
from e2e.access import Object
from e2e.cluster import Cluster
from e2e.node.claims import claim, named, pod_with, request
from e2e.node.driver import INVENTORY, NodeDriver
from e2e.node.namespaces import missing
from e2e.node.node import Node

CLAIMS: Final = (1, 8, 32)
ROUNDS: Final = {1: 15, 8: 8, 32: 5}
STARTS: Final = 5
NAMESPACE: Final = "default"
TIMEOUT_S: Final = 60.0
MS: Final = 1_000.0


def measure() -> Iterator[Result]:
    """Yield the results; a control plane and a node are started for it."""
    if why := missing():
        print(f"not measured: {why}", file=sys.stderr)
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(Path(folder)) as cluster,
        ExitStack() as undo,
    ):
        node = Node(cluster, f"bench-{os.getpid()}")
        undo.callback(node.stop)
        node.start()
        settings = {"bootIdFile": str(node.boot_id)}
        driver = NodeDriver(cluster, node, settings=settings)
        driver.install()
        undo.callback(driver.stop)
        driver.declare(INVENTORY)
        yield below("s from the driver's start to registered, median", _start_s(driver), 2.0)
        for count in CLAIMS:
            yield from _calls(cluster, driver, count)


# --- the process ----------------------------------------------------------------------------------


def _start_s(driver: NodeDriver) -> float:
    """Return how long it takes until the kubelet has registered it and the slices are published."""
    seconds = []
    for _ in range(STARTS):
        driver.stop()
        began = time.perf_counter()
        driver.start()
        driver.wait_ready()
        seconds.append(time.perf_counter() - began)
    return median(seconds)


# --- calls of the kubelet -------------------------------------------------------------------------


def _calls(cluster: Cluster, driver: NodeDriver, count: int) -> Iterator[Result]:
    """Yield what the kubelet takes for a pod with so many claims."""
    share = request(where=named("uuid-of-gpu-0"), capacity={"memory": "1Gi", "cores": "1"})
    names = [f"claim-{count}-{number}" for number in range(count)]
    cluster.apply([_in_namespace(claim(name, share)) for name in names])
    seconds: dict[str, list[float]] = {"PrepareResources": [], "UnprepareResources": []}
    for number in range(ROUNDS[count]):
        pod = pod_with(driver.node.name, f"pod-{count}-{number}", names)
        # A pod that the kubelet had to look at again counts with all of its tries.
        before = {operation: _operation_s(cluster, driver, operation) for operation in seconds}
        _run(cluster, pod)
        _end(cluster, driver, pod)
        for operation, took in seconds.items():
            took.append(_operation_s(cluster, driver, operation) - before[operation])
    cluster.kubectl("delete", "resourceclaims", *names)
    for operation, took in seconds.items():
        cuts = quantiles(took, n=100, method="inclusive")
        what = "prepare" if operation == "PrepareResources" else "unprepare"
        for percentile in (50, 99):
            name = f"ms of the kubelet to {what} {count} claims of a pod, p{percentile}"
            yield below(name, cuts[percentile - 1] * MS, None)


def _run(cluster: Cluster, pod: Object) -> None:
    cluster.apply([_in_namespace(pod)])
    cluster.wait_running(pod["metadata"]["name"], NAMESPACE, timeout_s=TIMEOUT_S)


def _end(cluster: Cluster, driver: NodeDriver, pod: Object) -> None:
    name = pod["metadata"]["name"]
    cluster.kubectl("delete", "pod", "-n", NAMESPACE, name, "--grace-period=1", "--wait=false")
    cluster.wait_gone("pods", name, NAMESPACE, timeout_s=TIMEOUT_S)
    cluster.wait_until(driver.is_clean, "nothing is prepared", timeout_s=TIMEOUT_S)


def _operation_s(cluster: Cluster, driver: NodeDriver, operation: str) -> float:
    """Return the seconds that the kubelet has spent on an operation so far."""
    text = cluster.raw(f"/api/v1/nodes/{driver.node.name}/proxy/metrics", accept="*/*").decode()
    pattern = rf'^dra_operations_duration_seconds_sum{{.*operation_name="{operation}".*}} (\S+)$'
    return sum(float(value) for value in re.findall(pattern, text, re.MULTILINE))


def _in_namespace(document: Object) -> Object:
    return {**document, "metadata": {**document["metadata"], "namespace": NAMESPACE}}
