"""The last published state of devices that are in use and no longer published.

A claim keeps its device although the driver stops publishing it, and what runs there still shares
hardware with others. So DeviceCompatibilityPolicies count such a device as it was seen last. It is
forgotten once it is published again, or no longer in use. After a restart nothing is known of it.

A device is published if a slice of the newest generation of its pool has it. While a pool is being
updated, its devices of the generation before are therefore remembered until their own slice follows.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from allocator.model.devices import DeviceId, PoolId, PublishedDevice, pool_of
from allocator.model.usage import Usage
from allocator.pods.claims import Name, allocation_of
from kube.api.resource import ResourceClaim, ResourceSlice

Tombstones = Mapping[DeviceId, PublishedDevice]
"""Device to its last published state; the slice of each has no other devices."""
Slices = tuple[ResourceSlice, ...]


class TombstoneIndex:
    """The slices by pool, and the remembered devices that they no longer have.

    Attributes:
        tombstones: The remembered devices in use, after `forget_unused`; a value that is replaced.
    """

    def __init__(
        self, tombstones: Tombstones, slices: Mapping[Name, ResourceSlice] = MappingProxyType({})
    ) -> None:
        """Begin with the devices remembered from before.

        Args:
            slices: All slices, by name.
        """
        self.tombstones = tombstones
        self._pools: dict[PoolId, dict[Name, ResourceSlice]] = {}
        # By pool, devices that only slices of older generations have.
        self._obsolete: dict[PoolId, Tombstones] = {}
        # Remembered devices that may not be in use.
        self._unconfirmed: set[DeviceId] = set(tombstones)
        for name, slice_ in slices.items():
            self._pools.setdefault(pool_of(slice_), {})[name] = slice_
        for pool in self._pools:
            slices_of_pool = self.slices_of(pool)
            self._put_obsolete(pool, _unpublished(slices_of_pool, slices_of_pool))

    def replace_slices(
        self, changes: Iterable[tuple[Name, ResourceSlice | None, ResourceSlice | None]]
    ) -> None:
        """Remember the devices that vanish with changes of slices, in use or not.

        Args:
            changes: Name of a slice, the slice before, and the slice now.
        """
        before = self._store(changes)
        tombstones = dict(self.tombstones)
        for pool, slices_before in before.items():
            slices = self.slices_of(pool)
            for name in _published_names(slices) if tombstones else ():
                tombstones.pop(DeviceId(pool.driver, pool.pool, name), None)
            self._put_obsolete(pool, _unpublished(slices, slices))
            for device, tombstone in _unpublished((*slices, *slices_before), slices).items():
                earlier_tombstone = tombstones.get(device)
                if earlier_tombstone is None or _generation(earlier_tombstone) <= _generation(
                    tombstone
                ):
                    tombstones[device] = tombstone
                    self._unconfirmed.add(device)
        if tombstones.keys() != self.tombstones.keys() or self._unconfirmed:
            self.tombstones = tombstones

    def _store(
        self, changes: Iterable[tuple[Name, ResourceSlice | None, ResourceSlice | None]]
    ) -> Mapping[PoolId, Slices]:
        """Store changed slices; return those that their pools had before."""
        before: dict[PoolId, Slices] = {}
        for name, old, new in changes:
            for pool in {pool_of(slice_) for slice_ in (old, new) if slice_ is not None}:
                if pool not in before:
                    before[pool] = self.slices_of(pool)
            if old is not None:
                self._remove(pool_of(old), name)
            if new is not None:
                self._pools.setdefault(pool_of(new), {})[name] = new
        return before

    def slices_of(self, pool: PoolId) -> Slices:
        """Return the slices of a pool, of all generations."""
        return tuple(self._pools.get(pool, {}).values())

    def allocate(self, claim: ResourceClaim) -> None:
        """Remember those devices of a claim that only slices of older generations have."""
        if not self._obsolete:
            return
        obsolete_devices = {
            device: tombstone
            for device in _devices_of(claim)
            if device not in self.tombstones
            and (
                tombstone := self._obsolete.get(PoolId(device.driver, device.pool), {}).get(device)
            )
        }
        if obsolete_devices:
            self.tombstones = {**self.tombstones, **obsolete_devices}
            self._unconfirmed |= obsolete_devices.keys()

    def release(self, claim: ResourceClaim) -> None:
        """Note that a claim may use its devices no more."""
        if self.tombstones:
            self._unconfirmed |= _devices_of(claim) & self.tombstones.keys()

    def forget_unused(self, usage: Usage) -> None:
        """Forget the devices that are not in use, once all changes are counted."""
        unused_devices = {device for device in self._unconfirmed if usage.of(device) is None}
        self._unconfirmed.clear()
        if not unused_devices.isdisjoint(self.tombstones):
            self.tombstones = {
                device: tombstone
                for device, tombstone in self.tombstones.items()
                if device not in unused_devices
            }

    def _put_obsolete(self, pool: PoolId, devices: Tombstones) -> None:
        if devices:
            self._obsolete[pool] = devices
        else:
            self._obsolete.pop(pool, None)

    def _remove(self, pool: PoolId, name: Name) -> None:
        slices = self._pools.get(pool, {})
        slices.pop(name, None)
        if not slices:
            self._pools.pop(pool, None)


def _devices_of(claim: ResourceClaim) -> frozenset[DeviceId]:
    allocation = allocation_of(claim)
    results = (allocation.devices.results if allocation is not None else None) or ()
    return frozenset(DeviceId(result.driver, result.pool, result.device) for result in results)


def _generation(device: PublishedDevice) -> int:
    return device.slice.spec.pool.generation


def _published_names(slices: Slices) -> frozenset[str]:
    """Return the devices in slices of the newest generation of a pool."""
    newest = max((slice_.spec.pool.generation for slice_ in slices), default=0)
    return frozenset(
        device.name
        for slice_ in slices
        if slice_.spec.pool.generation == newest
        for device in slice_.spec.devices or ()
    )


def _unpublished(slices: Slices, slices_now: Slices) -> dict[DeviceId, PublishedDevice]:
    """Return the devices in slices of a pool that it does not publish now, as of the newest generation.

    Args:
        slices: The slices to search; of equal generations the last slice counts.
    """
    if len(slices) == 1 and slices is slices_now:
        return {}
    published_names = _published_names(slices_now)
    devices: dict[DeviceId, PublishedDevice] = {}
    for slice_ in sorted(slices, key=lambda slice_: slice_.spec.pool.generation):
        for device in slice_.spec.devices or ():
            if device.name not in published_names:
                spec = msgspec.structs.replace(slice_.spec, devices=(device,))
                device_id = DeviceId(slice_.spec.driver, slice_.spec.pool.name, device.name)
                devices[device_id] = PublishedDevice(
                    id=device_id, device=device, slice=msgspec.structs.replace(slice_, spec=spec)
                )
    return devices
