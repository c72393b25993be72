"""The removal of gates against an API server: once, by the leader, after all that another wrote."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest

from admission.quota_gates import HOLDER_POLICY, gate_documents
from allocator.model.feature_gates import Features
from controllers.model.settings import ControllerSettings
from controllers.quotas.driver_owners import DriverOwners
from controllers.quotas.feed import QuotaFeed
from controllers.quotas.gates import NOT_INSTALLED, RESOURCES, QuotaGateController
from kube.api.device_quota import LegacyKey
from kube.api.urls import (
    DEVICE_CLASSES,
    DEVICE_QUOTAS,
    EVENTS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    VALIDATING_ADMISSION_POLICIES,
    VOLCANO_POD_GROUPS,
    Resource,
)
from kube.names import NAMESPACE, QUOTA_GATE, QUOTA_GATE_POLICY, SCHEDULER_NAME
from process.model.durations import PositiveDuration
from testing.allocation.builders import claim, classes, device, request, slice_of
from testing.device_quotas import capacity_limit, device_limit, quota
from testing.documents import Document
from testing.fake_api_server import (
    Call,
    FakeApiServer,
    quick_informers,
    quick_recorder,
    running,
    until,
)

FAST: Final = ControllerSettings(
    quota_gate_timeout=PositiveDuration(0.05),
    quota_gate_check_period=PositiveDuration(0.05),
    initial_backoff=PositiveDuration(0.02),
    max_backoff=PositiveDuration(0.05),
)
OTHER: Final = "example.com/other"
LEGACY_KEY: Final = "nvidia.com/gpu"
NOW: Final = datetime(2026, 11, 24, 13, 1, tzinfo=UTC)


@asynccontextmanager
async def controlled(
    server: FakeApiServer,
    bridge_scheduler: str = SCHEDULER_NAME,
    settings: ControllerSettings = FAST,
    now: Callable[[], datetime] = lambda: NOW,
    clock: Callable[[], float] = time.monotonic,
    *,
    namespace: str = NAMESPACE,
) -> AsyncIterator[QuotaGateController]:
    async with server.client() as client:
        informers, recorder = quick_informers(client), quick_recorder(client)
        feed = QuotaFeed(
            informers, Features(), backoff=FAST.backoff(), bridge_scheduler=bridge_scheduler
        )
        controller = QuotaGateController(
            client,
            feed,
            recorder,
            settings,
            namespace=namespace,
            identity="leader-1",
            owners=DriverOwners(informers),
            now=now,
            clock=clock,
        )
        every = (*feed.controllers, *controller.controllers)
        async with running(informers.run, recorder.run, *(entry.run for entry in every)):
            yield controller


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        api_server.put(NAMESPACES, {"metadata": {"name": "default"}})
        for device_class in classes().values():
            api_server.put(DEVICE_CLASSES, document(device_class))
        devices = (device(name) for name in "abcdefgh")
        api_server.put(RESOURCE_SLICES, document(slice_of(*devices)))
        for policy in gate_documents():
            api_server.put(RESOURCES[policy["kind"]], policy)
        yield api_server


def document(value: object) -> Document:
    return msgspec.to_builtins(value, enc_hook=str)  # type: ignore[no-any-return]


def limit(server: FakeApiServer, most: int, *legacy_keys: str) -> None:
    keys = tuple(LegacyKey(name=key) for key in legacy_keys)
    server.put(DEVICE_QUOTAS, document(quota(device_limit(most, legacy_keys=keys))))


def put_pod(
    server: FakeApiServer,
    name: str,
    *,
    gates: Sequence[str] = (QUOTA_GATE,),
    group: str = "",
    scheduler: str = "",
    keys: int = 0,
    **metadata: Any,
) -> None:
    server.put(RESOURCE_CLAIMS, document(claim(request(), name=name)))
    spec: Document = {
        "schedulingGates": [{"name": gate} for gate in gates],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    if scheduler:
        spec["schedulerName"] = scheduler
    if keys:
        limits = {LEGACY_KEY: str(keys)}
        spec["containers"] = [{"name": "main", "resources": {"limits": limits}}]
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    head = {"name": name, "namespace": "default", "uid": name}
    head["creationTimestamp"] = f"2026-11-24T13:00:{len(name):02d}Z"
    server.put(PODS, {"metadata": head | metadata, "spec": spec})


def gates(server: FakeApiServer, name: str) -> list[str]:
    stored = server.find(PODS, name, "default") or {}
    return [gate["name"] for gate in stored.get("spec", {}).get("schedulingGates", ())]


def free(server: FakeApiServer) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in server.objects(PODS)
        if not gates(server, pod["metadata"]["name"])
    ]


def is_removal(call: Call) -> bool:
    return call.method == "PATCH" and "/pods/" in call.path


def removals(server: FakeApiServer) -> list[Call]:
    return [call for call in server.calls if is_removal(call)]


async def test_as_many_pods_as_there_is_room_for(server: FakeApiServer) -> None:
    limit(server, 2)
    for name in ("a", "bb", "ccc"):
        put_pod(server, name)
    async with controlled(server):
        await until(lambda: free(server) == ["a", "bb"])
        await asyncio.sleep(0.2)
        assert free(server) == ["a", "bb"]

        limit(server, 3)
        await until(lambda: len(free(server)) == 3)

    assert {call.query["fieldManager"] for call in removals(server)} == {"drawbridge/leader-1"}
    assert len(removals(server)) == 3


async def test_a_pod_that_comes_right_after_its_devices_waits_until_they_are_counted(
    server: FakeApiServer,
) -> None:
    server.put(RESOURCE_SLICES, document(slice_of(generation=2)))
    server.put(DEVICE_QUOTAS, document(quota(capacity_limit("memory", "80Gi"))))
    put_pod(server, "a")
    async with controlled(server):
        await until(lambda: free(server) == ["a"])  # Without devices it takes nothing.

        # Slices are taken once a second at most; these come two at a time.
        card = device("gpu-0", capacity={"memory": "80Gi"})
        server.put(RESOURCE_SLICES, document(slice_of(generation=3)))
        await asyncio.sleep(0.2)
        server.put(RESOURCE_SLICES, document(slice_of(card, generation=4)))
        await asyncio.sleep(0.1)
        put_pod(server, "bb")
        await until(lambda: len(server.objects(EVENTS)) == 1)

    assert free(server) == ["a"]
    (event,) = server.objects(EVENTS)
    assert "80Gi of memory needed, 0 of 80Gi of memory left" in event["note"]


async def test_a_released_claim_lets_the_next_pod_through(server: FakeApiServer) -> None:
    limit(server, 1)
    put_pod(server, "a")
    put_pod(server, "bb")
    async with controlled(server):
        await until(lambda: free(server) == ["a"])

        server.remove(PODS, "a", "default")
        server.remove(RESOURCE_CLAIMS, "a", "default")

        await until(lambda: free(server) == ["bb"])


async def test_only_our_gate_is_removed(server: FakeApiServer) -> None:
    limit(server, 1)
    put_pod(server, "pod", gates=(OTHER, QUOTA_GATE))
    async with controlled(server):
        await asyncio.sleep(0.3)
        assert gates(server, "pod") == [OTHER, QUOTA_GATE]

        server.remove(DEVICE_QUOTAS, "team")
        await until(lambda: gates(server, "pod") == [OTHER])


async def test_pods_of_a_bridge_of_another_name_do_not_keep_the_gate(server: FakeApiServer) -> None:
    """The policy knows the usual name only, so it adds the gate."""
    limit(server, 0)
    put_pod(server, "bridge", scheduler="gpu-scheduler")
    put_pod(server, "another", scheduler="another-scheduler")

    async with controlled(server, bridge_scheduler="gpu-scheduler"):
        await until(lambda: free(server) == ["bridge"])
        await until(lambda: len(server.objects(EVENTS)) > 0)

    assert free(server) == ["bridge"]


@pytest.mark.parametrize("scheduler", [SCHEDULER_NAME, "gpu-scheduler"])
async def test_pods_of_the_bridge_come_through_by_their_keys(
    server: FakeApiServer, scheduler: str
) -> None:
    """All of them came through at once."""
    limit(server, 1, LEGACY_KEY)
    for name in ("a", "bb"):
        put_pod(server, name, scheduler=scheduler, keys=1)

    async with controlled(server, bridge_scheduler=scheduler):
        await until(lambda: free(server) == ["a"])
        await until(lambda: len(server.objects(EVENTS)) > 0)
        assert free(server) == ["a"]
        (event,) = server.objects(EVENTS)
        assert "1 device needed, 0 of 1 device left" in event["note"]

        server.remove(PODS, "a", "default")
        await until(lambda: free(server) == ["bb"])


@pytest.mark.parametrize("late", [DEVICE_QUOTAS, NAMESPACES], ids=["quota", "labels"])
async def test_a_pod_that_comes_before_what_limits_it_is_known(
    server: FakeApiServer, late: Resource
) -> None:
    """The API server knows of the quota, or of new labels, before the watch says so."""
    team = {"team": "a"}
    nothing = document(quota(device_limit(0), labels=team))
    if late is NAMESPACES:
        server.put(DEVICE_QUOTAS, nothing)
    put_pod(server, "before")
    async with controlled(server):
        await until(lambda: free(server) == ["before"])

        said = server.hold_events(late)
        server.put(NAMESPACES, {"metadata": {"name": "default", "labels": team}})
        if late is DEVICE_QUOTAS:
            server.put(DEVICE_QUOTAS, nothing)
        put_pod(server, "pod")
        await asyncio.sleep(0.3)
        assert free(server) == ["before"]

        said.set()
        await until(lambda: len(server.objects(EVENTS)) == 1)

    assert free(server) == ["before"]


async def test_a_waiting_pod_has_one_event(server: FakeApiServer) -> None:
    limit(server, 0)
    put_pod(server, "pod")
    async with controlled(server):
        await until(lambda: len(server.objects(EVENTS)) == 1)
        put_pod(server, "other", gates=())
        await asyncio.sleep(0.2)

    (event,) = server.objects(EVENTS)
    assert event["reason"] == "WaitingForDeviceQuota"
    assert event["note"].startswith(
        "DeviceQuota team, limit devices: 1 device needed, 0 of 0 devices"
    )


async def test_an_answer_that_is_lost_lets_nobody_else_through(server: FakeApiServer) -> None:
    limit(server, 1)
    put_pod(server, "a")
    put_pod(server, "bb")
    server.fail(None, times=3, matches=is_removal)
    async with controlled(server):
        await until(lambda: free(server) == ["a"])
        await asyncio.sleep(0.2)

        assert free(server) == ["a"]


async def test_a_round_that_takes_long_is_followed_by_a_rest(server: FakeApiServer) -> None:
    """Thousands of pods wait, and claims come and go."""
    clock = [0.0]

    def slow_now() -> datetime:
        clock[0] += 10.0  # A round looks at the wall clock once.
        return NOW

    limit(server, 8)
    put_pod(server, "first")
    async with controlled(server, now=slow_now, clock=lambda: clock[0]):
        await until(lambda: free(server) == ["first"])
        put_pod(server, "second")
        await asyncio.sleep(0.3)
        assert free(server) == ["first"]

        clock[0] += 1000.0
        put_pod(server, "third")

        await until(lambda: len(free(server)) == 3)


async def test_a_denied_removal_is_tried_again(server: FakeApiServer) -> None:
    limit(server, 1)
    put_pod(server, "a")
    server.fail(403, times=2, matches=is_removal)
    async with controlled(server) as controller:
        await until(lambda: "removal of a gate is denied" in controller.fault)
        await until(lambda: free(server) == ["a"])
        await until(lambda: controller.fault == "")


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "not seen yet"])
async def test_a_denial_ends_with_the_last_pod_that_was_denied(
    server: FakeApiServer, is_seen: bool
) -> None:
    limit(server, 2)
    put_pod(server, "a")
    put_pod(server, "bb")

    def is_denied(call: Call) -> bool:
        stored = server.find(PODS, call.path.rpartition("/")[2], "default")
        return is_removal(call) and (is_seen or stored is not None)

    server.fail(403, times=10**6, matches=is_denied)
    async with controlled(server) as controller:
        await until(lambda: len({call.path for call in removals(server)}) == 2)
        await until(lambda: "removal of a gate is denied" in controller.fault)
        if not is_seen:
            server.hold_events(PODS)
        server.remove(PODS, "a", "default")
        before = len(removals(server))
        await until(lambda: len(removals(server)) > before + 3)
        assert "removal of a gate is denied" in controller.fault

        server.remove(PODS, "bb", "default")
        await until(lambda: controller.fault == "")


async def test_another_gate_that_goes_at_the_same_time(server: FakeApiServer) -> None:
    put_pod(server, "a", gates=(OTHER, QUOTA_GATE))
    server.fail(422, times=1, matches=is_removal)
    async with controlled(server):
        await until(lambda: gates(server, "a") == [OTHER])


async def test_nothing_is_decided_before_the_writes_of_another_leader_have_ended(
    server: FakeApiServer,
) -> None:
    limit(server, 1)
    put_pod(server, "a")
    async with controlled(server):
        # What the leader before wrote last comes while this one waits.
        put_pod(server, "bb", gates=())

        await asyncio.sleep(1.0)
        assert gates(server, "a") == [QUOTA_GATE]


async def test_pods_wait_as_soon_as_the_policies_are_installed(server: FakeApiServer) -> None:
    """They came through until the next look at the policies, up to half a minute later."""
    for policy in gate_documents():
        server.remove(RESOURCES[policy["kind"]], policy["metadata"]["name"])
    limit(server, 0)
    seldom = msgspec.structs.replace(FAST, quota_gate_check_period=PositiveDuration(60))
    async with controlled(server, settings=seldom) as controller:
        await until(lambda: controller.fault == NOT_INSTALLED)
        put_pod(server, "before")
        await until(lambda: free(server) == ["before"])

        for policy in gate_documents():
            server.put(RESOURCES[policy["kind"]], policy)
        put_pod(server, "pod")
        await until(lambda: len(server.objects(EVENTS)) > 0)

        assert free(server) == ["before"]
        assert controller.fault == ""


async def test_the_policies_are_compared(server: FakeApiServer) -> None:
    limit(server, 0)
    put_pod(server, "pod")
    async with controlled(server) as controller:
        await until(lambda: controller.fault == "")

        policy = server.find(VALIDATING_ADMISSION_POLICIES, QUOTA_GATE_POLICY) or {}
        policy["spec"]["failurePolicy"] = "Ignore"
        server.put(VALIDATING_ADMISSION_POLICIES, policy)
        await until(lambda: "is not that of this version" in controller.fault)
        await asyncio.sleep(0.2)
        assert gates(server, "pod") == [QUOTA_GATE]

        server.remove(VALIDATING_ADMISSION_POLICIES, QUOTA_GATE_POLICY)
        missing = f"ValidatingAdmissionPolicy {QUOTA_GATE_POLICY} is missing"
        await until(lambda: missing in controller.fault)
        await asyncio.sleep(0.2)
        assert gates(server, "pod") == [QUOTA_GATE]

        for document in gate_documents():
            resource, name = RESOURCES[document["kind"]], document["metadata"]["name"]
            if name != HOLDER_POLICY and server.find(resource, name) is not None:
                server.remove(resource, name)
        await until(lambda: controller.fault == NOT_INSTALLED)
        # Nothing holds new pods back, so those that wait are let go.
        await until(lambda: free(server) == ["pod"])


async def test_the_policies_are_those_of_the_namespace_of_the_controllers(
    server: FakeApiServer,
) -> None:
    """Those of another namespace let the controllers of that one remove gates, and these not."""
    limit(server, 0)
    async with controlled(server, namespace="gpu-system") as controller:
        await until(lambda: "not that of this version for namespace gpu-system" in controller.fault)

        for policy in gate_documents("gpu-system"):
            server.put(RESOURCES[policy["kind"]], policy)
        await until(lambda: controller.fault == "")


async def test_a_group_waits_for_as_many_pods_as_its_pod_group_needs(server: FakeApiServer) -> None:
    limit(server, 8)
    gang = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    server.put(POD_GROUPS, {"metadata": {"name": "ring", "namespace": "default"}, "spec": gang})
    volcano = {"metadata": {"name": "job", "namespace": "default"}, "spec": {"minMember": 2}}
    server.put(VOLCANO_POD_GROUPS, volcano)
    job = {"scheduling.k8s.io/group-name": "job"}
    put_pod(server, "a", group="ring")
    put_pod(server, "bb", annotations=job)
    put_pod(server, "ccc")
    async with controlled(server):
        await until(lambda: free(server) == ["ccc"])

        put_pod(server, "dddd", group="ring")
        await until(lambda: free(server) == ["a", "ccc", "dddd"])
        put_pod(server, "eeeee", annotations=job)
        await until(lambda: len(free(server)) == 5)


async def test_without_pod_groups_only_what_pods_declare_counts(server: FakeApiServer) -> None:
    limit(server, 8)
    server.fail(404, times=10_000, matches=lambda call: call.path.endswith("/podgroups"))
    put_pod(server, "a", annotations={"scheduling.k8s.io/group-name": "job"})
    async with controlled(server):
        await until(lambda: free(server) == ["a"])


async def test_nothing_is_decided_before_pod_groups_are_known(server: FakeApiServer) -> None:
    limit(server, 8)
    server.fail(500, times=10_000, matches=lambda call: call.path.endswith("/podgroups"))
    put_pod(server, "a")
    async with controlled(server):
        await asyncio.sleep(1.0)
        assert free(server) == []
