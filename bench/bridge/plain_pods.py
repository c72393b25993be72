"""Pods without claims in the bridge that ranks nodes for them, beside kube-scheduler.

The default strategy is FragmentationAware and the usual pods are given, so the plugin scores each pod by what it costs
them. The sidecar is not asked. Both sides bind the same pods in turn on one control plane.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from allocator.strategies.fragmentation_aware import FRAGMENTATION_AWARE
from bench.bridge.measure import Comparison, Options, bench_bridge, bench_cluster
from bench.bridge.scenarios import CLASS, PLAIN
from bench.bridge.sides import InTree, Ours
from bench.report import Result

NODES: Final = 1_000
PODS: Final = 1_500
ROUNDS: Final = 5
HEARTBEATS_S: Final = 5.0
"""Seconds until the plugin has heard of the usual pods."""
SETTINGS: Final[dict[str, Any]] = {
    "defaultStrategy": FRAGMENTATION_AWARE.name,
    "usualPods": [
        {"deviceClass": CLASS, "cpu": "12", "memory": "64Gi", "weight": 60},
        {"deviceClass": CLASS, "capacity": {"memory": "20Gi"}, "cpu": "4", "weight": 40},
    ],
}


class _Informed(Ours):
    """The bridge with a plugin that knows the usual pods."""

    def start(self) -> None:
        super().start()
        time.sleep(HEARTBEATS_S)


def measure() -> Iterator[Result]:
    """Yield pods per second of both sides, and the parts of each pod's time."""
    options = Options(nodes=(NODES,), pods=PODS, rounds=ROUNDS)
    with (
        tempfile.TemporaryDirectory() as folder,
        bench_cluster(Path(folder)) as cluster,
    ):
        bridge = bench_bridge(cluster, settings=SETTINGS)
        bridge.install()
        sides = (_Informed(bridge), InTree(cluster))
        yield from Comparison(cluster, sides, NODES, options, {PLAIN.name: PLAIN}).run()
