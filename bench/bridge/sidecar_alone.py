"""The sidecar alone: the scheduler's wait for a call, and the memory of 5,000 nodes.

It runs in a process of its own against an API server that only stores, in this one. Calls come one after
the other over one connection, as the scheduling cycle makes them, each with the reservation of the pod
before, so that its devices are chosen first, and with what that pod leaves of its node's CPU and memory.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

import aiohttp
import msgspec

from bench.processes import fill, running_process, until_true
from bench.report import Result, below
from kube.api.urls import DEVICE_QUOTAS, NAMESPACES, PODS, RESOURCE_CLAIMS
from kube.manifests.dump import dump_yaml
from kube.names import SCHEDULER_NAME
from sidecar.model.protocol import PREFIX
from testing.device_quotas import capacity_limit, device_limit, quota
from testing.documents import Document
from testing.fake_api_server import FakeApiServer
from testing.oracle import workloads
from testing.oracle.draft import GPU
from testing.sidecar.scheduler import document

CALLS: Final = 400
WARM_UP: Final = 50
ALLOCATED: Final = 2_000
SIZES: Final = ((1_000, 2.0), (5_000, 5.0))
"""Nodes, and the goal for p99 in ms."""
MEMORY_GOAL_MB: Final = 300.0
CALL_GOAL_MS: Final = 1.0
NODE_CPU_MILLI: Final = 128_000
POD_CPU_MILLI: Final = 100
QUOTAS: Final = 1_000
NAMESPACES_OF_QUOTA: Final = 5


def measure() -> Iterator[Result]:
    """Yield p50 and p99 of calls, and memory."""
    for nodes, goal_ms in SIZES:
        yield from asyncio.run(_measure(nodes, goal_ms))
        yield from asyncio.run(_measure(nodes, goal_ms, quotas=QUOTAS))


async def _measure(nodes: int, goal_ms: float, quotas: int = 0) -> list[Result]:
    scenario = workloads.varied_document(nodes)
    (claim_,) = scenario["claims"]
    async with FakeApiServer() as server:
        fill(server, scenario, ALLOCATED)
        put_quotas(server, quotas)
        pods = [put_pod(server, claim_, number) for number in range(CALLS)]
        with TemporaryDirectory() as folder:
            socket = Path(folder) / "sidecar.sock"
            settings = Path(folder) / "settings.yaml"
            settings.write_text(dump_yaml([{"sidecar": {"socket": str(socket), "drivers": [GPU]}}]))
            arguments = ("--config", str(settings))
            async with running_process(
                "sidecar", server, arguments, {"DRAWBRIDGE_NAMESPACE": "default"}
            ) as process:
                await until_true(socket.exists)
                names = [node["metadata"]["name"] for node in scenario["nodes"]]
                first_ms, *_ = await call(socket, pods[:WARM_UP], names, "warm-up")
                cpu_s = process.cpu_s()
                calls_ms = await call(socket, pods[WARM_UP:], names, "bench")
                cpu_ms = (process.cpu_s() - cpu_s) / len(calls_ms) * 1000
                memory_mb = process.rss_mb()
    percentiles = quantiles(calls_ms, n=100)
    title = f"sidecar alone, {nodes:,} nodes"
    if quotas:
        title += f", {quotas:,} DeviceQuotas over {NAMESPACES_OF_QUOTA * quotas:,} namespaces"
    return [
        below(f"{title}: a call of an idle scheduler, p50 in ms", percentiles[49], CALL_GOAL_MS),
        below(f"{title}: the same, p99 in ms", percentiles[98], goal_ms),
        below(f"{title}: CPU of a call, in ms", cpu_ms, None),
        below(f"{title}: the first call of all, in ms", first_ms, None),
        below(f"{title}: memory in MB", memory_mb, MEMORY_GOAL_MB),
    ]


def put_quotas(server: FakeApiServer, quotas: int) -> None:
    """Store quotas that are never full, each with the namespaces of a tenant; pods are of the first one's."""
    for number in range(quotas):
        labels = {"tenant": f"tenant-{number}"}
        limits = (
            device_limit(100_000, driver=GPU),
            capacity_limit("memory", "9999Ti", driver=GPU),
        )
        document_ = document(quota(*limits, name=f"tenant-{number}", labels=labels))
        server.put(DEVICE_QUOTAS, document_)
        for place in range(NAMESPACES_OF_QUOTA):
            name = "default" if number == place == 0 else f"tenant-{number}-{place}"
            server.put(NAMESPACES, {"metadata": {"name": name, "labels": labels}})


def put_pod(server: FakeApiServer, claim_: Document, number: int) -> Document:
    """Store a pod with a claim like the scenario's."""
    name = f"pod-{number}"
    metadata = {"name": name, "namespace": "default", "uid": f"claim-{number}"}
    server.put(RESOURCE_CLAIMS, {**claim_, "metadata": metadata})
    pod = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{number}"},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "resourceClaims": [{"name": "devices", "resourceClaimName": name}],
        },
        "status": {"phase": "Pending"},
    }
    return server.put(PODS, pod)


async def call(socket: Path, pods: list[Document], nodes: list[str], scheduler: str) -> list[float]:
    """Return the time of the call for each pod, in ms.

    Args:
        socket: The sidecar's.
        pods: Each asks for nodes.
        nodes: Names of all nodes.
        scheduler: The name of the scheduler; one of another name takes the place of the one before.
    """
    connector = aiohttp.UnixConnector(path=str(socket))
    async with aiohttp.ClientSession(connector=connector) as session:

        async def post(point: str, body: Document) -> tuple[Document, float]:
            """Return the answer, and its time in ms without this process' own JSON."""
            url, data = f"http://sidecar{PREFIX}/{point}", msgspec.json.encode(body)
            began = time.perf_counter()
            async with session.post(url, data=data) as response:
                text = await response.read()
            took_ms = (time.perf_counter() - began) * 1000
            return msgspec.json.decode(text), took_ms

        header = {"scheduler": scheduler}
        hello, _ = await post("hello", header)
        while not hello.get("ready"):
            await asyncio.sleep(0.2)
            hello, _ = await post("hello", header)
        header["instance"] = hello["instance"]
        reservations: list[Document] = []
        times_ms = []
        cpu_milli = dict.fromkeys(nodes, NODE_CPU_MILLI)
        changed = nodes
        for number, pod in enumerate(pods, start=1):
            left = [
                {"name": name, "cpuMilli": cpu_milli[name], "memory": 1 << 40, "pods": 500}
                for name in changed
            ]
            body = {
                **header,
                "pod": pod,
                "reservations": reservations,
                "requests": {"cpuMilli": POD_CPU_MILLI, "memory": 1 << 30},
                "headroom": {"number": number, "since": number - 1, "nodes": left},
            }
            answer, took_ms = await post("prefilter", body)
            # On a busy machine the selectors of the first pod take more than a moment.
            while answer.get("unfinished"):
                await asyncio.sleep(0.05)
                answer, further_ms = await post("prefilter", body)
                took_ms += further_ms
            times_ms.append(took_ms)
            changed = [answer["nodes"][0]["name"]]
            cpu_milli[changed[0]] -= POD_CPU_MILLI
            metadata = pod["metadata"]
            reservation = {
                "number": number,
                "podUID": metadata["uid"],
                "podNamespace": metadata["namespace"],
                "podName": metadata["name"],
                "node": answer["nodes"][0]["name"],
            }
            reservations = [reservation]
            await asyncio.sleep(0.002)  # Of an idle scheduler.
        return times_ms
