"""The snapshot of translations: complete after the first lists, and never behind a watch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import pytest
from structlog.testing import capture_logs

from clusterstate.autoscalers import ObjectName
from clusterstate.snapshot_cache import SnapshotCache
from clusterstate.translation_projections import project_kueue_classes
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITY_POLICIES,
    LIMIT_RANGES,
    NAMESPACE_QUOTA_RESOURCES,
    NAMESPACES,
    NETWORK_ATTACHMENTS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    WORKLOAD_PROFILES,
    Resource,
)
from kube.quantity import Quantity
from quotas.resource_quotas.scopes import Quota
from testing.builders import EXAMPLE, driver_slice, nvidia_gpu, profiles
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from translation.cluster.snapshot import ClaimUnawareComponent, NetworkSummary, TemplateSummary
from translation.compiling.claims import spec_digest
from translation.model.intents import DeviceKind
from translation.model.limit_ranges import LimitRangeSummary
from translation.reading.workload_profiles import ProfileSummary

SPEC: Final = {
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "gpu",
                    "exactly": {
                        "deviceClassName": "a",
                        "allocationMode": "ExactCount",
                        "count": 1,
                        "capacity": {"requests": {"memory": "3000Mi"}},
                    },
                }
            ]
        }
    }
}
NVIDIA: Final = "gpu.nvidia.com"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        yield api_server


@asynccontextmanager
async def caching(server: FakeApiServer) -> AsyncIterator[SnapshotCache]:
    async with server.client() as client:
        informers = quick_informers(client)
        snapshot_cache = SnapshotCache(informers, profiles())
        async with running(informers.run):
            await snapshot_cache.wait_synced()
            yield snapshot_cache


def device_class(name: str, resource: str, day: int, *expressions: str) -> Document:
    created = f"2026-11-{day:02d}T00:00:00Z"
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"extendedResourceName": resource, "selectors": selectors},
    }


def resource_slice(memory: str) -> Document:
    return msgspec.to_builtins(driver_slice(NVIDIA, nvidia_gpu(memory)), enc_hook=str)  # type: ignore[no-any-return]


async def test_the_snapshot_of_an_empty_cluster_is_empty(server: FakeApiServer) -> None:
    async with caching(server) as snapshots:
        snapshot = snapshots.snapshot()

    assert snapshots.check() == ""
    assert snapshot.classes == frozenset()
    assert snapshot.facts == {}


async def test_readiness_names_what_is_not_listed_yet(server: FakeApiServer) -> None:
    async with server.client() as client:
        snapshot_cache = SnapshotCache(quick_informers(client), profiles())

    assert "resourceslices" in snapshot_cache.check()


def compatibility_policy(name: str, day: int) -> Document:
    created = f"2026-11-{day:02d}T00:00:00Z"
    return {
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {
            "driver": "gpu.example.com",
            "rules": [{"name": "a", "compatibilityGroups": ["a"]}],
        },
    }


OBJECTS: Final[tuple[tuple[Resource, Document], ...]] = (
    (DEVICE_CLASSES, device_class("old", "nvidia.com/gpu", 1)),
    (DEVICE_CLASSES, device_class("new", "nvidia.com/gpu", 2, f'device.driver == "{NVIDIA}"')),
    (RESOURCE_SLICES, resource_slice("80Gi")),
    (RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": "t", "namespace": "n"}, "spec": SPEC}),
    (
        RESOURCE_QUOTAS,
        {"metadata": {"name": "q", "namespace": "n"}, "spec": {"hard": {"requests.cpu": "1"}}},
    ),
    (RESOURCE_QUOTAS, {"metadata": {"name": "empty", "namespace": "n"}, "spec": {}}),
    (
        LIMIT_RANGES,
        {
            "metadata": {"name": "l", "namespace": "n"},
            "spec": {"limits": [{"type": "Container", "max": {"nvidia.com/gpu": "2"}}]},
        },
    ),
    (LIMIT_RANGES, {"metadata": {"name": "empty", "namespace": "n"}, "spec": {}}),
    (NAMESPACES, {"metadata": {"name": "n", "labels": {"a": "b"}}}),
    (DEVICE_COMPATIBILITY_POLICIES, compatibility_policy("old", 1)),
    (DEVICE_COMPATIBILITY_POLICIES, compatibility_policy("young", 2)),
    (
        ALLOCATOR_OWNERSHIPS,
        {
            "metadata": {"name": "default"},
            "spec": {"drivers": [{"name": NVIDIA}]},
            "status": {"schedulerName": "gpu-scheduler"},
        },
    ),
    (
        NETWORK_ATTACHMENTS,
        {
            "metadata": {
                "name": "a",
                "namespace": "n",
                "annotations": {"k8s.v1.cni.cncf.io/resourceName": "intel.com/intel_sriov_a"},
            },
            "spec": {"config": "{}"},
        },
    ),
    (
        WORKLOAD_PROFILES,
        {
            "metadata": {"name": "w", "namespace": "n"},
            "spec": {"gpuCount": 2, "resources": {"limits": {"vram": "8Gi", "tflops": "0"}}},
        },
    ),
)


@pytest.mark.parametrize("order", ["listed", "watched"])
async def test_a_snapshot_has_everything_that_a_translation_reads(
    order: str, server: FakeApiServer
) -> None:
    def fill() -> None:
        for resource, document in OBJECTS:
            server.put(resource, document)

    if order == "listed":
        fill()
    async with caching(server) as snapshots:
        if order == "watched":
            await until(lambda: server.watching == 17)
            snapshots.snapshot()
            fill()
            await until(
                lambda: snapshots.snapshot().namespaces != {} and snapshots.snapshot().quotas != {}
            )
            await until(lambda: snapshots.snapshot().limit_ranges != {})
            await until(
                lambda: (
                    len(snapshots.snapshot().classes or ()) == 2
                    and snapshots.snapshot().facts != {}
                )
            )
            await until(lambda: bool(snapshots.snapshot().templates))
        await until(lambda: bool(snapshots.snapshot().policies))
        await until(lambda: bool(snapshots.snapshot().workload_profiles))
        await until(lambda: bool(snapshots.snapshot().networks))
        await until(lambda: snapshots.snapshot().owned_drivers == {NVIDIA})
        snapshot = snapshots.snapshot()

        assert snapshot.bridge_scheduler == "gpu-scheduler"
        assert snapshot.classes == frozenset({"old", "new"})
        assert snapshot.extended_resources["nvidia.com/gpu"] == "new"
        assert snapshot.class_drivers == {"old": frozenset(), "new": frozenset({NVIDIA})}
        assert snapshot.templates == {
            ("n", "t"): TemplateSummary(digest=spec_digest(SPEC), classes=frozenset({"a"}))
        }
        assert snapshot.quotas == {"n": {"q": Quota(names=frozenset({"requests.cpu"}))}}
        bounds = LimitRangeSummary(bounded=frozenset({"nvidia.com/gpu"}))
        assert snapshot.limit_ranges == {"n": {"l": bounds}}
        assert snapshot.namespaces == {"n": {"a": "b"}}
        assert {"gpu.example.com": "old"} == {
            driver: policy.metadata.name for driver, policy in snapshot.policies.items()
        }
        network = NetworkSummary(config="{}", resource="intel.com/intel_sriov_a")
        assert {("n", "a"): network} == snapshot.networks
        stands_for = {"tensor-fusion.ai/vram-limit": "8Gi", "tensor-fusion.ai/gpu-count": "2"}
        assert {("n", "w"): ProfileSummary(annotations=stands_for)} == snapshot.workload_profiles
        (size,) = snapshot.facts[NVIDIA][DeviceKind.GPU].sizes or ()
        assert str(size.size) == "80Gi"


async def test_the_use_of_quotas_on_devices_is_followed_without_a_new_snapshot(
    server: FakeApiServer,
) -> None:
    def document(used: str) -> Document:
        amounts = {"requests.nvidia.com/gpu": "4", "requests.cpu": "8"}
        return {
            "metadata": {"name": "gpus", "namespace": "a"},
            "spec": {"hard": amounts},
            "status": {"hard": amounts, "used": {**amounts, "requests.nvidia.com/gpu": used}},
        }

    async with caching(server) as snapshots:
        server.put(RESOURCE_QUOTAS, document("1"))
        await until(lambda: bool(snapshots.snapshot().quotas))
        before = snapshots.snapshot()
        server.put(RESOURCE_QUOTAS, document("3"))
        left = Quantity(3)
        await until(
            lambda: before.quota_usage["a"]["gpus"].status.used == {"requests.nvidia.com/gpu": left}
        )

        # A new snapshot would cost every cached translation, with each pod that starts.
        assert snapshots.snapshot() is before
        server.remove(RESOURCE_QUOTAS, "gpus", "a")
        await until(lambda: before.quota_usage == {})


ELASTIC_QUOTA: Final = NAMESPACE_QUOTA_RESOURCES["scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota"]


def elastic_quota(amounts: Document) -> Document:
    annotations = {"quota.scheduling.koordinator.sh/namespaces": '["b"]'}
    metadata = {"name": "gpus", "namespace": "a", "annotations": annotations}
    return {"metadata": metadata, "spec": {"max": amounts}}


async def test_quotas_of_other_schedulers_limit_their_namespaces(server: FakeApiServer) -> None:
    async with caching(server) as snapshots:
        server.put(ELASTIC_QUOTA, elastic_quota({"cpu": "4", "nvidia.com/gpu": "2"}))
        await until(lambda: bool(snapshots.snapshot().foreign_quotas))

        quotas = snapshots.snapshot().foreign_quotas
        assert {"a", "b"} == quotas.keys()
        (quota,) = quotas["b"]
        assert ("ElasticQuota gpus", "Koordinator") == (quota.label, quota.owner)
        assert {"nvidia.com/gpu"} == quota.names

        server.put(ELASTIC_QUOTA, elastic_quota({"cpu": "4"}))
        await until(lambda: not snapshots.snapshot().foreign_quotas)


@pytest.mark.parametrize("status", [403, 404])
async def test_quotas_that_may_not_be_read_are_not_waited_for_and_reported_once(
    status: int, server: FakeApiServer
) -> None:
    server.fail(status, times=9, matches=lambda call: "elasticquotas" in call.path)
    with capture_logs() as lines:
        async with caching(server) as snapshots:
            assert snapshots.check() == ""
            await until(lambda: server.watching == 17)

    told = [line for line in lines if line.get("resource") == "elasticquotas"]
    assert 2 == len(told), "two groups have such a kind"


async def test_a_snapshot_is_built_only_after_a_change(server: FakeApiServer) -> None:
    server.put(RESOURCE_SLICES, resource_slice("80Gi"))
    async with caching(server) as snapshots:
        first = snapshots.snapshot()
        assert snapshots.snapshot() is first

        server.put(RESOURCE_SLICES, resource_slice("40Gi"))
        await until(lambda: snapshots.snapshot() is not first)

        assert snapshots.snapshot().facts != first.facts
        assert snapshots.snapshot().namespaces is first.namespaces


async def test_a_slice_with_equal_facts_leaves_the_snapshot_so_that_its_answers_stay_cached(
    server: FakeApiServer,
) -> None:
    server.put(RESOURCE_SLICES, resource_slice("80Gi"))
    async with server.client() as client:
        informers = quick_informers(client)
        snapshots = SnapshotCache(informers, profiles())
        generations: list[int] = []
        informers.subscribe(
            RESOURCE_SLICES,
            lambda raw: msgspec.json.decode(raw)["spec"]["pool"]["generation"],
            handlers=[lambda _key, _old, new: generations.append(new or 0)],
        )
        async with running(informers.run):
            await snapshots.wait_synced()
            first = snapshots.snapshot()
            second_slice = resource_slice("80Gi")
            second_slice["spec"]["pool"]["generation"] = 2
            server.put(RESOURCE_SLICES, second_slice)
            await until(lambda: 2 in generations)

            assert snapshots.snapshot() is first


async def test_a_change_of_a_field_that_is_not_projected_changes_nothing(
    server: FakeApiServer,
) -> None:
    server.put(NAMESPACES, {"metadata": {"name": "n", "labels": {"a": "b"}}})
    async with caching(server) as snapshots:
        first = snapshots.snapshot()
        server.put(NAMESPACES, {"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"x": 1}})
        server.put(DEVICE_CLASSES, device_class("later", "", 3))
        await until(lambda: snapshots.snapshot() is not first)

        assert snapshots.snapshot().namespaces is first.namespaces


# --- components that may not see claims -----------------------------------------------------------

INSTALLED: Final = {
    ClaimUnawareComponent.CLUSTER_AUTOSCALER: (
        CONFIG_MAPS,
        {"metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"}},
    ),
    ClaimUnawareComponent.KARPENTER: (
        CUSTOM_RESOURCE_DEFINITIONS,
        {"metadata": {"name": "nodepools.karpenter.sh"}},
    ),
    ClaimUnawareComponent.KUEUE: (
        CUSTOM_RESOURCE_DEFINITIONS,
        {"metadata": {"name": "clusterqueues.kueue.x-k8s.io"}},
    ),
}


@pytest.mark.parametrize("component", ClaimUnawareComponent)
async def test_a_component_is_seen_as_long_as_it_is_installed(
    component: ClaimUnawareComponent, server: FakeApiServer
) -> None:
    resource, document = INSTALLED[component]
    async with caching(server) as snapshots:
        assert snapshots.snapshot().claim_unaware_components == {}

        server.put(resource, document)
        await until(
            lambda: snapshots.snapshot().claim_unaware_components == {component: frozenset()}
        )
        metadata = document["metadata"]
        server.remove(resource, metadata["name"], metadata.get("namespace", ""))

        await until(lambda: snapshots.snapshot().claim_unaware_components == {})


async def test_objects_of_other_names_and_namespaces_are_no_components(
    server: FakeApiServer,
) -> None:
    elsewhere = {"name": "cluster-autoscaler-status", "namespace": "default"}
    server.put(CONFIG_MAPS, {"metadata": elsewhere})
    server.put(CUSTOM_RESOURCE_DEFINITIONS, {"metadata": {"name": "workloads.kueue.x-k8s.io"}})
    async with caching(server) as snapshots:
        await until(lambda: server.watching == 17)

        assert snapshots.snapshot().claim_unaware_components == {}


async def test_the_classes_that_kueue_counts_are_read_from_its_configuration(
    server: FakeApiServer,
) -> None:
    server.put(*INSTALLED[ClaimUnawareComponent.KUEUE])
    server.put(CONFIG_MAPS, kueue("resources: {deviceClassMappings: [{deviceClassNames: [a]}]}"))
    async with caching(server) as snapshots:
        await until(
            lambda: (
                snapshots.snapshot().claim_unaware_components
                == {ClaimUnawareComponent.KUEUE: frozenset({"a"})}
            )
        )


async def test_nothing_looks_for_components_that_see_claims(server: FakeApiServer) -> None:
    async with server.client() as client:
        informers = quick_informers(client)
        SnapshotCache(informers, profiles(), claim_aware=frozenset(ClaimUnawareComponent))

        followed = {informer.resource for informer in informers.informers}
        assert followed.isdisjoint((CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS))


async def test_without_permission_to_look_nothing_waits(server: FakeApiServer) -> None:
    server.fail(403, times=99, matches=lambda call: "configmaps" in call.path)
    async with caching(server) as snapshots:
        assert snapshots.check() == ""
        assert snapshots.snapshot().claim_unaware_components == {}


def kueue(text: str) -> Document:
    metadata = {"name": "kueue-manager-config", "namespace": "kueue-system"}
    return {"metadata": metadata, "data": {"controller_manager_config.yaml": text}}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", ()),
        ("resources: {}", ()),
        ("resources: {deviceClassMappings: []}", ()),
        ("resources: {deviceClassMappings: [{name: a, deviceClassNames: [b, c]}]}", ("b", "c")),
        ("resources: {deviceClassMappings: [{deviceClassNames: [b]}, {name: a}]}", ("b",)),
        ("resources: {deviceClassMappings: 1}", ()),
        ("resources: {deviceClassMappings: null}", ()),
        ("- a", ()),
        ("{", ()),
        ("!!python/object:os.system {}", ()),
        ("2001-99-99", ()),
        ("!!bool x", ()),
        ("[" * 60_000, ()),
        (
            "a0: &a0 {k: 1}\n"
            + "".join(f"a{n}: &a{n} {{<<: [{f'*a{n - 1},' * 9}]}}\n" for n in range(1, 12)),
            (),
        ),
    ],
)
def test_project_kueue_classes(text: str, want: tuple[str, ...]) -> None:
    raw = msgspec.json.encode(kueue(text))

    assert frozenset(want) == project_kueue_classes(raw)


def test_a_configuration_without_data_maps_nothing() -> None:
    assert project_kueue_classes(b'{"metadata": {}}') == frozenset()


async def test_slices_of_drivers_without_a_profile_are_left_out(server: FakeApiServer) -> None:
    document = resource_slice("80Gi")
    document["spec"]["driver"] = "other.example"
    server.put(RESOURCE_SLICES, document)

    async with caching(server) as snapshots:
        assert EXAMPLE not in snapshots.snapshot().facts


async def test_a_snapshot_knows_what_was_ever_published(server: FakeApiServer) -> None:
    inventory_text = (
        '{"classes": {"gpu.nvidia.com": {"gpu.nvidia.com": {"devices": 8}, "none": {}}}}'
    )
    metadata = {"name": "drawbridge-inventory", "namespace": "system"}
    server.put(CONFIG_MAPS, {"metadata": metadata, "data": {"seen": inventory_text}})
    inventory = ObjectName(CONFIG_MAPS, "system", "drawbridge-inventory")
    async with server.client() as client:
        informers = quick_informers(client)
        snapshot_cache = SnapshotCache(informers, profiles(), inventory=inventory)
        async with running(informers.run):
            await snapshot_cache.wait_synced()
            await until(lambda: bool(snapshot_cache.snapshot().once_published))

    assert {
        "gpu.nvidia.com": frozenset({"gpu.nvidia.com"})
    } == snapshot_cache.snapshot().once_published
