"""The observer in a large cluster: how soon pods are told, what it costs, and what churn costs.

It runs as the process of its Deployment with its default settings, against an API server that only
stores (`tests.fake_api_server`), in another process; so the figures are the observer's own.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

from bench.report import Result, below
from kube.files import dump_yaml
from tests.fake_api_server import FakeApiServer
from tests.oracle import workloads
from webhook.resources import (
    DEVICE_CLASSES,
    EVENTS,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)

NODES_OF_CLUSTER: Final = 5_000
KINDS: Final = 20
"""Of pods that are equal, such as replicas of a Deployment."""
REPLICAS: Final = 10
CHURN_S: Final = 30.0
CHANGES_PER_SECOND: Final = 50
ALL_TOLD_S: Final = 300.0

Document = dict[str, Any]


def measure() -> Iterator[Result]:
    """Yield what 200 waiting pods cost at 5,000 nodes of 8 devices, half of them held."""
    yield from asyncio.run(_measured())


async def _measured() -> list[Result]:
    name = f"observer, {NODES_OF_CLUSTER:,} nodes"
    async with FakeApiServer() as server:
        held = _fill(server)
        began = monotonic()
        async with _observing(server) as process:
            await _until(lambda: server.watching == 7)
            await _calm(process)
            start_s, start_cpu = monotonic() - began, _cpu_s(process)
            began = monotonic()
            _wait_for_devices(server)
            await _until(lambda: bool(server.objects(EVENTS)))
            first_s = monotonic() - began
            await _until(lambda: len(server.objects(EVENTS)) == KINDS * REPLICAS)
            told_s, told_cpu = monotonic() - began, _cpu_s(process) - start_cpu
            events, began, cpu = len(server.objects(EVENTS)), monotonic(), _cpu_s(process)
            await _churn(server, held)
            share = (_cpu_s(process) - cpu) / (monotonic() - began)
            more = len(server.objects(EVENTS)) - events
            memory = _rss_mb(process)
    return [
        below(f"{name}: ready (s)", start_s, None),
        below(f"{name}: CPU until then (s)", start_cpu, None),
        below(f"{name}: first of 200 pods told (s)", first_s, 5),
        below(f"{name}: all of 200 pods told (s)", told_s, 60),
        below(f"{name}: CPU for that (s)", told_cpu, None),
        below(f"{name}: cores under {CHANGES_PER_SECOND} changes a second", share, 0.5),
        below(f"{name}: events of {CHURN_S:.0f} s of that", more, 20),
        below(f"{name}: memory (MB)", memory, 600),
    ]


def _fill(server: FakeApiServer) -> list[Document]:
    """Store the cluster; return the claims that hold devices."""
    scenario = workloads.varied(NODES_OF_CLUSTER)
    for node in scenario["nodes"]:
        server.put(NODES, node)
    for published in scenario["slices"]:
        server.put(RESOURCE_SLICES, published)
    for each in scenario["classes"]:
        server.put(DEVICE_CLASSES, each)
    for claim in scenario["allocated"]:
        server.put(RESOURCE_CLAIMS, claim)
    return list(scenario["allocated"])


def _wait_for_devices(server: FakeApiServer) -> None:
    """Store pods that find no place: each kind asks for more memory than the one before."""
    (claim,) = workloads.varied(1)["claims"]
    for kind in range(KINDS):
        text = json.dumps(claim).replace("40Gi", f"{81 * 1024 + kind}Mi")
        for replica in range(REPLICAS):
            name = f"pod-{kind}-{replica}"
            about = {"namespace": "bench", "uid": name}
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name}
            own = json.loads(text)
            own["metadata"] = {**about, "name": f"{name}-gpu", "ownerReferences": [owner]}
            server.put(RESOURCE_CLAIMS, own)
            server.put(PODS, _pod(name, about))


def _pod(name: str, about: Document) -> Document:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "metadata": {**about, "name": name},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "any"}]},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


async def _churn(server: FakeApiServer, held: list[Document]) -> None:
    """Release devices and hand them out again, evenly, for a while."""
    began, step = monotonic(), 0
    while monotonic() - began < CHURN_S:
        claim = held[step // 2 % len(held)]
        free = {key: value for key, value in claim.items() if key != "status"}
        server.put(RESOURCE_CLAIMS, claim if step % 2 else free)
        step += 1
        await asyncio.sleep(max(0.0, began + step / CHANGES_PER_SECOND - monotonic()))


@asynccontextmanager
async def _observing(server: FakeApiServer) -> AsyncIterator[int]:
    """Run the observer beside; yield its process id."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kubeconfig"
        file.write_text(dump_yaml([_kubeconfig(server.url)]))
        command = ("-m", "webhook", "observe", "--kubeconfig", str(file), "--probe-port", "0")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            "--bind",
            "127.0.0.1",
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield process.pid
        finally:
            process.terminate()
            await process.wait()


def _kubeconfig(url: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }


async def _until(true: Any) -> None:
    async with asyncio.timeout(ALL_TOLD_S):
        while not true():  # noqa: ASYNC110 - what is waited for is in another process.
            await asyncio.sleep(0.05)


async def _calm(process: int) -> None:
    """Return when the process has nothing to do."""
    before = -1.0
    while (now := _cpu_s(process)) - before > 0.02:
        before = now
        await asyncio.sleep(0.5)


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
