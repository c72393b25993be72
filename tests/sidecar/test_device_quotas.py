"""DeviceQuotas over the sidecar's socket: promises count at once, and waiting pods are woken."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kube.api.device_quota import Budget, DeviceQuota, LegacyKey
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    DEVICE_CLASSES,
    DEVICE_QUOTAS,
    EVENTS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kube.names import QUOTA_GATE
from kube.runtime.informers import InformerFactory
from sidecar.model.rejections import Code
from sidecar.model.settings import SidecarSettings
from sidecar.state import quota_charges
from sidecar.state.state import ClusterState
from testing.allocation.builders import DRIVER, device, slice_of
from testing.device_quotas import capacity_limit, device_limit, quota
from testing.documents import Document
from testing.fake_api_server import Call, FakeApiServer, quick_informers, running, until
from testing.sidecar.scenes import state_with
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    document,
    pod_with,
    publish,
    put_claim,
    put_fence,
    sidecar_beside,
)

QUOTAS = DEVICE_QUOTAS.plural
TEAM = {"team": "a"}


def put_quota(server: FakeApiServer, quota_: DeviceQuota) -> None:
    server.put(DEVICE_QUOTAS, document(quota_))


def put_namespace(server: FakeApiServer, name: str, labels: Mapping[str, str]) -> None:
    server.put(NAMESPACES, {"metadata": {"name": name, "labels": dict(labels)}})


def put_pod(server: FakeApiServer, name: str, *, namespace: str = "default") -> Document:
    """Store a pod with a claim of its name."""
    put_claim(server, f"gpu-{name}", namespace=namespace)
    pod = pod_with(name, f"gpu-{name}")
    pod["metadata"]["namespace"] = namespace
    return server.put(PODS, pod)


class Scene(NamedTuple):
    """A leading sidecar beside two nodes with four devices each."""

    server: FakeApiServer
    sidecar: Sidecar
    scheduler: FakeScheduler

    async def code(self, pod: Document) -> str:
        """Return the code of the answer about a pod; empty if it fits."""
        answer = await self.scheduler.prefilter(pod, claimVersions=self.versions(pod))
        return str(answer.get("code", ""))

    def versions(self, pod: Document) -> Mapping[str, str]:
        namespace = pod["metadata"]["namespace"]
        names = [entry["resourceClaimName"] for entry in pod["spec"]["resourceClaims"]]
        stored = {name: self.server.find(RESOURCE_CLAIMS, name, namespace) for name in names}
        return {
            f"{namespace}/{name}": claim["metadata"]["resourceVersion"]
            for name, claim in stored.items()
            if claim is not None
        }

    async def give(self, pod: Document, node: str = "node-1") -> None:
        """Schedule a pod and write its devices."""
        assert await self.code(pod) == ""
        self.scheduler.reserve(pod, node)
        assert (await self.scheduler.prebind(pod))["verdict"] == "ok"

    async def woken(self) -> list[str]:
        return list((await self.scheduler.wake()).get("pods", []))

    async def changed(self, before: int) -> None:
        """Return once a change is known."""
        await until(lambda: self.sidecar.state.version > before)


@asynccontextmanager
async def scene(
    tmp_path: Path, *quotas: DeviceQuota, **namespaces: Mapping[str, str]
) -> AsyncIterator[Scene]:
    async with FakeApiServer() as server:
        publish(server, "node-1", "node-2", per_node=4)
        for name, labels in {"default": TEAM, **namespaces}.items():
            put_namespace(server, name, labels)
        for quota_ in quotas:
            put_quota(server, quota_)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            yield Scene(server, sidecar, scheduler)


async def test_what_is_promised_counts_before_the_next_decision(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(device_limit(1))) as stage:
        first, second = put_pod(stage.server, "a"), put_pod(stage.server, "b")
        assert await stage.code(first) == ""
        stage.scheduler.reserve(first, "node-1")

        assert await stage.code(second) == "exceedsDeviceQuota"

        assert (await stage.scheduler.prebind(first))["verdict"] == "ok"
        assert await stage.code(second) == "exceedsDeviceQuota"


async def test_two_reservations_that_arrive_together_get_one_unit(tmp_path: Path) -> None:
    """The scheduler reserved both on answers from before."""
    async with scene(tmp_path, quota(device_limit(1))) as stage:
        pods = [put_pod(stage.server, name) for name in "ab"]
        for pod in pods:
            assert await stage.code(pod) == ""
        for pod in pods:
            stage.scheduler.reserve(pod, "node-1")

        answers = [await stage.scheduler.prebind(pod) for pod in pods]

        assert [answer["verdict"] for answer in answers] == ["ok", "unschedulable"]
        assert answers[1]["code"] == "exceedsDeviceQuota"
        assert stage.sidecar.devices_of("gpu-b") == []


async def test_a_promise_that_is_given_up_wakes_a_pod_of_the_tenant(tmp_path: Path) -> None:
    async with scene(
        tmp_path, quota(device_limit(1), labels=TEAM), same=TEAM, other={"team": "b"}
    ) as stage:
        first = put_pod(stage.server, "a")
        second = put_pod(stage.server, "b", namespace="same")
        third = put_pod(stage.server, "c")
        assert await stage.code(first) == ""
        stage.scheduler.reserve(first, "node-1")
        assert await stage.code(second) == await stage.code(third) == "exceedsDeviceQuota"
        assert await stage.code(put_pod(stage.server, "d", namespace="other")) == ""
        assert await stage.woken() == []

        await stage.scheduler.unreserve(first)

        assert await stage.woken() == ["same/b"]
        assert await stage.woken() == []


async def test_devices_that_are_released_wake_a_pod_of_the_tenant(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(device_limit(1))) as stage:
        await stage.give(put_pod(stage.server, "a"))
        assert await stage.code(put_pod(stage.server, "b")) == "exceedsDeviceQuota"
        before = stage.sidecar.state.version

        stage.server.remove(RESOURCE_CLAIMS, "gpu-a", "default")

        await stage.changed(before)
        assert await stage.woken() == ["default/b"]


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(quota(device_limit(2), labels=TEAM), id="it is raised"),
        pytest.param(quota(device_limit(1), labels={"team": "b"}), id="it selects others"),
        pytest.param(None, id="it is deleted"),
    ],
)
async def test_a_quota_that_changes_wakes_a_pod(tmp_path: Path, after: DeviceQuota | None) -> None:
    async with scene(tmp_path, quota(device_limit(1), labels=TEAM)) as stage:
        await stage.give(put_pod(stage.server, "a"))
        assert await stage.code(put_pod(stage.server, "b")) == "exceedsDeviceQuota"
        before = stage.sidecar.state.version

        if after is None:
            stage.server.remove(DEVICE_QUOTAS, "team")
        else:
            put_quota(stage.server, after)

        await stage.changed(before)
        assert await stage.woken() == ["default/b"]


async def test_relabelling_moves_usage_and_wakes_who_has_more_left(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(device_limit(1), labels=TEAM), leaver=TEAM) as stage:
        await stage.give(put_pod(stage.server, "a", namespace="leaver"))
        waiting = put_pod(stage.server, "b")
        assert await stage.code(waiting) == "exceedsDeviceQuota"
        before = stage.sidecar.state.version

        put_namespace(stage.server, "leaver", {})

        await stage.changed(before)
        assert await stage.woken() == ["default/b"]
        await stage.give(waiting)
        before = stage.sidecar.state.version

        # Back again: more is used than the limit allows, and nobody is evicted.
        put_namespace(stage.server, "leaver", TEAM)

        await stage.changed(before)
        assert await stage.code(put_pod(stage.server, "c")) == "exceedsDeviceQuota"
        assert stage.sidecar.devices_of("gpu-b")


async def test_a_quota_that_is_made_after_the_usage_counts_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        await stage.give(put_pod(stage.server, "a"))
        promised = put_pod(stage.server, "b")
        assert await stage.code(promised) == ""
        stage.scheduler.reserve(promised, "node-1")
        before = stage.sidecar.state.version

        put_quota(stage.server, quota(device_limit(2)))

        await stage.changed(before)
        assert await stage.code(put_pod(stage.server, "c")) == "exceedsDeviceQuota"


async def test_a_quota_that_is_lowered_before_the_reservation_arrives_holds(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(device_limit(1))) as stage:
        pod = put_pod(stage.server, "a")
        assert await stage.code(pod) == ""
        before = stage.sidecar.state.version
        put_quota(stage.server, quota(device_limit(0)))
        await stage.changed(before)
        stage.scheduler.reserve(pod, "node-1")

        assert (await stage.scheduler.prebind(pod))["code"] == "exceedsDeviceQuota"


async def test_what_others_allocated_counts(tmp_path: Path) -> None:
    """Before the bridge owned the driver, or in a claim that nobody scheduled."""
    async with scene(tmp_path, quota(device_limit(1))) as stage:
        stored = put_claim(stage.server, "theirs")
        result = {"request": "req-0", "driver": "gpu.example.com", "pool": "node-2"}
        allocation = {"devices": {"results": [{**result, "device": "gpu-0"}]}}
        before = stage.sidecar.state.version
        stage.server.put(RESOURCE_CLAIMS, {**stored, "status": {"allocation": allocation}})
        await stage.changed(before)

        assert await stage.code(put_pod(stage.server, "a")) == "exceedsDeviceQuota"


def put_other(server: FakeApiServer, name: str, **spec: object) -> Document:
    """Store a pod of another scheduler with a generated claim of its name."""
    put_claim(server, f"gpu-{name}")
    document_ = pod_with(name, schedulerName="default-scheduler", **spec)
    document_["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    statuses = [{"name": "gpu", "resourceClaimName": f"gpu-{name}"}]
    document_["status"]["resourceClaimStatuses"] = statuses
    return server.put(PODS, document_)


async def test_what_was_promised_to_pods_of_another_scheduler_counts(tmp_path: Path) -> None:
    """They get it when the bridge gives up the driver: then there was too much of it."""
    async with scene(tmp_path, quota(device_limit(2))) as stage:
        before = stage.sidecar.state.version
        put_other(stage.server, "theirs")
        put_other(stage.server, "waiting", schedulingGates=[{"name": QUOTA_GATE}])
        await stage.changed(before)

        await stage.give(put_pod(stage.server, "a"))
        assert await stage.code(put_pod(stage.server, "b")) == "exceedsDeviceQuota"

        # Deleting the pod is the cure, whatever becomes of its claim.
        before = stage.sidecar.state.version
        stage.server.remove(PODS, "theirs", "default")
        await stage.changed(before)
        assert await stage.woken() == ["default/b"]


async def test_nothing_is_left_while_a_promise_is_not_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author of a selector decides its cost, and has to wait."""
    monkeypatch.setattr(quota_charges, "STEPS", 0)
    limited = quota(device_limit(8), budget=Budget.PER_NAMESPACE)
    async with scene(tmp_path, limited, other=TEAM) as stage:
        before = stage.sidecar.state.version
        put_other(stage.server, "theirs")
        await stage.changed(before)
        assert await stage.code(put_pod(stage.server, "a")) == "exceedsDeviceQuota"
        assert await stage.code(put_pod(stage.server, "b", namespace="other")) == ""

        monkeypatch.setattr(quota_charges, "STEPS", 6000)
        assert await stage.code(put_pod(stage.server, "c")) == ""


async def test_a_promise_is_known_before_the_first_decision(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(device_limit(1))) as stage:
        put_other(stage.server, "theirs")
        async with sidecar_beside(stage.server, tmp_path, instance="instance-1") as successor:
            scheduler = FakeScheduler(successor.socket)
            await scheduler.hello()

            answer = await scheduler.prefilter(put_pod(stage.server, "a"))

            assert answer["code"] == "exceedsDeviceQuota"


async def test_pods_that_share_a_claim_are_charged_once(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(device_limit(1))) as stage:
        put_claim(stage.server, "shared")
        pods = [stage.server.put(PODS, pod_with(name, "shared")) for name in "abc"]

        for pod in pods:
            await stage.give(pod)

        assert stage.sidecar.devices_of("shared") == ["node-1/gpu-0"]
        assert await stage.code(put_pod(stage.server, "d")) == "exceedsDeviceQuota"


async def test_the_next_sidecar_counts_what_the_one_before_gave(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(device_limit(2), budget=Budget.PER_NAMESPACE)) as stage:
        await stage.give(put_pod(stage.server, "a"))
        promised = put_pod(stage.server, "b")
        assert await stage.code(promised) == ""
        stage.scheduler.reserve(promised, "node-1")
        async with sidecar_beside(stage.server, tmp_path, instance="instance-1") as successor:
            scheduler = FakeScheduler(successor.socket)
            scheduler.reservations = dict(stage.scheduler.reservations)
            await scheduler.hello()
            answer = await scheduler.prefilter(put_pod(stage.server, "c"))

            assert answer["code"] == "exceedsDeviceQuota"


async def test_a_namespace_that_is_not_known_yet_is_waited_for(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(device_limit(1))) as stage:
        pod = put_pod(stage.server, "a", namespace="new")
        assert await stage.code(pod) == "namespaceUnknown"
        before = stage.sidecar.state.version

        put_namespace(stage.server, "new", {})

        await stage.changed(before)
        assert await stage.code(pod) == ""


async def test_a_limit_counts_the_devices_that_it_selects(tmp_path: Path) -> None:
    first = 'device.attributes["gpu.example.com"].index == 0'
    async with scene(tmp_path, quota(device_limit(1, where=first))) as stage:
        published = [device(f"gpu-{index}", attributes={"index": index}) for index in range(4)]
        before = stage.sidecar.state.version
        stage.server.put(
            RESOURCE_SLICES, document(slice_of(*published, node="node-1", pool="node-1"))
        )
        stage.server.remove(RESOURCE_SLICES, "node-2-slice")
        await stage.changed(before + 1)
        pods = [put_pod(stage.server, name) for name in "abc"]
        for pod in pods:
            await stage.give(pod)

        # gpu-0 is one of them; another one like it is not to be had.
        assert ["node-1/gpu-0"] == stage.sidecar.devices_of("gpu-a")
        book = stage.sidecar.state.quotas.book
        assert book is not None
        (account,) = book.accounts("default")
        assert book.ledger.totals(account).used == 10**9


async def test_capacity_that_no_device_has_limits_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(capacity_limit("memory", "1Gi"))) as stage:
        await stage.give(put_pod(stage.server, "a"))


async def test_who_waits_is_reported_in_an_event_and_counted(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(device_limit(0))) as stage:
        pod = put_pod(stage.server, "a")
        assert await stage.code(pod) == "exceedsDeviceQuota"

        await until(lambda: len(stage.server.objects(EVENTS)) > 0)

        (event,) = stage.server.objects(EVENTS)
        assert event["note"] == (
            "DeviceQuota team, limit devices: 1 device needed, 0 of 0 devices left"
        )
        assert event["regarding"]["name"] == "a"
        service = stage.sidecar.service
        assert service is not None
        assert service.count_waiting(Code.EXCEEDS_DEVICE_QUOTA) == 1
        stage.server.remove(PODS, "a", "default")
        await until(lambda: service.count_waiting(Code.EXCEEDS_DEVICE_QUOTA) == 0)


async def test_claims_from_before_the_driver_was_owned_count(tmp_path: Path) -> None:
    """Limits of a driver that others allocate are not ours; their allocations count once it is owned."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=4)
        put_namespace(server, "default", TEAM)
        put_quota(server, quota(device_limit(1)))
        stored = put_claim(server, "theirs")
        result = {"request": "req-0", "driver": DRIVER, "pool": "node-1", "device": "gpu-0"}
        allocation = {"devices": {"results": [result]}}
        server.put(RESOURCE_CLAIMS, {**stored, "status": {"allocation": allocation}})
        async with sidecar_beside(server, tmp_path, SidecarSettings()) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            pod = put_pod(server, "a")
            assert (await scheduler.prefilter(pod))["code"] == "driverNotOwned"

            put_fence(server, DRIVER)
            server.put(
                ALLOCATOR_OWNERSHIPS,
                {"metadata": {"name": "default"}, "spec": {"drivers": [{"name": DRIVER}]}},
            )
            await until(lambda: DRIVER in sidecar.state.drivers)

            assert (await scheduler.prefilter(pod))["code"] == "exceedsDeviceQuota"


# --- what has to be known -------------------------------------------------------------------------


def is_of(plural: str) -> object:
    def matches(call: Call) -> bool:
        return call.path.endswith(f"/{plural}")

    return matches


@asynccontextmanager
async def state_without(
    plural: str, status: int, *, has_quota: bool
) -> AsyncIterator[tuple[FakeApiServer, ClusterState, InformerFactory]]:
    async with FakeApiServer() as server, server.client() as client:
        publish(server, "node-1")
        if has_quota:
            put_quota(server, quota(device_limit(1)))
        server.fail(status, times=10**6, matches=is_of(plural))  # type: ignore[arg-type]
        informers = quick_informers(client)
        yield server, state_with(informers), informers


@pytest.mark.parametrize("status", [403, 404])
async def test_a_cluster_without_quotas_is_complete(status: int) -> None:
    async with (
        state_without(QUOTAS, status, has_quota=False) as (_, state, informers),
        running(informers.run),
    ):
        await state.wait_complete()
        assert not state.check()


@pytest.mark.parametrize(
    ("plural", "status"),
    [
        pytest.param(QUOTAS, 503, id="quotas that cannot be read for a moment"),
        pytest.param(NAMESPACES.plural, 503, id="namespaces that cannot be read for a moment"),
        pytest.param(NAMESPACES.plural, 403, id="namespaces that may not be read"),
    ],
)
async def test_without_quotas_or_their_namespaces_nothing_is_decided(
    plural: str, status: int
) -> None:
    async with (
        state_without(plural, status, has_quota=True) as (server, state, informers),
        running(informers.run),
    ):
        await state.wait_synced()
        await until(lambda: sum(call.path.endswith(plural) for call in server.calls) > 3)

        assert plural in state.check()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await state.wait_complete()


# --- pods with keys of a device plugin ------------------------------------------------------------

LEGACY = (LegacyKey(name="nvidia.com/gpu"),)


def put_legacy_pod(server: FakeApiServer, number: int = 1, **spec: object) -> None:
    limits = {"nvidia.com/gpu": str(number)}
    server.put(
        PODS,
        {
            "metadata": {"name": "old", "namespace": "default", "uid": "old"},
            "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}], **spec},
        },
    )


async def test_pods_with_legacy_keys_count_until_they_end(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(device_limit(1, legacy_keys=LEGACY))) as stage:
        before = stage.sidecar.state.version
        put_legacy_pod(stage.server, nodeName="node-1")
        await stage.changed(before)
        pod = put_pod(stage.server, "a")
        assert await stage.code(pod) == "exceedsDeviceQuota"

        before = stage.sidecar.state.version
        stage.server.remove(PODS, "old", "default")
        await stage.changed(before)

        assert await stage.code(pod) == ""


async def test_pods_with_legacy_keys_that_are_there_first_count(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=4)
        put_namespace(server, "default", TEAM)
        put_legacy_pod(server)
        put_quota(server, quota(device_limit(1, legacy_keys=LEGACY)))
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            stage = Scene(server, sidecar, scheduler)

            assert await stage.code(put_pod(server, "a")) == "exceedsDeviceQuota"


async def test_pods_behind_the_gate_and_without_legacy_keys_do_not_count(tmp_path: Path) -> None:
    async with scene(tmp_path, quota(device_limit(1, legacy_keys=LEGACY))) as stage:
        before = stage.sidecar.state.version
        put_legacy_pod(stage.server, schedulingGates=[{"name": QUOTA_GATE}])
        await stage.changed(before)

        assert await stage.code(put_pod(stage.server, "a")) == ""


async def test_a_key_that_a_class_maps_counts_by_the_claim_that_it_will_get(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, quota(device_limit(1, legacy_keys=LEGACY))) as stage:
        before = stage.sidecar.state.version
        put_legacy_pod(stage.server)
        await stage.changed(before)
        pod = put_pod(stage.server, "a")
        assert await stage.code(pod) == "exceedsDeviceQuota"

        before = stage.sidecar.state.version
        spec = {"extendedResourceName": "nvidia.com/gpu"}
        stage.server.put(DEVICE_CLASSES, {"metadata": {"name": "mapped"}, "spec": spec})
        await stage.changed(before)

        # Another scheduler may make that claim as long as the pod is there.
        assert await stage.code(pod) == "exceedsDeviceQuota"

        before = stage.sidecar.state.version
        stage.server.remove(PODS, "old", "default")
        await stage.changed(before)
        assert await stage.code(pod) == ""
