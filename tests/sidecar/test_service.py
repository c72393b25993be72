"""A pod's way through the sidecar, over its socket and against an API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from clusterstate.kinds import Kind
from kube.api.ownership import HeldBackClaim, HeldBackDevice
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    EVENTS,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from sidecar.commit.ledger import Step
from sidecar.model.settings import SidecarSettings
from sidecar.ownership.held_back import as_claim
from sidecar.plan import preemption
from sidecar.plan.preemption import FILTER_STEPS
from testing.allocation.builders import node
from testing.documents import Document
from testing.fake_api_server import Call, FakeApiServer, until
from testing.sidecar.scheduler import (
    HOLDER,
    FakeScheduler,
    Sidecar,
    document,
    publish,
    put_claim,
    put_fence,
    put_pod,
    sidecar_beside,
)
from testing.sidecar.snapshots import hard_claim, hard_slices


def names(answer: Document) -> list[str]:
    assert answer["verdict"] == "fits", answer
    return [node["name"] for node in answer["nodes"]]


def is_status_write(call: Call) -> bool:
    return call.method == "PATCH" and call.path.endswith("/status")


def counted(sidecar: Sidecar, name: str, **labels: str) -> float:
    return sidecar.registry.get_sample_value(f"drawbridge_sidecar_{name}_total", labels) or 0


async def greeted(sidecar: Sidecar, name: str = "scheduler-0") -> FakeScheduler:
    scheduler = FakeScheduler(sidecar.socket, name)
    assert (await scheduler.hello())["ready"]
    return scheduler


def allocate(server: FakeApiServer, name: str, node: str, *uids: str) -> None:
    """Store that a claim has the first device of a node, for these pods."""
    stored = server.find(RESOURCE_CLAIMS, name, "default")
    assert stored is not None
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    result = {"request": "req-0", "driver": "gpu.example.com", "pool": node, "device": "gpu-0"}
    stored["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [term]},
        },
        "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in uids],
    }
    server.put(RESOURCE_CLAIMS, stored)


class Scene(NamedTuple):
    """A leading sidecar, its surroundings, and a pod `a` that waits with a claim `gpu-a`."""

    server: FakeApiServer
    sidecar: Sidecar
    scheduler: FakeScheduler
    pod: Document


@asynccontextmanager
async def waiting_pod(tmp_path: Path, *nodes: str) -> AsyncIterator[Scene]:
    async with FakeApiServer() as server:
        publish(server, *nodes)
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            yield Scene(server, sidecar, await greeted(sidecar), pod)


@asynccontextmanager
async def reserved_pod(tmp_path: Path, *nodes: str) -> AsyncIterator[Scene]:
    """A pod that waits, with a reservation on `node-1`."""
    async with waiting_pod(tmp_path, *nodes) as scene:
        await scene.scheduler.prefilter(scene.pod)
        scene.scheduler.reserve(scene.pod, "node-1")
        yield scene


async def test_a_pod_gets_its_device(tmp_path: Path) -> None:
    async with waiting_pod(tmp_path, "node-1", "node-2") as (server, sidecar, scheduler, pod):
        assert names(await scheduler.prefilter(pod)) == ["node-1", "node-2"]
        scheduler.reserve(pod, "node-2")
        assert (await scheduler.prebind(pod))["verdict"] == "ok"

        assert sidecar.devices_of("gpu-a") == ["node-2/gpu-0"]
        claim = sidecar.claim("gpu-a")
        consumer = {"resource": "pods", "name": "a", "uid": pod["metadata"]["uid"]}
        assert claim["status"]["reservedFor"] == [consumer]
        assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert claim["status"]["allocation"]["allocationTimestamp"] == "2026-11-21T00:00:00Z"
        writes = [call for call in server.calls if call.method == "PATCH"]
        assert [call.path.endswith("/status") for call in writes] == [False, True]
        assert {call.query["fieldManager"] for call in writes} == {f"drawbridge/{HOLDER}"}
        assert {call.query["timeout"] for call in writes} == {"2000ms"}


async def test_a_reservation_takes_its_devices_before_the_next_pod(tmp_path: Path) -> None:
    """It costs no call: the next one carries it."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        first, second = (put_pod(server, name, f"gpu-{name}") for name in "ab")
        for name in "ab":
            put_claim(server, f"gpu-{name}")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await scheduler.prefilter(first)
            scheduler.reserve(first, "node-1")

            answer = await scheduler.prefilter(second)

            assert (answer["verdict"], answer["code"]) == ("unresolvable", "noDevices")
            assert scheduler.acknowledged == 1
            scheduler.drop(first)
            assert names(await scheduler.prefilter(second)) == ["node-1"]


async def test_a_reservation_leaves_a_nominated_pod_the_only_device_that_suits_it(
    tmp_path: Path,
) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        put_claim(server, "gpu-a")
        stored = put_claim(server, "gpu-b")
        exactly = stored["spec"]["devices"]["requests"][0]["exactly"]
        exactly["selectors"] = [{"cel": {"expression": "device.attributes['gpu.example.com'].big"}}]
        server.put(RESOURCE_CLAIMS, stored)
        published = server.find(RESOURCE_SLICES, "node-1-slice")
        assert published is not None
        for number, device in enumerate(published["spec"]["devices"]):
            device["attributes"] = {"big": {"bool": number == 0}}
        server.put(RESOURCE_SLICES, published)
        pod, rival = put_pod(server, "a", "gpu-a"), put_pod(server, "b", "gpu-b", priority=5)
        rival["status"]["nominatedNodeName"] = "node-1"
        server.put(PODS, rival)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            assert names(await scheduler.prefilter(pod)) == ["node-1"]
            scheduler.reserve(pod, "node-1")

            assert (await scheduler.prebind(pod))["verdict"] == "ok"

            assert sidecar.devices_of("gpu-a") == ["node-1/gpu-1"]


async def test_a_dry_run_of_a_pod_costs_a_bounded_number_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt may cost as much again."""
    dry_run_steps = 3 * FILTER_STEPS
    monkeypatch.setattr(preemption, "DRY_RUN_STEPS", dry_run_steps)
    async with FakeApiServer() as server:
        publish(server)
        server.put(NODES, document(node("node-1")))
        (published,) = hard_slices([node("node-1")])
        server.put(RESOURCE_SLICES, document(published))
        stored = document(hard_claim("gpu-a"))
        del stored["metadata"]["uid"]
        server.put(RESOURCE_CLAIMS, stored)
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)

            async def steps_of_dry_run(answers: int) -> float:
                before = counted(sidecar, "search_steps")
                for _ in range(answers):
                    fields = {"podUID": "uid-a", "node": "node-1", "removed": ["uid-b"]}
                    _, answer = await scheduler.call("filter", **fields)
                    assert (answer["fits"], answer["code"]) == (False, "budgetExhausted")
                return counted(sidecar, "search_steps") - before

            await scheduler.prefilter(pod)
            assert await steps_of_dry_run(3) >= dry_run_steps
            assert await steps_of_dry_run(4) < FILTER_STEPS
            await scheduler.prefilter(pod)
            assert await steps_of_dry_run(3) >= dry_run_steps


async def test_pods_that_share_a_claim_share_its_devices(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", "node-2", per_node=1)
        put_claim(server, "shared")
        pods = [put_pod(server, name, "shared") for name in "ab"]
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await scheduler.prefilter(pods[0])
            scheduler.reserve(pods[0], "node-2")

            assert names(await scheduler.prefilter(pods[1])) == ["node-2"]
            scheduler.reserve(pods[1], "node-2")
            answers = await asyncio.gather(*map(scheduler.prebind, pods))

            assert [answer["verdict"] for answer in answers] == ["ok", "ok"]
            assert sidecar.devices_of("shared") == ["node-2/gpu-0"]
            assert len(sidecar.claim("shared")["status"]["reservedFor"]) == 2


async def test_what_was_written_for_a_pod_is_taken_back(tmp_path: Path) -> None:
    """The second claim cannot be written, so the first is free again."""
    async with FakeApiServer() as server:
        publish(server, "node-1")
        for name in ("gpu-1", "gpu-2"):
            put_claim(server, name)
        pod = put_pod(server, "a", "gpu-1", "gpu-2")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await scheduler.prefilter(pod)
            scheduler.reserve(pod, "node-1")
            server.fail(403, matches=lambda call: "gpu-2" in call.path and call.method == "PATCH")

            answer = await scheduler.prebind(pod)
            assert (answer["verdict"], answer["code"]) == ("error", "writeRefused")
            assert sidecar.devices_of("gpu-1")
            await scheduler.unreserve(pod)

            assert not sidecar.devices_of("gpu-1")
            assert "reservedFor" not in sidecar.claim("gpu-1")["status"]
            assert not sidecar.state.holds


async def test_a_pod_that_may_be_bound_keeps_its_devices(tmp_path: Path) -> None:
    """A Binding without an answer may have been made, so Unreserve frees no device."""
    async with reserved_pod(tmp_path, "node-1") as (_server, sidecar, scheduler, pod):
        await scheduler.prebind(pod)

        await scheduler.unreserve(pod)

        assert sidecar.devices_of("gpu-a") == ["node-1/gpu-0"]
        assert "reservedFor" not in sidecar.claim("gpu-a")["status"]


async def test_a_late_binding_finds_the_devices_after_a_second_attempt_that_failed(
    tmp_path: Path,
) -> None:
    async with reserved_pod(tmp_path, "node-1") as (_server, sidecar, scheduler, pod):
        for _ in range(2):
            assert (await scheduler.prebind(pod))["verdict"] == "ok"
            await scheduler.unreserve(pod)
            scheduler.reserve(pod, "node-1")
        await scheduler.unreserve(pod)

        assert sidecar.devices_of("gpu-a") == ["node-1/gpu-0"]


@pytest.mark.parametrize("status", [504, None], ids=["timeout", "closed connection"])
async def test_a_write_without_an_answer_is_made_again(tmp_path: Path, status: int | None) -> None:
    async with reserved_pod(tmp_path, "node-1") as (server, sidecar, scheduler, pod):
        server.fail(status, matches=is_status_write)

        assert (await scheduler.prebind(pod))["verdict"] == "ok"
        assert sidecar.devices_of("gpu-a") == ["node-1/gpu-0"]


async def test_devices_of_an_unknown_write_are_not_given_away(tmp_path: Path) -> None:
    """They are in use until a write of ours changes the version, so that the late one cannot land."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        put_claim(server, "gpu-a")
        put_claim(server, "gpu-b")
        pod, other = put_pod(server, "a", "gpu-a"), put_pod(server, "b", "gpu-b")
        async with sidecar_beside(server, tmp_path, binder={"write_deadline_s": 1.5}) as sidecar:
            scheduler = await greeted(sidecar)
            await scheduler.prefilter(pod)
            scheduler.reserve(pod, "node-1")
            may_settle = asyncio.Event()

            def is_unanswered(call: Call) -> bool:
                """All but the finalizer, and the write that settles once it may."""
                has_finalizer = "finalizers" in sidecar.claim("gpu-a")["metadata"]
                is_settling = call.method == "PATCH" and has_finalizer
                return is_status_write(call) or (is_settling and not may_settle.is_set())

            server.fail(504, times=1000, matches=is_unanswered)

            answer = await scheduler.prebind(pod)
            assert (answer["verdict"], answer["code"]) == ("error", "writeUnknown")
            version = sidecar.claim("gpu-a")["metadata"]["resourceVersion"]
            await scheduler.unreserve(pod)

            assert len(sidecar.state.holds_in(Step.UNKNOWN)) == 1
            assert (await scheduler.prefilter(other))["code"] == "noDevices"
            may_settle.set()
            await until(lambda: not sidecar.state.holds)
            assert sidecar.claim("gpu-a")["metadata"]["resourceVersion"] != version
            assert names(await scheduler.prefilter(other)) == ["node-1"]


async def test_a_claim_that_changed_meanwhile_is_read_and_written_again(tmp_path: Path) -> None:
    async with reserved_pod(tmp_path, "node-1") as (server, _sidecar, scheduler, pod):
        server.fail(409, times=2, matches=lambda call: call.method == "PATCH")

        assert (await scheduler.prebind(pod))["verdict"] == "ok"


async def test_a_claim_that_was_allocated_elsewhere_sends_the_pod_back(tmp_path: Path) -> None:
    async with reserved_pod(tmp_path, "node-1", "node-2") as (server, _sidecar, scheduler, pod):
        allocate(server, "gpu-a", "node-2")

        answer = await scheduler.prebind(pod)

        assert (answer["verdict"], answer["code"]) == ("unschedulable", "claimNotAvailable")


async def test_a_claim_that_was_recreated_is_not_the_one_that_was_reserved(tmp_path: Path) -> None:
    async with reserved_pod(tmp_path, "node-1") as (server, sidecar, scheduler, pod):
        await scheduler.call("postfilter", podUID="nobody")  # Brings the reservation.
        server.remove(RESOURCE_CLAIMS, "gpu-a", "default")
        put_claim(server, "gpu-a")
        await until(lambda: not sidecar.state.holds)

        answer = await scheduler.prebind(pod)

        assert (answer["verdict"], answer["code"]) == ("unschedulable", "devicesGone")
        assert not sidecar.devices_of("gpu-a")


async def test_a_restarted_sidecar_asks_for_all_reservations(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        for name in "ab":
            put_claim(server, f"gpu-{name}")
        first, second = (put_pod(server, name, f"gpu-{name}") for name in "ab")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await scheduler.prefilter(first)
            scheduler.reserve(first, "node-1")
            await scheduler.prefilter(second)
        async with sidecar_beside(server, tmp_path, instance="instance-0") as sidecar:
            status, answer = await scheduler.call("prefilter", pod=second)
            assert status == 409, answer

            await scheduler.hello()

            assert (await scheduler.prefilter(second))["code"] == "noDevices"
            assert (await scheduler.prebind(first))["verdict"] == "ok"


async def test_the_claims_that_the_scheduler_has_seen_are_waited_for(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        stored = put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            version = int(stored["metadata"]["resourceVersion"])
            ahead = {"default/gpu-a": str(version + 100)}

            answer = await scheduler.prefilter(pod, claimVersions=ahead)
            assert (answer["verdict"], answer["code"]) == ("error", "claimsBehind")
            versions = {"default/gpu-a": str(version)}
            assert names(
                await scheduler.prefilter(
                    pod, claimVersions=versions, newestClaimVersion=str(version + 100)
                )
            )


async def test_a_pod_that_is_deleted_during_its_answer_is_not_waited_for(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        stored = put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            service, uid = sidecar.service, pod["metadata"]["uid"]
            assert service is not None
            scheduler = await greeted(sidecar)
            ahead = int(stored["metadata"]["resourceVersion"]) + 1
            async with asyncio.TaskGroup() as group:
                answering = group.create_task(
                    scheduler.prefilter(pod, claimVersions={"default/gpu-a": str(ahead)})
                )
                await until(lambda: uid in service._pods)
                server.remove(PODS, "a", "default")
                await until(lambda: uid not in service._pods)
                put_claim(server, "gpu-a", "another-name")

            assert answering.result()["verdict"] == "fits"
            assert not len(service._waiting)


async def test_a_pod_that_is_deleted_before_its_question_comes_is_not_waited_for(
    tmp_path: Path,
) -> None:
    """The scheduler asked from an older view, and nobody told of the pod's end any more."""
    async with FakeApiServer() as server:
        publish(server, "node-1")
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            service, uid = sidecar.service, pod["metadata"]["uid"]
            assert service is not None
            scheduler = await greeted(sidecar)
            server.remove(PODS, "a", "default")
            await until(lambda: uid not in sidecar.state.consumers.pods)

            answer = await scheduler.prefilter(pod)

            assert answer["verdict"] == "fits"
            assert not len(service._waiting)


async def test_a_pod_s_own_claim_that_keeps_it_from_nodes_is_released(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", "node-2")
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        allocate(server, "gpu-a", "node-1", pod["metadata"]["uid"])
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await scheduler.prefilter(pod)

            _, answer = await scheduler.call("postfilter", podUID=pod["metadata"]["uid"])

            assert answer["verdict"] == "released"
            assert not sidecar.devices_of("gpu-a")


async def test_a_claim_of_others_is_not_released(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", "node-2")
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        other = put_pod(server, "b", "gpu-a")
        allocate(server, "gpu-a", "node-1", other["metadata"]["uid"])
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await scheduler.prefilter(pod)

            _, answer = await scheduler.call("postfilter", podUID=pod["metadata"]["uid"])

            assert answer["verdict"] == "continue"
            assert sidecar.devices_of("gpu-a") == ["node-1/gpu-0"]


async def test_no_further_victim_while_devices_of_pods_that_are_gone_are_released(
    tmp_path: Path,
) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        put_claim(server, "gpu-a")
        put_claim(server, "gpu-v")
        pod, victim = put_pod(server, "a", "gpu-a"), put_pod(server, "v", "gpu-v")
        allocate(server, "gpu-v", "node-1", victim["metadata"]["uid"])
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await scheduler.prefilter(pod)
            fields: dict[str, Any] = {"podUID": pod["metadata"]["uid"]}
            assert (await scheduler.call("postfilter", **fields))[1]["verdict"] == "continue"
            server.remove(PODS, "v", "default")
            await until(lambda: victim["metadata"]["uid"] not in sidecar.state.consumers.pods)

            assert (await scheduler.call("postfilter", **fields))[1]["verdict"] == "wait"


async def test_verdicts_that_are_known_are_not_searched_again(tmp_path: Path) -> None:
    async with waiting_pod(tmp_path, "node-1", "node-2") as (_, sidecar, scheduler, pod):
        await scheduler.prefilter(pod)
        searched = counted(sidecar, "verdicts", result="searched")
        steps = counted(sidecar, "search_steps")
        assert searched == 1, "both nodes are of one class"
        assert steps > 0
        await scheduler.prefilter(pod)

        assert counted(sidecar, "verdicts", result="searched") == searched
        assert counted(sidecar, "search_steps") == steps


async def test_a_waiting_pod_gets_one_event_with_the_reason(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        put_claim(server, "gpu-a", count=2)
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)

            for _ in range(3):
                await scheduler.prefilter(pod)

            await until(lambda: bool(server.objects(EVENTS)))
            (event,) = server.objects(EVENTS)
            assert event["reason"] == "DevicesMissing"
            assert "only 1 suitable device, 2 requested" in event["note"]
            assert len([call for call in server.calls if call.method == "POST"]) == 1


async def test_a_request_that_cannot_be_read_says_where(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)

            status, answer = await scheduler.call("prefilter", pod={"spec": 7})

            assert status == 400
            assert "$.pod.spec" in answer["message"]


async def test_a_sidecar_that_does_not_lead_says_so(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            sidecar.service = None

            hello = await scheduler.hello()
            status, answer = await scheduler.call("prebind", podUID="a")

            assert (hello["leads"], hello["ready"]) == (False, False)
            assert (status, answer["message"]) == (503, "this sidecar does not lead")


async def test_the_drivers_of_the_allocator_ownership_are_given_while_they_are_in_it(
    tmp_path: Path,
) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        ownership = {"metadata": {"name": "default"}}
        put_fence(server, "gpu.example.com")
        server.put(
            ALLOCATOR_OWNERSHIPS, {**ownership, "spec": {"drivers": [{"name": "gpu.example.com"}]}}
        )
        async with sidecar_beside(server, tmp_path, SidecarSettings()) as sidecar:
            scheduler = await greeted(sidecar)
            assert names(await scheduler.prefilter(pod)) == ["node-1"]

            server.put(ALLOCATOR_OWNERSHIPS, {**ownership, "spec": {"drivers": []}})
            await until(lambda: not sidecar.state.drivers)

            assert (await scheduler.prefilter(pod))["code"] == "driverNotOwned"


async def test_limits_and_weights_of_the_allocator_ownership_count_as_soon_as_they_change(
    tmp_path: Path,
) -> None:
    driver = "gpu.example.com"
    async with FakeApiServer() as server:
        publish(server, "node-1", "node-2", per_node=3)
        for name in "abc":
            put_claim(server, f"gpu-{name}")
        allocate(server, "gpu-a", "node-1", "uid-other")
        pod = put_pod(server, "b", "gpu-b")
        put_fence(server, driver)

        def own(**settings: Any) -> None:
            spec = {"drivers": [{"name": driver, **settings}]}
            server.put(ALLOCATOR_OWNERSHIPS, {"metadata": {"name": "default"}, "spec": spec})

        own()
        async with sidecar_beside(server, tmp_path, SidecarSettings()) as sidecar:
            scheduler = await greeted(sidecar)
            assert names(await scheduler.prefilter(pod)) == ["node-1", "node-2"]

            own(maxConsumersPerNode=1)
            version = sidecar.state.version
            await until(lambda: sidecar.state.version > version)
            assert names(await scheduler.prefilter(pod)) == ["node-2"]

            own(capacityWeights={"memory": 2})
            version = sidecar.state.version
            await until(lambda: sidecar.state.version > version)
            assert names(await scheduler.prefilter(pod)) == ["node-1", "node-2"]
            snapshot = sidecar.state.snapshot(sidecar.state.take_changes())
            assert snapshot.weights.weights_of(driver) == {"memory": 2}


async def test_a_pod_that_is_seen_bound_is_never_taken_its_devices(tmp_path: Path) -> None:
    async with reserved_pod(tmp_path, "node-1") as (server, sidecar, scheduler, pod):
        await scheduler.prebind(pod)
        assert sidecar.service is not None
        assert len(sidecar.service.reservations.by_pod) == 1
        put_pod(server, "a", "gpu-a", nodeName="node-1")
        await until(lambda: not sidecar.reservations())

        await scheduler.unreserve(pod)

        claim = sidecar.claim("gpu-a")
        assert sidecar.devices_of("gpu-a") == ["node-1/gpu-0"]
        assert len(claim["status"]["reservedFor"]) == 1


async def test_a_pod_that_is_deleted_gives_its_devices_back(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        put_claim(server, "gpu-a")
        put_claim(server, "gpu-b")
        pod, other = put_pod(server, "a", "gpu-a"), put_pod(server, "b", "gpu-b")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            await scheduler.prefilter(pod)
            scheduler.reserve(pod, "node-1")
            assert (await scheduler.prefilter(other))["code"] == "noDevices"

            server.remove(PODS, "a", "default")
            await until(lambda: not sidecar.reservations())

            assert names(await scheduler.prefilter(other)) == ["node-1"]


async def test_a_pod_that_is_deleted_while_its_devices_are_chosen_is_promised_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The promise was made to a pod that was gone, and its claim kept the device for good."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        put_claim(server, "gpu-a")
        put_claim(server, "gpu-b")
        pod, other = put_pod(server, "a", "gpu-a"), put_pod(server, "b", "gpu-b")
        async with sidecar_beside(server, tmp_path) as sidecar:
            service = sidecar.service
            assert service is not None
            scheduler = await greeted(sidecar)
            await scheduler.prefilter(pod)
            hold_claims = service._promises.hold_claims

            def after_the_end(*arguments: Any) -> None:
                service._forget(pod["metadata"]["uid"])
                hold_claims(*arguments)

            monkeypatch.setattr(service._promises, "hold_claims", after_the_end)
            scheduler.reserve(pod, "node-1")
            await scheduler.prefilter(other)

            assert names(await scheduler.prefilter(other)) == ["node-1"]


async def test_what_is_reserved_can_be_read(tmp_path: Path) -> None:
    async with reserved_pod(tmp_path, "node-1") as (_server, sidecar, scheduler, pod):
        await scheduler.call("postfilter", podUID="nobody")  # Brings the reservation.
        assert sidecar.service is not None

        view = sidecar.service.show()

        (hold,) = view.holds
        assert (hold.claim, hold.step, hold.devices) == (
            "default/gpu-a",
            "reserved",
            ("gpu.example.com/node-1/gpu-0",),
        )
        assert [reservation.pod_uid for reservation in view.reservations] == [
            pod["metadata"]["uid"]
        ]


async def test_devices_that_are_counted_wrongly_are_counted_anew(tmp_path: Path) -> None:
    async with reserved_pod(tmp_path, "node-1") as (server, sidecar, scheduler, pod):
        assert (await scheduler.prebind(pod))["verdict"] == "ok"
        assert sidecar.service is not None
        assert not await sidecar.service.check_drift()
        put_claim(server, "gpu-b")
        other = put_pod(server, "b", "gpu-b")
        ghost = as_claim(
            HeldBackClaim(
                claim_uid="ghost",
                namespace="default",
                pod="ghost",
                pod_uid="ghost",
                node="node-1",
                until="",
                devices=(HeldBackDevice(driver="gpu.example.com", pool="node-1", device="gpu-1"),),
            )
        )
        sidecar.state._note(Kind.CLAIM, ("default", "ghost"), ghost)
        assert (await scheduler.prefilter(other))["code"] == "noDevices"

        assert await sidecar.service.check_drift()

        assert names(await scheduler.prefilter(other)) == ["node-1"]
        assert not await sidecar.service.check_drift()


async def test_the_socket_is_for_the_own_user_alone(tmp_path: Path) -> None:
    async with FakeApiServer() as server, sidecar_beside(server, tmp_path) as sidecar:
        assert sidecar.socket.stat().st_mode & 0o777 == 0o600
