"""The DeviceCompatibilityPolicy API: rules for devices of a driver in use together.

The resource API has compatibility groups on counters (KEP-5963). A policy adds rules for devices
without counters, rules written as expressions, and rules for drivers that declare no groups.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.resource import MAX_SELECTOR_BYTES, CelSelector, DeviceSelector
from kube.api.schema import (
    CONDITIONS,
    COUNT,
    DATE_TIME,
    SUBDOMAIN,
    Schema,
    Validation,
    entries,
    entries_by_key,
    name,
    text,
)
from kube.names import GROUP

VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "DeviceCompatibilityPolicy"
PHYSICAL_ATTRIBUTES: Final = ("parentUUID", "uuid", "physicalDevice")
"""Attributes that identify the hardware under a device without counters; the first present counts."""
MAX_RULES: Final = 64
"""Rules of a policy, as its CustomResourceDefinition says."""
MAX_GROUPS: Final = 2
"""Compatibility groups of a rule, as KEP-5963 allows a device on one counter set."""
MAX_SELECTORS: Final = 32
"""The maximum number of selectors, as in a DeviceClass."""
MAX_PHYSICAL_ATTRIBUTES: Final = 8
MAX_ROWS: Final = 32
"""Rows of the matrix in a status."""
MAX_ROW_NAME: Final = 128
MAX_EXAMPLES: Final = 10
"""Conflicts in a status."""
MAX_CONFLICT_DEVICES: Final = 64
MAX_MESSAGE: Final = 1024
"""Characters of a reason, or of a condition's message: the API takes 32768, and people read less."""


class Enforcement(StrEnum):
    """The mode of a policy: reject allocations, or only report those it would reject."""

    ENFORCE = "Enforce"
    AUDIT = "Audit"


class Undeclared(StrEnum):
    """The treatment of devices without groups beside devices that have groups.

    ISOLATED devices are incompatible with them, as in KEP-5963; COMPATIBLE devices are compatible
    with every device, as in the earlier proposal.
    """

    ISOLATED = "Isolated"
    COMPATIBLE = "Compatible"


class Scope(StrEnum):
    """The devices that a rule compares: those on the same hardware, or all of a pool."""

    PHYSICAL = "Physical"
    POOL = "Pool"


class CompatibleOnlyWith(ApiStruct, frozen=True, kw_only=True):
    """A condition on every other device in use.

    Attributes:
        cel: The condition in CEL; `device` is the other device.
    """

    cel: CelSelector | None = None


class CompatibilityRule(ApiStruct, frozen=True, kw_only=True):
    """A rule for the devices that match all selectors; without selectors, for all devices.

    Attributes:
        name: Unique in the policy; devices of one kind are named after the rules that match them.
        selectors: The devices that the rule is about: those for which all are true, or all devices of
            the driver if there is none.
        compatibility_groups: All devices that share hardware need one group in common.
        compatible_only_with: A condition on every other device in use on the same hardware.
    """

    name: str
    selectors: tuple[DeviceSelector, ...] | None = None
    compatibility_groups: tuple[str, ...] | None = None
    compatible_only_with: CompatibleOnlyWith | None = None


class DeviceCompatibilityPolicySpec(ApiStruct, frozen=True, kw_only=True):
    """Rules for the devices of one driver.

    Attributes:
        driver: The driver whose devices the rules are about: spec.driver of ResourceSlices. If
            several policies name one driver, the oldest counts.
        enforcement: The mode of the policy. Enforce: allocations that violate a rule are rejected.
            Audit: nothing is rejected, and the status shows the allocations that would be.
        undeclared: The treatment of devices without compatibility groups beside devices with
            groups. Isolated: incompatible, as in Kubernetes. Compatible: compatible with all of
            them.
        scope: The scope of devices that the rules compare. Physical: those that share a counter
            set, or, without counters, the value of a physical attribute. Pool: all devices of a
            pool.
        physical_attributes: Attributes that identify the hardware of devices without counters; the
            first that a device has counts. A name without a domain is in the driver's. Without this
            field they are parentUUID, uuid and physicalDevice.
        rules: A device has to meet all rules whose selectors match it.
    """

    driver: str
    enforcement: Enforcement = Enforcement.ENFORCE
    undeclared: Undeclared = Undeclared.ISOLATED
    scope: Scope = Scope.PHYSICAL
    physical_attributes: tuple[str, ...] | None = None
    rules: tuple[CompatibilityRule, ...] | None = None


class Condition(ApiStruct, frozen=True, kw_only=True):
    """A condition of an object.

    Source: meta/v1 Condition.

    Attributes:
        type: The type of the condition.
        status: The status of the condition: True, False or Unknown.
        reason: The reason for the status in one word: the code of a finding, or the controller's
            action.
        message: The reason for the status, for people.
        last_transition_time: The last time the status changed.
        observed_generation: The generation of the spec that this is about.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class MatrixRow(ApiStruct, frozen=True, kw_only=True):
    """A kind of device, and the kinds that may be in use with it on the same hardware.

    Attributes:
        name: The rules that match these devices.
        devices: The number of published devices.
        compatible_with: Kinds that may be in use on the same hardware, perhaps itself.
    """

    name: str
    devices: int = 0
    compatible_with: tuple[str, ...] | None = None


class Conflict(ApiStruct, frozen=True, kw_only=True):
    """Devices in use together although a policy declares them incompatible.

    Attributes:
        pool: The devices' pool.
        devices: Two names, or more if only all of them together violate the policy.
        reason: The reason for which the last device would be rejected.
    """

    pool: str
    devices: tuple[str, ...]
    reason: str = ""


class Conflicts(ApiStruct, frozen=True, kw_only=True):
    """Devices in use that violate a policy; with Enforce no further device may join them.

    Attributes:
        count: The number of pairs, or larger sets.
        claims: The number of claims that hold them. Events about these claims and their pods tell
            more.
        namespaces: The number of these claims' namespaces.
        examples: Some of them, sorted by pool and device.
    """

    # Claims are not named: a policy is cluster-scoped, and its readers may not be allowed to see every
    # namespace.

    count: int
    claims: int = 0
    namespaces: int = 0
    examples: tuple[Conflict, ...] | None = None


class DeviceCompatibilityPolicyStatus(ApiStruct, frozen=True, kw_only=True):
    """The effect of a policy on the devices that are published.

    Attributes:
        observed_generation: The generation of the spec that this is about.
        conditions: Valid: all rules can be evaluated. Symmetric: no two published devices disagree on
            whether they are compatible. Accepted: this policy is in force for its driver. Enforced:
            allocations that violate it are prevented; the message says by whom, or what would do.
        rules: The number of rules.
        summary: The matrix in a few words, such as `4 kinds, 5 of 16 pairs compatible`.
        matrix: Kinds of published devices in the order of the rules, and which are compatible.
        conflicts: Devices in use together that violate the policy. They stay.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] | None = None
    rules: int = 0
    summary: str = ""
    matrix: tuple[MatrixRow, ...] | None = None
    conflicts: Conflicts | None = None


class DeviceCompatibilityPolicy(ApiStruct, frozen=True, kw_only=True):
    """Compatibility rules for the devices of a driver. Only Drawbridge reads it.

    Attributes:
        spec: Rules for the devices of one driver.
        status: The effect of the policy on the published devices, as reported by our controller.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceCompatibilityPolicySpec
    status: DeviceCompatibilityPolicyStatus | None = None


CONDITION_SCHEMA: Final = Schema(
    limits={
        Condition: {
            "type": text(316),
            "status": {"enum": ["True", "False", "Unknown"]},
            "reason": {"minLength": 1, "maxLength": 1024},
            "message": text(32768),
            "lastTransitionTime": DATE_TIME,
            "observedGeneration": COUNT,
        }
    },
    required={Condition: frozenset({"reason", "message", "lastTransitionTime"})},
)
"""The schema of the conditions of every kind."""

_LABEL: Final = name("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", 63)
_ATTRIBUTE: Final = rf"^({SUBDOMAIN[1:-1]}/)?[a-zA-Z_][a-zA-Z0-9_]*$"
"""A C identifier, alone or below a domain (resource.k8s.io/v1, QualifiedName)."""

SCHEMA: Final = Schema(
    limits={
        DeviceCompatibilityPolicySpec: {
            "driver": name(SUBDOMAIN, 63),
            "physicalAttributes": {
                "minItems": 1,
                "maxItems": MAX_PHYSICAL_ATTRIBUTES,
                "x-kubernetes-list-type": "set",
                "items": {
                    **name(_ATTRIBUTE, 96),
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
            "rules": {"minItems": 1, **entries_by_key("name", most=MAX_RULES)},
        },
        CompatibilityRule: {
            "name": _LABEL,
            "selectors": entries(MAX_SELECTORS),
            "compatibilityGroups": {
                "minItems": 1,
                "maxItems": MAX_GROUPS,
                "x-kubernetes-list-type": "set",
                "items": _LABEL,
            },
        },
        CelSelector: {"expression": {"minLength": 1, "maxLength": MAX_SELECTOR_BYTES}},
        DeviceCompatibilityPolicyStatus: {
            "observedGeneration": COUNT,
            "conditions": CONDITIONS,
            "rules": {"format": "int32", "minimum": 0},
            "summary": text(256),
            "matrix": entries(MAX_ROWS),
        },
        MatrixRow: {
            "name": text(MAX_ROW_NAME),
            "devices": COUNT,
            "compatibleWith": entries(MAX_ROWS, text(MAX_ROW_NAME)),
        },
        Conflicts: {
            "count": COUNT,
            "claims": COUNT,
            "namespaces": COUNT,
            "examples": entries(MAX_EXAMPLES),
        },
        Conflict: {
            "pool": text(253),
            "devices": entries(MAX_CONFLICT_DEVICES, text(63)),
            "reason": text(MAX_MESSAGE),
        },
    },
    validations={
        CompatibilityRule: (
            Validation(
                rule="has(self.compatibilityGroups) || has(self.compatibleOnlyWith)",
                message="at least one of compatibilityGroups and compatibleOnlyWith is needed: "
                "without either the rule forbids nothing",
            ),
        ),
    },
    required={
        DeviceCompatibilityPolicySpec: frozenset({"rules"}),
        DeviceSelector: frozenset({"cel"}),
        CompatibleOnlyWith: frozenset({"cel"}),
    },
    defaulted={DeviceCompatibilityPolicySpec: frozenset({"enforcement", "undeclared", "scope"})},
)


def effective_policies(
    policies: Iterable[DeviceCompatibilityPolicy],
) -> Mapping[str, DeviceCompatibilityPolicy]:
    """Return the policy in force for each driver: the oldest, then the first by name.

    A policy in a manifest is younger than all stored ones.
    """
    oldest: dict[str, DeviceCompatibilityPolicy] = {}
    for policy in sorted(policies, key=_age):
        oldest.setdefault(policy.spec.driver, policy)
    return oldest


def _age(policy: DeviceCompatibilityPolicy) -> tuple[bool, str, str]:
    creation_time = policy.metadata.creation_timestamp
    return creation_time is None, creation_time or "", policy.metadata.name
