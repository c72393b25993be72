"""CEL expressions of claims, classes and policies that are not evaluated because of their cost.

Upstream evaluates them, within its own limit, so this is never an error. What costs too much is
decided in `kube.cel.patterns` and `kube.cel.cost`.
"""

from collections.abc import Iterator
from typing import Final

from allocator.model.feature_gates import Features
from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import quote_text
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import DeviceClaim, DeviceClass
from kube.cel.compile import compile_selector
from kube.errors import CelError, SelectorTooCostly
from rules.context.context import Context
from rules.context.rule import (
    NEEDS_COMPILER,
    Category,
    ClaimRule,
    ClassRule,
    PolicyRule,
    Scope,
    Subject,
)
from rules.objects.selectors import (
    LocatedExpression,
    claim_expressions,
    class_expressions,
    environment,
    evaluated_expressions,
    policy_expressions,
)

_FIX: Final = "Compare values, or match short literal patterns without counted repetition."


def find_costly_claim_selectors(
    claim: Subject[DeviceClaim], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield expressions of a claim that cost too much."""
    yield from _costly(claim_expressions(claim, path), context.features)


def find_costly_class_selectors(
    device_class: Subject[DeviceClass], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield expressions of a class that cost too much."""
    yield from _costly(class_expressions(device_class, path), context.features)


def find_costly_policy_expressions(
    policy: Subject[DeviceCompatibilityPolicy], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield expressions of a policy that cost too much."""
    yield from _costly(policy_expressions(policy, path), context.features)


def _costly(expressions: Iterator[LocatedExpression], features: Features) -> Iterator[Finding]:
    for path, expression in evaluated_expressions(expressions):
        try:
            compile_selector(expression, environment(features))
        except SelectorTooCostly as excess:
            message = f"{quote_text(expression)} was not evaluated: {excess}"
            yield warning(Code.NOT_EVALUATED, path, message, _FIX[0].lower() + _FIX[1:-1])
        except CelError:
            continue


RULES: Final[tuple[ClaimRule | ClassRule | PolicyRule, ...]] = (
    ClaimRule(
        code=Code.NOT_EVALUATED,
        scope=Scope.CLAIM,
        category=Category.ADVICE,
        validate=find_costly_claim_selectors,
        fix=_FIX,
        no_cel_reason=NEEDS_COMPILER,
    ),
    ClassRule(
        code=Code.NOT_EVALUATED,
        scope=Scope.CLASS,
        category=Category.ADVICE,
        validate=find_costly_class_selectors,
        fix=_FIX,
        no_cel_reason=NEEDS_COMPILER,
    ),
    PolicyRule(
        code=Code.NOT_EVALUATED,
        scope=Scope.POLICY,
        category=Category.ADVICE,
        validate=find_costly_policy_expressions,
        fix=_FIX,
        no_cel_reason=NEEDS_COMPILER,
    ),
)
