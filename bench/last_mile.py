"""From `kubectl apply` to a running container on a real node, with the share of each stage.

Stages are medians, and their sum is the anchor. A pod whose claim the kubelet may not read yet, because the
API server does not know that it is bound there, is tried again after ten seconds and more.

One legacy pod at a time goes the whole way: webhook, template, claim, scheduler, kubelet, driver, CDI,
container. It is followed by reads of the pod every ten milliseconds; the driver's own stage ends with the
time of its CDI spec.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate, pairwise
from statistics import median
from typing import Any, Final, NamedTuple

from bench.report import Result, below, informative
from e2e.access import Object
from e2e.bridge import Bridge, bridged
from e2e.cluster import Cluster
from e2e.drawbridge import install_drawbridge
from e2e.node.driver import CDI, DRIVER, NodeDriver
from e2e.node.node import pod_on
from e2e.node.pods import is_translated

PODS: Final = 12
WARM_UP: Final = 2
"""Pods that fill caches, and do not count."""
POLL_S: Final = 0.01
TIMEOUT_S: Final = 60.0
MS: Final = 1_000.0
LIMITS: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 1}
STAGES: Final = (
    "kubectl and the webhook",
    "template and claim",
    "scheduling",
    "kubelet and driver, to the CDI spec",
    "container",
)
"""The stages between two moments of `Moments`."""

EndPod = Callable[[Object], None]


class Moments(NamedTuple):
    """The times of a pod's steps, in seconds of the wall clock."""

    began: float
    applied: float
    claimed: float
    bound: float
    prepared: float
    running: float


def measure_stages(
    cluster: Cluster, driver: NodeDriver, namespace: str, end_pod: EndPod
) -> Iterator[Result]:
    """Yield the stages below kube-scheduler, then below the bridge.

    Args:
        cluster: The cluster with the driver's node.
        driver: Ready, with GPUs that can be shared.
        namespace: The namespace of the pods.
        end_pod: Deletes a pod and returns when nothing is left of it.
    """
    settings = {"translation": {"profiles": {"hami": DRIVER}}}
    with ExitStack() as undo:
        drawbridge = install_drawbridge(cluster, settings=settings)
        undo.callback(drawbridge.uninstall)
        probe = _legacy_pod(driver, "probe")
        cluster.wait_until(
            lambda: is_translated(cluster, namespace, probe), "pods are translated", timeout_s=60
        )
        in_tree = _follow_pods(cluster, driver, namespace, end_pod, lambda pod: pod)
        yield from _results("kube-scheduler", in_tree)
        bridge = Bridge(cluster, drivers=[DRIVER])
        undo.callback(bridge.uninstall)
        bridge.install()
        bridge.ensure()
        yield from _results(
            "the bridge", _follow_pods(cluster, driver, namespace, end_pod, bridged)
        )


def _results(scheduler: str, runs: Sequence[Moments]) -> Iterator[Result]:
    totals = [run.running - run.began for run in runs]
    name = f"ms from kubectl apply to running below {scheduler}"
    yield below(f"{name}, median", median(totals) * MS, None)
    yield below(f"{name}, longest", max(totals) * MS, None)
    stages = zip(
        *([after - before for before, after in pairwise(run)] for run in runs), strict=True
    )
    medians = [median(seconds) * MS for seconds in stages]
    for stage, stage_ms in zip(STAGES, medians, strict=True):
        yield informative(f"ms of a stage below {scheduler}: {stage}", stage_ms, sum(medians))


def _follow_pods(
    cluster: Cluster,
    driver: NodeDriver,
    namespace: str,
    end_pod: EndPod,
    adapt: Callable[[Object], Object],
) -> list[Moments]:
    runs = []
    for number in range(WARM_UP + PODS):
        pod = adapt(_legacy_pod(driver, f"legacy-{number}"))
        runs.append(_follow(cluster, driver, namespace, pod))
        end_pod(pod)
    return runs[WARM_UP:]


def _legacy_pod(driver: NodeDriver, name: str) -> Object:
    pod = pod_on(driver.node.name, name, "env")
    pod["spec"]["containers"][0]["resources"] = {"limits": LIMITS}
    return pod


def _follow(cluster: Cluster, driver: NodeDriver, namespace: str, pod: Object) -> Moments:
    """Apply a pod and return the times of its progress; those during the call of kubectl are its part."""
    name = pod["metadata"]["name"]
    began = time.time()
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(pod))
    applied = time.time()
    claimed = bound = 0.0
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        stored: Mapping[str, Any] = cluster.get("pods", name, namespace)
        now = time.time()
        if not claimed and stored["status"].get("resourceClaimStatuses"):
            claimed = now
        if not bound and stored["spec"].get("nodeName"):
            bound = now
        if stored["status"]["phase"] == "Running":
            break
        assert time.monotonic() < deadline, f"{name} does not run: {stored['status']}"
        time.sleep(POLL_S)
    (spec,) = driver.specs()
    prepared = (driver.node.path(CDI) / spec).stat().st_mtime
    # Two steps may fall between two reads, and are seen in any order.
    return Moments(*accumulate((began, applied, claimed, bound, prepared, now), max))
