"""Findings about a policy, or about the groups that slices declare, as values."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from allocator.model.devices import DeviceId
from findings.field_path import FieldPath


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Code(StrEnum):
    """The code of a finding; the text under each is its cause."""

    RULE_INVALID = "ruleInvalid"
    """An expression does not compile, so its devices cannot be used."""
    RULE_NOT_EVALUATED = "ruleNotEvaluated"
    """An expression is valid, but beyond our CEL engine, so its devices cannot be used."""
    RULE_EVALUATION_ERROR = "ruleEvaluationError"
    """A rule fails on a device that may be co-located with its own devices."""
    RULE_NOT_BOOLEAN = "ruleNotBoolean"
    """A rule gives a result other than true or false on a device."""
    INVALID_COMPATIBILITY_GROUPS = "invalidCompatibilityGroups"
    """Groups that the API server rejects, or a rule with an invalid or duplicate name."""
    ASYMMETRIC_RULE = "asymmetricRule"
    """Two devices have rules, and only one of them accepts the other."""
    RULE_GROUP_MISMATCH = "ruleGroupMismatch"
    """The rules of two devices contradict their groups."""
    MIXED_DECLARATION = "mixedDeclaration"
    """Some devices of a counter set declare groups, and others cannot be used beside them."""
    NON_HELLY_GROUPS = "nonHellyGroups"
    """Three devices share groups in pairs, but not all three, so the third is rejected."""
    NEVER_TRUE_RULE = "neverTrueRule"
    """A rule selects no device whatever its attributes, or accepts none."""
    UNKNOWN_ATTRIBUTE = "unknownAttribute"
    """A rule reads an attribute that no device has, or that is likely to be a misspelling."""
    UNKNOWN_LITERAL = "unknownLiteral"
    """A rule compares an attribute with a text that no device has there, or no rule selects."""
    ALLOCATED_SET_INCONSISTENT = "allocatedSetInconsistent"
    """Incompatible devices are in use; they stay, and no device may join them."""
    ONE_SIDED_RULE = "oneSidedRule"
    """A rule does not accept a device that has none."""
    EXCLUSIVE_BY_RULE = "exclusiveByRule"
    """A rule accepts no device, although counters would allow some."""
    LONELY_GROUP = "lonelyGroup"
    """A group of only one device of a counter set."""
    FULL_DEVICE = "fullDevice"
    """A device consumes all of its counter sets and has no rule; it needs none."""
    SELF_REJECTING_SHARE = "selfRejectingShare"
    """A shareable device does not accept devices of its own kind; its shares are allowed."""
    NEVER_CO_FIT = "neverCoFit"
    """Two devices are compatible, but counters do not suffice for both."""


SEVERITIES: Final[Mapping[Code, Severity]] = {
    Code.RULE_INVALID: Severity.ERROR,
    Code.RULE_NOT_EVALUATED: Severity.ERROR,
    Code.RULE_EVALUATION_ERROR: Severity.ERROR,
    Code.RULE_NOT_BOOLEAN: Severity.ERROR,
    Code.INVALID_COMPATIBILITY_GROUPS: Severity.ERROR,
    Code.ASYMMETRIC_RULE: Severity.WARNING,
    Code.RULE_GROUP_MISMATCH: Severity.WARNING,
    Code.MIXED_DECLARATION: Severity.WARNING,
    Code.NON_HELLY_GROUPS: Severity.WARNING,
    Code.NEVER_TRUE_RULE: Severity.WARNING,
    Code.UNKNOWN_ATTRIBUTE: Severity.WARNING,
    Code.UNKNOWN_LITERAL: Severity.WARNING,
    Code.ALLOCATED_SET_INCONSISTENT: Severity.WARNING,
    Code.ONE_SIDED_RULE: Severity.INFO,
    Code.EXCLUSIVE_BY_RULE: Severity.INFO,
    Code.LONELY_GROUP: Severity.INFO,
    Code.FULL_DEVICE: Severity.INFO,
    Code.SELF_REJECTING_SHARE: Severity.INFO,
    Code.NEVER_CO_FIT: Severity.INFO,
}


class PolicyFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding.

    Attributes:
        message: The message about the first example.
        devices: The example: the one or two devices that it is about, else empty.
        path: The path in the policy; the root for a finding about devices.
        fix: The change that resolves the finding; empty where the message names it.
        count: The number of cases: pairs of kinds, or devices, counted in each pool.
    """

    severity: Severity
    code: Code
    message: str
    devices: tuple[DeviceId, ...] = ()
    path: FieldPath = FieldPath()
    fix: str = ""
    count: int = 1


PoolFinding = tuple[Code, tuple[object, ...], str, tuple[DeviceId, ...]]
"""Code, key of the same finding in another pool, message, example."""


Place = tuple[str, str]
"""Domain and identifier of an attribute."""


class PoolFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The findings on a policy that one pool adds; refers to no device object.

    Attributes:
        found: The findings on the pool.
        attributes: The attributes that the policy names and some device of the pool has.
        texts: The texts that the pool's devices have in these attributes.
        has_devices: True if the pool has devices; a pool that is not complete has none.
    """

    found: tuple[PoolFinding, ...] = ()
    attributes: frozenset[Place] = frozenset()
    texts: frozenset[tuple[Place, str]] = frozenset()
    has_devices: bool = False
