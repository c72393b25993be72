"""The DeviceCompatibilityPolicy API: which devices of a driver may be in use together.

The resource API has compatibility groups on counters (KEP-5963). A policy adds rules for devices
without counters, rules written as expressions, and rules for drivers that declare no groups.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.resource import CelSelector, DeviceSelector
from kube.names import GROUP

VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "DeviceCompatibilityPolicy"
PHYSICAL_ATTRIBUTES: Final = ("parentUUID", "uuid", "physicalDevice")
"""Attributes that identify the hardware under a device without counters; the first present counts."""
MAX_RULES: Final = 64
"""Rules of a policy, as its CustomResourceDefinition says."""


class Enforcement(StrEnum):
    """The mode of a policy: reject allocations, or only report what it would reject."""

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
    """A condition on every other device in use; `device` in the expression is the other device."""

    cel: CelSelector | None = None


class CompatibilityRule(ApiStruct, frozen=True, kw_only=True):
    """A rule for the devices that match all selectors; without selectors, for all devices.

    Attributes:
        compatibility_groups: All devices in use on the same hardware must share a group.
    """

    name: str
    selectors: tuple[DeviceSelector, ...] | None = None
    compatibility_groups: tuple[str, ...] | None = None
    compatible_only_with: CompatibleOnlyWith | None = None


class DeviceCompatibilityPolicySpec(ApiStruct, frozen=True, kw_only=True):
    """Rules for the devices of one driver.

    Attributes:
        physical_attributes: Attribute names as in slices; the driver's domain may be omitted. None
            means `PHYSICAL_ATTRIBUTES`.
    """

    driver: str
    enforcement: Enforcement = Enforcement.ENFORCE
    undeclared: Undeclared = Undeclared.ISOLATED
    scope: Scope = Scope.PHYSICAL
    physical_attributes: tuple[str, ...] | None = None
    rules: tuple[CompatibilityRule, ...] | None = None


class Condition(ApiStruct, frozen=True, kw_only=True):
    """Source: meta/v1 Condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class MatrixRow(ApiStruct, frozen=True, kw_only=True):
    """A kind of device, and the kinds that may be in use with it on the same hardware."""

    name: str
    devices: int = 0
    compatible_with: tuple[str, ...] | None = None


class Conflict(ApiStruct, frozen=True, kw_only=True):
    """Devices in use together although a policy declares them incompatible.

    Attributes:
        devices: Two names, or more if only all of them together violate the policy.
        reason: The reason for which the last device would be rejected.
    """

    pool: str
    devices: tuple[str, ...]
    reason: str = ""


class Conflicts(ApiStruct, frozen=True, kw_only=True):
    """Devices in use that violate a policy; with Enforce no further device may join them.

    Attributes:
        count: The number of conflicts.
        claims: The number of claims that use these devices. Claims are not named: a policy is
            cluster-scoped, and its readers may not be allowed to see every namespace.
        namespaces: The number of namespaces of these claims.
        examples: At most 10 conflicts, sorted by pool and device.
    """

    count: int
    claims: int = 0
    namespaces: int = 0
    examples: tuple[Conflict, ...] | None = None


class DeviceCompatibilityPolicyStatus(ApiStruct, frozen=True, kw_only=True):
    """The effect of a policy on the devices that are published.

    Attributes:
        rules: The number of rules, for a column of `kubectl get dcp`.
        summary: Another column, such as `4 kinds, 5 of 16 pairs compatible`.
        matrix: At most 32 rows, in the order of the rules.
        conflicts: None if no devices in use violate the policy.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] | None = None
    rules: int = 0
    summary: str = ""
    matrix: tuple[MatrixRow, ...] | None = None
    conflicts: Conflicts | None = None


class DeviceCompatibilityPolicy(ApiStruct, frozen=True, kw_only=True):
    """Compatibility rules for the devices of a driver; cluster-scoped, short name `dcp`."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceCompatibilityPolicySpec
    status: DeviceCompatibilityPolicyStatus | None = None


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
