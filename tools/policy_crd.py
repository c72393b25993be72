"""The CustomResourceDefinition of DeviceCompatibilityPolicy, made of the types that read it.

Types, field names and defaults come from kube/api/policy.py; what a type cannot say - limits,
formats, rules in CEL, words for `kubectl explain` - stands here, field by field. A field that has no
entry here, or an entry without a field, is an error, so neither can drift from the other.

What needs the published devices is not said here but in the status, by our controller.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from allocator.compatibility.conflicts_in_use import MAX_SUSPECTS
from controllers.policies.conditions import MAX_MESSAGE
from controllers.policies.status import (
    MAX_EXAMPLES,
    MAX_NAME,
    MAX_ROWS,
)
from kube.api.policy import (
    KIND,
    MAX_RULES,
    VERSION,
    CompatibilityRule,
    CompatibleOnlyWith,
    Conflict,
    Conflicts,
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicySpec,
    DeviceCompatibilityPolicyStatus,
    MatrixRow,
)
from kube.api.resource import MAX_SELECTOR_BYTES, CelSelector, DeviceSelector
from kube.api.urls import DEVICE_COMPATIBILITY_POLICIES
from rules.objects.compatibility_policy import MAX_GROUPS
from tools.custom_resources import (
    CONDITION_FIELDS,
    CONDITION_REQUIRED,
    SUBDOMAIN,
    Document,
    Entry,
    KindWords,
    column,
    name_schema,
)

SHORT_NAME: Final = "dcp"
MAX_SELECTORS: Final = 32
"""As many as a DeviceClass takes."""
MAX_PHYSICAL_ATTRIBUTES: Final = 8

_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_ATTRIBUTE: Final = rf"^({SUBDOMAIN[1:-1]}/)?[a-zA-Z_][a-zA-Z0-9_]*$"
"""A C identifier, alone or below a domain (resource.k8s.io/v1, QualifiedName)."""

_FIELDS: Final[Mapping[type, Mapping[str, Entry]]] = {
    **CONDITION_FIELDS,
    DeviceCompatibilityPolicySpec: {
        "driver": {
            "description": "Whose devices the rules are about: spec.driver of ResourceSlices. If "
            "several policies name one driver, the oldest counts.",
            **name_schema(SUBDOMAIN, 63),
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
                **name_schema(_ATTRIBUTE, 96),
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
            **name_schema(_LABEL, 63),
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
            "items": name_schema(_LABEL, 63),
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
    **CONDITION_REQUIRED,
}
"""Type to fields that the API wants and a view does without."""


def definition() -> Document:
    """Return the definition as it is applied."""
    return WORDS.definition()


def _columns() -> Iterator[Document]:
    yield column("Driver", ".spec.driver")
    yield column("Enforcement", ".spec.enforcement")
    for condition in ("Valid", "Symmetric", "Accepted", "Enforced"):
        yield column(condition, f'.status.conditions[?(@.type=="{condition}")].status')
    yield column("Rules", ".status.rules", "integer")
    yield column("Summary", ".status.summary", priority=1)
    yield column("Conflicts", ".status.conflicts.count", "integer", priority=1)
    yield column("Age", ".metadata.creationTimestamp", "date")


WORDS: Final = KindWords(
    kind=KIND,
    short_name=SHORT_NAME,
    version=VERSION,
    resource=DEVICE_COMPATIBILITY_POLICIES,
    view=DeviceCompatibilityPolicy,
    description="Which devices of a driver may be in use together. Only Drawbridge reads it.",
    parts={
        "spec": "Rules for the devices of one driver.",
        "status": "What our controller found on the devices that are published.",
    },
    columns=tuple(_columns()),
    fields=_FIELDS,
    rules=_RULES,
    required=_REQUIRED,
    defaulted=_DEFAULTED,
)
