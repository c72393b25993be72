"""The usage that a claim or a pod counts against a ResourceQuota.

Source: k8s.io/kubernetes v1.37.1, pkg/quota/v1/evaluator/core: claimEvaluator.Usage, with the
extended resources of DRAExtendedResource, and PodUsageFunc for the extended resources of pods; that of
v1.34.4, where claims count no extended resources.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from allocator.nodes.pod_requests import sum_containers
from kube.api.core import Container, Pod
from kube.api.extended_resources import IMPLICIT_PREFIX
from kube.api.resource import (
    MAX_RESULTS,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from kube.quantity import ZERO, Quantity

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
