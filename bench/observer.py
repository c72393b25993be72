"""The observer in a large cluster: the delay of events, its cost, and the cost of churn.

It runs as the process of its Deployment with its default settings, against an API server that only
stores (`testing.fake_api_server`), in another process; so the figures are the observer's own.
"""

import asyncio
import json
from collections.abc import Iterator
from time import monotonic
from typing import Final

from bench.processes import NODES_OF_CLUSTER, calm, fill, running_process, until_true
from bench.report import Result, below
from kube.api.urls import EVENTS, PODS, RESOURCE_CLAIMS
from testing.documents import Document
from testing.fake_api_server import FakeApiServer
from testing.oracle import workloads

KINDS: Final = 20
"""The number of kinds of equal pods, such as replicas of a Deployment."""
REPLICAS: Final = 10
CHURN_S: Final = 30.0
CHANGES_PER_SECOND: Final = 50


def measure() -> Iterator[Result]:
    """Yield the costs of 200 waiting pods at 5,000 nodes of 8 devices, half of them in use."""
    yield from asyncio.run(_measure())


async def _measure() -> list[Result]:
    name = f"observer, {NODES_OF_CLUSTER:,} nodes"
    async with FakeApiServer() as server:
        scenario = workloads.varied_document(NODES_OF_CLUSTER)
        held_claims = fill(server, scenario, len(scenario["allocated"]))
        began = monotonic()
        async with running_process("observer", server) as process:
            await until_true(lambda: server.watching == 7)
            await calm(process)
            start_s, start_cpu = monotonic() - began, process.cpu_s()
            began = monotonic()
            _wait_for_devices(server)
            await until_true(lambda: bool(server.objects(EVENTS)))
            first_s = monotonic() - began
            await until_true(lambda: len(server.objects(EVENTS)) == KINDS * REPLICAS)
            told_s, told_cpu = monotonic() - began, process.cpu_s() - start_cpu
            events, began, cpu = len(server.objects(EVENTS)), monotonic(), process.cpu_s()
            await _churn(server, held_claims)
            share = (process.cpu_s() - cpu) / (monotonic() - began)
            more = len(server.objects(EVENTS)) - events
            memory = process.rss_mb()
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


def _wait_for_devices(server: FakeApiServer) -> None:
    """Store pods that find no place: each kind asks for more memory than the one before."""
    (claim,) = workloads.varied_document(1)["claims"]
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


async def _churn(server: FakeApiServer, held_claims: list[Document]) -> None:
    """Release devices and hand them out again, evenly, for a while."""
    began, step = monotonic(), 0
    while monotonic() - began < CHURN_S:
        claim = held_claims[step // 2 % len(held_claims)]
        free = {key: value for key, value in claim.items() if key != "status"}
        server.put(RESOURCE_CLAIMS, claim if step % 2 else free)
        step += 1
        await asyncio.sleep(max(0.0, began + step / CHANGES_PER_SECOND - monotonic()))
