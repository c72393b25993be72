"""The ResourceSlices that publish a node's devices, and the writes that lead there.

A pool is split by the API's limits: counter sets into slices of their own, devices by number. Names of
slices derive from node, driver, pool and number, so that two processes that publish the same write the
same objects.

No reader may take a mixture of two states for a whole pool. Readers of ResourceSlices use the newest
generation that they see, if it has as many slices as it says. So a change of one slice is one write, and
a change of several gives all of them a new generation.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
pools_experimental.go (how a pool is read); resourceslice/resourceslicecontroller.go.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from driver.model import limits
from driver.model.inventory import Inventory, NodePool
from kube.api.meta import ObjectMeta, OwnerReference
from kube.api.resource import (
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

_NAME: Final = 253
_DIGEST: Final = 10
T = TypeVar("T")


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of the published devices, and the form of publishing.

    Attributes:
        driver: The name of the driver.
        node: The name of the node.
        node_uid: Its uid, since slices go when the Node object goes; empty where it is not known.
        groups: True if the cluster knows compatibility groups (DRADeviceCompatibilityGroups). If it
            does not, the API server drops them.
    """

    driver: str
    node: str
    node_uid: str
    groups: bool = False


class PlannedPool(msgspec.Struct, frozen=True, kw_only=True):
    """The slices of one pool; their generation is decided when they are written."""

    name: str
    slices: tuple[ResourceSlice, ...]


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """The writes, in this order, that turn the published slices into the planned ones.

    Attributes:
        applied: Slices as they have to be.
        deleted: Slices as they are published.
    """

    to_apply: tuple[ResourceSlice, ...] = ()
    to_delete: tuple[ResourceSlice, ...] = ()

    def __bool__(self) -> bool:
        """Return True if there is anything to do."""
        return bool(self.to_apply or self.to_delete)


# --- the plan -------------------------------------------------------------------------------------


def plan_pools(
    publication: Publication,
    inventory: Inventory,
    taints: Mapping[str, tuple[DeviceTaint, ...]] = {},
) -> tuple[PlannedPool, ...]:
    """Return the pools of a node as slices.

    Args:
        publication: The owner and the form of the slices.
        inventory: The devices.
        taints: Device to taints beside its own.
    """
    return tuple(_plan_pool(publication, pool, taints) for pool in inventory.pools if pool.devices)


def _plan_pool(
    publication: Publication, pool: NodePool, taints: Mapping[str, tuple[DeviceTaint, ...]]
) -> PlannedPool:
    name = pool.published_name(publication.node)
    devices = [
        _as_published(
            pool_device.device, taints.get(pool_device.name, ()), groups=publication.groups
        )
        for pool_device in pool.devices
    ]
    contents: list[tuple[tuple[CounterSet, ...] | None, tuple[Device, ...] | None]] = [
        (sets, None) for sets in _batches(pool.counter_sets, limits.COUNTER_SETS_PER_SLICE)
    ]
    contents += [(None, part) for part in _batches(devices, limits.DEVICES_PER_SLICE)]
    slices = [
        _slice(publication, name, (number, len(contents)), sets, part)
        for number, (sets, part) in enumerate(contents)
    ]
    return PlannedPool(name=name, slices=tuple(slices))


def _batches(items: Sequence[T], size: int) -> list[tuple[T, ...]]:
    return [tuple(items[start : start + size]) for start in range(0, len(items), size)]


def _as_published(device: Device, taints: tuple[DeviceTaint, ...], *, groups: bool) -> Device:
    """Return a device with the driver's taints, and without groups if the cluster lacks them."""
    if taints:
        device = msgspec.structs.replace(device, taints=(*(device.taints or ()), *taints))
    if device.consumes_counters and not groups:
        consumptions = tuple(map(_without_groups, device.consumes_counters))
        device = msgspec.structs.replace(device, consumes_counters=consumptions)
    return device


def _without_groups(consumption: DeviceCounterConsumption) -> DeviceCounterConsumption:
    return msgspec.structs.replace(consumption, compatibility_groups=None)


def _slice(
    publication: Publication,
    pool: str,
    position: tuple[int, int],
    counter_sets: tuple[CounterSet, ...] | None,
    devices: tuple[Device, ...] | None,
) -> ResourceSlice:
    number, count = position
    return ResourceSlice(
        metadata=ObjectMeta(
            name=slice_name(publication, pool, number), owner_references=_owners(publication)
        ),
        spec=ResourceSliceSpec(
            driver=publication.driver,
            pool=ResourcePool(name=pool, resource_slice_count=count),
            node_name=publication.node,
            devices=devices,
            shared_counters=counter_sets,
        ),
    )


def _owners(publication: Publication) -> tuple[OwnerReference, ...] | None:
    if not publication.node_uid:
        return None
    owner = OwnerReference(
        api_version="v1",
        kind="Node",
        name=publication.node,
        uid=publication.node_uid,
        controller=True,
    )
    return (owner,)


def slice_name(publication: Publication, pool: str, number: int) -> str:
    """Return the name of a slice; their order by name is that of their numbers.

    >>> slice_name(Publication(driver="d.example", node="node-a", node_uid="1"), "node-a", 0)
    'node-a-cc38326808-0000'
    """
    digest = hashlib.sha256(f"{publication.driver}\0{publication.node}\0{pool}".encode())
    end = f"-{digest.hexdigest()[:_DIGEST]}-{number:04}"
    return publication.node[: _NAME - len(end)].rstrip(".-") + end


def slice_document(slice_: ResourceSlice) -> dict[str, Any]:
    """Encode a slice; include numbers that equal the API's defaults."""
    document: dict[str, Any] = msgspec.to_builtins(slice_, enc_hook=str)
    pool = slice_.spec.pool
    document["spec"]["pool"] = {
        "name": pool.name,
        "generation": pool.generation,
        "resourceSliceCount": pool.resource_slice_count,
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **document}


# --- the writes -----------------------------------------------------------------------------------


def plan_writes(pools: Iterable[PlannedPool], published_slices: Iterable[ResourceSlice]) -> Writes:
    """Return the writes that lead to the planned slices; none if the API server has them.

    Args:
        pools: The planned pools.
        published_slices: All slices of the driver on the node, as they are seen.
    """
    by_pool: dict[str, dict[str, ResourceSlice]] = {}
    for slice_ in published_slices:
        by_pool.setdefault(slice_.spec.pool.name, {})[slice_.metadata.name] = slice_
    to_apply: list[ResourceSlice] = []
    to_delete: list[ResourceSlice] = []
    for pool in pools:
        published_by_name = by_pool.pop(pool.name, {})
        to_apply += _pool_writes(pool.slices, published_by_name)
        planned_names = {slice_.metadata.name for slice_ in pool.slices}
        to_delete += [
            slice_
            for name, slice_ in sorted(published_by_name.items())
            if name not in planned_names
        ]
    for _, vanished_slices in sorted(by_pool.items()):
        to_delete += [slice_ for _, slice_ in sorted(vanished_slices.items())]
    return Writes(to_apply=tuple(to_apply), to_delete=tuple(to_delete))


def _pool_writes(
    planned_slices: Sequence[ResourceSlice], published_by_name: Mapping[str, ResourceSlice]
) -> list[ResourceSlice]:
    newest = max((slice_.spec.pool.generation for slice_ in published_by_name.values()), default=0)
    changed_slices: list[ResourceSlice] = []
    absent: list[ResourceSlice] = []
    for slice_ in planned_slices:
        published_slice = published_by_name.get(slice_.metadata.name)
        if published_slice is None or published_slice.spec.pool.generation < newest:
            absent.append(slice_)
        elif not is_as_planned(slice_, published_slice):
            changed_slices.append(slice_)
    if not changed_slices:
        # What is published of the newest generation is as planned, so the rest completes it.
        return [_of_generation(slice_, max(newest, 1)) for slice_ in absent]
    if (
        len(changed_slices) == 1
        and not absent
        and _counts(changed_slices[0])
        == _counts(published_by_name[changed_slices[0].metadata.name])
    ):
        return [_of_generation(changed_slices[0], newest)]
    return [_of_generation(slice_, newest + 1) for slice_ in planned_slices]


def _counts(slice_: ResourceSlice) -> int:
    return slice_.spec.pool.resource_slice_count


def _of_generation(slice_: ResourceSlice, generation: int) -> ResourceSlice:
    pool = msgspec.structs.replace(slice_.spec.pool, generation=generation)
    return msgspec.structs.replace(slice_, spec=msgspec.structs.replace(slice_.spec, pool=pool))


def is_as_planned(planned_slice: ResourceSlice, published_slice: ResourceSlice) -> bool:
    """Return True if a published slice has the planned content; generations are not compared."""
    return (
        planned_slice.metadata.owner_references == published_slice.metadata.owner_references
        and _content(planned_slice) == _content(published_slice)
    )


def _content(slice_: ResourceSlice) -> ResourceSliceSpec:
    """Return the content to compare: all but the generation and the API server's additions."""
    spec = _of_generation(slice_, 0).spec
    devices = None if spec.devices is None else tuple(map(_without_times, spec.devices))
    return msgspec.structs.replace(spec, devices=devices)


def _without_times(device: Device) -> Device:
    if not device.taints:
        return device
    taints = tuple(msgspec.structs.replace(taint, time_added=None) for taint in device.taints)
    return msgspec.structs.replace(device, taints=taints)
