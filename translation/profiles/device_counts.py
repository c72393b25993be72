"""The numbers of published devices by the kinds of a profile."""

from collections.abc import Iterable, Mapping

from kube.api.resource import ResourceSlice
from translation.model.intents import DeviceKind
from translation.profiles.device_facts import is_of_kind
from translation.profiles.profile import Profile


def count_devices(slices: Iterable[ResourceSlice], profile: Profile) -> Mapping[DeviceKind, int]:
    """Return kind of device to the number of devices, in the newest generation of every pool."""
    newest: dict[str, list[ResourceSlice]] = {}
    for slice_ in slices:
        pool = newest.setdefault(slice_.spec.pool.name, [])
        if pool and pool[0].spec.pool.generation < slice_.spec.pool.generation:
            pool.clear()
        if not pool or pool[0].spec.pool.generation == slice_.spec.pool.generation:
            pool.append(slice_)
    devices = [
        device
        for pool in newest.values()
        for slice_ in pool
        for device in slice_.spec.devices or ()
    ]
    return {
        kind: sum(is_of_kind(device, kind_profile, profile) for device in devices)
        for kind, kind_profile in profile.devices.items()
    }
