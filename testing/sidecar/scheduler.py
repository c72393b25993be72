"""A scheduler plugin as the sidecar sees it, and a sidecar beside a fake API server."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry

from admission.fence import fence_documents
from clusterstate.event_history import HistorySettings
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    Resource,
)
from kube.names import SCHEDULER_NAME
from process.selectors.engine import WorkerEngine
from sidecar.answers.seen_claims import SeenClaims
from sidecar.answers.server import SchedulerServer
from sidecar.answers.service import Service
from sidecar.answers.view_updates import ViewUpdater
from sidecar.model.settings import SidecarSettings
from sidecar.reports.explainer import ACTION, Explainer
from sidecar.reports.metrics import SidecarMetrics
from sidecar.reports.ownership_reporter import OwnershipReporter
from sidecar.state.held_back import HeldBackLimits
from sidecar.state.state import ClusterState
from sidecar.writes.binder import Binder, BinderSettings
from sidecar.writes.writer import LeaderWriter
from testing.allocation.builders import (
    DRIVER,
    claim,
    device_class,
    devices,
    node,
    request,
    slice_of,
)
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, quick_recorder, running, until

HOLDER: Final = "sidecar-0"
NOW: Final = datetime(2026, 11, 21, tzinfo=UTC)


class FakeScheduler:
    """Calls a sidecar, numbers reservations and keeps those that are not acknowledged.

    Attributes:
        instance: The instance of the sidecar, as its last hello said.
    """

    def __init__(self, socket: Path, name: str = "scheduler-0") -> None:
        self._socket = socket
        self.name = name
        self.instance = ""
        self.reservations: dict[str, Document] = {}
        self.unreserved: list[int] = []
        self.acknowledged = 0
        self._numbers = 0

    async def call(self, point: str, **fields: Any) -> tuple[int, Document]:
        """Return status and answer of one call."""
        everything = point == "hello"
        body = {
            "scheduler": self.name,
            "instance": self.instance,
            "reservations": [
                reservation
                for reservation in self.reservations.values()
                if everything or reservation["number"] > self.acknowledged
            ],
            "unreserved": self.unreserved,
            **fields,
        }
        connector = aiohttp.UnixConnector(path=str(self._socket))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"http://sidecar/v1/{point}", data=msgspec.json.encode(body)) as response,
        ):
            answer = msgspec.json.decode(await response.read())
            if response.status == 200:
                self.acknowledged = max(self.acknowledged, answer["acknowledged"])
                self.unreserved = []
            return response.status, answer

    async def hello(self) -> Document:
        """Say hello."""
        _, answer = await self.call("hello")
        self.instance = answer["instance"]
        return answer

    async def prefilter(self, pod: Document, **fields: Any) -> Document:
        """Return the nodes that a pod fits."""
        status, answer = await self.call("prefilter", pod=pod, **fields)
        assert status == 200, answer
        return answer

    async def group(self, group: Document, pods: Sequence[Document], **fields: Any) -> Document:
        """Return the places of the pods of a group."""
        status, answer = await self.call("group", group=group, pods=pods, **fields)
        assert status == 200, answer
        return answer

    async def postfilter(self, group: Document) -> Document:
        """Return the help for a group that fits nowhere."""
        status, answer = await self.call("postfilter", group=group)
        assert status == 200, answer
        return answer

    async def wake(self, version: str = "") -> Document:
        """Return the pods that are tried again."""
        status, answer = await self.call("wake", newestClaimVersion=version)
        assert status == 200, answer
        return answer

    def reserve(self, pod: Document, node_name: str, **fields: Any) -> None:
        """Reserve a node for a pod; this costs no call."""
        self._numbers += 1
        metadata = pod["metadata"]
        self.reservations[metadata["uid"]] = {
            "number": self._numbers,
            "podUID": metadata["uid"],
            "podNamespace": metadata["namespace"],
            "podName": metadata["name"],
            "node": node_name,
            **fields,
        }

    async def prebind(self, pod: Document) -> Document:
        """Bind the claims of a reserved pod."""
        reservation = self.reservations[pod["metadata"]["uid"]]
        others = {"number", "group"}
        fields = {name: value for name, value in reservation.items() if name not in others}
        while True:
            status, answer = await self.call("prebind", **fields)
            assert status == 200, answer
            if answer["verdict"] != "wait":
                return answer
            await asyncio.sleep(answer["retryMillis"] / 1000)

    async def unreserve(self, pod: Document) -> Document:
        """Give up a pod."""
        reservation = self.reservations.pop(pod["metadata"]["uid"])
        self.unreserved.append(reservation["number"])
        status, answer = await self.call(
            "unreserve",
            podUID=reservation["podUID"],
            node=reservation["node"],
            number=reservation["number"],
        )
        assert status == 200, answer
        return answer

    def drop(self, pod: Document) -> None:
        """Give up a pod before PreBind; this costs no call."""
        self.unreserved.append(self.reservations.pop(pod["metadata"]["uid"])["number"])


class Sidecar:
    """A sidecar that leads, and its surroundings."""

    def __init__(
        self, server: FakeApiServer, state: ClusterState, service: Service, socket: Path
    ) -> None:
        self.server = server
        self.state = state
        self.service: Service | None = service
        self.socket = socket
        self.registry = CollectorRegistry()
        self.gates_problem = ""

    def problem(self) -> str:
        """Return the reason no call can be answered."""
        if self.gates_problem:
            return self.gates_problem
        return self.state.check() if self.service is not None else "this sidecar does not lead"

    def reservations(self) -> int:
        """Return the number of reservations in force."""
        return len(self.service.reservations.by_pod) if self.service is not None else 0

    def claim(self, name: str) -> Document:
        """Return a claim as stored."""
        stored = self.server.find(RESOURCE_CLAIMS, name, "default")
        assert stored is not None
        return stored

    def devices_of(self, name: str) -> list[str]:
        """Return pool and device of each device that a claim has."""
        allocation = self.claim(name).get("status", {}).get("allocation") or {}
        return [
            f"{result['pool']}/{result['device']}"
            for result in allocation.get("devices", {}).get("results", [])
        ]


@asynccontextmanager
async def sidecar_beside(
    server: FakeApiServer,
    folder: Path,
    settings: SidecarSettings = SidecarSettings(drivers=(DRIVER,)),  # noqa: B008 - a frozen value
    *,
    instance: str = "instance-0",
    write_timeout_s: float = 2.0,
    binder: Mapping[str, Any] = {},
    may_write: Callable[[], bool] = lambda: True,
    now: Callable[[], datetime] = lambda: NOW,
    clock: Callable[[], float] = time.monotonic,
    engine: WorkerEngine | None = None,
    undecided: Mapping[str, int] = {},
) -> AsyncIterator[Sidecar]:
    """Run a sidecar that leads, beside a fake API server.

    Args:
        may_write: False once a renewal of the Lease is late.
        clock: Monotonic seconds, of the service.
        engine: Evaluates selectors; None evaluates them in place.
        undecided: Pods whose decision did not end in another process.
    """
    registry = CollectorRegistry()
    metrics = SidecarMetrics(registry)
    async with server.client(timeout_s=5.0) as client:
        informers = quick_informers(client)
        recorder = quick_recorder(client)
        limits = {"write_deadline_s": 5.0, "binding_timeout_s": 5.0, **binder}
        state = ClusterState(
            informers,
            settings.features(),
            uniform_config_drivers=frozenset(settings.uniform_config_drivers),
            drivers=frozenset(settings.drivers),
            default_strategy=settings.default_strategy,
            now=now,
            held_back_limits=HeldBackLimits(
                settings.held_back_timeout, settings.held_back_per_namespace
            ),
            binding_timeout_s=limits["binding_timeout_s"],
            bridge_scheduler=settings.bridge_scheduler,
        )
        writer = LeaderWriter(
            client,
            identity=HOLDER,
            timeout_s=write_timeout_s,
            max_in_flight=settings.max_writes_in_flight,
            may_write=may_write,
            find_claim=state.claims.store.get,
        )
        binder_ = Binder(
            state,
            writer,
            BinderSettings(**({"max_claims": settings.max_writes_in_flight} | limits)),
            now=now,
            count=metrics.count_write,
        )
        explainer = Explainer(
            state,
            recorder,
            settings=HistorySettings(action=ACTION, initial_delay=0.0),
            period_s=0.02,
        )
        service = Service(
            state,
            binder_,
            SeenClaims(state.claims, metrics, own_timeout_s=1.0, other_timeout_s=0.2),
            instance=instance,
            metrics=metrics,
            engine=engine,
            undecided=undecided,
            usual_pods=settings.usual_pods,
            keep_for_group_after_s=settings.keep_for_group_after,
            on_answer=explainer.take_answer,
            on_end=explainer.forget,
            clock=clock,
        )
        sidecar = Sidecar(server, state, service, folder / f"{instance}.sock")
        sidecar.registry = registry
        listener = SchedulerServer(sidecar.socket, sidecar, metrics)
        reporter = OwnershipReporter(
            state,
            writer,
            holder=HOLDER,
            scheduler_name=settings.bridge_scheduler,
            problem=sidecar.problem,
            keeps=lambda: service.keeps,
            now=now,
            period_s=0.02,
        )

        async def report() -> None:
            await state.wait_synced()
            await reporter.run()

        async def update_view() -> None:
            await state.wait_synced()
            await ViewUpdater(state, service).run()

        loops = [
            recorder.run,
            binder_.run,
            service.commits.run,
            listener.run,
            explainer.run,
            report,
            update_view,
        ]
        if engine is not None:
            loops.append(engine.run)
        async with running(informers.run, *loops):
            await until(lambda: not state.check() and sidecar.socket.exists())
            await until(lambda: all(informer.synced.is_set() for informer in informers.informers))
            yield sidecar


def document(value: object) -> Document:
    """Return an object as JSON has it."""
    return msgspec.to_builtins(value, enc_hook=str)  # type: ignore[no-any-return]


def pod_with(name: str, *claims: str, **spec: Any) -> Document:
    """Return a pod that refers to claims."""
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "resourceClaims": [
                {"name": claim_name, "resourceClaimName": claim_name} for claim_name in claims
            ],
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def group_of(name: str, min_count: int, **fields: Any) -> Document:
    """Return a PodGroup as the plugin names it."""
    identity = {"uid": f"group-{name}", "namespace": "default", "name": name}
    return {**identity, "minCount": min_count, **fields}


def member_of(group: str, name: str, *claims: str, **spec: Any) -> Document:
    """Return a pod of a group that refers to claims."""
    return pod_with(name, *claims, schedulingGroup={"podGroupName": group}, **spec)


def publish(server: FakeApiServer, *nodes: str, per_node: int = 2) -> None:
    """Store a class and nodes with devices gpu-0, gpu-1, ... each."""
    server.put(DEVICE_CLASSES, document(device_class()))
    for name in nodes:
        server.put(NODES, document(node(name)))
        names = [f"gpu-{index}" for index in range(per_node)]
        published = slice_of(*devices(*names), node=name, pool=name)
        server.put(RESOURCE_SLICES, document(published))


def put_fence(server: FakeApiServer, *drivers: str) -> None:
    """Store the fence of drivers, all its parts."""
    for part in fence_documents(drivers):
        server.put(FENCE_RESOURCES[part["kind"]], dict(part))


FENCE_RESOURCES: Final[Mapping[str, Resource]] = {
    "ValidatingAdmissionPolicy": VALIDATING_ADMISSION_POLICIES,
    "ValidatingAdmissionPolicyBinding": VALIDATING_ADMISSION_POLICY_BINDINGS,
}


def put_claim(
    server: FakeApiServer,
    name: str,
    request_name: str = "req-0",
    *,
    namespace: str = "default",
    **fields: Any,
) -> Document:
    """Store a claim for one device."""
    document_ = document(claim(request(request_name, **fields), name=name, namespace=namespace))
    del document_["metadata"]["uid"]
    return server.put(RESOURCE_CLAIMS, document_)


def put_pod(server: FakeApiServer, name: str, *claims: str, **spec: Any) -> Document:
    """Store a pod that refers to claims."""
    return server.put(PODS, pod_with(name, *claims, **spec))


def reported_status(server: FakeApiServer) -> Document:
    """Return the report of the bridge in the AllocatorOwnership."""
    stored = server.find(ALLOCATOR_OWNERSHIPS, "default")
    assert stored is not None
    return dict(stored.get("status") or {})


async def debug_view(socket: Path) -> Document:
    """Return the answer of a sidecar's debug endpoint."""
    connector = aiohttp.UnixConnector(path=str(socket))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get("http://sidecar/v1/debug/reservations") as response,
    ):
        return dict(await response.json())
