"""The cost of the node driver: preparing claims over its socket, and publishing large inventories.

Calls go through gRPC on a unix socket and an API server in this process, as the kubelet's do. Each is
timed with files on the disk and its fsync, and with files in memory, since the disk is the node's and
not ours. The driver's own part begins when all claims of the call are read. The first call of a process is
told apart: it opens the connection to the API server and warms caches. `bench/node.py` has what the
kubelet takes.
"""

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import grpc
import structlog
from prometheus_client import CollectorRegistry

from bench.report import Result, below
from driver.faults.prepare_failures import PrepareFailures
from driver.kubelet.api import dra_v1_pb2 as api
from driver.kubelet.plugin import Plugin
from driver.kubelet.servers import serving
from driver.model.inventory import Inventory
from driver.model.steps import Step
from driver.plan.declared import read_inventory
from driver.plan.slices import Publication, plan_pools, plan_writes, slice_document
from driver.prepare.metrics import DriverMetrics
from kube.api.meta import encode
from kube.api.resource import ResourceClaim
from kube.api.urls import RESOURCE_CLAIMS
from process.running.garbage import exempt_caches
from testing.allocation.builders import DRIVER, device, result
from testing.documents import Document
from testing.driver.builders import allocated_claim, document_of, node_state
from testing.driver.nodes import FolderNode
from testing.fake_api_server import FakeApiServer

COUNTS: Final = (1, 8, 32)
ROUNDS: Final = 300
MS: Final = 1_000.0
OWN_MS: Final = 10.0
MEMORY: Final = Path("/dev/shm")
"""A folder for files that need no disk."""
API_VERSION: Final = "drawbridge.internal/v1alpha1"
PLACEMENTS: Final[Mapping[str, tuple[int, Sequence[int]]]] = {
    "1g.10gb": (1, (0, 1, 2, 3, 4, 5, 6)),
    "1g.20gb": (1, (0, 2, 4, 6)),
    "2g.20gb": (2, (0, 2, 4)),
    "3g.40gb": (3, (0, 4)),
    "4g.40gb": (4, (0,)),
    "7g.80gb": (7, (0,)),
    "1g.10gb+me": (1, (0, 1, 2, 3, 4, 5, 6)),
}
"""MIG profile of an A100 to its slices and where it can begin."""


def measure() -> Iterator[Result]:
    """Yield the results."""
    quiet = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(wrapper_class=quiet)
    for on_disk in (False, True):
        for count in COUNTS:
            yield from _calls(count, on_disk=on_disk)
    yield _measure_publishing("8 cards with all placements of 7 MIG profiles", cards(8), 1.0)
    yield _measure_publishing("5,000 devices", many_devices(5_000), 5.0)


# --- calls ----------------------------------------------------------------------------------------


def _calls(count: int, *, on_disk: bool) -> Iterator[Result]:
    parent = None if on_disk or not MEMORY.is_dir() else MEMORY
    with TemporaryDirectory(dir=parent) as folder, _fsync(is_on=on_disk):
        times = asyncio.run(_rounds(Path(folder), count))
    disk = "with fsync" if on_disk else "without fsync"
    if count == 1:
        first_ms = times.prepare_s[0] * MS
        yield below(f"ms to prepare the first claim of a process, {disk}", first_ms, None)
    bound = None if on_disk else OWN_MS
    for verb, seconds, bound_ms in (
        ("prepare", times.prepare_s, None),
        ("prepare, the driver's own part of", times.own_s, bound),
        ("unprepare", times.unprepare_s, bound),
    ):
        cuts = quantiles(seconds[1:], n=100)
        name = f"ms to {verb} {count} claims in one call, {disk}"
        yield below(f"{name}, p50", cuts[49] * MS, None)
        yield below(f"{name}, p99", cuts[98] * MS, bound_ms)


class _Times:
    """Seconds of each call.

    Attributes:
        prepare_s: The time from the call to its answer.
        own_s: The part of it after all claims were read.
        unprepare_s: The time from the call to its answer.
    """

    def __init__(self) -> None:
        self.prepare_s: list[float] = []
        self.own_s: list[float] = []
        self.unprepare_s: list[float] = []
        self._read = 0.0

    def at_step(self, step: Step) -> None:
        """Remember when the claims of the call were read."""
        if step is Step.CLAIMS_READ:
            self._read = time.perf_counter()

    def add_own_part(self) -> None:
        """Count the call that has just been answered."""
        self.own_s.append(time.perf_counter() - self._read)


@contextmanager
def _fsync(*, is_on: bool) -> Iterator[None]:
    """Have the disk wait, or not."""
    real = os.fsync
    if not is_on:
        os.fsync = lambda fd: None  # noqa: ARG005 - as os names it
    try:
        yield
    finally:
        os.fsync = real


async def _rounds(folder: Path, count: int) -> _Times:
    names = [f"gpu-{number}" for number in range(count)]
    node = FolderNode(folder, node_state(*map(device, names)))
    claims = [allocated_claim(result(name), name=name) for name in names]
    path = folder / "dra.sock"
    times = _Times()
    async with FakeApiServer() as server, server.client() as client:
        for claim in claims:
            server.put(RESOURCE_CLAIMS, document_of(claim))
        plugin = Plugin(
            DRIVER,
            node.preparer(client, times.at_step),
            DriverMetrics(CollectorRegistry()),
            on_prepared=lambda _: None,
            failures=PrepareFailures(),
        )
        async with (
            serving(path, plugin.service()),
            grpc.aio.insecure_channel(f"unix://{path}") as channel,
        ):
            refs = [_ref(claim) for claim in claims]
            # As the driver does after its start and after each change of its devices.
            await asyncio.to_thread(node.current.state().index_devices)
            exempt_caches()
            prepare = _method(channel, "NodePrepareResources", api.NodePrepareResourcesResponse)
            unprepare = _method(
                channel, "NodeUnprepareResources", api.NodeUnprepareResourcesResponse
            )
            for _ in range(ROUNDS):
                answer = await _time_call(
                    prepare, api.NodePrepareResourcesRequest(claims=refs), times.prepare_s
                )
                times.add_own_part()
                assert not any(result.error for result in answer.claims.values())
                await _time_call(
                    unprepare, api.NodeUnprepareResourcesRequest(claims=refs), times.unprepare_s
                )
    gc.unfreeze()
    return times


async def _time_call(call: Callable[[Any], Any], request: Any, seconds: list[float]) -> Any:
    began = time.perf_counter()
    answer = await call(request)
    seconds.append(time.perf_counter() - began)
    return answer


def _method(channel: grpc.aio.Channel, name: str, answer: Any) -> Callable[[Any], Any]:
    path = f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{name}"
    call: Callable[[Any], Any] = cast(Any, channel).unary_unary(
        path,
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    return call


def _ref(claim: ResourceClaim) -> api.Claim:
    metadata = claim.metadata
    return api.Claim(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)


# --- inventories ----------------------------------------------------------------------------------


def _measure_publishing(pools_in_words: str, pools: list[Document], bound_s: float) -> Result:
    """Return the time from the document to the slices as they are sent."""
    document = {"apiVersion": API_VERSION, "kind": "DeviceInventory", "pools": pools}
    publication = Publication(driver=DRIVER, node="node-1", node_uid="uid")
    began = time.process_time()
    inventory = read_inventory(document)
    assert isinstance(inventory, Inventory), inventory
    writes = plan_writes(plan_pools(publication, inventory), ())
    bodies = [encode(slice_document(slice_)) for slice_ in writes.to_apply]
    took_s = time.process_time() - began
    return below(f"CPU seconds to make {len(bodies)} slices of {pools_in_words}", took_s, bound_s)


def cards(count: int) -> list[Document]:
    """Return a pool per card: its counters, the card, and every placement of each profile."""
    return [_card(number) for number in range(count)]


def _card(number: int) -> Document:
    name = f"gpu-{number}"
    slots = {f"slot-{slot}": 1 for slot in range(8)}
    whole = {"memory": "80Gi", "slices": 7, **slots}
    devices = [_part(name, name, whole, kind="gpu")]
    for profile, (slices, starts) in PLACEMENTS.items():
        label = profile.replace(".", "").replace("+", "-")
        memory = int(profile.split(".")[1].split("gb")[0])
        for start in starts:
            slot_counters = {
                f"slot-{start + slot}": 1 for slot in range(min(memory // 10, 8 - start))
            }
            counters = {"memory": f"{memory}Gi", "slices": slices, **slot_counters}
            devices.append(_part(f"{name}-mig-{label}-{start}", name, counters, kind="mig"))
    return {
        "name": name,
        "counterSets": [{"name": name, "counters": whole}],
        "devices": devices,
    }


def _part(name: str, card: str, counters: Mapping[str, object], *, kind: str) -> Document:
    return {
        "name": name,
        "attributes": {"type": kind, "uuid": name, "parentUUID": card},
        "capacity": {"memory": counters["memory"]},
        "consumes": [{"counterSet": card, "counters": dict(counters)}],
    }


def many_devices(count: int) -> list[Document]:
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"type": "gpu", "uuid": f"uuid-{number}", "productName": "X1"},
            "capacity": {"memory": "80Gi", "cores": 100},
        }
        for number in range(count)
    ]
    return [{"devices": devices}]
