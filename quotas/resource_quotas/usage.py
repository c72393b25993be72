"""The usage that a claim or a pod counts against a ResourceQuota.

Source: k8s.io/kubernetes v1.37.1, pkg/quota/v1/evaluator/core: claimEvaluator.Usage, with the
extended resources of DRAExtendedResource, and PodUsageFunc for the extended resources of pods; that of
v1.34.4, where claims count no extended resources.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from allocator.nodes.pod_requests import sum_containers
from allocator.pods.extended_resource_claim import ANNOTATION
from kube.api.core import Container, Pod
from kube.api.extended_resources import IMPLICIT_PREFIX, extended_resources
from kube.api.resource import (
    MAX_RESULTS,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from kube.quantity import ZERO, Quantity
from quotas.resource_quotas.scopes import PodScopes, Quota, scopes_of

CLAIM_COUNT: Final = "count/resourceclaims.resource.k8s.io"
TEMPLATE_COUNT: Final = "count/resourceclaimtemplates.resource.k8s.io"
OBJECT_COUNTS: Final = frozenset({CLAIM_COUNT, TEMPLATE_COUNT})
"""The quota resources for the numbers of claims and of their templates."""
DEVICES_OF_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
"""Suffix of the quota resource for the devices of a class."""
REQUESTS: Final = "requests."
"""Prefix of the quota resource for an extended resource."""

Usage = Mapping[str, Quantity]
"""Name of a quota resource to amount."""


def claim_usage(
    claim: DeviceClaim, classes: Mapping[str, DeviceClass], *, counts_extended: bool = True
) -> Usage:
    """Return the usage of a claim; for alternatives the largest number of each class.

    Args:
        classes: The DeviceClasses by name; a class may map an extended resource, which counts as
            well.
        counts_extended: True if claims count as extended resources, as from Kubernetes 1.35 on.
    """
    devices: Counter[str] = Counter()
    for request in claim.requests or ():
        devices.update(_devices_by_class(request))
    usage = {CLAIM_COUNT: Quantity(1)}
    for name, number in sorted(devices.items()):
        usage[f"{name}{DEVICES_OF_CLASS}"] = Quantity(number)
        if number and counts_extended:
            usage[f"{REQUESTS}{IMPLICIT_PREFIX}{name}"] = Quantity(number)
            device_class = classes.get(name)
            if device_class is not None and device_class.spec.extended_resource_name:
                resource = f"{REQUESTS}{device_class.spec.extended_resource_name}"
                usage[resource] = Quantity(number)
    return usage


def _devices_by_class(request: DeviceRequest) -> Mapping[str, int]:
    if request.first_available:
        largest: dict[str, int] = {}
        for alternative in request.first_available:
            name = alternative.device_class_name
            largest[name] = max(largest.get(name, 0), _number(alternative))
        return largest
    if request.exactly is None:
        return {}
    return {request.exactly.device_class_name: _number(request.exactly)}


def _number(request: ExactDeviceRequest | DeviceSubRequest) -> int:
    """Return the largest number of devices; an unknown mode counts nothing."""
    if request.allocation_mode == "All":
        return MAX_RESULTS
    # The API server fills in ExactCount and 1; files have not been there.
    return (request.count or 1) if request.allocation_mode in {"", "ExactCount"} else 0


def pod_usage(pod: Pod) -> Usage:
    """Return the extended resources that a pod counts, from device plugins and from classes."""
    usage = sum_containers(pod, _extended_usage)
    return {f"{REQUESTS}{name}": amount for name, amount in sorted(usage.items())}


def _extended_usage(container: Container) -> Usage:
    # The API server fills requests in from limits; files have not been there.
    amounts = {**container.limits, **container.requests}
    return {name: amount for name, amount in amounts.items() if _is_extended(name)}


def is_of_devices(resource: str) -> bool:
    """Return True if a resource of a quota counts devices, or the claims for them.

    >>> [*map(is_of_devices, ("requests.nvidia.com/gpu", "requests.cpu", CLAIM_COUNT))]
    [True, False, True]
    """
    return (
        resource == CLAIM_COUNT
        or resource.endswith(DEVICES_OF_CLASS)
        or (resource.startswith(REQUESTS) and _is_extended(resource.removeprefix(REQUESTS)))
    )


def _is_extended(name: str) -> bool:
    return name.startswith(IMPLICIT_PREFIX) or ("/" in name and "kubernetes.io/" not in name)


def subtract_usage(usage: Usage, counted_usage: Usage) -> Usage:
    """Return the remaining usage if some of it is counted already; nothing below zero."""
    return {
        name: max(amount - counted_usage.get(name, ZERO), ZERO) for name, amount in usage.items()
    }


# --- the amounts of pods with their claims ---------------------------------------------------------


class Counting(msgspec.Struct, frozen=True):
    """The counting of claims by the quotas of a cluster.

    Attributes:
        classes: Name to DeviceClass.
        mapped: Resource name to the DeviceClass that maps it.
        counts_extended: Claims count on the lines of resource names, as from Kubernetes 1.35 on.
    """

    classes: Mapping[str, DeviceClass]
    mapped: Mapping[str, str]
    counts_extended: bool = True

    def usage(self, claim: ResourceClaim) -> Usage:
        """Return the usage of a claim; a pod with extended resources has paid for its own already."""
        usage = self.of_devices(claim.spec.devices)
        if (claim.metadata.annotations or {}).get(ANNOTATION) != "true":
            return usage
        return {line: amount for line, amount in usage.items() if not line.startswith(REQUESTS)}

    def of_devices(self, devices: DeviceClaim) -> Usage:
        """Return the usage of the devices of a claim."""
        return claim_usage(devices, self.classes, counts_extended=self.counts_extended)


def counting_of(
    classes: Mapping[str, DeviceClass], mappings: Mapping[str, str], *, counts_extended: bool
) -> Counting:
    """Return the counting of a cluster with other mappings of its classes.

    Args:
        classes: Name to DeviceClass.
        mappings: DeviceClass to the resource name that it maps in place of its own; empty for none.
        counts_extended: Claims count on the lines of resource names.
    """
    changed = dict(classes)
    for name, resource in mappings.items():
        own = changed.get(name) or DeviceClass()
        changed[name] = msgspec.structs.replace(
            own,
            metadata=msgspec.structs.replace(own.metadata, name=name),
            spec=msgspec.structs.replace(own.spec, extended_resource_name=resource or None),
        )
    return Counting(changed, extended_resources(changed.values()), counts_extended)


class PodCharge(NamedTuple):
    """The amounts that quotas count of a pod.

    Attributes:
        own: Those of its extended resources.
        scopes: The scopes that match it.
        claims: Those of its claims, which quotas with scopes do not count.
    """

    own: Usage
    scopes: PodScopes
    claims: Usage

    def on(self, quota: Quota, line: str) -> Quantity:
        """Return the amount that counts on a line of a quota."""
        amount = self.own.get(line, ZERO) if quota.counts(self.scopes) else ZERO
        return amount if quota.scopes else amount + self.claims.get(line, ZERO)


def charge_of_keys(pod: Pod) -> PodCharge:
    """Return the amounts of a pod without its claims."""
    return PodCharge(pod_usage(pod), scopes_of(pod), {})


class Account(NamedTuple):
    """A ResourceQuota with its lines for devices."""

    reference: str
    quota: Quota
    hard: Mapping[str, Quantity]


def sum_on(charges: Iterable[PodCharge], account: Account, line: str) -> Quantity:
    """Return the amount of pods together that counts on a line of a quota."""
    return sum((charge.on(account.quota, line) for charge in charges), ZERO)


def class_devices(claims: Iterable[ResourceClaim]) -> Counter[str]:
    """Return DeviceClass to the devices that claims request of it."""
    counts: Counter[str] = Counter()
    for claim in claims:
        for line, amount in claim_usage(claim.spec.devices, {}, counts_extended=False).items():
            if line.endswith(DEVICES_OF_CLASS):
                counts[line.removesuffix(DEVICES_OF_CLASS)] += int(amount)
    return +counts


def added_usage(usages: Iterable[Usage]) -> dict[str, Quantity]:
    """Return the sums of several usages."""
    sums: dict[str, Quantity] = {}
    for usage in usages:
        for line, amount in usage.items():
            sums[line] = sums.get(line, ZERO) + amount
    return sums
