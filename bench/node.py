"""The node driver on a real node: the kubelet's waits, the process' cost, and the time of
publication through the API server.

Calls are timed by the kubelet itself: one pod at a time is started and ended, and the sum of its
histogram of DRA operations grows by what that pod took, the kubelet's own part and the driver's fsync
included. `bench/last_mile.py` has the whole way of a pod.
"""

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from bench.driver import cards, many_devices
from bench.last_mile import measure_stages
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
IDLE_S: Final = 20.0
NAMESPACE: Final = "default"
TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05
METADATA_PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
METADATA: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
MS: Final = 1_000.0
INVENTORIES: Final = (
    ("8 cards with all placements of 7 MIG profiles", cards(8), 1.0),
    ("5,000 devices", many_devices(5_000), 5.0),
)
"""The inventories to publish, and the seconds for each."""


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
        yield from measure_stages(
            cluster, driver, NAMESPACE, lambda pod: _end(cluster, driver, pod)
        )
        for count in CLAIMS:
            yield from _calls(cluster, driver, count)
        yield from _idle(driver)
        yield from _publishing(cluster, driver)


# --- the process ----------------------------------------------------------------------------------


def _start_s(driver: NodeDriver) -> float:
    """Return the time until the kubelet has registered it and the slices are published."""
    seconds = []
    for _ in range(STARTS):
        driver.stop()
        began = time.perf_counter()
        driver.start()
        driver.wait_ready()
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def _idle(driver: NodeDriver) -> Iterator[Result]:
    """Yield memory and CPU of a driver that has worked, and has nothing to do now."""
    process = Path("/proc") / str(_process_id(driver))
    began_s, began = _cpu_s(process), time.perf_counter()
    time.sleep(IDLE_S)
    busy = (_cpu_s(process) - began_s) / (time.perf_counter() - began)
    pages = int((process / "statm").read_text().split()[1])
    yield below("MB of the driver's memory", pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 120.0)
    yield below("% of a CPU for the driver, idle", 100 * busy, 0.5)


def _process_id(driver: NodeDriver) -> int:
    """Return the id of the driver's own process; the started one is `nsenter`."""
    environment = f"DRAWBRIDGE_NODE_NAME={driver.node.name}".encode()
    ids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            is_ours = environment in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_ours and words[1:4] == [b"-m", b"driver", b""]:
            ids.append(int(folder.name))
    (process_id,) = ids
    return process_id


def _cpu_s(process: Path) -> float:
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- publishing -----------------------------------------------------------------------------------


def _publishing(cluster: Cluster, driver: NodeDriver) -> Iterator[Result]:
    """Yield the times until large inventories are on the API server as whole pools."""
    driver.stop()
    driver.start(inventoryReloadPeriod="100ms")  # The figure is not about looking at a file.
    driver.wait_ready()
    for pools_in_words, pools, bound_s in INVENTORIES:
        yield below(
            f"s until {pools_in_words} are published whole",
            _publish_s(cluster, driver, pools),
            bound_s,
        )
    driver.stop()


def _publish_s(cluster: Cluster, driver: NodeDriver, pools: Sequence[Mapping[str, Any]]) -> float:
    """Return the time from a changed inventory to slices that are all there."""
    names = {device["name"] for pool in pools for device in pool["devices"]}
    driver.declare(pools)
    began = time.perf_counter()
    versions: set[tuple[str, str]] = set()
    while True:
        now = time.perf_counter() - began
        before, versions = versions, _slice_versions(cluster)
        # Whole slices are read when nothing has changed for a moment, since that takes time from others.
        if before == versions and _is_published(driver.slices(), names):
            return now
        assert now < TIMEOUT_S, "not published"
        time.sleep(POLL_S)


def _slice_versions(cluster: Cluster) -> set[tuple[str, str]]:
    """Return name and version of each slice, without its content."""
    document = json.loads(cluster.raw(METADATA_PATH, accept=METADATA))
    return {
        (item["metadata"]["name"], item["metadata"]["resourceVersion"])
        for item in document["items"]
    }


def _is_published(slices: Sequence[Object], names: set[str]) -> bool:
    """Return True if slices have these devices, in pools that have all slices of one generation."""
    by_pool: dict[str, list[Mapping[str, Any]]] = {}
    for slice_ in slices:
        by_pool.setdefault(slice_["spec"]["pool"]["name"], []).append(slice_["spec"])
    published = {
        device["name"]
        for specs in by_pool.values()
        for spec in specs
        for device in spec.get("devices") or ()
    }
    return published == names and all(map(_is_whole, by_pool.values()))


def _is_whole(specs: Sequence[Mapping[str, Any]]) -> bool:
    pools = [spec["pool"] for spec in specs]
    newest = max(pool["generation"] for pool in pools)
    return all(
        (pool["generation"], pool["resourceSliceCount"]) == (newest, len(pools)) for pool in pools
    )


# --- calls of the kubelet -------------------------------------------------------------------------


def _calls(cluster: Cluster, driver: NodeDriver, count: int) -> Iterator[Result]:
    """Yield the kubelet's times for a pod with so many claims."""
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
        verb = "prepare" if operation == "PrepareResources" else "unprepare"
        for percentile in (50, 99):
            name = f"ms of the kubelet to {verb} {count} claims of a pod, p{percentile}"
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
