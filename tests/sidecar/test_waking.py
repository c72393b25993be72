"""A release wakes the pods that it helps; the calls of all others are saved."""

from pathlib import Path

from kube.api.urls import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS
from sidecar.answers.service import MAX_REST_S
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)

WAITING = 30
RELEASES = 5
NODES = tuple(f"node-{number}" for number in range(RELEASES))


def put_full_cluster(server: FakeApiServer) -> None:
    """Publish one device on each node, all of them allocated."""
    publish(server, *NODES, per_node=1)
    for name in NODES:
        stored = put_claim(server, f"held-{name}")
        result = {"request": "req-0", "driver": "gpu.example.com", "pool": name, "device": "gpu-0"}
        stored["status"] = {"allocation": {"devices": {"results": [result]}}}
        server.put(RESOURCE_CLAIMS, stored)


def release(server: FakeApiServer, node: str) -> str:
    """Take a device back and return the version of its claim."""
    stored = server.find(RESOURCE_CLAIMS, f"held-{node}", "default")
    assert stored is not None
    version: str = server.put(RESOURCE_CLAIMS, {**stored, "status": {}})["metadata"][
        "resourceVersion"
    ]
    return version


async def waiting_pods(server: FakeApiServer, scheduler: FakeScheduler) -> list[Document]:
    """Return pods that were turned away; of every ten one is more important."""
    pods = []
    for number in range(WAITING):
        put_claim(server, f"gpu-{number}")
        priority = 10 if number % 10 == 9 else 0
        pod = put_pod(server, f"p-{number}", f"gpu-{number}", priority=priority)
        answer = await scheduler.prefilter(
            pod, claimVersions={f"default/gpu-{number}": version_of(server, f"gpu-{number}")}
        )
        assert answer["verdict"] in {"unschedulable", "unresolvable"}
        pods.append(pod)
    return pods


def version_of(server: FakeApiServer, name: str) -> str:
    stored = server.find(RESOURCE_CLAIMS, name, "default")
    assert stored is not None
    version: str = stored["metadata"]["resourceVersion"]
    return version


async def greeted(sidecar: Sidecar) -> FakeScheduler:
    scheduler = FakeScheduler(sidecar.socket, "scheduler-0")
    assert (await scheduler.hello())["ready"]
    return scheduler


async def test_each_release_wakes_one_pod_the_most_important_first(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        put_full_cluster(server)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            pods = {
                f"default/{pod['metadata']['name']}": pod
                for pod in await waiting_pods(server, scheduler)
            }
            assert (await scheduler.wake()).get("pods", []) == []
            tried = []
            for node in NODES:
                answer = await scheduler.wake(release(server, node))
                for name in answer["pods"]:
                    tried.append(name)
                    assert (await scheduler.prefilter(pods[name]))["verdict"] == "fits"
                    scheduler.reserve(pods[name], node)
                assert (await scheduler.wake()).get("pods", []) == []

            # Three are important; then those that have waited longest.
            assert [f"default/p-{number}" for number in (9, 19, 29, 0, 1)] == tried


async def test_releases_that_come_together_wake_as_many_pods(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        put_full_cluster(server)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await waiting_pods(server, scheduler)

            version = [release(server, node) for node in NODES[:3]][-1]

            answer = await scheduler.wake(version)
            assert ["default/p-9", "default/p-19", "default/p-29"] == answer["pods"]
            assert 0 < answer["restMillis"] <= 1000 * MAX_REST_S
            assert (await scheduler.wake()).get("restMillis", 0) == 0, "nothing was planned"


async def test_a_release_that_no_event_told_of_is_found_by_the_timer(tmp_path: Path) -> None:
    """The scheduler asks at every heartbeat, without any version."""
    async with FakeApiServer() as server:
        put_full_cluster(server)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await waiting_pods(server, scheduler)
            version = sidecar.state.version
            server.remove(RESOURCE_CLAIMS, "held-node-0", "default")
            await until(lambda: sidecar.state.version > version)

            assert ["default/p-9"] == (await scheduler.wake())["pods"]


async def test_a_class_that_changes_wakes_the_pods_that_it_helps(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-0", per_node=1)
        stored = server.find(DEVICE_CLASSES, "gpu")
        assert stored is not None
        never = {"selectors": [{"cel": {"expression": "false"}}]}
        server.put(DEVICE_CLASSES, {**stored, "spec": never})
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await waiting_pods(server, scheduler)
            version = sidecar.state.version
            server.put(DEVICE_CLASSES, stored)
            await until(lambda: sidecar.state.version > version)

            assert ["default/p-9"] == (await scheduler.wake())["pods"]


async def test_a_pod_that_is_gone_is_not_woken(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        put_full_cluster(server)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await waiting_pods(server, scheduler)
            server.remove(PODS, "p-9", "default")
            await until(lambda: "uid-p-9" not in sidecar.state.consumers.pods)

            answer = await scheduler.wake(release(server, "node-0"))

            assert ["default/p-19"] == answer["pods"]


async def test_a_new_sidecar_wakes_pods_that_the_one_before_turned_away(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-0", per_node=1)
        put_claim(server, "gpu-a")
        put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)

            assert ["default/a"] == (await scheduler.wake())["pods"]
