"""Faults of a DeviceCompatibilityPolicy by itself.

What its text alone proves about its rules is reported here; what is true of the published devices, by
the policy controller and `drawbridge matrix`.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Final

from allocator.compatibility.compile import compile_policy
from allocator.compatibility.enforcement import (
    EnforcementReason,
    groups_reject_the_same,
    policy_enforcement,
)
from allocator.compatibility.lint_findings import PolicyFinding
from allocator.compatibility.lint_text import lint_text
from allocator.model.devices import PoolId, PublishedDevice
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from kube.api.policy import (
    MAX_GROUPS,
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicySpec,
    effective_policies,
)
from rules.context.context import Context
from rules.context.rule import (
    CRD_VALIDATION,
    NEEDS_COMPILER,
    OTHER_OBJECTS,
    Category,
    PolicyRule,
    Scope,
    Subject,
)
from rules.model.naming import find_duplicates

_CACHED: Final = 16
"""Specs whose findings are cached: one is validated once for each code."""

Policy = Subject[DeviceCompatibilityPolicy]


def find_duplicate_names(policy: Policy, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield duplicate names of rules."""
    yield from find_duplicates(
        (rule.name for rule in policy.view.spec.rules or ()), path.child("spec", "rules")
    )


def find_invalid_groups(policy: Policy, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield rules with more groups than a device may have, or with duplicate groups."""
    for index, rule in enumerate(policy.view.spec.rules or ()):
        names = rule.compatibility_groups or ()
        place = path.child("spec", "rules", index, "compatibilityGroups")
        if len(names) > MAX_GROUPS:
            yield error(
                Code.INVALID_COMPATIBILITY_GROUPS,
                place,
                f"{len(names)} groups, but a device has at most {MAX_GROUPS}",
            )
        if len(set(names)) < len(names):
            yield error(
                Code.INVALID_COMPATIBILITY_GROUPS,
                place,
                "duplicate group",
                "list each group once",
            )


def find_empty_rules(policy: Policy, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield rules with neither groups nor an expression."""
    for index, rule in enumerate(policy.view.spec.rules or ()):
        only_with = rule.compatible_only_with
        if not rule.compatibility_groups and (only_with is None or only_with.cel is None):
            yield error(
                Code.EMPTY_RULE,
                path.child("spec", "rules", index),
                "the rule has neither compatibilityGroups nor compatibleOnlyWith, so it forbids nothing",
                "add one of them, or remove the rule",
            )


def find_older_policy(policy: Policy, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield that an older policy for the driver takes precedence."""
    driver, own = policy.view.spec.driver, policy.view.metadata.name
    others = [other for other in context.policies if other.metadata.name != own]
    effective = effective_policies([*others, policy.view])[driver].metadata.name
    if effective != own:
        yield warning(
            Code.DUPLICATE_POLICY_FOR_DRIVER,
            path.child("spec", "driver"),
            f"DeviceCompatibilityPolicy {effective} is for driver {driver} too and takes precedence",
            f"change {effective}, or delete it",
        )


def find_missing_enforcement(
    policy: Policy, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield that no scheduler of the cluster enforces a policy that is to be enforced."""
    if context.support is None:
        return
    compiled_policy = compile_policy(policy.view)
    pools: dict[PoolId, list[PublishedDevice]] = {}
    if context.support.compatibility_groups:
        for device in context.inventory.devices:
            if device.id.driver == compiled_policy.driver:
                pool = PoolId(device.id.driver, device.id.pool)
                pools.setdefault(pool, []).append(device)
    enforcement = policy_enforcement(
        compiled_policy,
        context.support,
        has_equivalent_groups=groups_reject_the_same(compiled_policy, pools.values()),
    )
    if enforcement.reason is EnforcementReason.NO_POLICY_AWARE_SCHEDULER:
        yield warning(
            Code.POLICY_NOT_ENFORCED,
            path.child("spec", "enforcement"),
            f"the policy is accepted, but not enforced: {enforcement.message}",
            enforcement.fix,
        )


def find_text_findings(
    code: Code, policy: Policy, path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield the findings of one code on the text of a policy."""
    for finding in _lint(policy.view.spec):
        if finding.code.value == code.value:
            yield warning(code, path.join(finding.path), finding.message, finding.fix)


@lru_cache(maxsize=_CACHED)
def _lint(spec: DeviceCompatibilityPolicySpec) -> tuple[PolicyFinding, ...]:
    return lint_text(DeviceCompatibilityPolicy(spec=spec))


_TEXT_FIXES: Final = (
    (Code.ASYMMETRIC_RULE, "Let both rules accept each other's devices, or neither."),
    (Code.NEVER_TRUE_RULE, "Correct the expression."),
    (Code.UNKNOWN_ATTRIBUTE, "Correct the name of the attribute."),
    (Code.UNKNOWN_LITERAL, "Correct the text."),
)


RULES: Final[tuple[PolicyRule, ...]] = (
    PolicyRule(
        code=Code.DUPLICATE_NAME,
        scope=Scope.POLICY,
        category=Category.INVALID,
        validate=find_duplicate_names,
        fix="Use unique names.",
        no_cel_reason=CRD_VALIDATION,
    ),
    PolicyRule(
        code=Code.INVALID_COMPATIBILITY_GROUPS,
        scope=Scope.POLICY,
        category=Category.INVALID,
        validate=find_invalid_groups,
        fix="Name at most two groups, each once.",
        no_cel_reason=CRD_VALIDATION,
    ),
    PolicyRule(
        code=Code.EMPTY_RULE,
        scope=Scope.POLICY,
        category=Category.INVALID,
        validate=find_empty_rules,
        fix="Give the rule groups or an expression, or remove it.",
        no_cel_reason=CRD_VALIDATION,
    ),
    PolicyRule(
        code=Code.DUPLICATE_POLICY_FOR_DRIVER,
        scope=Scope.POLICY,
        category=Category.ADVICE,
        validate=find_older_policy,
        fix="Change the older policy, or delete it.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    PolicyRule(
        code=Code.POLICY_NOT_ENFORCED,
        scope=Scope.POLICY,
        category=Category.ADVICE,
        validate=find_missing_enforcement,
        fix="Publish equivalent compatibilityGroups, or use a scheduler that evaluates policies.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    *(
        PolicyRule(
            code=code,
            scope=Scope.POLICY,
            category=Category.ADVICE,
            validate=partial(find_text_findings, code),
            fix=fix,
            no_cel_reason=NEEDS_COMPILER,
        )
        for code, fix in _TEXT_FIXES
    ),
)
