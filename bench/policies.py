"""The cost of a DeviceCompatibilityPolicy's status in a large cluster, and while slices churn.

The devices are those of examples/compatibility: on each node two GPUs, 16 partitions of four modes.
Times are those of this process alone, so that neighbours do not count. The churn goes through the
controller and an API server in this process, so only what it did is counted there.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import process_time
from typing import Final

from allocator.model.devices import PoolId
from bench.report import Result, below
from controllers.model.settings import ControllerSettings
from controllers.policies.controller import PolicyController, pools_of_slice
from controllers.policies.status import PolicyReport, pool_of, usage_of
from kube.api.meta import convert, decode, encode
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import ResourceSlice
from kube.api.urls import DEVICE_COMPATIBILITY_POLICIES, RESOURCE_SLICES
from kube.manifests.reader import read_paths
from kube.runtime.informers import InformerFactory
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_recorder, running, until

EXAMPLES: Final = Path(__file__).parent.parent / "examples" / "compatibility"
NODES: Final = 5_000
CHANGED: Final = 100
CHURNED_NODES: Final = 100
ROUNDS: Final = 50
"""The number of writes of each of these nodes' slices."""
PAUSE_S: Final = 0.02
"""The pause between rounds: 5,000 slices a second."""
MS: Final = 1_000.0


def measure() -> Iterator[Result]:
    """Yield the results."""
    policy, slices = _example()
    texts = [encode(slice_) for number in range(NODES) for slice_ in _node(slices, number)]
    report = PolicyReport(convert(policy, DeviceCompatibilityPolicy))

    pools = _by_pool(texts)
    began = process_time()
    for pool, pool_texts in pools.items():
        _inspect(report, pool, pool_texts)
    took_s = process_time() - began
    yield below(f"CPU seconds of a first look at {NODES:,} pools of 16 partitions", took_s, 10.0)

    times = [_time_inspection(report, pool, pools[pool]) for pool in list(pools)[:CHANGED]]
    status_ms, inspection_ms = (median(milliseconds) for milliseconds in zip(*times, strict=True))
    yield below("CPU ms until the status is known after one of these pools changed", status_ms, 100)
    yield below("CPU ms to look at that pool", inspection_ms, None)

    inspections, writes = asyncio.run(_count_under_churn(policy, slices))
    events = CHURNED_NODES * ROUNDS
    yield below(
        f"looks at a pool for {events:,} slices that are written again", inspections, events / 5
    )
    yield below("writes of the status meanwhile", writes, 2)


def _example() -> tuple[Document, list[Document]]:
    objects = read_paths([str(EXAMPLES)])
    (policy,) = (
        document.document for document in objects if document.kind == "DeviceCompatibilityPolicy"
    )
    return dict(policy), [
        dict(document_.document) for document_ in objects if document_.kind == "ResourceSlice"
    ]


def _node(slices: Sequence[Document], number: int, mark: str = "") -> Iterator[Document]:
    """Yield the slices of a node of this number."""
    for slice_ in slices:
        copy = deepcopy(slice_)
        copy["metadata"] = {
            "name": f"{slice_['metadata']['name']}-{number}",
            "annotations": {"m": mark},
        }
        copy["spec"]["nodeName"] = copy["spec"]["pool"]["name"] = f"modes-{number}"
        for device in copy["spec"].get("devices", ()):
            device["attributes"]["uuid"] = {"string": f"GPU-{number}-{device['name']}"}
        yield copy


def _by_pool(texts: Sequence[bytes]) -> Mapping[PoolId, list[bytes]]:
    pools: dict[PoolId, list[bytes]] = {}
    for text in texts:
        (pool,) = pools_of_slice(decode(text, ResourceSlice))
        pools.setdefault(pool, []).append(text)
    return pools


def _inspect(report: PolicyReport, pool: PoolId, texts: Sequence[bytes]) -> None:
    slices = [decode(text, ResourceSlice) for text in texts]
    report.inspect(pool_of(pool, slices), usage_of(()))


def _time_inspection(
    report: PolicyReport, pool: PoolId, texts: Sequence[bytes]
) -> tuple[float, float]:
    """Return the ms until the status is known, and those to look at the pool."""
    began = process_time()
    _inspect(report, pool, texts)
    inspected_at = process_time()
    report.status(None, report.policy.source, "2026-11-20T00:00:00Z")
    return (process_time() - began) * MS, (inspected_at - began) * MS


async def _count_under_churn(policy: Document, slices: Sequence[Document]) -> tuple[float, float]:
    """Return looks at pools, and writes, while slices are written that say the same again."""
    async with FakeApiServer() as server, server.client() as client:
        for number in range(CHURNED_NODES):
            for slice_ in _node(slices, number):
                server.put(RESOURCE_SLICES, slice_)
        server.put(DEVICE_COMPATIBILITY_POLICIES, policy)
        informers = InformerFactory(client)
        recorder = quick_recorder(client)
        controller = PolicyController(
            client,
            informers,
            recorder,
            ControllerSettings(),
            now=lambda: datetime.now(UTC),
        )
        async with running(
            informers.run, recorder.run, *(part.run for part in controller.controllers)
        ):
            await until(lambda: server.counts["PATCH"] == 1, timeout_s=60)
            inspections_before, writes_before = controller.inspected, server.counts["PATCH"]
            for turn in range(ROUNDS):
                for number in range(CHURNED_NODES):
                    *_, devices = _node(slices, number, f"{turn}")
                    server.put(RESOURCE_SLICES, devices)
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(2 * ControllerSettings().policy_sync_period)
            return controller.inspected - inspections_before, server.counts["PATCH"] - writes_before
