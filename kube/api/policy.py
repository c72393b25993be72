"""Our own kinds: DeviceCompatibilityPolicy, which devices of a driver may be in use together.

The resource API has groups on counters (KEP-5963) and nothing for devices without counters, for
rules written as expressions, or for a driver that declares neither; an object of ours carries those.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.resource import CelSelector, DeviceSelector
from kube.product import GROUP

VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "DeviceCompatibilityPolicy"
PHYSICAL_ATTRIBUTES: Final = ("parentUUID", "uuid", "physicalDevice")
"""Which attribute tells the hardware under a device that consumes no counters; the first it has."""


class Enforcement(StrEnum):
    """Whether a policy refuses, or only tells what it would refuse."""

    ENFORCE = "Enforce"
    AUDIT = "Audit"


class Undeclared(StrEnum):
    """What becomes of devices without groups beside devices with groups.

    ISOLATED keeps them apart, as KEP-5963 does; COMPATIBLE lets them join anything, as the older
    proposal did.
    """

    ISOLATED = "Isolated"
    COMPATIBLE = "Compatible"


class Scope(StrEnum):
    """Which devices a rule is about: those on the same hardware, or all of a pool."""

    PHYSICAL = "Physical"
    POOL = "Pool"


class CompatibleOnlyWith(ApiStruct, frozen=True, kw_only=True):
    """What must be true of every other device in use; `device` is the other one."""

    cel: CelSelector | None = None


class CompatibilityRule(ApiStruct, frozen=True, kw_only=True):
    """What is said of the devices that match all selectors; of all devices when there are none.

    Attributes:
        compatibility_groups: Devices on the same hardware must all have one group in common.
    """

    name: str
    selectors: tuple[DeviceSelector, ...] | None = None
    compatibility_groups: tuple[str, ...] | None = None
    compatible_only_with: CompatibleOnlyWith | None = None


class DeviceCompatibilityPolicySpec(ApiStruct, frozen=True, kw_only=True):
    """Rules for the devices of one driver.

    Attributes:
        physical_attributes: Names as in slices, the driver's domain may be left out; None means
            `PHYSICAL_ATTRIBUTES`.
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
    """One kind of device, and the kinds that may be in use beside it on the same hardware."""

    name: str
    devices: int = 0
    compatible_with: tuple[str, ...] | None = None


class Conflict(ApiStruct, frozen=True, kw_only=True):
    """Devices in use together that a policy keeps apart.

    Attributes:
        devices: Names of two, or of more where only all of them together break it.
        reason: Of the device that would not have been handed out.
    """

    pool: str
    devices: tuple[str, ...]
    reason: str = ""


class Conflicts(ApiStruct, frozen=True, kw_only=True):
    """What is in use that a policy would have refused, and under Enforce refuses to be joined.

    Attributes:
        count: How many times `examples` would be there without a limit.
        claims: How many claims hold these devices. They are counted and not named: a policy is in no
            namespace, so whoever may read it may not be allowed to know them.
        namespaces: How many namespaces these claims are in.
        examples: By pool and device; at most 10.
    """

    count: int
    claims: int = 0
    namespaces: int = 0
    examples: tuple[Conflict, ...] | None = None


class DeviceCompatibilityPolicyStatus(ApiStruct, frozen=True, kw_only=True):
    """What the validator found on the devices that are published now.

    Attributes:
        rules: How many there are, for a column of `kubectl get dcp`.
        summary: For a column as well: `4 kinds, 5 of 16 pairs compatible`.
        matrix: In the order of the rules; at most 32 rows.
        conflicts: None where nothing in use breaks the policy.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] | None = None
    rules: int = 0
    summary: str = ""
    matrix: tuple[MatrixRow, ...] | None = None
    conflicts: Conflicts | None = None


class DeviceCompatibilityPolicy(ApiStruct, frozen=True, kw_only=True):
    """Which devices of a driver exclude each other, cluster scoped, short name `dcp`."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceCompatibilityPolicySpec
    status: DeviceCompatibilityPolicyStatus | None = None


def in_force(
    policies: Iterable[DeviceCompatibilityPolicy],
) -> Mapping[str, DeviceCompatibilityPolicy]:
    """Return the policy that counts for each driver: the oldest, of equally old ones by name.

    One that was never stored is younger than all that were.
    """
    oldest: dict[str, DeviceCompatibilityPolicy] = {}
    for policy in sorted(policies, key=_age):
        oldest.setdefault(policy.spec.driver, policy)
    return oldest


def _age(policy: DeviceCompatibilityPolicy) -> tuple[bool, str, str]:
    made = policy.metadata.creation_timestamp
    return made is None, made or "", policy.metadata.name
