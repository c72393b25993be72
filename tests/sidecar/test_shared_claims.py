"""Pods that share claims are bound by few writes, however many they are."""

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path

from testing.documents import Document
from testing.fake_api_server import FakeApiServer
from testing.sidecar.scheduler import FakeScheduler, publish, put_claim, put_pod, sidecar_beside

PODS = 30
CLAIMS = tuple(f"gpu-{number}" for number in range(4))


async def test_a_claim_is_not_written_once_for_each_of_its_pods(tmp_path: Path) -> None:
    """One for the finalizer, one for the first pod, and one for all that came during each write."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=len(CLAIMS))
        for name in CLAIMS:
            put_claim(server, name)
        pods = [put_pod(server, f"pod-{number}", *CLAIMS) for number in range(PODS)]
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            for pod in pods:
                await scheduler.prefilter(pod)
                scheduler.reserve(pod, "node-1")

            answers = await asyncio.gather(*map(scheduler.prebind, pods))

            assert {answer["verdict"] for answer in answers} == {"ok"}
            consumers = [sidecar.claim(name)["status"]["reservedFor"] for name in CLAIMS]
            assert [len(of_claim) for of_claim in consumers] == [PODS] * len(CLAIMS)
            writes = Counter(
                call.path.removesuffix("/status")
                for call in server.calls
                if call.method == "PATCH" and "/resourceclaims/" in call.path
            )
            assert len(writes) == len(CLAIMS)
            assert sum(writes.values()) < len(CLAIMS) * PODS / 2


async def given_up(scheduler: FakeScheduler, pod: Document) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.005):
            await scheduler.prebind(pod)


async def test_a_pod_that_gave_up_while_another_reserved_its_claim_is_taken_out(
    tmp_path: Path,
) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        put_claim(server, "shared")
        pods = [put_pod(server, name, "shared") for name in "ab"]
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            for pod in pods:
                await scheduler.prefilter(pod)
                scheduler.reserve(pod, "node-1")
            await asyncio.gather(scheduler.prebind(pods[0]), given_up(scheduler, pods[1]))

            assert (await scheduler.unreserve(pods[1]))["verdict"] == "ok"

            consumers = [pod["uid"] for pod in sidecar.claim("shared")["status"]["reservedFor"]]
            assert consumers == [pods[0]["metadata"]["uid"]]
