"""The cost of the processes of a cluster at 5,000 nodes: memory, watches and CPU until they are in sync.

Each runs as in its Deployment with its default settings, against an API server that only stores
(`testing.fake_api_server`), in another process; so the figures are the process' own.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.report import Result, below
from kube.api.urls import DEVICE_CLASSES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from kube.manifests.dump import dump_yaml
from testing.documents import Document
from testing.fake_api_server import FakeApiServer
from testing.oracle import workloads
from testing.oracle.scenarios import Scenario

NODES_OF_CLUSTER: Final = 5_000
ALLOCATED_CLAIMS: Final = 2_000
SETTLE_S: Final = 5.0
"""The pause after the last cache is in sync, for the rest of the first work."""
MAX_WAIT_S: Final = 300.0


class RunningProcess(NamedTuple):
    """A process that is measured.

    Attributes:
        pid: Its process id.
        log: Its log, a JSON document per line.
    """

    pid: int
    log: Path

    def events(self) -> set[str]:
        """Return the events that it has logged, each with its controller if there is one."""
        lines = map(json.loads, self.log.read_text().splitlines())
        return {f"{line['event']} {line.get('controller', '')}".rstrip() for line in lines}

    def cpu_s(self) -> float:
        """Return the CPU time that it has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Return its resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure() -> Iterator[Result]:
    """Yield memory, watches and CPU of webhook, leading controllers and certificate controller."""
    for package, readiness in (
        ("webhook", {"rules.synced"}),
        (
            "controllers",
            {"rules.synced", "controller.synced policies", "controller.synced templates"},
        ),
        ("controllers.certificates", {"controller.synced certificates", "certificate.issued"}),
    ):
        yield from asyncio.run(_measure(package, readiness))


async def _measure(package: str, readiness: Collection[str]) -> list[Result]:
    name = f"{package}, {NODES_OF_CLUSTER:,} nodes of 8 devices"
    async with FakeApiServer() as server:
        fill(server, workloads.varied_document(NODES_OF_CLUSTER), ALLOCATED_CLAIMS)
        async with running_process(package, server) as process:
            await until_true(lambda: process.events() >= set(readiness))
            cpu_s = process.cpu_s()
            await asyncio.sleep(SETTLE_S)
            memory, watches = process.rss_mb(), server.watching
    return [
        below(f"{name}: memory after sync (MB)", memory, None),
        below(f"{name}: list and watch connections", watches, None),
        below(f"{name}: CPU until sync (s)", cpu_s, None),
    ]


def fill(server: FakeApiServer, scenario: Scenario, allocated_count: int) -> list[Document]:
    """Store a cluster, and return its allocated claims.

    Args:
        allocated_count: The number of the scenario's allocated claims to store.
    """
    claims = list(scenario["allocated"][:allocated_count])
    for resource, objects in (
        (NODES, scenario["nodes"]),
        (RESOURCE_SLICES, scenario["slices"]),
        (DEVICE_CLASSES, scenario["classes"]),
        (RESOURCE_CLAIMS, claims),
    ):
        for document in objects:
            server.put(resource, document)
    return claims


@asynccontextmanager
async def running_process(
    package: str,
    server: FakeApiServer,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] = {},
) -> AsyncIterator[RunningProcess]:
    """Run `python -m PACKAGE` beside this process, with its default settings but those in arguments."""
    with TemporaryDirectory() as folder:
        kubeconfig, log = Path(folder) / "kubeconfig", Path(folder) / "log"
        kubeconfig.write_text(dump_yaml([_kubeconfig(server.url)]))
        command = ("-m", package, "--kubeconfig", str(kubeconfig), "--probe-port", "0")
        ports = ("--metrics-port", "0")
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                *ports,
                "--bind",
                "127.0.0.1",
                *arguments,
                stderr=stderr,
                env={**os.environ, **environment},
            )
        try:
            yield RunningProcess(process.pid, log)
        finally:
            process.terminate()
            await process.wait()


async def until_true(condition: Callable[[], bool]) -> None:
    """Wait for a condition on another process."""
    async with asyncio.timeout(MAX_WAIT_S):
        while not condition():  # noqa: ASYNC110 - it has no event of its own.
            await asyncio.sleep(0.05)


async def calm(process: RunningProcess) -> None:
    """Wait until the process has nothing to do."""
    before = -1.0
    while (now := process.cpu_s()) - before > 0.02:
        before = now
        await asyncio.sleep(0.5)


def _kubeconfig(url: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
