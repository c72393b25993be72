"""The profiles in force in a process follow the ConfigMap that the controllers write."""

import asyncio
from collections.abc import Mapping

from clusterstate.snapshot_cache import SnapshotCache
from kube.api.urls import CONFIG_MAPS, RESOURCE_SLICES
from kube.names import NAMESPACE
from process.profiles.published_profiles import ProfileCache
from testing.builders import profiles
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from translation.model.intents import DeviceKind
from translation.profiles.objects import plan_profiles, read_spec
from translation.profiles.published import encode_published

NAME = "drawbridge-profiles"
DRIVER = "npu.example.com"
SPEC = {
    "driver": DRIVER,
    "devices": {"device": {"class": DRIVER, "resources": {"example.com/npu": {}}}},
}
SLICE = {
    "metadata": {"name": "a"},
    "spec": {
        "driver": DRIVER,
        "nodeName": "node",
        "pool": {"name": "node", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "npu-0", "allowMultipleAllocations": True}],
    },
}


def config_map(data: Mapping[str, str]) -> dict[str, object]:
    return {"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": dict(data)}


async def test_a_snapshot_follows_profiles_and_reads_the_slices_again() -> None:
    published = plan_profiles([read_spec(SPEC, DRIVER)]).published
    async with FakeApiServer() as server, server.client() as client:
        server.put(RESOURCE_SLICES, SLICE)
        informers = quick_informers(client)
        cache = ProfileCache(informers, profiles(), namespace=NAMESPACE, config_map=NAME)
        snapshots = SnapshotCache(informers, profiles())
        cache.on_change(snapshots.replace_profiles)
        assert cache.check()
        async with running(informers.run):
            await asyncio.gather(cache.wait_first(), snapshots.wait_synced())
            assert not cache.check()
            assert DRIVER not in snapshots.snapshot().profiles
            assert DRIVER not in (snapshots.snapshot().publishes or ())

            server.put(CONFIG_MAPS, config_map(encode_published(published)))
            await until(lambda: DRIVER in snapshots.snapshot().profiles)
            await until(lambda: DRIVER in (snapshots.snapshot().publishes or ()))
            snapshot = snapshots.snapshot()

            server.remove(CONFIG_MAPS, NAME, NAMESPACE)
            await until(lambda: DRIVER not in snapshots.snapshot().profiles)
            await until(lambda: DRIVER not in (snapshots.snapshot().publishes or ()))

    assert snapshot.facts[DRIVER][DeviceKind.DEVICE].shared
    assert snapshot.profile_versions == published.versions
    assert cache.profiles == profiles()


async def test_only_other_profiles_are_reported() -> None:
    published = encode_published(plan_profiles([read_spec(SPEC, DRIVER)]).published)
    changes: list[object] = []
    async with FakeApiServer() as server, server.client() as client:
        informers = quick_informers(client)
        cache = ProfileCache(informers, profiles(), namespace=NAMESPACE, config_map=NAME)
        cache.on_change(lambda in_force, _versions: changes.append(in_force))
        async with running(informers.run):
            await cache.wait_first()
            server.put(CONFIG_MAPS, config_map(published))
            await until(lambda: len(changes) == 1)
            server.put(CONFIG_MAPS, {**config_map(published), "immutable": False})
            server.remove(CONFIG_MAPS, NAME, NAMESPACE)
            await until(lambda: cache.profiles == profiles())

    assert len(changes) == 2
