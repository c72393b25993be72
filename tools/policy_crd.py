"""The CustomResourceDefinition of DeviceCompatibilityPolicy, made of the types that read it.

Types, field names and defaults come from kube/api/policy.py; what a type cannot say - limits,
formats, rules in CEL, words for `kubectl explain` - stands here, field by field. A field that has no
entry here, or an entry without a field, is an error, so neither can drift from the other.

What needs the published devices is not said here but in the status, by our controller.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import inspect

from allocator.compatibility.conflicts_in_use import MAX_SUSPECTS
from controllers.policies.conditions import MAX_MESSAGE
from controllers.policies.status import (
    MAX_EXAMPLES,
    MAX_NAME,
    MAX_ROWS,
)
from kube.api.meta import ObjectMeta
from kube.api.policy import (
    KIND,
    MAX_RULES,
    VERSION,
    CompatibilityRule,
    CompatibleOnlyWith,
    Condition,
    Conflict,
    Conflicts,
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicySpec,
    DeviceCompatibilityPolicyStatus,
    MatrixRow,
)
from kube.api.resource import MAX_SELECTOR_BYTES, CelSelector, DeviceSelector
from kube.api.urls import DEVICE_COMPATIBILITY_POLICIES
from kube.names import GROUP, NAME
from rules.objects.compatibility_policy import MAX_GROUPS

Document = dict[str, Any]

SHORT_NAME: Final = "dcp"
MAX_SELECTORS: Final = 32
"""As many as a DeviceClass takes."""
MAX_PHYSICAL_ATTRIBUTES: Final = 8

_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_ATTRIBUTE: Final = rf"^({_SUBDOMAIN[1:-1]}/)?[a-zA-Z_][a-zA-Z0-9_]*$"
"""A C identifier, alone or below a domain (resource.k8s.io/v1, QualifiedName)."""

Entry = Mapping[str, Any]
"""More of a field's schema; `items` holds more of its items' schema."""


def _named(pattern: str, most: int) -> Document:
    return {"minLength": 1, "maxLength": most, "pattern": pattern}


_FIELDS: Final[Mapping[type, Mapping[str, Entry]]] = {
    DeviceCompatibilityPolicySpec: {
        "driver": {
            "description": "Whose devices the rules are about: spec.driver of ResourceSlices. If "
            "several policies name one driver, the oldest counts.",
            **_named(_SUBDOMAIN, 63),
        },
        "enforcement": {
            "description": "Enforce: allocations that violate a rule are rejected. Audit: nothing is "
            "rejected, and the status shows what would be.",
        },
        "undeclared": {
            "description": "How devices without compatibility groups are treated beside devices "
            "with groups. Isolated: incompatible, as in Kubernetes. Compatible: compatible with "
            "all of them.",
        },
        "scope": {
            "description": "Which devices the rules compare. Physical: those that "
            "share a counter set, or, without counters, the value of a physical attribute. Pool: "
            "all devices of a pool.",
        },
        "physicalAttributes": {
            "description": "Attributes that identify the hardware of devices without counters; "
            "the first that a device has counts. A name without a domain is in the driver's. Without "
            "this field they are parentUUID, uuid and physicalDevice.",
            "minItems": 1,
            "maxItems": MAX_PHYSICAL_ATTRIBUTES,
            "x-kubernetes-list-type": "set",
            "items": {
                **_named(_ATTRIBUTE, 96),
                "x-kubernetes-validations": [
                    {
                        "rule": "self.split('/')[self.split('/').size() - 1].size() <= 32",
                        "message": "an attribute's name has at most 32 characters after its domain",
                    },
                    {
                        "rule": "!self.contains('/') || self.split('/')[0].size() <= 63",
                        "message": "a domain has at most 63 characters",
                    },
                ],
            },
        },
        "rules": {
            "description": "A device has to meet all rules whose selectors match it.",
            "minItems": 1,
            "maxItems": MAX_RULES,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    },
    CompatibilityRule: {
        "name": {
            "description": "Unique in the policy; devices of one kind are named after the rules "
            "that match them.",
            **_named(_LABEL, 63),
        },
        "selectors": {
            "description": "The devices that the rule is about: those for which all are true, or "
            "all devices of the driver if there is none.",
            "maxItems": MAX_SELECTORS,
            "x-kubernetes-list-type": "atomic",
        },
        "compatibilityGroups": {
            "description": "All devices that share hardware need one group in common.",
            "minItems": 1,
            "maxItems": MAX_GROUPS,
            "x-kubernetes-list-type": "set",
            "items": _named(_LABEL, 63),
        },
        "compatibleOnlyWith": {
            "description": "A condition on every other device in use on the same hardware.",
        },
    },
    DeviceSelector: {"cel": {"description": "A selector in CEL."}},
    CompatibleOnlyWith: {"cel": {"description": "In CEL; device is the other device."}},
    CelSelector: {
        "expression": {
            "description": "A selector as in resource.k8s.io. Write "
            "device.attributes['d'].?mode.orValue('') for an attribute that a device may not have: "
            "if an expression fails, the devices are incompatible.",
            "minLength": 1,
            "maxLength": MAX_SELECTOR_BYTES,
        },
    },
    DeviceCompatibilityPolicyStatus: {
        "observedGeneration": {
            "description": "Of the spec that this is about.",
            "format": "int64",
            "minimum": 0,
        },
        "conditions": {
            "description": "Valid: all rules can be evaluated. Symmetric: no two published devices "
            "disagree on whether they are compatible. Accepted: this policy is in force for its driver. Enforced: "
            "allocations that violate it are prevented; the message says by whom, or what would do.",
            "maxItems": 8,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "rules": {"description": "How many there are.", "format": "int32", "minimum": 0},
        "summary": {"description": "The matrix in a few words.", "maxLength": 256},
        "matrix": {
            "description": "Kinds of published devices in the order of the rules, and which are "
            "compatible.",
            "maxItems": MAX_ROWS,
            "x-kubernetes-list-type": "atomic",
        },
        "conflicts": {
            "description": "Devices in use together that violate the policy. They stay.",
        },
    },
    Condition: {
        "type": {"description": "The condition.", "maxLength": 316},
        "status": {"description": "Whether it holds.", "enum": ["True", "False", "Unknown"]},
        "reason": {
            "description": "Why, in one word: the code of a finding, or what the controller did.",
            "minLength": 1,
            "maxLength": 1024,
        },
        "message": {"description": "Why, for people.", "maxLength": 32768},
        "lastTransitionTime": {"description": "Since when.", "format": "date-time"},
        "observedGeneration": {
            "description": "Of the spec that this is about.",
            "format": "int64",
            "minimum": 0,
        },
    },
    MatrixRow: {
        "name": {"description": "The rules that match these devices.", "maxLength": MAX_NAME},
        "devices": {"description": "How many are published.", "format": "int64", "minimum": 0},
        "compatibleWith": {
            "description": "Kinds that may be in use on the same hardware, perhaps itself.",
            "maxItems": MAX_ROWS,
            "x-kubernetes-list-type": "atomic",
            "items": {"maxLength": MAX_NAME},
        },
    },
    Conflicts: {
        "count": {
            "description": "How many pairs, or larger sets.",
            "format": "int64",
            "minimum": 0,
        },
        "claims": {
            "description": "How many claims hold them. Events about these claims and their pods tell more.",
            "format": "int64",
            "minimum": 0,
        },
        "namespaces": {
            "description": "How many namespaces these claims are in.",
            "format": "int64",
            "minimum": 0,
        },
        "examples": {
            "description": "Some of them.",
            "maxItems": MAX_EXAMPLES,
            "x-kubernetes-list-type": "atomic",
        },
    },
    Conflict: {
        "pool": {"description": "Of the devices.", "maxLength": 253},
        "devices": {
            "description": "By name.",
            "maxItems": MAX_SUSPECTS,
            "x-kubernetes-list-type": "atomic",
            "items": {"maxLength": 63},
        },
        "reason": {
            "description": "The reason why the last of them would be rejected.",
            "maxLength": MAX_MESSAGE,
        },
    },
}
"""Type to field to what its type does not say."""

_RULES: Final[Mapping[type, Sequence[Document]]] = {
    CompatibilityRule: [
        {
            "rule": "has(self.compatibilityGroups) || has(self.compatibleOnlyWith)",
            "message": "at least one of compatibilityGroups and compatibleOnlyWith is needed: "
            "without either the rule forbids nothing",
        }
    ],
}
"""Type to what holds between its fields."""

_DEFAULTED: Final = frozenset({"enforcement", "undeclared", "scope"})
"""Fields whose default the API server writes into the object, so that everybody sees it."""
_REQUIRED: Final[Mapping[type, frozenset[str]]] = {
    # Views are lenient where the API is not: what was stored before a limit must still be read.
    DeviceCompatibilityPolicySpec: frozenset({"rules"}),
    DeviceSelector: frozenset({"cel"}),
    CompatibleOnlyWith: frozenset({"cel"}),
    Condition: frozenset({"reason", "message", "lastTransitionTime"}),
}
"""Type to fields that the API wants and a view does without."""


def definition() -> Document:
    """Return the definition as it is applied."""
    names = DEVICE_COMPATIBILITY_POLICIES
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{names.plural}.{GROUP}",
            "labels": {"app.kubernetes.io/name": NAME},
        },
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": names.plural,
                "singular": KIND.lower(),
                "shortNames": [SHORT_NAME],
                "categories": [NAME],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(_columns()),
                    "schema": {"openAPIV3Schema": _root()},
                }
            ],
        },
    }


def _columns() -> Iterator[Document]:
    def column(name: str, path: str, kind: str = "string", **more: Any) -> Document:
        return {"name": name, "type": kind, "jsonPath": path, **more}

    yield column("Driver", ".spec.driver")
    yield column("Enforcement", ".spec.enforcement")
    for condition in ("Valid", "Symmetric", "Accepted", "Enforced"):
        yield column(condition, f'.status.conditions[?(@.type=="{condition}")].status')
    yield column("Rules", ".status.rules", "integer")
    yield column("Summary", ".status.summary", priority=1)
    yield column("Conflicts", ".status.conflicts.count", "integer", priority=1)
    yield column("Age", ".metadata.creationTimestamp", "date")


def _root() -> Document:
    return {
        "description": "Which devices of a driver may be in use together. Only Drawbridge reads it.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **{
                field.encode_name: {
                    "description": {
                        "spec": "Rules for the devices of one driver.",
                        "status": "What our controller found on the devices that are published.",
                    }[field.encode_name],
                    **_schema(inspect.type_info(field.type)),
                }
                for field in msgspec.structs.fields(DeviceCompatibilityPolicy)
                if field.type is not ObjectMeta
            },
        },
    }


def _schema(kind: inspect.Type) -> Document:
    """Return the structural schema of a type."""
    match kind:
        case inspect.UnionType(types=types):
            (only,) = [type_ for type_ in types if not isinstance(type_, inspect.NoneType)]
            return _schema(only)
        case inspect.VarTupleType(item_type=item):
            return {"type": "array", "items": _schema(item)}
        case inspect.EnumType(cls=cls):
            return {"type": "string", "enum": [str(member.value) for member in cls]}
        case inspect.StructType(cls=cls):
            return _object(cls)
        case inspect.StrType():
            return {"type": "string"}
        case inspect.IntType():
            return {"type": "integer"}
        case _:
            raise TypeError(f"no schema for {kind}")


def _object(cls: type[msgspec.Struct]) -> Document:
    """Return the schema of a Struct.

    Raises:
        ValueError: Its fields are not those that this module has words for.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(cls)}
    entries = _FIELDS.get(cls, {})
    if fields.keys() != entries.keys():
        raise ValueError(
            f"{cls.__name__}: {sorted(fields.keys() ^ entries.keys())} only on one side"
        )
    required_names = [
        name
        for name, field in fields.items()
        if field.required or name in _REQUIRED.get(cls, frozenset())
    ]
    rules = _RULES.get(cls, ())
    return {
        "type": "object",
        **({"required": required_names} if required_names else {}),
        **({"x-kubernetes-validations": list(rules)} if rules else {}),
        "properties": {
            name: _with(_schema(inspect.type_info(field.type)), entries[name], _default(field))
            for name, field in fields.items()
        },
    }


def _default(field: msgspec.structs.FieldInfo) -> Document:
    value = field.default
    if field.encode_name in _DEFAULTED and isinstance(value, StrEnum):
        return {"default": value.value}
    return {}


def _with(schema: Document, entry: Entry, default: Document) -> Document:
    """Return a field's schema with what its entry adds, the words first."""
    first = {"description": entry["description"]}
    items = {"items": {**schema["items"], **entry.get("items", {})}} if "items" in schema else {}
    return {**first, **schema, **default, **entry, **items}
