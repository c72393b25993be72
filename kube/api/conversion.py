"""Objects of resource.k8s.io/v1beta1 and v1beta2, converted to v1.

v1beta2 has the shape of v1. v1beta1 has two shapes of its own: the fields below `exactly` are those
of the request itself, and the fields of a device are below `basic`.

Source: k8s.io/kubernetes v1.37.1, pkg/apis/resource/v1beta1/conversion.go and its generated code.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")

GROUP: Final = "resource.k8s.io"
CURRENT: Final = f"{GROUP}/v1"

_WITH_OWN_SHAPE: Final = f"{GROUP}/v1beta1"
_OLD_VERSIONS: Final = frozenset({_WITH_OWN_SHAPE, f"{GROUP}/v1beta2"})
_KINDS: Final = frozenset(
    {"DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"}
)

_DEVICES: Final[Mapping[str, tuple[str, ...]]] = {
    "ResourceClaim": ("spec", "devices"),
    "ResourceClaimTemplate": ("spec", "spec", "devices"),
}
"""Kind to the path of its requests' parent."""

EXACT_FIELDS: Final = frozenset(
    {
        "adminAccess",
        "allocationMode",
        "capacity",
        "count",
        "derivedAttributes",
        "deviceClassName",
        "selectors",
        "tolerations",
    }
)
"""Fields of a request in v1beta1 that are below `exactly` in v1."""

BASIC_FIELDS: Final = frozenset(
    {
        "allNodes",
        "allowMultipleAllocations",
        "attributes",
        "bindingConditions",
        "bindingFailureConditions",
        "bindsToNode",
        "capacity",
        "consumesCounters",
        "nodeAllocatableResources",
        "nodeName",
        "nodeSelector",
        "taints",
    }
)
"""Fields below `basic` in v1beta1 that are the device's own in v1."""

_ZERO: Final = (None, "", 0, False)
"""Values that Go does not tell from an absent field."""


def current_version(api_version: str, kind: str) -> str:
    """Return the version that an object is read as: v1 for the older ones of DRA's kinds.

    >>> current_version("resource.k8s.io/v1beta1", "ResourceClaim")
    'resource.k8s.io/v1'
    >>> current_version("v1", "Pod")
    'v1'
    """
    return CURRENT if kind in _KINDS and api_version in _OLD_VERSIONS else api_version


def to_current_version(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert an object to the version that it is read as; wrong values stay in their places.

    Args:
        document: An object that has apiVersion and kind. It is not changed.
    """
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if not (isinstance(api_version, str) and isinstance(kind, str)):
        return document
    version = current_version(api_version, kind)
    if version == api_version:
        return document
    converted_document = {**document, "apiVersion": version}
    if api_version == _WITH_OWN_SHAPE:
        if kind in _DEVICES:
            return _replace(converted_document, (*_DEVICES[kind], "requests"), _requests)
        if kind == "ResourceSlice":
            return _replace(converted_document, ("spec",), _slice_spec)
    return converted_document


def to_original_path(path: tuple[T, ...], api_version: str, kind: str) -> tuple[T | str, ...]:
    """Return the path of a converted object's value in the original one.

    >>> path = ("spec", "devices", "requests", 0, "exactly", "count")
    >>> to_original_path(path, "resource.k8s.io/v1beta1", "ResourceClaim")
    ('spec', 'devices', 'requests', 0, 'count')
    """
    if api_version != _WITH_OWN_SHAPE:
        return path
    if kind in _DEVICES:
        at = len(_DEVICES[kind]) + 2
        in_request = path[: at - 1] == (*_DEVICES[kind], "requests")
        return (
            (*path[:at], *path[at + 1 :]) if in_request and path[at:][:1] == ("exactly",) else path
        )
    in_device = kind == "ResourceSlice" and path[:2] == ("spec", "devices")
    is_basic = in_device and path[3:4] and path[3] in BASIC_FIELDS
    return (*path[:3], "basic", *path[3:]) if is_basic else path


def _replace(document: Mapping[str, Any], path: tuple[str, ...], convert: Any) -> Mapping[str, Any]:
    """Return a document with the value at a path converted, if there is one."""
    field, rest = path[0], path[1:]
    value = document.get(field)
    if rest:
        replaced_value = _replace(value, rest, convert) if isinstance(value, Mapping) else value
    else:
        replaced_value = convert(value)
    return document if replaced_value is value else {**document, field: replaced_value}


def _requests(requests: object) -> object:
    return [_request(request) for request in requests] if isinstance(requests, list) else requests


def _request(request: object) -> object:
    if not isinstance(request, Mapping):
        return request
    exact = {name: value for name, value in request.items() if name in EXACT_FIELDS}
    # `exactly` is no field of v1beta1, so the API server drops it.
    own = {
        name: value
        for name, value in request.items()
        if name not in EXACT_FIELDS and name != "exactly"
    }
    is_set = any(value not in _ZERO or isinstance(value, bool) for value in exact.values())
    return {**own, "exactly": exact} if is_set else own


def _slice_spec(spec: object) -> object:
    if not isinstance(spec, Mapping):
        return spec
    # v1beta1 has no pointers here: an empty name and false mean that the field is absent.
    own = {
        name: value
        for name, value in spec.items()
        if not (name in {"nodeName", "allNodes"} and value in _ZERO)
    }
    devices = own.get("devices")
    if isinstance(devices, list):
        own["devices"] = [_device(device) for device in devices]
    return own


def _device(device: object) -> object:
    basic = device.get("basic") if isinstance(device, Mapping) else None
    if not isinstance(device, Mapping) or not isinstance(basic, Mapping | None):
        return device
    # Fields of v1 beside `basic` are none of v1beta1, so the API server drops them.
    own = {
        name: value
        for name, value in device.items()
        if name != "basic" and name not in BASIC_FIELDS
    }
    return {**own, **(basic or {})}
