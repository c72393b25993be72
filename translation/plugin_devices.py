"""Pods whose devices are left to a device plugin, because the cluster has no driver for them."""

from collections.abc import Iterator

from findings.finding import Code, Finding, info
from findings.text import printable
from kube.quantity import Quantity
from translation import arbiter
from translation.intents import DeviceKind, LegacyPod
from translation.resource_profiles import resource_profile, resource_profiles
from translation.snapshot import TranslationOptions, TranslationSnapshot, vocabularies_in_force
from translation.vocabularies.resources import NAME as RESOURCES


def check_device_plugins(
    legacy: LegacyPod, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Iterator[Finding]:
    """Yield a finding for each device of a vendor whose DeviceClass the cluster does not have.

    A pod with one is left as it is: its device plugin gives the devices until the driver is installed.
    """
    vocabulary = vocabularies_in_force(options, snapshot.profiles).get(RESOURCES)
    if vocabulary is None or snapshot.classes is None:
        return
    rejected = arbiter.companions({key for one in legacy.containers for key in one.limits})
    serving = resource_profiles(snapshot.profiles, options.profiles)
    for container in legacy.containers:
        for key, amount in sorted(container.limits.items()):
            profile = resource_profile(key, serving) if vocabulary.handles(key) else None
            if profile is None or key in rejected or not amount > Quantity(0):
                continue
            device = profile.devices[DeviceKind.DEVICE]
            match = device.named(key)
            class_name = (match[1].class_name if match else None) or device.class_name
            if class_name not in snapshot.classes:
                yield info(
                    Code.UNTRANSLATED_DEVICE_KEY,
                    container.limit_path(key),
                    f"{printable(key)} is left to its device plugin: DeviceClass {class_name} does "
                    "not exist",
                    f"to use DRA, install the driver {profile.driver}; until then the device plugin "
                    "must keep running",
                )
