"""The cost of DeviceQuotas: decisions of the sidecar, a unit that is freed while many pods wait, and memory.

Decisions are compared by the CPU time of two sidecars on equal clusters, one with quotas and one without, asked
in turn. Processes run as in their Deployments, each against an API server that only stores.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec

from admission.quota_gates import gate_documents
from bench.bridge.sidecar_alone import call, put_pod, put_quotas
from bench.processes import RunningProcess, calm, fill, running_process, until_true
from bench.report import Result, below, exactly, within
from controllers.quotas.gates import RESOURCES
from kube.api.urls import DEVICE_QUOTAS, NAMESPACES, PODS, RESOURCE_CLAIMS
from kube.manifests.dump import dump_yaml
from kube.names import DEFAULT_SCHEDULER_NAME, QUOTA_GATE
from testing.allocation.builders import DRIVER
from testing.device_quotas import device_limit, quota
from testing.documents import Document
from testing.fake_api_server import FakeApiServer
from testing.oracle import workloads
from testing.oracle.draft import GPU
from testing.sidecar.scheduler import (
    FakeScheduler,
    document,
    pod_with,
    publish,
    put_claim,
    sidecar_beside,
)

RATIO: Final = 1.1
MEMORY_MB: Final = 100.0
QUIET_S: Final = 5.0
"""The time in which nothing new may be written."""
_READINESS: Final = frozenset({"controller.synced quotas", "controller.synced quota-usage"})


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a run.

    Attributes:
        nodes: The nodes of the clusters whose decisions are compared.
        quotas: The number of DeviceQuotas, each with five namespaces.
        allocated: The claims with devices.
        rounds: The turns of each sidecar that count; one more warms up.
        calls: The decisions in a turn.
        waiting: The pods that wait for one unit.
        quiet_s: The time in which nothing new may be written.
        raised: The quotas that are raised by a unit while two pods wait for it.
    """

    nodes: int = 1_000
    quotas: int = 1_000
    allocated: int = 2_000
    rounds: int = 40
    calls: int = 50
    waiting: int = 500
    quiet_s: float = QUIET_S
    raised: int = 50


FULL: Final = Sizes()


def measure(sizes: Sizes = FULL) -> Iterator[Result]:
    """Yield the results, decisions first."""
    yield asyncio.run(_decisions(sizes))
    yield from asyncio.run(_gates(sizes))
    yield from asyncio.run(_many_gates(sizes))
    yield asyncio.run(_bridge(sizes))
    yield asyncio.run(_memory(sizes))


# --- decisions of the sidecar ----------------------------------------------------------------------


class _Side(NamedTuple):
    """A sidecar that is measured, with the pods that it is asked about."""

    process: RunningProcess
    socket: Path
    pods: Sequence[Document]
    nodes: list[str]


async def _decisions(sizes: Sizes) -> Result:
    async with AsyncExitStack() as stack:
        sides = [
            await stack.enter_async_context(_sidecar(sizes, quotas)) for quotas in (sizes.quotas, 0)
        ]
        cpu_s = [0.0, 0.0]
        for number in range(sizes.rounds + 1):
            # Each goes first as often as the other.
            for index in (0, 1) if number % 2 else (1, 0):
                side = sides[index]
                before_s = side.process.cpu_s()
                first = number * sizes.calls
                pods = list(side.pods[first : first + sizes.calls])
                await call(side.socket, pods, side.nodes, f"round-{number}")
                if number:
                    cpu_s[index] += side.process.cpu_s() - before_s
    decisions = sizes.rounds * sizes.calls
    with_quotas, without = (seconds * 1000 / decisions for seconds in cpu_s)
    name = (
        f"sidecar, {sizes.nodes:,} nodes: CPU ms of a decision with {sizes.quotas:,} DeviceQuotas over "
        f"{5 * sizes.quotas:,} namespaces, against none"
    )
    return within(name, with_quotas, without, at_most=RATIO)


@asynccontextmanager
async def _sidecar(sizes: Sizes, quotas: int) -> AsyncIterator[_Side]:
    scenario = workloads.varied_document(sizes.nodes)
    (claim,) = scenario["claims"]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(FakeApiServer())
        folder = Path(stack.enter_context(TemporaryDirectory()))
        fill(server, scenario, sizes.allocated)
        put_quotas(server, quotas)
        count = (sizes.rounds + 1) * sizes.calls
        pods = [put_pod(server, claim, number) for number in range(count)]
        socket, settings = folder / "sidecar.sock", folder / "settings.yaml"
        # While the other one is asked, nobody calls this one.
        quiet = {"schedulerTimeout": "1h"}
        document_ = {"sidecar": {"socket": str(socket), "drivers": [GPU], **quiet}}
        settings.write_text(dump_yaml([document_]))
        variables = {"DRAWBRIDGE_NAMESPACE": "default"}
        running = running_process("sidecar", server, ("--config", str(settings)), variables)
        process = await stack.enter_async_context(running)
        await until_true(socket.exists)
        yield _Side(process, socket, pods, [node["metadata"]["name"] for node in scenario["nodes"]])


# --- a unit that is freed --------------------------------------------------------------------------


async def _gates(sizes: Sizes) -> list[Result]:
    """Free the only unit while pods wait behind the gate."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=8)
        server.put(NAMESPACES, {"metadata": {"name": "default"}})
        server.put(DEVICE_QUOTAS, document(quota(device_limit(1), name="team")))
        for policy in gate_documents():
            server.put(RESOURCES[policy["kind"]], policy)
        _put_holder(server)
        for number in range(sizes.waiting):
            _put_gated(server, f"pod-{number:03d}")
        async with running_process("controllers", server) as process:
            await until_true(lambda: _waiting(server) == str(sizes.waiting))
            await calm(process)
            before = len(server.calls)
            server.remove(PODS, "holder", "default")
            server.remove(RESOURCE_CLAIMS, "holder", "default")
            await until_true(lambda: _removals(server, before) > 0)
            await until_true(lambda: _waiting(server) == str(sizes.waiting - 1))
            await calm(process)
            settled = len(server.calls)
            await asyncio.sleep(sizes.quiet_s)
            repeated = sum(
                status == last for last, status in itertools.pairwise(_statuses(server, 0))
            )
            late = len(_statuses(server, settled))
        removals = _removals(server, before)
    name = f"gates, {sizes.waiting} pods wait and one unit is freed"
    return [
        exactly(f"{name}: pods let through", removals, 1),
        exactly(f"{name}: writes of a status without news", repeated + late, 0),
    ]


async def _many_gates(sizes: Sizes) -> list[Result]:
    """Raise one quota after another, while two pods of each wait behind the gate for a unit."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=8)
        for policy in gate_documents():
            server.put(RESOURCES[policy["kind"]], policy)
        for number in range(sizes.quotas):
            _put_team(server, number, 0)
            for name in ("first", "second"):
                _put_gated(server, name, f"team-{number}")
        async with running_process("controllers", server) as process:
            await until_true(lambda: "quota.settled" in process.events())
            await calm(process)
            in_sync_s, memory_mb, before = process.cpu_s(), process.rss_mb(), len(server.calls)
            for number in range(sizes.raised):
                _put_team(server, number, 1)
                await until_true(lambda count=number + 1: _removals(server, before) >= count)  # type: ignore[misc]
            await calm(process)
            cpu_ms = (process.cpu_s() - in_sync_s) * 1000 / sizes.raised
        removals = _removals(server, before)
    name = f"gates, {sizes.quotas:,} DeviceQuotas with two pods that wait"
    return [
        below(f"{name}: CPU until sync (s)", in_sync_s, None),
        below(f"{name}: memory (MB)", memory_mb, None),
        below(f"{name}: CPU of one that is raised by a unit (ms)", cpu_ms, None),
        exactly(f"{name}: pods let through", removals, sizes.raised),
    ]


def _put_team(server: FakeApiServer, number: int, most: int) -> None:
    """Store a namespace with a quota of its own."""
    name = f"team-{number}"
    labels = {"team": name}
    server.put(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    server.put(DEVICE_QUOTAS, document(quota(device_limit(most), name=name, labels=labels)))


async def _bridge(sizes: Sizes) -> Result:
    """Free the only unit while pods of the bridge wait."""
    with TemporaryDirectory() as folder:
        async with FakeApiServer() as server:
            publish(server, "node-1", per_node=8)
            server.put(NAMESPACES, {"metadata": {"name": "default"}})
            server.put(DEVICE_QUOTAS, document(quota(device_limit(1), name="team")))
            pods = [_put_plain(server, f"pod-{number:03d}") for number in range(sizes.waiting + 1)]
            async with sidecar_beside(server, Path(folder)) as sidecar:
                scheduler = FakeScheduler(sidecar.socket)
                await scheduler.hello()
                first, *others = pods
                await scheduler.prefilter(first)
                scheduler.reserve(first, "node-1")
                await scheduler.prebind(first)
                for pod in others:
                    answer = await scheduler.prefilter(pod)
                    assert answer["code"] == "exceedsDeviceQuota", answer
                version = sidecar.state.version
                server.remove(RESOURCE_CLAIMS, "pod-000", "default")
                await until_true(lambda: sidecar.state.version > version)
                woken: list[str] = (await scheduler.wake()).get("pods", [])
    name = f"bridge, {sizes.waiting} pods wait and one unit is freed: pods woken"
    return exactly(name, len(woken), 1)


def _put_holder(server: FakeApiServer) -> None:
    """Store a pod that has the only unit."""
    pod = _put_plain(server, "holder")
    claim = server.find(RESOURCE_CLAIMS, "holder", "default") or {}
    result = {"request": "req-0", "driver": DRIVER, "pool": "node-1", "device": "gpu-0"}
    consumer = {"resource": "pods", "name": "holder", "uid": pod["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    server.put(RESOURCE_CLAIMS, {**claim, "status": status})
    server.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "node-1"}})


def _put_plain(server: FakeApiServer, name: str) -> Document:
    """Store a pod with a claim of its name."""
    put_claim(server, name)
    return server.put(PODS, pod_with(name, name))


def _put_gated(server: FakeApiServer, name: str, namespace: str = "default") -> None:
    """Store a pod that waits behind the gate, with a claim of its name."""
    put_claim(server, name, namespace=namespace)
    spec = {"schedulerName": DEFAULT_SCHEDULER_NAME, "schedulingGates": [{"name": QUOTA_GATE}]}
    pod = pod_with(name, name, **spec)
    metadata = {**pod["metadata"], "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    server.put(PODS, {**pod, "metadata": metadata})


def _waiting(server: FakeApiServer) -> str:
    """Return the amount that waits by the status of the quota; empty before it is known."""
    stored = server.find(DEVICE_QUOTAS, "team") or {}
    limits = stored.get("status", {}).get("limits") or [{}]
    return str(limits[0].get("waiting", ""))


def _removals(server: FakeApiServer, first: int) -> int:
    """Return the number of gates that were removed since a call."""
    return sum(
        call.method == "PATCH" and "/pods/" in call.path for call in list(server.calls)[first:]
    )


def _statuses(server: FakeApiServer, first: int) -> list[Document]:
    """Return the statuses of quotas that were written since a call."""
    return [
        call.body["status"]
        for call in list(server.calls)[first:]
        if call.method == "PATCH" and call.path.endswith("/devicequotas/team/status")
    ]


# --- memory ----------------------------------------------------------------------------------------


async def _memory(sizes: Sizes) -> Result:
    """Compare the memory of the controllers with quotas and without."""
    with_quotas, without = [await _controllers_mb(sizes, quotas) for quotas in (sizes.quotas, 0)]
    name = (
        f"controllers, {sizes.nodes:,} nodes: memory that {sizes.quotas:,} DeviceQuotas over "
        f"{5 * sizes.quotas:,} namespaces take (MB)"
    )
    return below(name, max(0.0, with_quotas - without), MEMORY_MB)


async def _controllers_mb(sizes: Sizes, quotas: int) -> float:
    async with FakeApiServer() as server:
        fill(server, workloads.varied_document(sizes.nodes), sizes.allocated)
        put_quotas(server, quotas)
        async with running_process("controllers", server) as process:
            await until_true(lambda: process.events() >= _READINESS)
            await calm(process)
            await asyncio.sleep(sizes.quiet_s)
            return process.rss_mb()
