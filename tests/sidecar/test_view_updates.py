"""The view of the devices is kept up to date without an answer that waits for much."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from allocator.features.consumer_limits import ConsumerLimit
from allocator.model.devices import PoolId
from allocator.model.feature_gates import Features
from allocator.model.usage import gather_usage
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    DEVICE_COMPATIBILITY_POLICIES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from sidecar.ownership.drift import differs
from sidecar.plan.snapshot import Snapshot
from sidecar.state.held_back import HeldBackLimits
from sidecar.state.state import ClusterState
from testing.allocation.builders import DRIVER, devices, policy, slice_of
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    document,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)


class Followed(NamedTuple):
    """A state that follows an API server, and that nobody else answers from."""

    server: FakeApiServer
    state: ClusterState

    def answer(self) -> Snapshot:
        """Return the snapshot of an answer."""
        return self.state.snapshot(self.state.take_changes())

    async def change(self) -> None:
        """Wait for a change of the inventory."""
        await self.state.inventory_changed.wait()
        self.state.inventory_changed.clear()

    def build(self) -> None:
        """Build the next view."""
        view = self.state.next_view
        assert view is not None
        view.cache.apply(view.feed.take())
        view.is_built = True
        self.state.inventory_changed.clear()


@asynccontextmanager
async def followed(*nodes: str) -> AsyncIterator[Followed]:
    async with FakeApiServer() as server, server.client() as client:
        publish(server, *nodes)
        put_claim(server, "gpu-a")
        informers = quick_informers(client)
        state = ClusterState(
            informers,
            Features(),
            drivers=frozenset({DRIVER}),
            default_strategy="FirstFit",
            now=lambda: datetime(2026, 11, 21, tzinfo=UTC),
            held_back_limits=HeldBackLimits(1.0, most_per_namespace=8),
            binding_timeout_s=600.0,
        )
        async with running(informers.run):
            await state.wait_synced()
            await until(lambda: not state.check())
            made = Followed(server, state)
            made.answer()
            state.inventory_changed.clear()
            yield made


def allocate(server: FakeApiServer, name: str) -> None:
    claim = server.find(RESOURCE_CLAIMS, name, "default")
    assert claim is not None
    result = {"request": "req-0", "driver": DRIVER, "pool": "node-1", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    server.put(RESOURCE_CLAIMS, {**claim, "status": status})


def is_counted(snapshot: Snapshot) -> bool:
    return any(pool.pool == "node-1" for pool in snapshot.cluster.usage.pools)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every cluster count as large."""
    monkeypatch.setattr("sidecar.state.device_view.MAX_QUICK_BUILD", 0)


@pytest.mark.usefixtures("large")
async def test_a_view_under_another_policy_is_built_beside_the_one_in_use() -> None:
    async with followed("node-1") as made:
        server, state = made.server, made.state
        before = made.answer().cluster
        server.put(DEVICE_COMPATIBILITY_POLICIES, document(policy()))
        await made.change()

        assert made.answer().cluster is before
        assert state.is_behind
        allocate(server, "gpu-a")
        await until(lambda: any(claim.status for claim in state.claims.store.values()))
        assert is_counted(made.answer()), "the view in use gets changes"
        made.build()
        version = state.version

        after = made.answer()

        assert len(after.cluster.options.policies) == 1
        assert state.version > version, "pods that wait are planned anew"
        assert is_counted(after), "so does the one that is built"
        assert not state.is_behind
        server.remove(RESOURCE_CLAIMS, "gpu-a", "default")
        await until(lambda: not state.claims.store)
        last = made.answer()
        assert not is_counted(last)
        assert not differs(last.cluster.usage, gather_usage(state.claims_in_use(), state.features))


@pytest.mark.usefixtures("large")
async def test_a_policy_that_changes_while_a_view_is_built_has_another_one_built() -> None:
    async with followed("node-1") as made:
        made.server.put(DEVICE_COMPATIBILITY_POLICIES, document(policy()))
        await made.change()
        made.answer()
        made.build()
        made.server.put(DEVICE_COMPATIBILITY_POLICIES, document(policy(driver="b", name="b")))
        await made.change()

        assert len(made.answer().cluster.options.policies) == 1
        assert made.state.is_behind
        made.build()

        assert len(made.answer().cluster.options.policies) == 2
        assert not made.state.is_behind


@pytest.mark.usefixtures("large")
async def test_settings_of_drivers_are_in_force_with_their_view() -> None:
    async with followed("node-1") as made:
        made.server.put(
            ALLOCATOR_OWNERSHIPS,
            {
                "metadata": {"name": "default"},
                "spec": {"drivers": [{"name": DRIVER, "maxConsumersPerDevice": 3}]},
            },
        )
        await made.change()
        limits = made.answer().cluster.options.consumer_limits
        assert (limits, made.state.applied_settings) == ({}, ())
        made.build()

        limits = made.answer().cluster.options.consumer_limits

        assert limits == {DRIVER: ConsumerLimit(per_device=3)}
        assert made.state.applied_settings == made.state.driver_settings


@pytest.mark.usefixtures("large")
async def test_a_view_that_is_being_built_is_dropped_where_all_is_counted_anew() -> None:
    async with followed("node-1") as made:
        made.server.put(DEVICE_COMPATIBILITY_POLICIES, document(policy()))
        await made.change()
        made.answer()
        made.state.rebuild()

        assert made.state.next_view is None
        assert len(made.answer().cluster.options.policies) == 1
        assert not made.state.is_behind


async def test_the_view_of_a_small_cluster_is_built_for_the_next_answer() -> None:
    async with followed("node-1") as made:
        made.server.put(DEVICE_COMPATIBILITY_POLICIES, document(policy()))
        await made.change()

        assert len(made.answer().cluster.options.policies) == 1


async def test_a_part_that_is_applied_is_a_new_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.state.device_view.MAX_PART", 2)
    async with followed("node-1") as made:
        publish(made.server, "node-2", "node-3")
        await until(lambda: len(made.state.slices) == 3 and len(made.state.nodes) == 3)
        made.answer()
        assert made.state.is_behind
        version = made.state.version

        snapshot = made.answer()

        assert made.state.version > version, "a plan that lacked it is no answer any more"
        assert len(snapshot.cluster.nodes) == 3
        assert not made.state.is_behind


@pytest.mark.usefixtures("large")
async def test_all_changes_are_applied_without_a_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sidecar.state.device_view.MAX_PART", 2)
    names = [f"node-{number}" for number in range(10)]
    async with FakeApiServer() as server:
        publish(server, "node-0")
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            publish(server, *names)
            server.put(DEVICE_COMPATIBILITY_POLICIES, document(policy()))
            state = sidecar.state
            await until(lambda: len(state._view.cache.cluster.options.policies) == 1)
            await until(lambda: len(state._view.cache._published) == len(names))
            await until(lambda: len(state._view.cache.cluster.nodes) == len(names))
            await until(lambda: not state.is_behind)
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()

            answer = await scheduler.prefilter(pod)

            assert sorted(node["name"] for node in answer["nodes"]) == names


async def test_a_pool_that_many_nodes_see_is_in_force_without_a_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sidecar.state.device_view.MAX_NODES", 1)
    async with FakeApiServer() as server:
        publish(server, "node-0", "node-1", per_node=0)
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            shared = slice_of(*devices("gpu-0"), pool="shared", all_nodes=True)
            server.put(RESOURCE_SLICES, document(shared))
            state = sidecar.state
            pool = PoolId(DRIVER, "shared")
            await until(lambda: state._view.cache.cluster.visible_pool(pool) is not None)
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()

            answer = await scheduler.prefilter(pod)

            assert sorted(node["name"] for node in answer["nodes"]) == ["node-0", "node-1"]
