"""The cost of scheduling gates of DeviceQuotas: CPU time of the API server for each pod that is created.

Each quota is a parameter of the policies, so that the API server evaluates all of them for every pod. Pods are
created with dryRun, which runs the whole of admission and stores nothing. The anchor is the same without quotas.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from admission.quota_gates import gate_documents
from bench.bridge.sides import cpu_seconds
from bench.report import Result, informative
from bench.reviews import pod
from e2e.cluster import Cluster
from e2e.drawbridge import ROOT
from kube.api.urls import PODS
from kube.client.client import Client
from testing.documents import api_object

QUOTAS: Final = (10, 100, 1000)
SETTLE_S: Final = 3.0
"""The time after which the API server knows all quotas."""
PODS_AT_MOST: Final = 200
PAIRS: Final = 20_000
"""Pods times quotas of one measurement, so that none takes long."""
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "without devices": {"cpu": "1"},
    "with devices": {"nvidia.com/gpu": "1"},
}


def measure() -> Iterator[Result]:
    """Yield the results; a control plane is started for it."""
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder)) as cluster:
        cluster.apply((ROOT / "manifests" / "base" / "devicequotas.yaml").read_text())
        cluster.apply(gate_documents())
        before = _creation_ms(cluster, 0)
        made = 0
        for number in QUOTAS:
            cluster.apply(_quota(index) for index in range(made, number))
            made = number
            after = _creation_ms(cluster, number)
            for kind, milliseconds in after.items():
                name = f"API server CPU ms for a pod {kind}, {number:,} quotas"
                yield informative(name, milliseconds, before[kind])


def _quota(number: int) -> dict[str, Any]:
    limit = {"name": "gpus", "driver": "gpu.example.com", "devices": {}, "max": 8}
    return api_object(
        "DeviceQuota",
        f"team-{number}",
        spec={
            "namespaceSelector": {"matchLabels": {"team": f"team-{number}"}},
            "limits": [limit],
        },
    )


def _creation_ms(cluster: Cluster, quotas: int) -> Mapping[str, float]:
    time.sleep(SETTLE_S)
    count = min(PODS_AT_MOST, max(10, PAIRS // max(quotas, 1)))
    milliseconds = {}
    for kind, limits in KINDS.items():
        began_s = cpu_seconds(cluster)["kube-apiserver"]
        asyncio.run(_create(cluster.kubeconfig, limits, count))
        took_s = cpu_seconds(cluster)["kube-apiserver"] - began_s
        milliseconds[kind] = took_s * 1000 / count
    return milliseconds


async def _create(kubeconfig: Path, limits: Mapping[str, str], count: int) -> None:
    async with await Client.from_kubeconfig(str(kubeconfig)) as client:
        for number in range(count):
            document = pod(dict(limits), f"bench-{number}")
            document["metadata"] = {"name": f"bench-{number}"}
            await client.create(PODS, document, msgspec.Raw, namespace="default", dry_run=True)
