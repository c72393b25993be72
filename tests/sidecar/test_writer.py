"""The number of writes, their authors, and the word of a sidecar that ends about its last ones."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kube.api.meta import ObjectMeta
from kube.api.resource import ResourceClaim
from kube.api.urls import ALLOCATOR_OWNERSHIPS
from kube.errors import KubeError
from sidecar.commit.writes import Outcome, outcome_of
from sidecar.writes.writer import LeaderWriter
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)

NAME = ("default", "claim")


@asynccontextmanager
async def writer_of(
    server: FakeApiServer,
    timeout_s: float,
    *,
    max_in_flight: int = 2,
    may_write: Callable[[], bool] = lambda: True,
    claim: ResourceClaim | None = None,
) -> AsyncIterator[LeaderWriter]:
    async with server.client(timeout_s=5.0) as client:
        yield LeaderWriter(
            client,
            identity="us",
            timeout_s=timeout_s,
            max_in_flight=max_in_flight,
            may_write=may_write,
            find_claim=lambda _: claim,
        )


async def write(writer: LeaderWriter) -> bytes:
    return await writer.patch(NAME, {"metadata": {"annotations": {"a": "b"}}}, status=False)


async def test_writes_that_were_answered_are_over() -> None:
    async with FakeApiServer() as server, writer_of(server, 2.0) as writer:
        put_claim(server, NAME[1])
        await write(writer)

        assert await writer.drain()


async def test_a_write_under_way_is_waited_for() -> None:
    async with FakeApiServer() as server, writer_of(server, 30.0) as writer:
        put_claim(server, NAME[1])
        server.hang()
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(write(writer))
            await until(lambda: server.counts["PATCH"] == 1)
            draining = group.create_task(writer.drain())
            await asyncio.sleep(0.1)
            assert not draining.done()
            server.resume()

        assert writing.result()
        assert draining.result()


async def test_a_write_that_never_is_answered_is_not_over() -> None:
    async with FakeApiServer() as server, writer_of(server, 0.2) as writer:
        put_claim(server, NAME[1])
        server.hang()
        with pytest.raises(KubeError):
            await write(writer)

        assert not await writer.drain()


async def test_a_write_that_was_cancelled_is_not_over() -> None:
    async with FakeApiServer() as server, writer_of(server, 30.0) as writer:
        put_claim(server, NAME[1])
        server.hang()
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(write(writer))
            await until(lambda: server.counts["PATCH"] == 1)
            writing.cancel()

        assert writing.cancelled()
        assert not await writer.drain()


@pytest.mark.parametrize(
    ("seen", "is_over"),
    [
        pytest.param(None, True, id="its claim is gone"),
        pytest.param("8", True, id="its claim has changed"),
        pytest.param("7", False, id="a copy of it may meet a fence that knows us"),
    ],
)
async def test_a_refused_write_is_over_once_no_copy_can_be_made(
    seen: str | None, is_over: bool
) -> None:
    claim = (
        None
        if seen is None
        else ResourceClaim(metadata=ObjectMeta(name=NAME[1], uid="u", resource_version=seen))
    )
    async with FakeApiServer() as server, writer_of(server, 2.0, claim=claim) as writer:
        server.fail(403, matches=lambda call: call.method == "PATCH")
        with pytest.raises(KubeError) as refusal:
            await writer.patch(
                NAME, {"metadata": {"uid": "u", "resourceVersion": "7"}}, status=True
            )
        assert outcome_of(refusal.value) is Outcome.REFUSED

        assert await writer.drain() is is_over


async def test_nothing_is_sent_when_the_lease_may_be_lost() -> None:
    async with FakeApiServer() as server, writer_of(server, 2.0, may_write=lambda: False) as writer:
        put_claim(server, NAME[1])

        with pytest.raises(KubeError) as of_claim:
            await write(writer)
        with pytest.raises(KubeError) as of_ownership:
            await writer.patch_ownership("default", {"status": {}})

        assert [outcome_of(error.value) for error in (of_claim, of_ownership)] == [
            Outcome.NOT_SENT,
            Outcome.NOT_SENT,
        ]
        assert not server.calls
        assert await writer.drain()


async def test_so_many_writes_at_a_time() -> None:
    async with FakeApiServer() as server, writer_of(server, 30.0, max_in_flight=1) as writer:
        put_claim(server, NAME[1])
        is_over = server.delay(lambda call: call.method == "PATCH")
        async with asyncio.TaskGroup() as group:
            writing = [group.create_task(write(writer)) for _ in range(2)]
            await until(lambda: server.counts["PATCH"] == 1)
            # What is sent after the second write would be, and is answered, comes after it.
            await writer.read(NAME)
            await writer.read(NAME)
            assert server.counts["PATCH"] == 1
            is_over.set()

        assert all(task.result() for task in writing)
        assert server.counts["PATCH"] == 2


async def test_a_namespace_with_many_writes_does_not_delay_those_of_others() -> None:
    """As 40 pods that share 200 claims: each writes one claim after the other, all at the same time."""
    async with FakeApiServer() as server, writer_of(server, 30.0, max_in_flight=4) as writer:
        for name in ("loud", "quiet"):
            put_claim(server, name, namespace=name)
        is_over = server.delay(lambda call: call.method == "PATCH")

        async def write_claim(namespace: str) -> None:
            await writer.patch((namespace, namespace), {"metadata": {}}, status=False)

        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(write_claim("loud"))
            await until(lambda: server.counts["PATCH"] == 2)
            quiet = group.create_task(write_claim("quiet"))
            await until(lambda: server.counts["PATCH"] == 3)
            # The places that are left stay free for others than both.
            assert "/namespaces/quiet/" in server.calls[-1].path
            is_over.set()

        assert quiet.done()


async def test_a_pod_with_many_claims_makes_one_write_at_a_time(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=8)
        names = [f"gpu-{number}" for number in range(8)]
        for name in names:
            put_claim(server, name)
        pod = put_pod(server, "many", *names)
        async with sidecar_beside(server, tmp_path) as sidecar, asyncio.TaskGroup() as group:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            await scheduler.prefilter(pod)
            scheduler.reserve(pod, "node-1")
            patches = server.counts["PATCH"]
            is_over = server.delay(lambda call: call.method == "PATCH")
            binding = group.create_task(scheduler.prebind(pod))
            await until(lambda: server.counts["PATCH"] == patches + 1)
            await scheduler.hello()  # What would be written beside it comes before the answer.
            assert server.counts["PATCH"] == patches + 1
            is_over.set()

        assert binding.result()["verdict"] == "ok"


async def test_the_status_of_the_ownership_is_a_write_that_the_next_leader_waits_for() -> None:
    async with FakeApiServer() as server, writer_of(server, 0.2) as writer:
        server.put(ALLOCATOR_OWNERSHIPS, {"metadata": {"name": "default"}})
        await writer.patch_ownership("default", {"status": {"holder": "us"}})
        (call,) = server.calls
        assert (call.query["fieldManager"], call.query["timeout"]) == ("drawbridge/us", "200ms")
        assert await writer.drain()

        server.hang()
        with pytest.raises(KubeError):
            await writer.patch_ownership("default", {"status": {"holder": "us"}})

        assert not await writer.drain()
