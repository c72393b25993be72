"""More pods of one claim than it has places for: the others wait at no cost, and as many are woken as places are free."""

import asyncio
from pathlib import Path

from kube.api.urls import RESOURCE_CLAIMS
from sidecar.commit.writes import MAX_CONSUMERS
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

FREE = 2
WAITING = 20


def consumers(*numbers: int) -> list[Document]:
    return [
        {"resource": "pods", "name": f"old-{number}", "uid": f"uid-old-{number}"}
        for number in numbers
    ]


def put_shared_claim(server: FakeApiServer, gone: int = 0) -> str:
    """Store an allocated claim with few free places, and return its version.

    Args:
        gone: Consumers that have left it.
    """
    stored = server.find(RESOURCE_CLAIMS, "shared", "default") or put_claim(server, "shared")
    result = {"request": "req-0", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    written = [
        consumer
        for consumer in (stored.get("status") or {}).get("reservedFor", ())
        if not consumer["name"].startswith("old-")
    ]
    remaining = consumers(*range(gone, MAX_CONSUMERS - FREE))
    stored["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [*remaining, *written],
    }
    version: str = server.put(RESOURCE_CLAIMS, stored)["metadata"]["resourceVersion"]
    return version


def status_writes(server: FakeApiServer) -> int:
    return sum(call.method == "PATCH" and "/resourceclaims/" in call.path for call in server.calls)


async def full_claim(
    server: FakeApiServer, sidecar: Sidecar
) -> tuple[FakeScheduler, dict[str, Document]]:
    """Reserve the pods that a claim has places for, and return those that were turned away by name."""
    pods = [put_pod(server, f"p-{number:02}", "shared") for number in range(FREE + WAITING)]
    await until(lambda: len(sidecar.state.consumers.pods) == len(pods))
    scheduler = FakeScheduler(sidecar.socket)
    assert (await scheduler.hello())["ready"]
    for pod in pods[:FREE]:
        assert (await scheduler.prefilter(pod))["verdict"] == "fits"
        scheduler.reserve(pod, "node-1")
    for pod in pods[FREE:]:
        answer = await scheduler.prefilter(pod)
        assert (answer["verdict"], answer["code"]) == ("unresolvable", "tooManyConsumers")
    return scheduler, {f"default/{pod['metadata']['name']}": pod for pod in pods[FREE:]}


async def test_places_of_reserved_pods_count_before_they_are_written(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        put_shared_claim(server)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler, waiting = await full_claim(server, sidecar)
            assert status_writes(server) == 0

            reserved = [{"metadata": {"uid": uid}} for uid in scheduler.reservations]
            answers = await asyncio.gather(*map(scheduler.prebind, reserved))

            assert {answer["verdict"] for answer in answers} == {"ok"}
            assert len(sidecar.claim("shared")["status"]["reservedFor"]) == MAX_CONSUMERS
            assert status_writes(server) <= FREE
            assert (await scheduler.wake()).get("pods", []) == []
            assert sidecar.service is not None
            for pod in reserved:
                assert pod["metadata"]["uid"] in sidecar.service.reservations.by_pod
            again = await scheduler.prefilter(next(iter(waiting.values())))
            assert again["code"] == "tooManyConsumers", "an entry counts once"


async def test_as_many_pods_are_woken_as_places_become_free(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        put_shared_claim(server)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler, waiting = await full_claim(server, sidecar)
            assert (await scheduler.wake()).get("pods", []) == []

            assert (await scheduler.wake(put_shared_claim(server, 1)))["pods"] == ["default/p-02"]
            # A pod that was woken has its place, also before it is tried.
            woken = (await scheduler.wake(put_shared_claim(server, 3)))["pods"]
            assert woken == ["default/p-03", "default/p-04"]
            for name in ("default/p-02", *woken):
                assert (await scheduler.prefilter(waiting[name]))["verdict"] == "fits"
                scheduler.reserve(waiting[name], "node-1")
            answer = await scheduler.prefilter(waiting["default/p-05"])
            assert answer["code"] == "tooManyConsumers"


async def test_a_reservation_that_is_given_up_wakes_a_pod_for_its_place(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        put_shared_claim(server)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler, _ = await full_claim(server, sidecar)
            assert (await scheduler.wake()).get("pods", []) == []

            scheduler.drop({"metadata": {"uid": next(iter(scheduler.reservations))}})

            assert (await scheduler.wake())["pods"] == ["default/p-02"]
