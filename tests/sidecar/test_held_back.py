"""Devices of pods that were deleted by force, through the sidecar and its socket."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from allocator.pods.claims import allocation_of
from kube.api.core import Pod, PodSpec
from kube.api.meta import ObjectMeta
from kube.api.ownership import HeldBackClaim, HeldBackDevice
from kube.api.resource import DeviceRequestAllocationResult
from kube.api.urls import ALLOCATOR_OWNERSHIPS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from kube.names import IN_USE_TAINT
from sidecar.model.settings import SidecarSettings
from sidecar.ownership.held_back import without_counted
from sidecar.state.held_back import HeldBackDevices, HeldBackLimits
from testing.allocation.builders import DRIVER, allocated_claim, claim, request, result
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from testing.sidecar.scenes import state_with
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    debug_view,
    document,
    pod_with,
    publish,
    put_claim,
    put_pod,
    reported_status,
    sidecar_beside,
)

DAY = datetime(2026, 11, 21, tzinfo=UTC)
LATER = "2026-11-21T00:00:30Z"
EARLIER = "2026-11-20T23:59:30Z"


def running_pod(server: FakeApiServer, name: str, node: str = "node-1") -> Document:
    """Store a pod that runs on a node, with its first device."""
    put_claim(server, f"gpu-{name}")
    pod = put_pod(server, name, f"gpu-{name}", nodeName=node)
    pod["status"] = {"phase": "Running"}
    stored = server.put(PODS, pod)
    claim = server.find(RESOURCE_CLAIMS, f"gpu-{name}", "default")
    assert claim is not None
    result = {"request": "req-0", "driver": DRIVER, "pool": node, "device": "gpu-0"}
    consumer = {"resource": "pods", "name": name, "uid": stored["metadata"]["uid"]}
    claim["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [consumer],
    }
    server.put(RESOURCE_CLAIMS, claim)
    return stored


def waiting_pod(server: FakeApiServer, name: str, namespace: str = "others") -> Document:
    """Store a pod that wants one device, of a namespace that nobody deleted a pod of."""
    stored_claim = document(claim(request("req-0"), name=f"gpu-{name}"))
    stored_claim["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    server.put(RESOURCE_CLAIMS, stored_claim)
    pod = pod_with(name, f"gpu-{name}")
    pod["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    return server.put(PODS, pod)


def deallocate(server: FakeApiServer, name: str) -> None:
    claim = server.find(RESOURCE_CLAIMS, name, "default")
    assert claim is not None
    server.put(RESOURCE_CLAIMS, {**claim, "status": {}})


def taint(server: FakeApiServer, *taints: Document) -> None:
    """Have the driver publish its device with these taints."""
    (published,) = server.objects(RESOURCE_SLICES)
    for device in published["spec"]["devices"]:
        device["taints"] = list(taints)
    server.put(RESOURCE_SLICES, published)


def own(server: FakeApiServer) -> None:
    server.put(
        ALLOCATOR_OWNERSHIPS,
        {"metadata": {"name": "default", "generation": 3}, "spec": {"drivers": [{"name": DRIVER}]}},
    )


def held_in_the_api(server: FakeApiServer) -> list[Document]:
    return list(reported_status(server).get("heldBack") or [])


async def answer(sidecar: Sidecar, pod: Document) -> str:
    """Return verdict or code of a PreFilter by a new scheduler."""
    scheduler = FakeScheduler(sidecar.socket)
    await scheduler.hello()
    reply = await scheduler.prefilter(pod)
    return str(reply.get("code") or reply["verdict"])


class Ends:
    """Ends of a pod, with True if its containers may run on."""

    by_force = ({"phase": "Running"}, None, True)
    while_it_begins = ({"phase": "Pending"}, None, True)
    by_force_as_it_is_seen = ({"phase": "Running"}, (EARLIER, 0), True)
    by_force_while_it_ends = ({"phase": "Running"}, (LATER, 30), True)
    after_its_grace_period = ({"phase": "Running"}, (EARLIER, 30), False)
    in_good_order = ({"phase": "Failed"}, (LATER, 30), False)
    in_good_order_at_last = ({"phase": "Failed"}, (EARLIER, 0), False)
    after_success = ({"phase": "Succeeded"}, None, False)


@pytest.mark.parametrize(
    ("status", "deletion", "is_held"),
    [value for name, value in vars(Ends).items() if not name.startswith("_")],
    ids=[name for name in vars(Ends) if not name.startswith("_")],
)
@pytest.mark.parametrize("claim_first", [False, True], ids=["pod first", "claim first"])
async def test_devices_are_held_back_of_a_pod_that_may_run_on(
    tmp_path: Path,
    status: Document,
    deletion: tuple[str, int] | None,
    is_held: bool,
    claim_first: bool,
) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        pod = running_pod(server, "a")
        waiting = waiting_pod(server, "b")
        async with sidecar_beside(server, tmp_path) as sidecar:
            uid = pod["metadata"]["uid"]
            # With a finalizer it stays until it is removed.
            time, grace_s = deletion or ("", 0)
            ending = {
                "deletionTimestamp": time,
                "deletionGracePeriodSeconds": grace_s,
                "finalizers": ["example.com/stays"],
            }
            metadata = pod["metadata"] | (ending if deletion else {})
            changed: dict[str, Any] = {**pod, "metadata": metadata, "status": status}
            if not claim_first:
                server.put(PODS, changed)
                server.remove(PODS, "a", "default")
                await until(lambda: uid not in sidecar.state.consumers.pods)
            deallocate(server, "gpu-a")
            await until(lambda: not sidecar.state.consumers.claims_of)
            if claim_first:
                assert await answer(sidecar, waiting) == "noDevices"
                server.put(PODS, changed)
                server.remove(PODS, "a", "default")
                await until(lambda: uid not in sidecar.state.consumers.pods)

            assert await answer(sidecar, waiting) == ("noDevices" if is_held else "fits")


async def test_held_devices_are_given_again_when_the_driver_says_so(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        running_pod(server, "a")
        waiting = waiting_pod(server, "b")
        async with sidecar_beside(server, tmp_path) as sidecar:
            server.remove(PODS, "a", "default")
            await until(lambda: bool(sidecar.state.held_back.claims))
            deallocate(server, "gpu-a")
            assert (await debug_view(sidecar.socket))["heldBack"] == [f"{DRIVER}/node-1/gpu-0"]
            taint(server, {"key": "of.others/taint", "effect": "NoSchedule"})
            taint(server)
            taint(server, {"key": IN_USE_TAINT, "effect": "NoSchedule"})
            await until(lambda: bool(sidecar.state.held_back._in_use))
            assert await answer(sidecar, waiting) == "noDevices"
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            assert (await scheduler.wake()).get("pods", []) == []

            taint(server)

            await until(lambda: not sidecar.state.held_back.claims)
            assert (await scheduler.wake()).get("pods", []) == ["others/b"]
            assert await answer(sidecar, waiting) == "fits"


async def test_a_namespace_whose_devices_are_held_back_gets_no_devices_of_others(
    tmp_path: Path,
) -> None:
    """A user deleting pods by force, one after the other, would have all devices held back."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=4)
        running_pod(server, "a")
        theirs = waiting_pod(server, "b", "default")
        honest = [waiting_pod(server, name) for name in ("c", "d", "e")]
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            server.remove(PODS, "a", "default")
            await until(lambda: bool(sidecar.state.held_back.claims))
            deallocate(server, "gpu-a")
            await until(lambda: not sidecar.state.consumers.claims_of)

            rejection = await scheduler.prefilter(theirs)

            assert (rejection["verdict"], rejection["code"]) == ("unresolvable", "devicesHeldBack")
            assert (
                "namespace default has as many devices held back as it may" in rejection["message"]
            )
            uid = theirs["metadata"]["uid"]
            _, dry_run = await scheduler.call("filter", podUID=uid, node="node-1")
            assert (dry_run.get("fits", False), dry_run["code"]) == (False, "devicesHeldBack")
            for pod in honest:
                assert (await scheduler.prefilter(pod))["verdict"] == "fits"
                scheduler.reserve(pod, "node-1")
                assert (await scheduler.prebind(pod))["verdict"] == "ok"
            assert (await scheduler.wake()).get("pods", []) == []
            taint(server, {"key": IN_USE_TAINT, "effect": "NoSchedule"})
            await until(lambda: bool(sidecar.state.held_back._in_use))
            taint(server)
            await until(lambda: not sidecar.state.held_back.claims)
            assert (await scheduler.wake()).get("pods", []) == ["default/b"]
            assert (await scheduler.prefilter(theirs))["verdict"] == "fits"


async def test_the_end_of_a_pod_that_is_heard_of_late_wakes_no_more_than_it_helps(
    tmp_path: Path,
) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        ended = running_pod(server, "a")
        waiting = []
        for name in ("b", "c", "d"):
            put_claim(server, f"gpu-{name}")
            waiting.append(put_pod(server, name, f"gpu-{name}"))
        async with sidecar_beside(server, tmp_path) as sidecar:
            for pod in waiting:
                assert await answer(sidecar, pod) == "noDevices"
            scheduler = FakeScheduler(sidecar.socket)
            wakeups = (await scheduler.hello()).get("wakeups", 0)

            deallocate(server, "gpu-a")
            await until(lambda: bool(sidecar.state.held_back.claims))
            assert (await scheduler.wake()).get("pods", []) == []
            server.put(PODS, {**ended, "status": {"phase": "Succeeded"}})

            await until(lambda: not sidecar.state.held_back.claims)
            assert (await scheduler.wake()).get("pods", []) == ["default/b"]
            assert (await scheduler.hello()).get("wakeups", 0) == wakeups


async def test_held_devices_count_although_their_claim_has_others_now(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", "node-2", per_node=1)
        running_pod(server, "a")
        waiting = waiting_pod(server, "b")
        async with sidecar_beside(server, tmp_path) as sidecar:
            server.remove(PODS, "a", "default")
            await until(lambda: bool(sidecar.state.held_back.claims))
            assert in_use(sidecar) == ["node-1/gpu-0"], "its claim still has it: counted once"
            deallocate(server, "gpu-a")
            await until(lambda: not sidecar.state.consumers.claims_of)
            assert in_use(sidecar) == ["node-1/gpu-0"]
            put_pod(server, "c", "gpu-a")
            allocate(server, "gpu-a", "node-2")
            await until(lambda: "node-2/gpu-0" in in_use(sidecar))

            assert in_use(sidecar) == ["node-1/gpu-0", "node-2/gpu-0"]
            assert await answer(sidecar, waiting) == "noDevices"
            assert sidecar.service is not None
            assert not await sidecar.service.check_drift()

            deallocate(server, "gpu-a")
            await until(lambda: "node-2/gpu-0" not in in_use(sidecar))
            assert await answer(sidecar, waiting) == "fits"


def allocate(server: FakeApiServer, name: str, node: str) -> None:
    """Store a claim with the first device of a node."""
    claim = server.find(RESOURCE_CLAIMS, name, "default")
    assert claim is not None
    result = {"request": "req-0", "driver": DRIVER, "pool": node, "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    server.put(RESOURCE_CLAIMS, {**claim, "status": status})


def in_use(sidecar: Sidecar) -> list[str]:
    """Return the devices that count as in use, each as often as it does."""
    return sorted(
        f"{result.pool}/{result.device}"
        for claim in sidecar.state.claims_in_use()
        if (allocation := allocation_of(claim)) is not None
        for result in allocation.devices.results or ()
    )


async def test_the_next_leader_knows_what_is_held_back_and_until_when(tmp_path: Path) -> None:
    clock = DAY
    async with FakeApiServer() as server:
        own(server)
        publish(server, "node-1", per_node=1)
        pod = running_pod(server, "a")
        waiting = waiting_pod(server, "b")
        settings = SidecarSettings(drivers=(DRIVER,))
        async with sidecar_beside(server, tmp_path, settings, now=lambda: clock) as sidecar:
            server.remove(PODS, "a", "default")
            await until(lambda: bool(sidecar.state.held_back.claims))
            deallocate(server, "gpu-a")
            await until(lambda: bool(held_in_the_api(server)))
        (entry,) = held_in_the_api(server)
        assert (entry["pod"], entry["podUID"]) == ("a", pod["metadata"]["uid"])
        assert entry["devices"] == [{"driver": DRIVER, "pool": "node-1", "device": "gpu-0"}]
        assert entry["until"] == "2026-11-21T00:05:00Z"

        async with sidecar_beside(
            server, tmp_path, settings, instance="second", now=lambda: clock
        ) as sidecar:
            assert await answer(sidecar, waiting) == "noDevices"

            clock = DAY + timedelta(seconds=300)

            await until(lambda: not held_in_the_api(server))
            assert await answer(sidecar, waiting) == "fits"


def held(claim_uid: str, pod: str, *devices: HeldBackDevice) -> HeldBackClaim:
    return HeldBackClaim(
        claim_uid=claim_uid,
        namespace="default",
        pod=pod,
        pod_uid=f"uid-{pod}",
        node="node-1",
        until=LATER,
        devices=devices,
    )


def gpu(name: str, share: str | None = None) -> HeldBackDevice:
    return HeldBackDevice(driver=DRIVER, pool="node-1", device=name, share_id=share)


@pytest.mark.parametrize(
    ("want", "had", "has", "earlier"),
    [
        pytest.param(("a",), (gpu("a"),), (), (), id="the claim has nothing"),
        pytest.param((), (gpu("a"),), (result("a", pool="node-1"),), (), id="it has the device"),
        pytest.param(("a",), (gpu("a"),), (result("b", pool="node-1"),), (), id="it has another"),
        pytest.param(
            ("a",),
            (gpu("a"), gpu("b")),
            (result("b", pool="node-1"),),
            (),
            id="it has one of two devices",
        ),
        pytest.param(
            ("a",), (gpu("a"),), (result("a", pool="node-2"),), (), id="it has a namesake elsewhere"
        ),
        pytest.param(
            ("a",),
            (gpu("a", "1"),),
            (result("a", pool="node-1", share="2"),),
            (),
            id="it has another share",
        ),
        pytest.param(
            (), (gpu("a", "1"),), (result("a", pool="node-1", share="1"),), (), id="the same share"
        ),
        pytest.param(
            ("a",),
            (gpu("a"),),
            (result("a", pool="node-1", admin_access=True),),
            (),
            id="it only watches the device",
        ),
        pytest.param((), (gpu("a"),), (), (gpu("a"),), id="it counts for another pod of the claim"),
    ],
)
def test_what_is_held_back_counts_once(
    want: tuple[str, ...],
    had: tuple[HeldBackDevice, ...],
    has: tuple[DeviceRequestAllocationResult, ...],
    earlier: tuple[HeldBackDevice, ...],
) -> None:
    allocation = allocation_of(allocated_claim(*has)) if has else None
    others = [held("uid", "earlier", *earlier)] if earlier else []

    left = without_counted(held("uid", "a", *had), allocation, others)

    assert want == (tuple(device.device for device in left.devices) if left is not None else ())


def test_each_pod_of_a_shared_claim_holds_its_devices_until_it_has_ended() -> None:
    changes: list[HeldBackClaim] = []
    devices = HeldBackDevices(
        {}, now=lambda: DAY, limits=HeldBackLimits(300.0, 8), on_change=changes.append
    )
    claim = allocated_claim(result("gpu-0"), name="shared")
    for name in "ab":
        metadata = ObjectMeta(namespace="default", name=name, uid=f"uid-{name}")
        pod = Pod(metadata=metadata, spec=PodSpec(node_name="node-1"))
        devices.pod_gone(pod, (claim,), ())

    devices.pod_ended("uid-b")

    assert [held_claim.pod for held_claim in devices.of_claim(claim.metadata.uid)] == ["a"]
    devices.pod_ended("uid-a")
    assert not devices.claims
    assert [change.pod for change in changes] == ["a", "b", "b", "a"]


def test_a_pod_whose_end_a_list_hid_holds_its_devices_for_half_a_minute() -> None:
    """Its claim may have been seen deallocated before, or is seen so afterwards."""
    changes: list[HeldBackClaim] = []
    for is_claim_first in (True, False):
        devices = HeldBackDevices(
            {}, now=lambda: DAY, limits=HeldBackLimits(300.0, 8), on_change=changes.append
        )
        result = DeviceRequestAllocationResult(request="req-0", driver=DRIVER, pool="p", device="d")
        claim = allocated_claim(result, name="gpu-a")
        pod = Pod(
            metadata=ObjectMeta(namespace="default", name="a", uid="uid-a"),
            spec=PodSpec(node_name="node-1"),
        )
        if is_claim_first:
            devices.hold(pod, claim, ())
        devices.pod_gone(pod, () if is_claim_first else (claim,), (), is_hidden=True)

        assert [held.until for held in devices.claims.values()] == [LATER], is_claim_first


async def test_a_pod_in_whose_place_a_list_puts_another_has_ended() -> None:
    """As of a StatefulSet, while nothing was watched: each has its own end, and neither was seen."""
    async with FakeApiServer() as server, server.client() as client:
        publish(server, "node-1", per_node=1)
        first = running_pod(server, "a")
        informers = quick_informers(client)
        state = state_with(informers, held_back_timeout_s=300.0)
        ended: list[str] = []
        async with running(informers.run):
            await state.wait_complete()
            state.on_end = ended.append
            server.break_watches()
            server.remove(PODS, "a", "default")
            metadata = {"namespace": "default", "name": "a", "uid": "second"}
            server.put(PODS, first | {"metadata": metadata})
            server.expire()
            await until(lambda: "second" in ended)

            (held_claim,) = state.held_back.claims.values()
            assert ended == [first["metadata"]["uid"], "second"]
            assert held_claim.pod_uid == first["metadata"]["uid"]
            assert held_claim.until == LATER


def test_what_an_earlier_leader_held_back_is_held_no_longer_than_by_this_clock() -> None:
    changes: list[HeldBackClaim] = []
    devices = HeldBackDevices(
        {}, now=lambda: DAY, limits=HeldBackLimits(30.0, 8), on_change=changes.append
    )
    of_a_fast_clock = replace(held("fast", "a", gpu("gpu-0")), until="2026-11-21T05:00:00Z")
    of_this_clock = replace(held("this", "b", gpu("gpu-1")), until="2026-11-21T00:00:10Z")

    devices.restore([of_a_fast_clock, of_this_clock], ())

    assert [held_claim.until for held_claim in devices.claims.values()] == [
        LATER,
        of_this_clock.until,
    ]
