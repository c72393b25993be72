"""The webhook in a real cluster: start-up, memory, and the time that it adds to a pod's creation.

Pods are created with dryRun, which runs the whole of admission and stores nothing. The anchor is a
no-op webhook that the API server calls for other pods of the same kind, in turn with ours. Pods that
a controller owns are translated; bare pods are also validated, which is a second call.
"""

import asyncio
import base64
import http.client
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec

from bench.report import Result, below, informative
from bench.reviews import pod
from bench.servers import running
from e2e.cluster import Cluster
from e2e.drawbridge import WEBHOOK, Drawbridge, install_drawbridge
from e2e.inventory import device_classes, hami_gpus, kwok_nodes
from kube.api.urls import PODS
from kube.client.client import Client
from testing.documents import api_object

CREATIONS = 300
STARTS = 3
READY_WITHIN_S = 20.0
NODES = 20
NO_OP_LABEL = {"bench": "no-op"}
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "bench",
    "uid": "00000000-0000-0000-0000-000000000001",
    "controller": True,
}


def measure() -> Iterator[Result]:
    """Yield the results; a control plane is started for it."""
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder)) as cluster:
        cluster.apply(device_classes())
        cluster.add_nodes(kwok_nodes(NODES), hami_gpus)
        drawbridge = install_drawbridge(cluster)
        yield below("webhook start to ready in s", median(_starts(drawbridge)), 1.0)
        with _no_op_webhook(Path(folder)) as configuration:
            cluster.apply([configuration])
            plain, noop, owned_pods, bare = asyncio.run(_creations(cluster.kubeconfig))
        for name, ours in (("a pod of a workload", owned_pods), ("a bare pod", bare)):
            for percentile, index in (("p50", 0), ("p99", 1)):
                yield informative(
                    f"creation of {name} in ms, {percentile}: ours against a no-op webhook",
                    ours[index],
                    noop[index],
                )
        yield informative(
            "creation of a pod without devices in ms, p50: no call, against a no-op webhook",
            plain[0],
            noop[0],
        )
        yield below("webhook memory in MB, after that", _rss_mb(drawbridge), 120.0)


def _starts(drawbridge: Drawbridge) -> Iterator[float]:
    for _ in range(STARTS):
        drawbridge.stop(WEBHOOK)
        began = time.perf_counter()
        drawbridge.start(WEBHOOK)
        _await_ready(drawbridge.endpoints.host, drawbridge.endpoints.probes[WEBHOOK])
        yield time.perf_counter() - began
        drawbridge.wait_ready()


def _await_ready(host: str, port: int) -> None:
    deadline = time.perf_counter() + READY_WITHIN_S
    while time.perf_counter() < deadline:
        connection = http.client.HTTPConnection(host, port, timeout=1)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == http.client.OK:
                return
        except OSError:
            pass  # It does not listen yet.
        finally:
            connection.close()
        time.sleep(0.01)
    raise TimeoutError(f"not ready within {READY_WITHIN_S} s")


def _rss_mb(drawbridge: Drawbridge) -> float:
    """Return the resident memory as the process' own metrics tell it."""
    for line in drawbridge.metrics(WEBHOOK).splitlines():
        if line.startswith("process_resident_memory_bytes"):
            return float(line.split()[1]) / 1e6
    raise LookupError("no process_resident_memory_bytes among the metrics")


async def _creations(kubeconfig: Path) -> tuple[tuple[float, float], ...]:
    """Return p50 and p99 in ms of plain, no-op, owned and bare pods, created in turn."""
    device = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
    kinds: list[tuple[dict[str, str], Mapping[str, Any]]] = [
        ({"cpu": "1"}, {}),
        ({"cpu": "1"}, {"labels": NO_OP_LABEL}),
        (device, {"ownerReferences": [OWNER]}),
        (device, {}),
    ]
    took: list[list[float]] = [[] for _ in kinds]
    async with await Client.from_kubeconfig(str(kubeconfig)) as client:
        for number in range(CREATIONS):
            for (limits, metadata), times in zip(kinds, took, strict=True):
                document = _document(limits, metadata, number)
                began = time.perf_counter()
                await client.create(PODS, document, msgspec.Raw, namespace="default", dry_run=True)
                times.append((time.perf_counter() - began) * 1000)
    return tuple((median(times), quantiles(times, n=100)[98]) for times in took)


def _document(limits: dict[str, str], metadata: Mapping[str, Any], number: int) -> dict[str, Any]:
    document = pod(limits, f"bench-{number}")
    document["metadata"] = {"name": f"bench-{number}", **metadata}
    del document["status"]
    del document["spec"]["priority"]
    document["spec"]["volumes"] = []
    document["spec"]["containers"][0]["volumeMounts"] = []
    return document


@contextmanager
def _no_op_webhook(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Run the no-op server; yield the configuration that has labelled pods sent to it."""
    authority = folder / "no-op-ca.pem"
    with running(authority) as ports:
        yield api_object(
            "MutatingWebhookConfiguration",
            "no-op",
            api_version="admissionregistration.k8s.io/v1",
            webhooks=[
                {
                    "name": "no-op.bench.drawbridge.internal",
                    "clientConfig": {
                        "url": f"https://127.0.0.1:{ports['anchor']}/mutate",
                        "caBundle": base64.b64encode(authority.read_bytes()).decode(),
                    },
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["pods"],
                        }
                    ],
                    "objectSelector": {"matchLabels": NO_OP_LABEL},
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        )
