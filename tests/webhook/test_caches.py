"""The world as the webhook knows it: complete after the first lists, and never behind a watch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import pytest

from kube.api.url import Resource
from tests.builders import EXAMPLE, Document, nvidia_gpu, profiles, published
from tests.fake_api_server import FakeApiServer, running, until
from webhook.caches import Caches, kept_mapped_classes
from webhook.claims import spec_digest
from webhook.intents import DeviceKind
from webhook.quotas import Quota
from webhook.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITY_POLICIES,
    NAMESPACES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
)
from webhook.world import Onlooker, Template

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
    async with FakeApiServer() as made:
        yield made


@asynccontextmanager
async def caches(server: FakeApiServer) -> AsyncIterator[Caches]:
    async with server.client() as client:
        made = Caches(client, profiles())
        async with running(made.run):
            await made.wait_synced()
            yield made


def device_class(name: str, resource: str, day: int) -> Document:
    made = f"2026-11-{day:02d}T00:00:00Z"
    return {
        "metadata": {"name": name, "creationTimestamp": made},
        "spec": {"extendedResourceName": resource},
    }


def resource_slice(memory: str) -> Document:
    return msgspec.to_builtins(published(NVIDIA, nvidia_gpu(memory)), enc_hook=str)  # type: ignore[no-any-return]


async def test_an_empty_cluster_is_known_to_be_empty(server: FakeApiServer) -> None:
    async with caches(server) as made:
        world = made.world()

    assert made.check() == ""
    assert world.classes == frozenset()
    assert world.facts == {}


async def test_what_is_not_listed_yet_is_told(server: FakeApiServer) -> None:
    async with server.client() as client:
        made = Caches(client, profiles())

    assert "resourceslices" in made.check()


def compatibility_policy(name: str, day: int) -> Document:
    made = f"2026-11-{day:02d}T00:00:00Z"
    return {
        "metadata": {"name": name, "creationTimestamp": made},
        "spec": {
            "driver": "gpu.example.com",
            "rules": [{"name": "a", "compatibilityGroups": ["a"]}],
        },
    }


OBJECTS: Final[tuple[tuple[Resource, Document], ...]] = (
    (DEVICE_CLASSES, device_class("old", "nvidia.com/gpu", 1)),
    (DEVICE_CLASSES, device_class("new", "nvidia.com/gpu", 2)),
    (RESOURCE_SLICES, resource_slice("80Gi")),
    (RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": "t", "namespace": "n"}, "spec": SPEC}),
    (
        RESOURCE_QUOTAS,
        {"metadata": {"name": "q", "namespace": "n"}, "spec": {"hard": {"requests.cpu": "1"}}},
    ),
    (RESOURCE_QUOTAS, {"metadata": {"name": "empty", "namespace": "n"}, "spec": {}}),
    (NAMESPACES, {"metadata": {"name": "n", "labels": {"a": "b"}}}),
    (DEVICE_COMPATIBILITY_POLICIES, compatibility_policy("old", 1)),
    (DEVICE_COMPATIBILITY_POLICIES, compatibility_policy("young", 2)),
)


@pytest.mark.parametrize("order", ["listed", "watched"])
async def test_everything_that_a_translation_reads_is_there(
    order: str, server: FakeApiServer
) -> None:
    def fill() -> None:
        for resource, document in OBJECTS:
            server.put(resource, document)

    if order == "listed":
        fill()
    async with caches(server) as made:
        if order == "watched":
            await until(lambda: server.watching == len((*made.informers, *made.unawaited)))
            made.world()
            fill()
            await until(lambda: made.world().namespaces != {} and made.world().quotas != {})
            await until(lambda: len(made.world().classes or ()) == 2 and made.world().facts != {})
            await until(lambda: bool(made.world().templates))
        await until(lambda: bool(made.world().policies))
        world = made.world()

        assert world.classes == frozenset({"old", "new"})
        assert world.extended_resources["nvidia.com/gpu"] == "new"
        assert world.templates == {
            ("n", "t"): Template(digest=spec_digest(SPEC), classes=frozenset({"a"}))
        }
        assert world.quotas == {"n": {"q": Quota(names=frozenset({"requests.cpu"}))}}
        assert world.namespaces == {"n": {"a": "b"}}
        assert {"gpu.example.com": "old"} == {
            driver: policy.metadata.name for driver, policy in world.policies.items()
        }
        (size,) = world.facts[NVIDIA][DeviceKind.GPU].sizes or ()
        assert str(size.size) == "80Gi"


async def test_a_world_is_put_together_only_after_a_change(server: FakeApiServer) -> None:
    server.put(RESOURCE_SLICES, resource_slice("80Gi"))
    async with caches(server) as made:
        first = made.world()
        assert made.world() is first

        server.put(RESOURCE_SLICES, resource_slice("40Gi"))
        await until(lambda: made.world() is not first)

        assert made.world().facts != first.facts
        assert made.world().namespaces is first.namespaces


async def test_a_change_of_what_is_not_kept_changes_nothing(server: FakeApiServer) -> None:
    server.put(NAMESPACES, {"metadata": {"name": "n", "labels": {"a": "b"}}})
    async with caches(server) as made:
        first = made.world()
        server.put(NAMESPACES, {"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"x": 1}})
        server.put(DEVICE_CLASSES, device_class("later", "", 3))
        await until(lambda: made.world() is not first)

        assert made.world().namespaces is first.namespaces


# --- who may not see claims -----------------------------------------------------------------------

THERE: Final = {
    Onlooker.CLUSTER_AUTOSCALER: (
        CONFIG_MAPS,
        {"metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"}},
    ),
    Onlooker.KARPENTER: (
        CUSTOM_RESOURCE_DEFINITIONS,
        {"metadata": {"name": "nodepools.karpenter.sh"}},
    ),
    Onlooker.KUEUE: (
        CUSTOM_RESOURCE_DEFINITIONS,
        {"metadata": {"name": "clusterqueues.kueue.x-k8s.io"}},
    ),
}


@pytest.mark.parametrize("onlooker", Onlooker)
async def test_an_onlooker_is_seen_coming_and_going(
    onlooker: Onlooker, server: FakeApiServer
) -> None:
    resource, document = THERE[onlooker]
    async with caches(server) as made:
        assert made.world().onlookers == {}

        server.put(resource, document)
        await until(lambda: made.world().onlookers == {onlooker: frozenset()})
        metadata = document["metadata"]
        server.remove(resource, metadata["name"], metadata.get("namespace", ""))

        await until(lambda: made.world().onlookers == {})


async def test_objects_of_other_names_and_places_are_no_onlookers(server: FakeApiServer) -> None:
    elsewhere = {"name": "cluster-autoscaler-status", "namespace": "default"}
    server.put(CONFIG_MAPS, {"metadata": elsewhere})
    server.put(CUSTOM_RESOURCE_DEFINITIONS, {"metadata": {"name": "workloads.kueue.x-k8s.io"}})
    async with caches(server) as made:
        await until(lambda: all(each.synced.is_set() for each in made.onlooking))

        assert made.world().onlookers == {}


async def test_what_kueue_counts_is_read_from_its_configuration(server: FakeApiServer) -> None:
    server.put(*THERE[Onlooker.KUEUE])
    server.put(CONFIG_MAPS, kueue("resources: {deviceClassMappings: [{deviceClassNames: [a]}]}"))
    async with caches(server) as made:
        await until(lambda: made.world().onlookers == {Onlooker.KUEUE: frozenset({"a"})})


async def test_nobody_is_looked_for_who_is_known_to_see(server: FakeApiServer) -> None:
    for resource, document in THERE.values():
        server.put(resource, document)
    async with server.client() as client:
        assert not Caches(client, profiles(), seeing=frozenset(Onlooker)).onlooking


async def test_without_the_right_to_look_nobody_waits(server: FakeApiServer) -> None:
    server.fail(403, times=99, matches=lambda call: "configmaps" in call.path)
    async with caches(server) as made:
        assert made.check() == ""
        assert made.world().onlookers == {}


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
    ],
)
def test_kept_mapped_classes(text: str, want: tuple[str, ...]) -> None:
    raw = msgspec.json.encode(kueue(text))

    assert frozenset(want) == kept_mapped_classes(raw)


def test_a_configuration_without_data_maps_nothing() -> None:
    assert kept_mapped_classes(b'{"metadata": {}}') == frozenset()


async def test_slices_of_drivers_without_a_profile_are_not_kept(server: FakeApiServer) -> None:
    document = resource_slice("80Gi")
    document["spec"]["driver"] = "other.example"
    server.put(RESOURCE_SLICES, document)

    async with caches(server) as made:
        assert not made.informers["resourceslices"].store
        assert EXAMPLE not in made.world().facts
