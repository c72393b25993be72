"""The usage that quotas on names count, and the drivers behind resource names and DeviceClasses.

A ResourceQuota that counts one key of a driver concerns every pod that gets devices of this driver:

* by claims in place of its keys, which Kubernetes counts by their DeviceClass only;
* by the implicit name of a DeviceClass, `deviceclass.resource.kubernetes.io/<class>`. Every class has
  one, and kube-scheduler makes the claim, so a user needs no right to create claims. The pod stays as it
  is, and its own labels and its scheduler make no difference.

Source: KEP-5004; k8s.io/kubernetes v1.37.1, pkg/quota/v1/evaluator/core, resource_claims.go and pods.go:
claims and pods count under the implicit name, and pods in quotas with scopes, too.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kube.api.extended_resources import implicit_class
from quotas.resource_quotas.scopes import PodScopes, Quota
from translation.cluster.serving_drivers import serving_drivers
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.model.intents import DeviceKind
from translation.vocabularies.nvidia import MIG_PREFIX


class ClassDrivers(NamedTuple):
    """The drivers with devices that a DeviceClass may select.

    Attributes:
        known: The drivers that its selectors or a profile name, and those that ever published
            devices of it.
        may_be_others: Its selectors name none, so it may select devices of every driver.
    """

    known: frozenset[str]
    may_be_others: bool = False

    def among(self, drivers: frozenset[str]) -> frozenset[str]:
        """Return those of some drivers that have devices the class may select."""
        return drivers if self.may_be_others else drivers & self.known


def drivers_of_class(name: str, snapshot: TranslationSnapshot) -> ClassDrivers:
    """Return the drivers of a DeviceClass; none of a class that does not exist and no profile has."""
    named_drivers = snapshot.class_drivers.get(name)
    of_profiles = (
        driver for driver, profile in snapshot.profiles.items() if name in profile.class_names()
    )
    return ClassDrivers(
        known=(named_drivers or frozenset()).union(
            of_profiles, snapshot.once_published.get(name, ())
        ),
        may_be_others=named_drivers is not None and not named_drivers,
    )


def drivers_of_key(
    key: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> frozenset[str]:
    """Return the drivers of the devices that a resource name stands for, as far as they are known."""
    device_class = implicit_class(key) or snapshot.extended_resources.get(key)
    drivers = serving_drivers(key, options, snapshot.profiles)
    return (
        drivers
        if device_class is None
        else drivers | drivers_of_class(device_class, snapshot).known
    )


class ClassKinds(NamedTuple):
    """The classes of claims by the device plugin's kinds of names: one for whole GPUs, one for each MIG profile.

    A quota on `nvidia.com/gpu` never counted a MIG device, nor one on a MIG profile a whole GPU.

    Attributes:
        mig: Classes that profiles have for MIG devices only.
        others: Further classes of profiles.
    """

    mig: frozenset[str]
    others: frozenset[str]

    def beside(self, key: str) -> frozenset[str]:
        """Return the classes for devices that are counted under other names than a key, by its name in a vocabulary."""
        return self.others if key.startswith(MIG_PREFIX) else self.mig


def kinds_of_classes(classes: Collection[str], snapshot: TranslationSnapshot) -> ClassKinds:
    """Return classes by the kinds of devices that have them in profiles; those of no profile are left out."""
    mig: set[str] = set()
    others: set[str] = set()
    for profile in snapshot.profiles.values():
        for kind, device in profile.devices.items():
            names = device.class_names().intersection(classes)
            (mig if kind is DeviceKind.MIG else others).update(names)
    return ClassKinds(frozenset(mig - others), frozenset(others))


def is_class_counted(device_class: str, quotas: Iterable[Quota]) -> bool:
    """Return True if a quota counts the devices that claims have of a class."""
    return any(not quota.scopes and quota.counts_class(device_class) for quota in quotas)


def counts_claims(
    quota: Quota, key: str, classes: Collection[str], snapshot: TranslationSnapshot
) -> bool:
    """Return True if a quota on a resource name counts the devices that claims have of some classes.

    Source: addExtendedResourceQuota.
    """
    return not quota.scopes and snapshot.extended_resources.get(key) in classes


def matching_quotas(quotas: Mapping[str, Quota], scopes: PodScopes) -> list[tuple[str, Quota]]:
    """Return the quotas that count a pod, by name."""
    return [(name, quotas[name]) for name in sorted(quotas) if quotas[name].counts(scopes)]
