"""Typed views of what files hold, or the findings that say why there is none.

Files have not been through an API server, so their values may have any type. A view is made as the
API server decodes: null means absent, and everything else must have its type.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from kube.api import policy
from kube.api.core import Namespace, Node, Pod, ResourceQuota
from kube.api.meta import ApiStruct, view
from kube.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from kube.errors import QuantityError
from kube.quantity import Quantity
from webhook.findings import Code, Finding, error

T = TypeVar("T", bound=ApiStruct)

Kinds = Mapping[tuple[str, str], type[ApiStruct]]
"""(apiVersion, kind) to view."""

KINDS: Final[Kinds] = {
    (policy.API_VERSION, "DeviceCompatibilityPolicy"): policy.DeviceCompatibilityPolicy,
    ("resource.k8s.io/v1", "DeviceClass"): DeviceClass,
    ("resource.k8s.io/v1", "DeviceTaintRule"): DeviceTaintRule,
    ("resource.k8s.io/v1", "ResourceClaim"): ResourceClaim,
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): ResourceClaimTemplate,
    ("resource.k8s.io/v1", "ResourceSlice"): ResourceSlice,
    ("v1", "Namespace"): Namespace,
    ("v1", "Node"): Node,
    ("v1", "ResourceQuota"): ResourceQuota,
}
"""What is read besides pods: the state of a cluster that our answers depend on."""

STATE_KINDS: Final[Kinds] = {**KINDS, ("v1", "Pod"): Pod}
"""What is read where pods are part of the state."""

CLUSTER_SCOPED: Final = frozenset(
    {
        "DeviceClass",
        "DeviceCompatibilityPolicy",
        "DeviceTaintRule",
        "Namespace",
        "Node",
        "ResourceSlice",
    }
)
"""Kinds without a namespace, of those that findings can be about."""

_PLACED = re.compile(r"(?P<message>.*) - at `(?P<path>\$.*)`", re.DOTALL)
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<index>\d+)\]|\[(?P<any>\.\.\.)\]")
_EXPECTED = re.compile(r"Expected `(?P<kinds>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_GOT = re.compile(r"got `(?P<kind>\w+)`")
_WORDS: Final[Mapping[str, str]] = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "object": "an object",
    "str": "a string",
}
"""What people call the types of JSON; null is left out, since it means absent."""
_AMOUNTS: Final = ("limits", "requests")


def viewed(document: Mapping[str, Any], kind: type[T]) -> T | Finding:
    """Return the view `kind` of a document, or what is wrong with its first wrong value."""
    try:
        return view(_without_nulls(document), kind)
    except msgspec.ValidationError as fault:
        return _finding(str(fault), document)


def viewed_pod(document: object) -> Pod | list[Finding]:
    """Return the view of a pod or template, or what is wrong: every amount, else the first value.

    Paths are relative to the pod; the path of something that is no object at all is empty.
    """
    if not isinstance(document, Mapping):
        return [_wrong("", document, "Expected `object`")]
    faults = list(_amount_faults(document))
    if faults:
        return faults
    pod = viewed(document, Pod)
    return [pod] if isinstance(pod, Finding) else pod


def _without_nulls(value: Any) -> Any:
    """Return the value as Go decodes it: a null field is an absent one."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


# --- amounts --------------------------------------------------------------------------------------


def _amount_faults(pod: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield every amount in limits and requests that is no quantity.

    msgspec stops at the first fault and does not tell the key of a map.
    """
    spec = pod.get("spec")
    for field in ("initContainers", "containers"):
        containers = spec.get(field) if isinstance(spec, Mapping) else None
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            resources = container.get("resources") if isinstance(container, Mapping) else None
            for section in _AMOUNTS:
                amounts = resources.get(section) if isinstance(resources, Mapping) else None
                for key, amount in (amounts if isinstance(amounts, Mapping) else {}).items():
                    if not _is_quantity(amount):
                        path = f"spec.{field}[{index}].resources.{section}[{key}]"
                        yield _bad_amount(path, amount)


def _bad_amount(path: str, amount: object) -> Finding:
    return error(
        Code.INVALID_QUANTITY,
        path,
        f"Invalid value: {_as_json(amount)}: not a quantity",
        "write a number, such as 1 or 500m or 8Gi",
    )


def _is_quantity(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    try:
        Quantity(value if isinstance(value, str) else repr(value))
    except QuantityError:
        return False
    return True


# --- places ---------------------------------------------------------------------------------------


def _finding(text: str, document: Mapping[str, Any]) -> Finding:
    """Return a finding for what msgspec says: `Expected X, got Y - at $.spec.containers[0]`."""
    found = _PLACED.fullmatch(text)
    message, place = (found["message"], found["path"]) if found else (text, "$")
    path, value = _resolved(place, message, document)
    if _GOT.search(message) is None and not isinstance(value, Mapping | list):
        return _bad_amount(path, value)
    return _wrong(path, value, message)


def _wrong(path: str, value: object, message: str) -> Finding:
    words, fix = _in_words(message), ""
    if words == "must be a string" and isinstance(value, bool):
        fix = "put it in quotes; without them n, no and off are false, and y, yes and on are true"
    elif words == "must be a string" and isinstance(value, int | float):
        fix = "put it in quotes"
    return error(Code.INVALID_OBJECT, path, f"Invalid value: {_as_json(value)}: {words}", fix)


def _in_words(message: str) -> str:
    """Return what msgspec says in the words of JSON.

    >>> _in_words("Expected `object | null`, got `array`")
    'must be an object'
    >>> _in_words("Object missing required field `pool`")
    'pool is missing'
    """
    if lacking := _MISSING.fullmatch(message):
        return f"{lacking['field']} is missing"
    found = _EXPECTED.match(message)
    if found is None:
        return message
    wanted = [_WORDS[kind] for kind in found["kinds"].split(" | ") if kind in _WORDS]
    return f"must be {' or '.join(wanted)}" if wanted else message


def _as_json(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


def _resolved(place: str, message: str, document: object) -> tuple[str, object]:
    """Return the path as the API server writes it, and the value there."""
    steps = list(_STEP.finditer(place.removeprefix("$")))
    got = _GOT.search(message)
    keys = _keys(document, [_key(step) for step in steps], got["kind"] if got else None)
    if keys is None:
        return place.removeprefix("$").removeprefix("."), None
    value, path = document, ""
    for step, key in zip(steps, keys, strict=True):
        value = value.get(key) if isinstance(value, Mapping) else _item(value, key)
        path += f".{key}" if step["field"] else f"[{key}]"
    return path.removeprefix("."), value


def _key(step: re.Match[str]) -> str | int | None:
    """Return field or index; None for a map key, which msgspec does not tell."""
    if step["any"]:
        return None
    return int(step["index"]) if step["index"] else step["field"]


def _item(value: object, key: str | int) -> object:
    return value[key] if isinstance(value, list) and isinstance(key, int) else None


def _keys(
    value: object, steps: Sequence[str | int | None], got: str | None
) -> list[str | int] | None:
    """Return the steps with every map key filled in, so that they lead to a wrong value."""
    if not steps:
        return [] if _is_culprit(value, got) else None
    step, rest = steps[0], steps[1:]
    if isinstance(value, Mapping):
        candidates = list(value) if step is None else [step]
        for key in candidates:
            found = _keys(value.get(key), rest, got)
            if found is not None:
                return [key, *found]
        return None
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        found = _keys(value[step], rest, got)
        return None if found is None else [step, *found]
    return None


_NAMES: Final[Mapping[type, str]] = {
    bool: "bool",
    dict: "object",
    float: "float",
    int: "int",
    list: "array",
    str: "str",
    type(None): "null",
}
"""What msgspec calls the types of JSON."""


def _is_culprit(value: object, got: str | None) -> bool:
    if got is not None:
        return _NAMES.get(type(value)) == got
    # Without "got" it is a quantity, or an object that lacks a field.
    return isinstance(value, Mapping) or not _is_quantity(value)
