"""The view that answers are made from: its content, waiting changes, and changes that are never lost."""

from typing import Any, NamedTuple

import pytest

from allocator.cluster.cluster import Cluster
from allocator.model.devices import PoolId
from allocator.model.feature_gates import Features
from allocator.pods.claims import Name
from clusterstate.kinds import Kind
from kube.api.resource import ResourceSlice
from sidecar.answers.view_updates import build
from sidecar.state.device_view import DeviceView, NextView
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    device_class,
    devices,
    node,
    policy,
    result,
    slice_of,
)

NODES = ("node-0", "node-1", "node-2")
SHARED = PoolId(DRIVER, "shared")


class Viewed(NamedTuple):
    """A view, and all objects that it is of."""

    objects: dict[Kind, dict[Name, Any]]
    view: DeviceView

    def put(self, kind: Kind, name: str, new: object, namespace: str = "") -> None:
        """Change an object."""
        key = (namespace, name)
        if new is None:
            self.objects[kind].pop(key, None)
        else:
            self.objects[kind][key] = new
        self.view.put(kind, key, new)

    def answer(self) -> Cluster:
        """Return the cluster that an answer is made from."""
        changes = self.view.take_changes(())  # It may begin another view.
        self.view.cache.apply(changes)
        return self.view.cache.cluster


def shared(generation: int, *names: str) -> ResourceSlice:
    return slice_of(
        *devices(*names), name="shared", pool="shared", generation=generation, all_nodes=True
    )


def viewed() -> Viewed:
    """The view of nodes with a device each, and with two more that all of them see."""
    objects: dict[Kind, dict[Name, Any]] = {kind: {} for kind in Kind}
    made = Viewed(objects, DeviceView(Features(), frozenset(), lambda: objects))
    for name in NODES:
        made.put(Kind.NODE, name, node(name))
        made.put(Kind.SLICE, name, slice_of(*devices("gpu-0"), pool=name))
    made.put(Kind.SLICE, "shared", shared(1, "gpu-a", "gpu-b"))
    made.put(Kind.CLASS, "gpu", device_class())
    used = {"user-0": ("gpu-0", "node-2"), "user-1": ("gpu-a", "shared")}
    for user, (device, pool) in used.items():
        made.put(Kind.CLAIM, user, allocated_claim(result(device, pool=pool), name=user), "default")
    made.answer()
    return made


def viewed_beside_next() -> tuple[Viewed, NextView]:
    """The same, and the view that is to be built for another generation of the pool that all nodes see."""
    made = viewed()
    made.put(Kind.SLICE, "shared", shared(2, "gpu-b"))
    made.answer()
    made.answer()
    next_view = made.view.next_view
    assert next_view is not None
    return made, next_view


def remembered(cluster: Cluster) -> list[str]:
    return sorted(str(device_id.pool) for device_id in cluster.options.tombstones)


def shared_devices(cluster: Cluster) -> list[str]:
    pool = cluster.visible_pool(SHARED)
    return [] if pool is None else [device.id.device for device in pool.devices]


def vanish(made: Viewed) -> None:
    """Have all devices vanish, those of the last node with a change that waits."""
    for name in NODES:
        made.put(Kind.SLICE, name, None)
    assert remembered(made.answer()) == []
    assert made.view.is_behind


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.state.device_view.MAX_PART", 1)


@pytest.fixture
def many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a pool that all nodes see be one that many nodes see."""
    monkeypatch.setattr("sidecar.state.device_view.MAX_NODES", len(NODES) - 1)


@pytest.mark.usefixtures("small_parts")
def test_devices_that_vanish_before_the_view_begins_anew_are_remembered() -> None:
    made = viewed()
    vanish(made)

    made.view.rebuild(())

    assert remembered(made.answer()) == ["node-2"]
    assert not made.view.is_behind


@pytest.mark.usefixtures("small_parts")
def test_a_second_view_remembers_them_too() -> None:
    made = viewed()
    vanish(made)

    cache, feed = made.view.second_view()
    cache.apply(feed.take())

    assert remembered(cache.cluster) == ["node-2"]


def test_a_view_that_begins_anew_has_no_object_that_is_gone() -> None:
    made = viewed()
    before = made.view.cache.cluster
    made.objects[Kind.NODE].pop(("", "node-0"))  # A change that the view has missed.

    made.view.rebuild(())

    assert sorted(made.answer().nodes) == ["node-1", "node-2"]
    assert sorted(before.nodes) == list(NODES)


@pytest.mark.usefixtures("many_nodes")
async def test_a_pool_that_many_nodes_see_changes_in_a_view_beside_the_one_in_use() -> None:
    made = viewed()
    before = made.answer()
    made.put(Kind.SLICE, "shared", shared(2, "gpu-b", "gpu-c"))
    made.answer()

    assert made.view.is_behind
    assert not made.view.has_news, "no answer knows more until the view is built"
    assert made.answer() is before
    next_view = made.view.next_view
    assert next_view is not None
    made.put(Kind.SLICE, "node-1", slice_of(*devices("gpu-1", "gpu-2"), pool="node-1"))
    assert len(made.answer().node_devices("node-1").devices) == 4, "other changes are in force"
    assert shared_devices(made.answer()) == ["gpu-a", "gpu-b"]
    await build(next_view)
    assert made.view.has_news

    after = made.answer()

    assert after is not before
    assert shared_devices(after) == ["gpu-b", "gpu-c"]
    assert len(after.node_devices("node-1").devices) == 4
    assert remembered(after) == ["shared"]
    assert not made.view.is_behind


@pytest.mark.usefixtures("many_nodes")
async def test_such_a_pool_that_changes_while_the_view_is_built_has_another_one_built() -> None:
    made, next_view = viewed_beside_next()
    next_view.cache.apply(next_view.feed.take())
    made.put(Kind.SLICE, "shared", shared(3, "gpu-c"))
    await build(next_view)

    assert shared_devices(made.answer()) == ["gpu-b"]
    assert made.view.is_behind
    other_view = made.view.next_view
    assert other_view is not None
    await build(other_view)

    assert shared_devices(made.answer()) == ["gpu-c"]
    assert not made.view.is_behind


@pytest.mark.usefixtures("many_nodes")
async def test_changes_that_come_after_the_build_are_in_force_with_the_view() -> None:
    made, next_view = viewed_beside_next()
    await build(next_view)
    made.put(Kind.SLICE, "node-1", slice_of(*devices("gpu-1", "gpu-2"), pool="node-1"))

    cluster = made.answer()

    assert shared_devices(cluster) == ["gpu-b"]
    assert len(cluster.node_devices("node-1").devices) == 3


@pytest.mark.usefixtures("many_nodes", "small_parts")
async def test_a_view_is_in_force_with_all_changes_that_came_while_it_was_built() -> None:
    made, next_view = viewed_beside_next()
    next_view.cache.apply(next_view.feed.take())
    for name in NODES:
        made.put(Kind.SLICE, name, None)
    await build(next_view)

    cluster = made.answer()

    assert [len(cluster.node_devices(name).devices) for name in NODES] == [1, 1, 1]
    assert not made.view.is_behind


@pytest.mark.usefixtures("many_nodes")
async def test_a_policy_counts_with_the_view_that_is_built_for_a_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sidecar.state.device_view.MAX_QUICK_BUILD", 0)
    made, next_view = viewed_beside_next()
    made.put(Kind.POLICY, "policy", policy())
    assert made.answer().options.policies == ()
    await build(next_view)

    cluster = made.answer()

    assert len(cluster.options.policies) == 1
    assert shared_devices(cluster) == ["gpu-b"]
    assert not made.view.is_behind
