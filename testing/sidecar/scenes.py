"""The state of a sidecar beside a fake API server."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from allocator.model.feature_gates import Features
from kube.runtime.informers import InformerFactory
from sidecar.model.settings import SidecarSettings
from sidecar.state.held_back import HeldBackLimits
from sidecar.state.state import ClusterState
from testing.allocation.builders import DRIVER
from testing.documents import Document
from testing.fake_api_server import FakeApiServer
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)


def state_with(informers: InformerFactory, *, held_back_timeout_s: float = 1.0) -> ClusterState:
    return ClusterState(
        informers,
        Features(),
        drivers=frozenset(),
        default_strategy="FirstFit",
        now=lambda: datetime(2026, 11, 21, tzinfo=UTC),
        held_back_limits=HeldBackLimits(held_back_timeout_s, most_per_namespace=8),
        binding_timeout_s=1.0,
    )


GIB = 1 << 30


class Scene(NamedTuple):
    """A sidecar, its scheduler, and a pod with a claim for one device."""

    server: FakeApiServer
    sidecar: Sidecar
    scheduler: FakeScheduler
    pod: Document

    async def ask(
        self, *, cores: int | None = 4, pod: Document | None = None, **fields: Any
    ) -> Document:
        """Ask for the nodes of a pod that requests so many cores; None if that is not known."""
        if cores is not None:
            fields["requests"] = {"cpuMilli": cores * 1000, "memory": GIB}
        return await self.scheduler.prefilter(pod or self.pod, **fields)


@asynccontextmanager
async def scene(
    tmp_path: Path,
    devices: Mapping[str, int],
    settings: SidecarSettings = SidecarSettings(drivers=(DRIVER,)),  # noqa: B008 - a frozen value
) -> AsyncIterator[Scene]:
    """A cluster of nodes with so many devices each."""
    async with FakeApiServer() as server:
        for name, count in devices.items():
            publish(server, name, per_node=count)
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path, settings) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            yield Scene(server, sidecar, scheduler, pod)


def left(name: str, cores: int, *, memory: int = 64 * GIB, pods: int = 10) -> Document:
    return {"name": name, "cpuMilli": cores * 1000, "memory": memory, "pods": pods}


def changes(
    number: int, *nodes: Document, since: int = 0, removed: tuple[str, ...] = ()
) -> Document:
    return {"number": number, "since": since, "nodes": list(nodes), "removed": list(removed)}
