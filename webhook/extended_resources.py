"""Which DeviceClass serves which extended resource, so that Kubernetes allocates it natively.

Source: KEP-5004. Of two classes with one name the one created later wins; made at the same time, the
lexicographically smaller. Every class also has an implicit name.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kube.api.resource import DeviceClass

IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
_NOT_MADE_YET: Final = "~"
"""Above every timestamp: a class of a manifest is made when it is applied."""


def extended_resources(classes: Iterable[DeviceClass]) -> Mapping[str, str]:
    """Return resource name to the name of its class; the order of the classes does not matter."""
    by_name = sorted(classes, key=lambda one: one.metadata.name, reverse=True)
    mapping: dict[str, str] = {}
    for one in sorted(by_name, key=lambda one: one.metadata.creation_timestamp or _NOT_MADE_YET):
        name = one.metadata.name
        mapping[f"{IMPLICIT_PREFIX}{name}"] = name
        if one.spec.extended_resource_name:
            mapping[one.spec.extended_resource_name] = name
    return mapping
