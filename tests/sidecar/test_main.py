"""The process: a new leader's wait, and the settings and timers that reach their parts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import yaml
from aiohttp import ClientSession
from prometheus_client import CollectorRegistry

from clusterstate.kinds import Kind
from kube.api.core import Pod, PodSpec
from kube.api.meta import ObjectMeta
from kube.api.ownership import HeldBackClaim, HeldBackDevice
from kube.api.urls import (
    DEVICE_CLASSES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kube.names import BRIDGE_LEASE, NAMESPACE
from kube.runtime.leader import HANDED_OVER, LEASES
from process.model.durations import PositiveDuration
from process.running.command import Process
from process.running.leader_election import Term, Work
from process.selectors.engine import WorkerEngine
from sidecar.__main__ import (
    FENCE_LAG_S,
    TAKING_BACK,
    WAITING_FOR_WRITES,
    LeaderSession,
    Parts,
    begin,
    serve,
)
from sidecar.model.settings import Settings, SidecarSettings
from sidecar.ownership.held_back import as_claim
from sidecar.reports.metrics import SidecarMetrics
from sidecar.writes.incomplete_groups import BINDING_LAG_S
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    amount,
    claim,
    configured_configuration,
    device,
    device_class,
    node,
    request,
    result,
    slice_of,
)
from testing.fake_api_server import FakeApiServer, quick_recorder, running, until
from testing.ports import free_ports
from testing.sidecar.scheduler import (
    FakeScheduler,
    document,
    pod_with,
    publish,
    put_claim,
    put_pod,
)


class Sleeper:
    """A sleep that ends when the test says so.

    Attributes:
        seconds: The seconds that were asked for.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.is_over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await self.is_over.wait()


class Leading(NamedTuple):
    """The work of a new leader, with a wait that the test ends."""

    server: FakeApiServer
    session: LeaderSession
    work: Work
    sleeper: Sleeper
    registry: CollectorRegistry

    async def ready(self) -> None:
        await until(lambda: self.session.service is not None and not self.session.problem())


class Jumping(Process[Settings], frozen=True, kw_only=True):
    """A process with a wall clock that the test sets."""

    ahead: ClassVar[timedelta] = timedelta()

    @staticmethod
    def now() -> datetime:
        """Return the time by this clock."""
        return Process.now() + Jumping.ahead


@asynccontextmanager
async def leading(
    *,
    is_successor: bool,
    prepare: Callable[[FakeApiServer], None] = lambda _server: None,
    **settings: Any,
) -> AsyncIterator[Leading]:
    """Run the work of a process that has just got the Lease.

    Args:
        prepare: Stores what the leader before left.
    """
    async with FakeApiServer() as server, server.client() as client:
        publish(server, "node-1")
        prepare(server)
        registry, session, sleeper = CollectorRegistry(), LeaderSession(), Sleeper()
        sidecar = SidecarSettings(**{"drivers": (DRIVER,), **settings})
        parts = Parts(
            process=Jumping(settings=Settings(sidecar=sidecar), kubeconfig=None, identity="us"),
            client=client,
            session=session,
            metrics=SidecarMetrics(registry),
            recorder=quick_recorder(client),
            engine=WorkerEngine(),
        )
        work = begin(
            parts, Term(identity="instance-0", is_successor=is_successor), sleep=sleeper.sleep
        )
        async with running(*work.loops):
            yield Leading(server, session, work, sleeper, registry)


async def test_a_new_leader_waits_until_no_write_of_the_one_before_can_be_made() -> None:
    async with leading(is_successor=False, write_timeout=PositiveDuration(7)) as leading_:
        await until(lambda: bool(leading_.sleeper.seconds))
        assert leading_.sleeper.seconds == [7 + FENCE_LAG_S]
        assert leading_.session.problem() == WAITING_FOR_WRITES
        assert not [call for call in leading_.server.calls if "resource.k8s.io" in call.path]
        # Writes of the leader before may be under way, so the next one has to wait, too.
        assert not await leading_.work.drain()

        leading_.sleeper.is_over.set()

        await leading_.ready()
        assert await leading_.work.drain()


async def test_a_successor_does_not_wait() -> None:
    async with leading(is_successor=True) as leading_:
        await leading_.ready()

        assert not leading_.sleeper.seconds
        assert await leading_.work.drain()


GROUP = {"podGroupName": "job"}


def put_commit(server: FakeApiServer, *, written: Collection[str], bound: str) -> None:
    """Store a group of three pods that need two, and the claims that were written for some of them."""
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    metadata = {"name": "job", "namespace": "default"}
    server.put(POD_GROUPS, {"metadata": metadata, "spec": policy})
    for number, name in enumerate(("a", "b", "c")):
        spec = {"nodeName": "node-1"} if name == bound else {}
        pod = put_pod(server, name, f"gpu-{name}", schedulingGroup=GROUP, **spec)
        stored = put_claim(server, f"gpu-{name}")
        if name in written:
            allocation = {
                "devices": {"results": [document(result(f"gpu-{number}", pool="node-1"))]}
            }
            user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
            stored["status"] = {"allocation": allocation, "reservedFor": [user]}
            server.put(RESOURCE_CLAIMS, stored)


def written_claims(server: FakeApiServer) -> list[str]:
    return [
        stored["metadata"]["name"]
        for stored in server.objects(RESOURCE_CLAIMS)
        if stored.get("status", {}).get("allocation")
    ]


@pytest.mark.parametrize(
    ("written", "bound", "want"),
    [
        (("a",), "", []),
        (("a", "b"), "", ["gpu-a", "gpu-b"]),
        (("a", "b"), "a", ["gpu-a", "gpu-b"]),
        (("a",), "a", ["gpu-a"]),
    ],
    ids=["incomplete", "complete", "complete with the bound one", "bound pods keep their devices"],
)
async def test_a_new_leader_takes_back_the_incomplete_commit_of_a_group_before_it_serves(
    written: tuple[str, ...], bound: str, want: list[str]
) -> None:
    prepare = partial(put_commit, written=written, bound=bound)
    async with leading(is_successor=True, prepare=prepare) as leading_:
        if not want:
            await until(lambda: leading_.sleeper.seconds == [BINDING_LAG_S])
            assert leading_.session.problem() == TAKING_BACK
            assert written_claims(leading_.server)
            leading_.sleeper.is_over.set()
        await leading_.ready()

        assert written_claims(leading_.server) == want


async def test_a_new_leader_takes_no_devices_back_that_are_not_its_to_give() -> None:
    prepare = partial(put_commit, written=["a"], bound="")
    async with leading(is_successor=True, prepare=prepare, drivers=()) as leading_:
        await leading_.ready()

        assert written_claims(leading_.server) == ["gpu-a"]


async def test_a_pod_whose_claims_are_not_made_yet_does_not_complete_a_commit() -> None:
    def prepare(server: FakeApiServer) -> None:
        put_commit(server, written=["a"], bound="")
        for name in ("b", "c"):
            entry = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
            pod = pod_with(name, schedulingGroup=GROUP)
            pod["spec"]["resourceClaims"] = [entry]
            server.put(PODS, pod)

    async with leading(is_successor=True, prepare=prepare) as leading_:
        leading_.sleeper.is_over.set()
        await leading_.ready()

        assert not written_claims(leading_.server)


async def test_the_devices_in_use_are_counted_anew_on_a_timer() -> None:
    ghost = HeldBackClaim(
        claim_uid="ghost",
        namespace="default",
        pod="ghost",
        pod_uid="ghost",
        node="node-1",
        until="",
        devices=(HeldBackDevice(driver=DRIVER, pool="node-1", device="gpu-1"),),
    )
    async with leading(is_successor=True, drift_check_period=PositiveDuration(0.02)) as leading_:
        await leading_.ready()
        service = leading_.session.service
        assert service is not None

        service._state._note(Kind.CLAIM, ("default", "ghost"), as_claim(ghost))

        drifts = "drawbridge_sidecar_drift_total"
        await until(lambda: bool(leading_.registry.get_sample_value(drifts)))


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=1)], ids=str)
async def test_a_clock_that_jumps_gives_no_device_of_a_pod_again_that_was_deleted_by_force(
    monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    async with leading(is_successor=True) as leading_:
        await leading_.ready()
        service = leading_.session.service
        assert service is not None
        held_back = service._state.held_back
        pod = Pod(metadata=ObjectMeta(name="pod", uid="pod"), spec=PodSpec(node_name="node-1"))
        held_back.hold(pod, allocated_claim(result()), ())
        assert held_back.claims

        monkeypatch.setattr(Jumping, "ahead", ahead)
        held_back.expire()

        assert held_back.claims


def publish_shared(server: FakeApiServer) -> None:
    """Store a node with one device that claims share, and two pods with claims that configure it."""
    server.put(DEVICE_CLASSES, document(device_class()))
    server.put(NODES, document(node("node-1")))
    shared = device(shared=True, capacity={"memory": amount("80Gi", "1Gi")})
    server.put(RESOURCE_SLICES, document(slice_of(shared, node="node-1", pool="node-1")))
    for name, interval in (("a", "Short"), ("b", "Long")):
        config = configured_configuration(
            apiVersion="gpu.example.com/v1", kind="Config", interval=interval
        )
        stored = document(claim(request(), name=f"gpu-{name}", config=[config]))
        del stored["metadata"]["uid"]
        server.put(RESOURCE_CLAIMS, stored)


@asynccontextmanager
async def process_beside(
    server: FakeApiServer, tmp_path: Path, settings: SidecarSettings
) -> AsyncIterator[None]:
    """Run the whole process, after a leader that ended in good order."""
    lease = {"name": BRIDGE_LEASE, "namespace": NAMESPACE, "annotations": {HANDED_OVER: "0"}}
    server.put(LEASES, {"metadata": lease, "spec": {}})
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    process = Process(
        settings=Settings(sidecar=settings), kubeconfig=str(kubeconfig), identity="us"
    )

    async def run() -> None:
        await serve(process)

    async with running(run):
        yield


async def test_configurations_of_co_tenants_are_kept_apart_and_the_loop_is_measured(
    tmp_path: Path,
) -> None:
    probes, metrics = free_ports(2)
    settings = SidecarSettings(
        bind_address="127.0.0.1",
        probe_port=probes,
        metrics_port=metrics,
        socket=str(tmp_path / "sidecar.sock"),
        drivers=(DRIVER,),
        uniform_config_drivers=(DRIVER,),
    )
    async with FakeApiServer() as server:
        publish_shared(server)
        first, second = (put_pod(server, name, f"gpu-{name}") for name in "ab")
        async with process_beside(server, tmp_path, settings):
            scheduler = FakeScheduler(Path(settings.socket))
            await until(Path(settings.socket).exists)
            async with asyncio.timeout(60):
                while not (await scheduler.hello()).get("ready"):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert (await scheduler.prefilter(first))["verdict"] == "fits"
            scheduler.reserve(first, "node-1")

            assert (await scheduler.prefilter(second)).get("code") == "noDevices"
            async with asyncio.timeout(60):
                while not await _measured_lags(settings.metrics_port):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)


async def _measured_lags(port: int) -> float:
    """Return the number of measured lags of the event loop."""
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as got:
        lines = (await got.text()).splitlines()
    counts = [
        line for line in lines if line.startswith("drawbridge_sidecar_loop_lag_seconds_count")
    ]
    return float(counts[0].split()[-1])
