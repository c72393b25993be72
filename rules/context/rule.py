"""A rule: one row of the table, with its validation function, its fix and its CEL.

How to add one: docs/howto/add-a-rule.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding
from kube.api.core import Pod
from kube.api.device_quota import DeviceQuota
from kube.api.ownership import AllocatorOwnership
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import (
    DeviceClaim,
    DeviceClass,
    ResourceSlice,
)
from rules.context.context import Context

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Category(StrEnum):
    """The kind of fault that a rule finds."""

    INVALID = "invalid"
    """The object is wrong in every cluster. Denied."""
    INFEASIBLE = "infeasible"
    """No node can ever satisfy it. Denied where the inventory is evidence, else a warning."""
    NOT_YET = "not yet"
    """It needs something that does not exist yet, or is in use. A warning."""
    ADVICE = "advice"
    """It works, but probably not as its author intends. A warning."""


class Scope(StrEnum):
    """The part of an object that a rule validates."""

    HEAD = "head"
    OBJECT = "object"
    CLAIM = "claim"
    CLASS = "class"
    SLICE = "slice"
    POLICY = "policy"
    QUOTA = "quota"
    OWNERSHIP = "ownership"
    POD = "pod"


KINDS: Final[Mapping[Scope, tuple[str, ...]]] = {
    Scope.HEAD: ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice"),
    Scope.OBJECT: ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice"),
    Scope.CLAIM: ("ResourceClaim", "ResourceClaimTemplate"),
    Scope.CLASS: ("DeviceClass",),
    Scope.SLICE: ("ResourceSlice",),
    Scope.POLICY: ("DeviceCompatibilityPolicy",),
    Scope.QUOTA: ("DeviceQuota",),
    Scope.OWNERSHIP: ("AllocatorOwnership",),
    Scope.POD: ("Pod", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "CronJob", "Job"),
}
"""The kinds that have such a scope."""


class Subject(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """The part of an object that a rule validates.

    Attributes:
        view: The typed view.
        raw: The parsed document, with the fields that the view drops.
        namespace: Namespace of the object; empty for a cluster-scoped one.
        pods: The number of new pods that a pod stands for; more than one of a workload.
    """

    view: T_co
    raw: Mapping[str, Any] = {}
    namespace: str = ""
    pods: int = 1


Validate = Callable[[Subject[T], FieldPath, Context], Iterable[Finding]]
"""A function from subject, the path that leads to it, and context to findings."""


class CelRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule as a validation of a ValidatingAdmissionPolicy.

    Attributes:
        expression: True for a valid object. It may use the `variables` of its scope, which
            `rules.engine.validating_policies` defines.
        message: The message where it is false.
    """

    expression: str
    message: str


class Rule(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One rule.

    Attributes:
        fix: The fix in general; a finding names the fix for its object.
        cel: The rule for the API server; exactly one of this and `no_cel_reason` is set.
        no_cel_reason: The reason the API server cannot enforce the rule.
    """

    code: Code
    scope: Scope
    category: Category
    validate: Validate[T]
    fix: str
    cel: CelRule | None = None
    no_cel_reason: str = ""


ClaimRule = Rule[DeviceClaim]
ClassRule = Rule[DeviceClass]
SliceRule = Rule[ResourceSlice]
PolicyRule = Rule[DeviceCompatibilityPolicy]
QuotaRule = Rule[DeviceQuota]
OwnershipRule = Rule[AllocatorOwnership]
PodRule = Rule[Pod]

# --- reasons why there is no CEL rule -------------------------------------------------------------

BUILT_IN_VALIDATION: Final = "the API server's own validation rejects it before any policy runs"
OTHER_OBJECTS: Final = "it depends on other objects, which a policy cannot read"
NEEDS_COMPILER: Final = "a policy cannot compile or evaluate an expression of another object"
CRD_VALIDATION: Final = "the schema and CEL rules of the CRD enforce it"
DROPPED_ON_DECODE: Final = "the API server drops or rejects the field while decoding"


def cel_for_all_alternatives(holds: str) -> str:
    """Return CEL that requires `holds` of every exact request and alternative, as `ask`."""
    exactly = f"[r.exactly].all(ask, {holds})"
    return (
        f"variables.requests.all(r, (!has(r.exactly) || {exactly})\n"
        f"&& (!has(r.firstAvailable) || r.firstAvailable.all(ask, {holds})))"
    )


Claim = Subject[DeviceClaim]


def rules_of_claims_and_pods(
    rows: Iterable[tuple[Code, Category, str]],
    validate_claim: Callable[[Code, Subject[DeviceClaim], FieldPath, Context], Iterator[Finding]],
    validate_pod: Callable[[Code, Subject[Pod], FieldPath, Context], Iterator[Finding]],
) -> Iterator[Rule[Any]]:
    """Yield two rules for each code: about claims, and about the claims of a pod together.

    Args:
        rows: Code, category and fix.
    """
    for code, category, fix in rows:
        for scope, validate in ((Scope.CLAIM, validate_claim), (Scope.POD, validate_pod)):
            yield Rule(
                code=code,
                scope=scope,
                category=category,
                validate=partial(validate, code),
                fix=fix,
                no_cel_reason=OTHER_OBJECTS,
            )
