"""Extended resources: their names, the pods that request some, and the DeviceClass that serves one.

Source: KEP-5004. If several classes have the same extended resource name, the newest wins; among
classes of the same age, the one whose name sorts first. Every class also has an implicit name.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kube.api.core import PodSpec
from kube.api.resource import DeviceClass

IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
_NATIVE_DOMAIN: Final = "kubernetes.io/"
_NOT_CREATED: Final = "~"
"""Sorts after every timestamp: a class in a manifest is newer than all stored ones."""


def is_extended_resource(key: str) -> bool:
    """Return True if a key may be served by a device plugin or a DeviceClass.

    Source: k8s.io/kubernetes v1.37.1, pkg/apis/core/v1/helper, IsExtendedResourceName and
    IsDRAExtendedResourceName.

    >>> [*map(is_extended_resource, ("nvidia.com/gpu", "cpu", "deviceclass.resource.kubernetes.io/gpu"))]
    [True, False, True]
    """
    if key.startswith(IMPLICIT_PREFIX):
        return True
    return "/" in key and _NATIVE_DOMAIN not in key and not key.startswith("requests.")


def requests_extended_resources(spec: PodSpec) -> bool:
    """Return True if a container of a pod has an extended resource, of any amount or none."""
    return any(
        is_extended_resource(key)
        for container in (*(spec.init_containers or ()), *(spec.containers or ()))
        for key in (*container.limits, *container.requests)
    )


def implicit_class(resource: str) -> str:
    """Return the DeviceClass in the implicit name of one; empty for another resource.

    >>> implicit_class("deviceclass.resource.kubernetes.io/gpu.nvidia.com"), implicit_class("nvidia.com/gpu")
    ('gpu.nvidia.com', '')
    """
    return resource.removeprefix(IMPLICIT_PREFIX) if resource.startswith(IMPLICIT_PREFIX) else ""


def extended_resources(classes: Iterable[DeviceClass]) -> Mapping[str, str]:
    """Return the class name of each extended resource; independent of the order of the classes."""
    by_name = sorted(classes, key=lambda device_class: device_class.metadata.name, reverse=True)
    mapping: dict[str, str] = {}
    for device_class in sorted(by_name, key=_creation_time):
        name = device_class.metadata.name
        mapping[f"{IMPLICIT_PREFIX}{name}"] = name
        if device_class.spec.extended_resource_name:
            mapping[device_class.spec.extended_resource_name] = name
    return mapping


def _creation_time(device_class: DeviceClass) -> str:
    return device_class.metadata.creation_timestamp or _NOT_CREATED


def allows_overcommit(resource: str) -> bool:
    """Return True if a container may request less of a resource than its limit, or set no limit.

    Source: k8s.io/kubernetes v1.37.1, pkg/apis/core/helper, IsOvercommitAllowed.

    >>> [*map(allows_overcommit, ("cpu", "hugepages-2Mi", "nvidia.com/gpu", f"{IMPLICIT_PREFIX}gpu"))]
    [True, False, False, True]
    """
    is_native = "/" not in resource or "kubernetes.io/" in resource
    return is_native and not resource.startswith("hugepages-")
