"""Validation of one object against all rules, in a context.

All faults are reported, each once per place. Pod rules also run on workloads; findings point into the
pod template.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity
from findings.text import printable
from kube.api.core import Pod
from kube.api.device_quota import DeviceQuota
from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.own_kinds import VALIDATED_OWN_KINDS
from kube.api.ownership import AllocatorOwnership
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kube.names import ENFORCEMENT_LABEL
from rules.context.context import Context
from rules.context.rule import Scope, Subject
from rules.engine.registry import RULES
from rules.feasibility.enforcement import NAMESPACE_WARNS, Enforcement
from rules.model.requests import truncate_claim

VIEWS: Final[Mapping[tuple[str, str], type[ApiStruct]]] = {
    ("resource.k8s.io/v1", "DeviceClass"): DeviceClass,
    ("resource.k8s.io/v1", "ResourceClaim"): ResourceClaim,
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): ResourceClaimTemplate,
    ("resource.k8s.io/v1", "ResourceSlice"): ResourceSlice,
    **{(kind.api_version, kind.kind): kind.view for kind in VALIDATED_OWN_KINDS},
}
"""Kinds that are validated as they are; pods and workloads are validated as pods. What is wrong with a
DeviceTranslationProfile is in `translation.profiles.object_checks`."""
MAX_FINDINGS: Final = 100
"""The largest number of findings of one object; more are most likely one mistake repeated."""
_ERRORS_FIRST: Final = tuple(Severity)
MAX_TEXT: Final = 1024
"""Characters. Names in foreign objects may be as long as a request body."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """An object to validate.

    Attributes:
        view: The typed view of the object, or of the pods of a workload.
        raw: The parsed document that `view` was made from.
        path: The path from the object to `view`.
        metadata: Metadata of the object.
        namespace: Namespace of the object; empty for a cluster-scoped one.
        pods: The number of new pods at a time; of a workload that is created, those of its spec.
    """

    view: ApiStruct
    raw: Mapping[str, Any] = {}
    path: FieldPath = FieldPath()
    metadata: ObjectMeta = ObjectMeta()
    namespace: str = ""
    pods: int = 1

    @property
    def is_controlled(self) -> bool:
        """Return True if a controller created the object, so that a rejection reaches no person."""
        return any(owner.controller for owner in self.metadata.owner_references or ())


def validate(target: Target, context: Context) -> tuple[Finding, ...]:
    """Return the findings about an object, errors first, otherwise in the order of the rules.

    Errors become warnings for an object that a controller created, and in a namespace that is
    labelled to warn.
    """
    enforcement = context.namespaces.get(target.namespace, {}).get(ENFORCEMENT_LABEL)
    if enforcement == Enforcement.OFF:
        return ()
    distinct: dict[tuple[Code, FieldPath], Finding] = {}
    for finding in map(_printable, _run_rules(target, context)):
        distinct.setdefault((finding.code, finding.path), finding)
        if len(distinct) >= MAX_FINDINGS:
            break
    findings = sorted(distinct.values(), key=lambda finding: _ERRORS_FIRST.index(finding.severity))
    if target.is_controlled:
        findings = [_as_warning(finding, "a controller created it") for finding in findings]
    elif enforcement == Enforcement.WARN:
        findings = [_as_warning(finding, NAMESPACE_WARNS) for finding in findings]
    return tuple(findings)


def _printable(finding: Finding) -> Finding:
    """Return the finding on one line of bounded length, including any foreign text."""
    place = len(finding.message) - len(finding.detail)
    return msgspec.structs.replace(
        finding,
        detail=printable(finding.detail)[: max(MAX_TEXT - place, 0)],
        fix=printable(finding.fix)[:MAX_TEXT],
        reasons=tuple(printable(reason)[:MAX_TEXT] for reason in finding.reasons),
    )


def _run_rules(target: Target, context: Context) -> Iterator[Finding]:
    scopes = tuple(_scopes(target))
    for rule in RULES:
        for scope, subject, path in scopes:
            if rule.scope is scope:
                yield from rule.validate(subject, path, context)


def _scopes(target: Target) -> Iterator[tuple[Scope, Subject[Any], FieldPath]]:
    """Yield the scopes of an object, with subject and path."""

    def subject(view: ApiStruct) -> Subject[Any]:
        return Subject(view=view, raw=target.raw, namespace=target.namespace, pods=target.pods)

    whole = subject(target.view)
    yield Scope.HEAD, whole, target.path
    match target.view:
        case ResourceClaim(spec=spec):
            devices = FieldPath.of("spec", "devices")
            yield Scope.OBJECT, whole, target.path
            yield Scope.CLAIM, subject(truncate_claim(spec.devices)), devices
        case ResourceClaimTemplate(spec=template):
            devices = FieldPath.of("spec", "spec", "devices")
            yield Scope.OBJECT, whole, target.path
            yield Scope.CLAIM, subject(truncate_claim(template.spec.devices)), devices
        case DeviceClass():
            yield Scope.OBJECT, whole, target.path
            yield Scope.CLASS, whole, target.path
        case ResourceSlice():
            yield Scope.OBJECT, whole, target.path
            yield Scope.SLICE, whole, target.path
        case DeviceCompatibilityPolicy():
            yield Scope.POLICY, whole, target.path
        case DeviceQuota():
            yield Scope.QUOTA, whole, target.path
        case AllocatorOwnership():
            yield Scope.OWNERSHIP, whole, target.path
        case Pod():
            yield Scope.POD, whole, target.path
        case _:
            pass


def _as_warning(finding: Finding, reason: str) -> Finding:
    if not finding.is_error:
        return finding
    detail = f"{finding.detail}; only a warning, since {reason}"
    return msgspec.structs.replace(finding, severity=Severity.WARNING, detail=detail)
