"""Pods with devices that are left to a device plugin, because the cluster has no driver for them."""

from collections.abc import Iterator

from findings.finding import Code, Finding, info
from findings.text import printable
from kube.quantity import ZERO
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.preflight.model.inputs import PodInput, Stop
from translation.profiles.resource_profiles import resource_profile, resource_profiles
from translation.reading import arbiter
from translation.vocabularies.resources import NAME as RESOURCES


def stop_at_device_plugins(inputs: PodInput) -> Stop | None:
    """Stop at a pod with a device of a vendor if the cluster does not have the vendor's DeviceClass.

    Its device plugin gives the devices until the driver is installed.
    """
    findings = tuple(_check_drivers(inputs)) if inputs.passes_through else ()
    return Stop(findings) if findings else None


def _check_drivers(inputs: PodInput) -> Iterator[Finding]:
    """Yield a finding for each device of a vendor without an installed driver."""
    legacy, snapshot, options = inputs.legacy, inputs.snapshot, inputs.options
    if snapshot.classes is None:
        return
    vocabularies = vocabularies_in_force(options, snapshot.profiles)
    keys = legacy.keys()
    owners = arbiter.vendor_owners(keys, vocabularies)
    if not owners:
        return
    rejected_keys = arbiter.companions(keys)
    for container in legacy.containers:
        for key, amount in sorted(container.limits.items()):
            owner = owners.get(key)
            if owner is None or key in rejected_keys or not amount > ZERO:
                continue
            serving = _serving_device(owner, key, snapshot, options)
            if serving is None:
                continue
            driver, class_name = serving
            if class_name not in snapshot.classes:
                yield info(
                    Code.UNTRANSLATED_DEVICE_KEY,
                    container.limit_path(key),
                    f"{printable(key)} is left to its device plugin: DeviceClass {class_name} does "
                    "not exist",
                    f"to use DRA, install the driver {driver}; until then the device plugin "
                    "must keep running",
                )


def _serving_device(
    vocabulary: str, key: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> tuple[str, str] | None:
    """Return the driver that serves a key, and the DeviceClass; None if no profile serves it."""
    if vocabulary == RESOURCES:
        profile = resource_profile(key, resource_profiles(snapshot.profiles, options.profiles))
    else:
        profile = snapshot.profiles.get(options.profiles.get(vocabulary, ""))
    if profile is None:
        return None
    devices = profile.devices.values()
    device = next(
        (device for device in devices if device.find_resource(key) is not None), next(iter(devices))
    )
    match = device.find_resource(key)
    return profile.driver, (match[1].class_name if match else None) or device.class_name
