"""Pods come and go for as long as is wished while nodes and devices change: `make soak BRIDGE=1`.

Two replicas of the bridge own the driver, behind the fence. No fault ends the leader, so that its memory
is that of one process: the API server and the controller manager are killed, processes of the leader
are stopped for a moment, and the other replica is killed. Many pods ask for what no pod asked for before,
some by expressions that cost much, some for more than there is, and some preempt others. From time to time
somebody with another namespace has the bridge decide what it cannot decide soon.

Figures are JSON lines; the last one is the result. The exit status is 1 if a pod that fits was not
bound, if a whole device was given twice, if something is promised after all pods have gone, if the
devices in use had to be counted anew, if a process grew, if the sidecar with the workers that it starts
is larger than its goal, or if that was not looked at often enough. Shares and partitions that overlap are not
looked for; the drift check counts them.
"""

import argparse
import asyncio
import itertools
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.bridge import churn_objects, load
from bench.bridge.measure import CLIENT_QPS, bench_cluster
from bench.bridge.scenarios import CLASS, DRIVER, Object, device_class
from bench.bridge.sides import METRICS_FLAG, samples, total
from e2e.attackers import poison
from e2e.bridge import Bridge, doubly_held
from e2e.cluster import Cluster
from e2e.custom_kinds import wait_established
from e2e.drawbridge import command_line
from e2e.soak_record import SoakRecord
from kube.api.core import Pod
from kube.api.own_kinds import ALLOCATOR_OWNERSHIP
from kube.api.urls import (
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from kube.client.client import Client, PatchType
from kube.errors import AlreadyExists, KubeError, NotFound
from tools.custom_resources import definition

LEADER: Final = "a"
OTHER: Final = "b"
PARTS: Final = ("scheduler", "sidecar")
LIFE_S: Final = (5.0, 60.0)
"""A pod is deleted so long after its decision."""
DECIDED_WITHIN_S: Final = 120.0
RELEASED_WITHIN_S: Final = 180.0
RETRIED_FOR_S: Final = 60.0
CHANGE_PAUSE_S: Final = 1.0
REPLACED_EVERY: Final = 30
"""One of so many changes deletes a node, and creates it again."""
FAULT_PAUSE_S: Final = 60.0
HOSTILE: Final = "hostile"
"""The namespace of pods that the bridge cannot decide about soon."""
POISONS: Final = (poison.two_pods, poison.thirty_lists)
POISON_PAUSE_S: Final = 60.0
POISON_S: Final = 20.0
_HOSTILE_RESOURCES: Final = {"Pod": PODS, "ResourceClaim": RESOURCE_CLAIMS}
STOPPED_S: Final = 4.0
"""Shorter than the sidecar may be late with its Lease."""
SAMPLE_PAUSE_S: Final = 15.0
MEMORY_GOAL_MIB: Final = 500
SETTINGS: Final = {
    # An API server that is killed may be gone for longer than a leader with the defaults may be late.
    "leaderElection": {"leaseDuration": "60s", "renewDeadline": "40s", "retryPeriod": "1s"},
    "writeTimeout": "5s",
    "driftCheckPeriod": "30s",
}
UNUSABLE: Final = "The sidecar is not usable"
"""The scheduler logs it when calls fail at once for a while, as after a fault that stops the sidecar."""


class Churn:
    """The load, the changes and the faults."""

    def __init__(self, cluster: Cluster, bridge: Bridge, client: Client, nodes: int) -> None:
        self._cluster = cluster
        self._bridge = bridge
        self._client = client
        self._nodes = range(nodes)
        self._chance = random.Random(1)
        self._ended = asyncio.Event()
        self._record = SoakRecord(
            ("created", "bound", "turned_away", "lost", "changes", "looks", "doubly_held")
        )
        self._tending = threading.Lock()

    async def publish(self) -> None:
        """Create nodes, devices and templates."""
        client = self._client
        await load.store(client, NODES, map(churn_objects.node, self._nodes))
        slices = (piece for number in self._nodes for piece in churn_objects.slices(number))
        await load.store(client, RESOURCE_SLICES, slices)
        await load.store(client, RESOURCE_CLAIM_TEMPLATES, churn_objects.templates())

    async def run(self, minutes: float, rate: float) -> bool:
        """Create so many pods a second for some minutes; return True if all went well."""
        async with load.following(self._client) as outcome, asyncio.TaskGroup() as group:
            group.create_task(self._create_pods(outcome, rate))
            group.create_task(self._change_nodes())
            group.create_task(self._poison())
            group.create_task(self._sample())
            try:
                await asyncio.to_thread(
                    self._record.cause, self._faults(), minutes=minutes, pause_s=FAULT_PAUSE_S
                )
            finally:  # The load may have failed before.
                self._record.ended.set()
                self._ended.set()
        await asyncio.to_thread(self._look_for_doubly_held)
        self._record.print("drain")
        for resource in (PODS, RESOURCE_CLAIMS):
            await _until_done(load.remove_all, self._client, resource)
        left = await self._left()
        drift = self._metric("drift_total")
        drift_checks = self._metric("decision_duration_seconds_count", kind="drift_check")
        larger = self._record.grown()
        memory_mib = max(sample[f"sidecar-{LEADER}"] for sample in self._record.memory)
        counts = self._record.counts
        faults = (counts["lost"], counts["doubly_held"], larger, *left.values(), drift)
        has_looked = drift_checks and counts["looks"] > len(self._record.memory) / 2
        is_good = bool(has_looked) and not any(faults) and memory_mib <= MEMORY_GOAL_MIB
        log = self._bridge.child("scheduler", LEADER).log.read_text(errors="replace")
        self._record.print(
            "result",
            ok=is_good,
            memory_mib=memory_mib,
            unusable=log.count(UNUSABLE),
            drift_checks=drift_checks,
            grown=larger,
            left=left,
            drift=drift,
        )
        return is_good

    # --- pods ------------------------------------------------------------------------------------

    async def _create_pods(self, outcome: load.Outcome, rate: float) -> None:
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                if await self._sleep(1 / rate):
                    return
                life = churn_objects.life(number, self._chance)
                group.create_task(self._live(outcome, life))

    async def _live(self, outcome: load.Outcome, life: churn_objects.Life) -> None:
        """Create a pod, wait for the decision, and delete it."""
        name = life.pod["metadata"]["name"]
        if life.claim is not None:
            await _create(self._client, RESOURCE_CLAIMS, life.claim)
        await _create(self._client, PODS, life.pod)
        self._record.count("created")
        if life.is_bound:
            await self._await("bound", name, outcome.bound)
        elif life.is_turned_away:
            await self._await("turned_away", name, outcome.turned_away)
        await self._sleep(self._chance.uniform(*LIFE_S))
        await _delete(self._client, PODS, name)
        if life.claim is not None:
            await _delete(self._client, RESOURCE_CLAIMS, name)
        outcome.bound.pop(name, None)
        outcome.turned_away.discard(name)

    async def _await(self, expected: str, name: str, names: Container[str]) -> None:
        deadline = time.monotonic() + DECIDED_WITHIN_S
        while name not in names:
            if time.monotonic() > deadline:
                self._record.count("lost")
                self._record.print(
                    "lost", pod=name, wanted=expected, conditions=await self._conditions(name)
                )
                return
            await asyncio.sleep(load.PAUSE_S)
        self._record.count(expected)

    async def _conditions(self, name: str) -> list[str]:
        try:
            found = await self._client.get(PODS, name, Pod, namespace=load.NAMESPACE)
        except KubeError as error:
            return [str(error)]
        conditions = (found.status.conditions if found.status is not None else None) or ()
        return [f"{condition.type}: {condition.message}" for condition in conditions]

    async def _poison(self) -> None:
        """Create pods that cost much in a namespace of their own, by turns, and delete them."""
        await asyncio.to_thread(self._cluster.kubectl, "create", "namespace", HOSTILE)
        for number in itertools.count():
            if await self._sleep(POISON_PAUSE_S):
                return
            draw = POISONS[number % len(POISONS)]
            claims = draw(CLASS, DRIVER, random.Random(f"poison/{number}"))
            documents = [*claims, *map(poison.pod_of, claims)]
            self._record.print("poison", name=draw.__name__, claims=len(claims))
            for document in documents:
                resource = _HOSTILE_RESOURCES[document["kind"]]
                await _create(self._client, resource, document, namespace=HOSTILE)
            await self._sleep(POISON_S)
            for document in reversed(documents):
                resource, name = _HOSTILE_RESOURCES[document["kind"]], document["metadata"]["name"]
                await _delete(self._client, resource, name, namespace=HOSTILE)

    # --- nodes and devices -----------------------------------------------------------------------

    async def _change_nodes(self) -> None:
        changes = (self._relabel, self._publish_again, self._cordon)
        for change_number in itertools.count(1):
            if await self._sleep(CHANGE_PAUSE_S):
                return
            is_replaced = change_number % REPLACED_EVERY == 0
            change = self._replace if is_replaced else changes[change_number % len(changes)]
            await _until_done(change, self._chance.choice(self._nodes), change_number)
            self._record.count("changes")

    async def _relabel(self, node: int, change_number: int) -> None:
        labels = {f"{DRIVER}/change": str(change_number)}
        await self._patch(NODES, churn_objects.node(node), {"metadata": {"labels": labels}})

    async def _cordon(self, node: int, change_number: int) -> None:
        spec = {"unschedulable": change_number % 2 == 0}
        await self._patch(NODES, churn_objects.node(node), {"spec": spec})

    async def _publish_again(self, node: int, change_number: int) -> None:
        """Publish another generation of a node's devices, with a taint or without."""
        is_worn = change_number % 2 == 0
        pieces = churn_objects.slices(node, generation=change_number + 1, is_worn=is_worn)
        for piece in pieces:
            await self._patch(RESOURCE_SLICES, piece, {"spec": piece["spec"]})

    async def _replace(self, node: int, _change_number: int) -> None:
        """Delete a node with its devices, and create it again."""
        document, pieces = churn_objects.node(node), churn_objects.slices(node)
        for piece in pieces:
            await _delete(self._client, RESOURCE_SLICES, piece["metadata"]["name"])
        await _delete(self._client, NODES, document["metadata"]["name"])
        await load.store(self._client, NODES, [document])
        await load.store(self._client, RESOURCE_SLICES, pieces)

    async def _patch(self, resource: Resource, document: Object, patch: Object) -> None:
        name = document["metadata"]["name"]
        await self._client.patch(resource, name, patch, PatchType.MERGE, msgspec.Raw)

    # --- faults ----------------------------------------------------------------------------------

    def _faults(self) -> Sequence[Callable[[], None]]:
        return (
            self._restart_api_server,
            self._stop_scheduler,
            self._kill_other_replica,
            self._stop_sidecar,
            self._restart_controller_manager,
        )

    def _restart_api_server(self) -> None:
        self._cluster.restart("kube-apiserver")

    def _restart_controller_manager(self) -> None:
        self._cluster.restart("kube-controller-manager")

    def _stop_scheduler(self) -> None:
        self._stop_for_a_moment("scheduler")

    def _stop_sidecar(self) -> None:
        self._stop_for_a_moment("sidecar")

    def _stop_for_a_moment(self, part: str) -> None:
        child = self._bridge.child(part, LEADER)
        child.signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        child.signal(signal.SIGCONT)

    def _kill_other_replica(self) -> None:
        with self._tending:
            for part in PARTS:
                child = self._bridge.child(part, OTHER)
                child.signal(signal.SIGKILL)
                child.wait(10)
            self._bridge.tend(OTHER)

    # --- inside ----------------------------------------------------------------------------------

    async def _sample(self) -> None:
        while not await self._sleep(SAMPLE_PAUSE_S):
            await asyncio.to_thread(self._take_sample)

    def _take_sample(self) -> None:
        with self._tending:  # Its scheduler may end while the API server does not answer.
            self._bridge.tend(OTHER)
        for part in PARTS:
            child = self._bridge.child(part, LEADER)
            if child.exit_status is not None:
                raise RuntimeError(f"the {part} that leads has ended:\n{child.tail()}")
        memory_mib = self._record.sample(
            {
                f"{part}-{replica}": self._bridge.child(part, replica)
                for part in PARTS
                for replica in (LEADER, OTHER)
            }
        )
        with suppress(AssertionError, OSError, ValueError, HTTPException):
            self._look_for_doubly_held()  # The API server may not answer.
        self._record.print("sample", memory_mib=memory_mib, holds=self._metric("holds"))

    def _look_for_doubly_held(self) -> None:
        self._record.count("doubly_held", len(doubly_held(self._cluster)))
        self._record.count("looks")

    async def _left(self) -> dict[str, float]:
        """Return the promises that are left once there was time to let go of all."""
        deadline = time.monotonic() + RELEASED_WITHIN_S
        while True:
            left = {name: self._metric(name) for name in ("reservations", "holds")}
            if not any(left.values()) or time.monotonic() > deadline:
                return left
            await asyncio.sleep(1)

    def _metric(self, name: str, **labels: str) -> float:
        metrics, full_name = samples(self._bridge.metrics(LEADER)), f"drawbridge_sidecar_{name}"
        if full_name not in {sample.name for sample in metrics}:
            raise RuntimeError(f"the sidecar has no metric {full_name}")
        return total(metrics, full_name, **labels)

    async def _sleep(self, seconds: float) -> bool:
        """Return after some time; True if the end has come."""
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True


async def _create(
    client: Client, resource: Resource, document: Object, *, namespace: str = load.NAMESPACE
) -> None:
    async def create() -> None:
        with suppress(AlreadyExists):  # A call before it had no answer.
            await client.create(resource, document, msgspec.Raw, namespace=namespace)

    await _until_done(create)


async def _delete(
    client: Client, resource: Resource, name: str, *, namespace: str = load.NAMESPACE
) -> None:
    async def delete() -> None:
        with suppress(NotFound):
            inside = namespace if resource.namespaced else ""
            await client.delete(resource, name, namespace=inside)

    await _until_done(delete)


async def _until_done(call: Callable[..., Awaitable[object]], *arguments: Any) -> None:
    """Make calls again for a while if the API server does not answer."""
    deadline = time.monotonic() + RETRIED_FOR_S
    while True:
        try:
            await call(*arguments)
        except KubeError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(1)
        else:
            return


@contextmanager
def _installed() -> Iterator[tuple[Cluster, Bridge]]:
    """Start a control plane with two replicas of the bridge as the owners of the driver."""
    with (
        tempfile.TemporaryDirectory(prefix="drawbridge-churn-") as folder,
        bench_cluster(Path(folder)) as cluster,
    ):
        objects = (device_class(), churn_objects.priority_class())
        cluster.apply([definition(ALLOCATOR_OWNERSHIP), *objects])
        wait_established(cluster, "allocatorownerships.drawbridge.internal")
        limits = {"clientConnection": {"qps": CLIENT_QPS, "burst": 2 * CLIENT_QPS}}
        bridge = Bridge(
            cluster,
            drivers=(),
            settings=SETTINGS,
            scheduler=limits,
            scheduler_flags=(METRICS_FLAG,),
        )
        bridge.install()
        completed = command_line(cluster, "bridge", "own", DRIVER, "--apply")
        if completed.returncode:
            raise RuntimeError(completed.stderr)
        yield cluster, bridge


async def _run(cluster: Cluster, bridge: Bridge, options: argparse.Namespace) -> bool:
    async with await Client.from_kubeconfig(str(cluster.kubeconfig)) as client:
        churn = Churn(cluster, bridge, client, options.nodes)
        await churn.publish()
        await asyncio.to_thread(bridge.start, LEADER)
        await asyncio.to_thread(bridge.wait_working, LEADER)
        await asyncio.to_thread(bridge.start, OTHER)
        return await churn.run(options.minutes, options.rate)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=6.0, help="pods a second")
    options = parser.parse_args(arguments)
    with _installed() as (cluster, bridge):
        return 0 if asyncio.run(_run(cluster, bridge, options)) else 1


if __name__ == "__main__":
    sys.exit(main())
