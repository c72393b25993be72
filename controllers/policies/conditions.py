"""The conditions of a DeviceCompatibilityPolicy: Valid, Symmetric, Accepted and Enforced.

Source: docs/compatibility.md; meta/v1 Condition.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from allocator.compatibility.compile import CompiledPolicy
from allocator.compatibility.enforcement import EnforcementReason, PolicyEnforcement
from allocator.compatibility.lint_findings import Code, PolicyFinding, Severity
from controllers.model.conditions import dated_condition
from findings.text import count_text, shorten
from kube.api.policy import (
    KIND,
    MAX_MESSAGE,
    Condition,
    Conflicts,
    DeviceCompatibilityPolicyStatus,
)

MAX_LISTED: Final = 5
"""Findings of one condition."""


class ConditionType(StrEnum):
    """The type of a condition; the text under each is the meaning of status True."""

    VALID = "Valid"
    """No finding is an error."""
    SYMMETRIC = "Symmetric"
    """No two published devices disagree on whether they go together."""
    ACCEPTED = "Accepted"
    """The policy is in force for its driver."""
    ENFORCED = "Enforced"
    """Allocations that violate the policy are prevented."""


class ConditionReason(StrEnum):
    """The reason of a condition, unless it is the code of a finding or an `EnforcementReason`."""

    VALID = "Valid"
    SYMMETRIC = "Symmetric"
    NO_DEVICES = "NoDevices"
    """The driver has no complete pool."""
    NOT_EVALUATED = "NotEvaluated"
    """An error leaves it open."""
    ACCEPTED = "Accepted"
    DUPLICATE_POLICY_FOR_DRIVER = "DuplicatePolicyForDriver"
    """An older policy is for the same driver."""


class ConditionState(msgspec.Struct, frozen=True):
    """A condition without its time."""

    type: ConditionType
    status: str
    reason: str
    message: str

    def condition(
        self, before: DeviceCompatibilityPolicyStatus | None, generation: int, now: str
    ) -> Condition:
        """Return the condition with the time since when its status has been the same.

        Args:
            before: The stored status.
            generation: The policy's generation.
            now: RFC 3339, in whole seconds.
        """
        condition = Condition(
            type=self.type.value,
            status=self.status,
            reason=str(self.reason),
            message=cut(self.message),
            observed_generation=generation,
        )
        return dated_condition(condition, before.conditions if before is not None else None, now)


_SYMMETRY: Final = frozenset({Code.ASYMMETRIC_RULE, Code.ONE_SIDED_RULE})


def valid_condition(findings: Sequence[PolicyFinding], inspection: str) -> ConditionState:
    """Return the condition that no finding is an error.

    Args:
        inspection: The inspected pools, in words; empty if none has devices.
    """
    own = [finding for finding in findings if finding.code not in _SYMMETRY]
    errors = [finding for finding in own if finding.severity is Severity.ERROR]
    if errors:
        return ConditionState(ConditionType.VALID, "False", _reason(errors[0].code), _list(own))
    begin = (
        inspection or "no device of the driver is published in a complete pool; expressions compile"
    )
    return ConditionState(ConditionType.VALID, "True", ConditionReason.VALID, _join(begin, own))


def symmetric_condition(findings: Sequence[PolicyFinding], inspection: str) -> ConditionState:
    """Return the Symmetric condition: agreement of published devices on those that go together.

    Args:
        inspection: The pools that `valid_condition` takes.
    """
    own = [finding for finding in findings if finding.code in _SYMMETRY]
    type_ = ConditionType.SYMMETRIC
    if any(finding.code is Code.ASYMMETRIC_RULE for finding in own):
        return ConditionState(type_, "False", _reason(Code.ASYMMETRIC_RULE), _list(own))
    if any(finding.severity is Severity.ERROR for finding in findings):
        message = _join("not evaluated, since some rules have errors", own)
        return ConditionState(type_, "Unknown", ConditionReason.NOT_EVALUATED, message)
    if not inspection:
        message = "no device of the driver is published in a complete pool"
        return ConditionState(type_, "Unknown", ConditionReason.NO_DEVICES, message)
    message = _join("no two devices disagree on whether they go together", own)
    return ConditionState(type_, "True", ConditionReason.SYMMETRIC, message)


def accepted_condition(
    policy: CompiledPolicy, in_force: str, conflicts: Conflicts | None
) -> ConditionState:
    """Return the condition that a policy is in force for its driver.

    Args:
        in_force: Name of the policy in force.
    """
    if in_force != policy.name:
        message = (
            f"{KIND} {in_force} is for driver {policy.driver} too and older; this one has no effect"
        )
        return ConditionState(
            ConditionType.ACCEPTED, "False", ConditionReason.DUPLICATE_POLICY_FOR_DRIVER, message
        )
    return ConditionState(
        ConditionType.ACCEPTED,
        "True",
        ConditionReason.ACCEPTED,
        f"the policy of driver {policy.driver}; {_describe_conflicts(conflicts)}",
    )


def enforced_condition(
    policy: CompiledPolicy,
    in_force: str,
    enforcement: PolicyEnforcement,
    conflicts: Conflicts | None,
) -> ConditionState:
    """Return the Enforced condition: prevention of violating allocations, or the change for it.

    Args:
        in_force: Name of the policy in force.
        enforcement: The policy's enforcement, if it is in force.
    """
    type_ = ConditionType.ENFORCED
    if in_force != policy.name:
        message = f"{KIND} {in_force} is the policy of driver {policy.driver}"
        return ConditionState(type_, "False", EnforcementReason.NOT_ACCEPTED, message)
    parts = [enforcement.message]
    if enforcement.is_enforced and conflicts is not None:
        parts.append("devices in use that violate it stay, and no device may join them")
    if enforcement.effect:
        parts.append(enforcement.effect)
    if enforcement.fix:
        parts.append(f"to enforce it, {enforcement.fix}")
    status = "True" if enforcement.is_enforced else "False"
    return ConditionState(type_, status, enforcement.reason, "; ".join(parts))


def _describe_conflicts(conflicts: Conflicts | None) -> str:
    if conflicts is None:
        return "no devices in use violate it"
    times = "once" if conflicts.count == 1 else f"{conflicts.count} times"
    claims = f"{count_text(conflicts.claims, 'claim')} in {count_text(conflicts.namespaces, 'namespace')}"
    return f"devices in use violate it {times}, held by {claims}"


# --- text -----------------------------------------------------------------------------------------


def _reason(code: Code) -> str:
    """Return a code as reasons are written.

    >>> _reason(Code.ASYMMETRIC_RULE)
    'AsymmetricRule'
    """
    return code.value[0].upper() + code.value[1:]


def _join(first: str, findings: Sequence[PolicyFinding]) -> str:
    return f"{first}. {_list(findings)}" if findings else first


def _list(findings: Sequence[PolicyFinding]) -> str:
    """Return findings with their codes, the worst first, each with its number of places."""
    lines = []
    for finding in findings[:MAX_LISTED]:
        place = "" if finding.path.is_root else f"{finding.path}: "
        places = f" ({finding.count} places)" if finding.count > 1 else ""
        lines.append(f"[{finding.code.value}] {place}{finding.message}{places}")
    if len(findings) > MAX_LISTED:
        lines.append(f"and {len(findings) - MAX_LISTED} more")
    return "; ".join(lines)


def cut(text: str, most: int = MAX_MESSAGE) -> str:
    """Return a text of at most so many characters."""
    return shorten(text, most)
