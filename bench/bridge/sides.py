"""The two schedulers, one at work at a time, and their own metrics."""

import http.client
import os
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from e2e.bridge import Bridge
from e2e.cluster import Cluster
from kube.names import DEFAULT_SCHEDULER_NAME, SCHEDULER_NAME

METRICS_FLAG: Final = "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
CLAIM_PROTECTION: Final = "drawbridge-claim-protection"
"""The policy of the bridge's manifests that saves the write of a claim's finalizer, and its binding."""
_READY_S: Final = 120.0
_POLICY_REFRESH_S: Final = 2.0
"""The API server looks at its policies once a second."""
_NOT_OURS: Final = frozenset({"kubectl-proxy"})


class Sample(NamedTuple):
    """One line of Prometheus' text format."""

    name: str
    labels: Mapping[str, str]
    value: float


class Side(Protocol):
    """A scheduler that can be started and stopped."""

    @property
    def name(self) -> str:
        """Of the column."""
        ...

    @property
    def scheduler(self) -> str:
        """The pods' `schedulerName`."""
        ...

    def start(self) -> None:
        """Start it and wait until it works."""
        ...

    def stop(self) -> None:
        """Stop it."""
        ...

    def metrics(self) -> list[Sample]:
        """Return the scheduler's metrics, and the sidecar's."""
        ...


class InTree(Side):
    """kube-scheduler with its default plugins, and claims as Kubernetes creates them."""

    name = "in-tree"
    scheduler = DEFAULT_SCHEDULER_NAME

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def start(self) -> None:
        self._cluster.delete("mutatingadmissionpolicybinding", CLAIM_PROTECTION)
        time.sleep(_POLICY_REFRESH_S)
        self._cluster.start_scheduler()

    def stop(self) -> None:
        self._cluster.children["kube-scheduler"].stop()

    def metrics(self) -> list[Sample]:
        return samples(_fetch(self._cluster.scheduler_port))


class Ours(Side):
    """kube-scheduler with our plugin, and its sidecar."""

    scheduler = SCHEDULER_NAME

    def __init__(self, bridge: Bridge, *, replica: str = "a", name: str = "bridge") -> None:
        self._bridge = bridge
        self._replica = replica
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def start(self) -> None:
        self._bridge.install()
        time.sleep(_POLICY_REFRESH_S)
        self._bridge.start(self._replica)
        deadline = time.monotonic() + _READY_S
        while self._replica not in self._bridge.working():
            if time.monotonic() > deadline:
                raise TimeoutError("the bridge does not start")
            self._bridge.tend(self._replica)
            time.sleep(0.1)

    def stop(self) -> None:
        self._bridge.stop(self._replica)

    def metrics(self) -> list[Sample]:
        scheduler = _fetch(self._bridge.scheduler_port(self._replica))
        return samples(scheduler) + samples(self._bridge.metrics(self._replica))


def without_bind(profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile that writes claims in PreBind."""
    plugins = {point: value for point, value in profile["plugins"].items() if point != "bind"}
    return {**profile, "plugins": plugins}


def samples(text: str) -> list[Sample]:
    """Return the samples of Prometheus' text format."""
    return [
        Sample(name, dict(_LABEL.findall(labels)), float(value))
        for name, labels, value in _SAMPLE.findall(text)
    ]


def total(metrics: Sequence[Sample], name: str, **labels: str) -> float:
    """Return the sum of the samples of a name with these labels."""
    return sum(
        sample.value
        for sample in metrics
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def quantile(metrics: Sequence[Sample], name: str, share: float, **labels: str) -> float:
    """Return a quantile of a histogram, interpolated in its bucket as Prometheus does."""
    counts: dict[float, float] = {}
    for sample in metrics:
        if sample.name == f"{name}_bucket" and labels.items() <= sample.labels.items():
            bound = float(sample.labels["le"])
            counts[bound] = counts.get(bound, 0) + sample.value
    bounds = sorted(counts)
    rank = share * counts[bounds[-1]] if bounds else 0
    lower = below = 0.0
    for bound in bounds:
        if counts[bound] >= rank and counts[bound] > below:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (rank - below) / (counts[bound] - below)
        lower, below = bound, counts[bound]
    return lower


def cpu_seconds(cluster: Cluster) -> dict[str, float]:
    """Return the CPU time of each process beside the cluster and of its control plane, by name."""
    groups: dict[int, float] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It ended.
            ticks = int(fields[11]) + int(fields[12])
            groups[int(fields[2])] = groups.get(int(fields[2]), 0) + ticks
    tick = os.sysconf("SC_CLK_TCK")
    used = {
        name: groups.get(child.record.pid, 0) / tick
        for name, child in cluster.children.items()
        if child.record is not None and name not in _NOT_OURS
    }
    times = os.times()
    return {**used, "load": times.user + times.system}


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _fetch(port: int) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != http.client.OK:
            raise RuntimeError(f"/metrics answered {answer.status}: {text[:200]}")
        return text
    finally:
        connection.close()
