"""The division of devices into slices, and the writes from one state to another."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec
import pytest

from allocator.model.devices import PoolState
from allocator.model.feature_gates import Features
from allocator.model.pools import node_devices
from allocator.model.slice_index import build_index
from driver.model.inventory import Inventory, NodeDevice, NodePool
from driver.plan.slices import Publication, Writes, plan_pools, plan_writes
from kube.api.meta import decode, encode
from kube.api.resource import Device, DeviceTaint, ResourceSlice
from testing.allocation.builders import (
    consumes,
    counter_set,
    device,
    node,
    taint,
)

PUBLICATION: Final = Publication(driver="gpu.example.com", node="node-1", node_uid="1")
IN_USE: Final = taint("drawbridge.internal/in-use")


def gpus(count: int, version: int = 0, name: str = "") -> NodePool:
    devices = [
        NodeDevice(device=device(f"gpu-{number}", attributes={"version": version}))
        for number in range(count)
    ]
    return NodePool(name=name, devices=tuple(devices))


def plan(
    *pools: NodePool, taints: Mapping[str, tuple[DeviceTaint, ...]] = {}
) -> list[ResourceSlice]:
    """Plan the pools, as if nothing were published."""
    return list(writes((), *pools, taints=taints).to_apply)


def writes(
    published: Iterable[ResourceSlice],
    *pools: NodePool,
    taints: Mapping[str, tuple[DeviceTaint, ...]] = {},
) -> Writes:
    return plan_writes(plan_pools(PUBLICATION, Inventory(pools=pools), taints), published)


def generations(slices: Iterable[ResourceSlice]) -> list[int]:
    return [slice_.spec.pool.generation for slice_ in slices]


def devices_of(slices: Iterable[ResourceSlice]) -> list[int]:
    return [len(slice_.spec.devices or ()) for slice_ in slices]


# --- the plan -------------------------------------------------------------------------------------


def test_devices_are_split_by_number() -> None:
    slices = plan(gpus(130))

    assert [64, 64, 2] == devices_of(slices)
    assert {3} == {slice_.spec.pool.resource_slice_count for slice_ in slices}
    assert {"node-1"} == {slice_.spec.node_name for slice_ in slices}
    assert sorted(slice_.metadata.name for slice_ in slices) == [
        slice_.metadata.name for slice_ in slices
    ]


def test_counter_sets_have_slices_of_their_own() -> None:
    sets = tuple(counter_set(f"gpu-{number}", memory="80Gi") for number in range(9))
    pool = msgspec.structs.replace(gpus(1), counter_sets=sets)

    slices = plan(pool)

    assert [8, 1, 0] == [len(slice_.spec.shared_counters or ()) for slice_ in slices]
    assert [None, None] == [slice_.spec.devices for slice_ in slices[:2]]
    assert slices[2].spec.shared_counters is None


def test_slices_go_when_the_node_goes() -> None:
    (owner,) = plan(gpus(1))[0].metadata.owner_references or ()

    assert ("v1", "Node", "node-1", "1") == (owner.api_version, owner.kind, owner.name, owner.uid)


def test_a_pool_without_devices_is_not_published() -> None:
    assert [] == plan(NodePool())


def test_taints_of_the_driver_come_after_those_of_the_device() -> None:
    own = device("gpu-0", taints=(taint("own"),))
    pool = NodePool(devices=(NodeDevice(device=own),))

    (plan_,) = plan(pool, taints={"gpu-0": (IN_USE,)})

    (device_,) = plan_.spec.devices or ()
    assert ["own", "drawbridge.internal/in-use"] == [taint_.key for taint_ in device_.taints or ()]


@pytest.mark.parametrize(("groups", "want"), [(True, ("mig",)), (False, None)])
def test_groups_are_published_where_the_cluster_knows_them(
    groups: bool, want: tuple[str, ...] | None
) -> None:
    part = device("part", consumes(memory="1Gi", groups=["mig"]))
    pool = NodePool(devices=(NodeDevice(device=part),), counter_sets=(counter_set(memory="80Gi"),))
    publication = msgspec.structs.replace(PUBLICATION, groups=groups)

    (plan_pool,) = plan_pools(publication, Inventory(pools=(pool,)))

    (device_,) = plan_pool.slices[1].spec.devices or ()
    (consumption,) = device_.consumes_counters or ()
    assert want == consumption.compatibility_groups


def test_a_long_name_of_a_node_is_shortened() -> None:
    long = ".".join(["a" * 49] * 5)
    publication = msgspec.structs.replace(PUBLICATION, node=long)

    (plan_pool,) = plan_pools(publication, Inventory(pools=(gpus(1),)))

    name = plan_pool.slices[0].metadata.name
    assert len(name) <= 253
    assert ".-" not in name


# --- the writes -----------------------------------------------------------------------------------


def test_nothing_is_written_where_nothing_changed() -> None:
    assert not writes(_stored(plan(gpus(130))), gpus(130))


def test_what_the_api_server_adds_is_no_change() -> None:
    pool = NodePool(devices=(NodeDevice(device=device("gpu-0", taints=(taint("own"),))),))
    (plan_,) = plan(pool)
    (device_,) = plan_.spec.devices or ()
    stamped = tuple(
        msgspec.structs.replace(taint_, time_added="2026-01-01T00:00:00Z")
        for taint_ in device_.taints or ()
    )
    slice_with_devices = _with_devices(plan_, msgspec.structs.replace(device_, taints=stamped))

    assert not writes([slice_with_devices], pool)


def test_one_changed_slice_is_written_in_place() -> None:
    stored = _stored(plan(gpus(130)))

    writes_ = writes(stored, gpus(130), taints={"gpu-129": (IN_USE,)})

    assert [stored[2].metadata.name] == [slice_.metadata.name for slice_ in writes_.to_apply]
    assert [1] == generations(writes_.to_apply)


def test_several_changed_slices_are_a_new_generation_of_all() -> None:
    stored = _stored(plan(gpus(130)))
    tainted = {"gpu-0": (IN_USE,), "gpu-129": (IN_USE,)}

    writes_ = writes(stored, gpus(130), taints=tainted)

    assert [2, 2, 2] == generations(writes_.to_apply)


def test_a_new_generation_that_was_cut_short_is_completed() -> None:
    old, new = _stored(plan(gpus(130, version=0))), writes(_stored(plan(gpus(130))), gpus(130, 1))
    half = [new.to_apply[0], *old[1:]]

    writes_ = writes(half, gpus(130, version=1))

    assert [2, 2] == generations(writes_.to_apply)
    assert [slice_.metadata.name for slice_ in old[1:]] == [
        slice_.metadata.name for slice_ in writes_.to_apply
    ]


def test_a_new_generation_that_was_cut_short_and_changed_is_left_behind() -> None:
    old, new = _stored(plan(gpus(130))), writes(_stored(plan(gpus(130))), gpus(130, 1))
    half = [new.to_apply[0], *old[1:]]

    writes_ = writes(half, gpus(130, version=2))

    assert [3, 3, 3] == generations(writes_.to_apply)


def test_slices_that_were_deleted_come_back_as_they_were() -> None:
    stored = _stored(plan(gpus(130)))

    writes_ = writes(stored[1:], gpus(130))

    assert [stored[0]] == list(writes_.to_apply)
    assert not writes_.to_delete


def test_fewer_slices_are_a_new_generation_before_the_rest_is_deleted() -> None:
    stored = _stored(plan(gpus(130)))

    writes_ = writes(stored, gpus(64))

    assert [2] == generations(writes_.to_apply)
    assert stored[1:] == list(writes_.to_delete)


def test_a_pool_that_is_gone_is_deleted() -> None:
    stored = _stored(plan(gpus(1), gpus(1, name="nics")))

    writes_ = writes(stored, gpus(1))

    assert not writes_.to_apply
    assert ["node-1/nics"] == [slice_.spec.pool.name for slice_ in writes_.to_delete]


def test_slices_of_another_version_under_other_names_are_replaced() -> None:
    (own,) = plan(gpus(1))
    metadata = msgspec.structs.replace(own.metadata, name="other")
    (stored,) = _stored([msgspec.structs.replace(own, metadata=metadata)])

    writes_ = writes([stored], gpus(1))

    assert [own.metadata.name] == [slice_.metadata.name for slice_ in writes_.to_apply]
    assert [stored] == list(writes_.to_delete)


# --- readers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_no_reader_takes_a_mixture_for_a_whole_pool(seed: int) -> None:
    """A writer is stopped anywhere, the kubelet deletes slices, and plans change meanwhile."""
    chance = random.Random(seed)
    stored: dict[str, ResourceSlice] = {}
    plans = [gpus(chance.choice((1, 64, 65, 130)), version) for version in range(8)]
    whole = {_content(pool.devices) for pool in plans}

    for pool in plans:
        for _ in range(chance.randrange(3)):
            objects = list(_steps(writes(stored.values(), pool)))
            for apply in objects[: chance.randrange(len(objects) + 1)]:
                apply(stored)
                _check(stored, whole)
        if chance.random() < 0.3:
            for name in chance.sample(sorted(stored), chance.randrange(len(stored) + 1)):
                del stored[name]
                _check(stored, whole)

    for apply in _steps(writes(stored.values(), plans[-1])):
        apply(stored)
    assert _read(stored) == _content(plans[-1].devices)
    assert not writes(stored.values(), plans[-1])


Content = frozenset[tuple[str, object]]


def _content(devices: Iterable[NodeDevice | Device]) -> Content:
    plain = (device_.device if isinstance(device_, NodeDevice) else device_ for device_ in devices)
    return frozenset(
        (device_.name, (device_.attributes or {})["version"].int_) for device_ in plain
    )


def _steps(writes_: Writes) -> Iterator[Callable[[dict[str, ResourceSlice]], object]]:
    for slice_ in writes_.to_apply:
        yield partial(_put, slice_)
    for slice_ in writes_.to_delete:
        yield partial(_remove, slice_)


def _put(slice_: ResourceSlice, stored: dict[str, ResourceSlice]) -> None:
    (stored[slice_.metadata.name],) = _stored([slice_])


def _remove(slice_: ResourceSlice, stored: dict[str, ResourceSlice]) -> None:
    del stored[slice_.metadata.name]


def _check(stored: Mapping[str, ResourceSlice], whole: set[Content]) -> None:
    published = _read(stored)
    assert published is None or published in whole


def _read(stored: Mapping[str, ResourceSlice]) -> Content | None:
    """Return the pool as the scheduler reads it; None while it does not use the pool."""
    features = Features()
    pool = next(
        iter(node_devices(build_index(stored.values(), features), node("node-1")).pools), None
    )
    if pool is None or pool.state is PoolState.INCOMPLETE:
        return None
    assert pool.state is PoolState.COMPLETE, pool.why
    return _content(device_.device for device_ in pool.devices)


def _stored(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Return slices as they come back from the API server."""
    return [decode(encode(slice_), ResourceSlice) for slice_ in slices]


def _with_devices(slice_: ResourceSlice, *devices: Device) -> ResourceSlice:
    return msgspec.structs.replace(
        slice_, spec=msgspec.structs.replace(slice_.spec, devices=devices)
    )
