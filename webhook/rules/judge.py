"""An object and what is there to findings: the one entrance to all rules.

Every fault is told, not only the first; what two rules say of one place is told once. What is a
pod's is said of workloads, too, at the place of their pod template.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kube.api.core import Pod
from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.policy import API_VERSION, DeviceCompatibilityPolicy
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kube.product import ENFORCEMENT_LABEL
from webhook.findings import Finding, Severity, printable
from webhook.rules.asked import bounded
from webhook.rules.context import Context
from webhook.rules.enforcement import Enforcement
from webhook.rules.rule import Part, Subject
from webhook.rules.table import RULES

VIEWS: Final[Mapping[tuple[str, str], type[ApiStruct]]] = {
    ("resource.k8s.io/v1", "DeviceClass"): DeviceClass,
    ("resource.k8s.io/v1", "ResourceClaim"): ResourceClaim,
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): ResourceClaimTemplate,
    ("resource.k8s.io/v1", "ResourceSlice"): ResourceSlice,
    (API_VERSION, "DeviceCompatibilityPolicy"): DeviceCompatibilityPolicy,
}
"""What is judged as it stands; pods and workloads are judged by their pods."""
MAX_FINDINGS: Final = 100
"""Of one object; whoever has more has one mistake many times."""


_WORST_FIRST: Final = tuple(Severity)
MAX_PATH: Final = 512
MAX_TEXT: Final = 1024
"""Characters. Names in objects of strangers may be as long as a body."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """An object to judge.

    Attributes:
        view: Of the object itself, or of the pod that a workload makes.
        raw: What `view` was made of, as it was parsed.
        path: The fields that lead from the object to `view`.
        metadata: Of the object.
        namespace: Where it is; empty for what has none.
    """

    view: ApiStruct
    raw: Mapping[str, Any] = {}
    path: str = ""
    metadata: ObjectMeta = ObjectMeta()
    namespace: str = ""

    @property
    def is_controlled(self) -> bool:
        """Whether a controller made it, to which a refusal says nothing."""
        return any(owner.controller for owner in self.metadata.owner_references or ())


def judge(judged: Judged, context: Context) -> tuple[Finding, ...]:
    """Return all that is to be said of an object, worst first, else in the order of the table.

    The severities are those of who applies it: what a controller made, and what is in a namespace
    that asks for it, is only warned of.
    """
    enforcement = context.namespaces.get(judged.namespace, {}).get(ENFORCEMENT_LABEL)
    if enforcement == Enforcement.OFF:
        return ()
    found: dict[tuple[str, str], Finding] = {}
    for finding in map(_fit, _findings(judged, context)):
        found.setdefault((finding.code, finding.path), finding)
        if len(found) >= MAX_FINDINGS:
            break
    told = sorted(found.values(), key=lambda finding: _WORST_FIRST.index(finding.severity))
    if judged.is_controlled:
        told = [_warned(finding, "a controller made it") for finding in told]
    elif enforcement == Enforcement.WARN:
        told = [_warned(finding, "the namespace wants to be warned") for finding in told]
    return tuple(told)


def _fit(finding: Finding) -> Finding:
    """Return the finding on one line and not too long, whatever names and texts it repeats."""
    return msgspec.structs.replace(
        finding,
        path=printable(finding.path)[:MAX_PATH],
        message=printable(finding.message)[:MAX_TEXT],
        fix=printable(finding.fix)[:MAX_TEXT],
    )


def _findings(judged: Judged, context: Context) -> Iterator[Finding]:
    parts = tuple(_parts(judged))
    for rule in RULES:
        for part, subject, path in parts:
            if rule.part is part:
                yield from rule.judge(subject, path, context)


def _parts(judged: Judged) -> Iterator[tuple[Part, Subject[Any], str]]:
    """Yield what rules look at, and the path that leads there from the object."""

    def part(view: ApiStruct) -> Subject[Any]:
        return Subject(view=view, raw=judged.raw, namespace=judged.namespace)

    yield Part.HEAD, part(judged.view), judged.path
    match judged.view:
        case ResourceClaim(spec=spec):
            yield Part.OBJECT, part(judged.view), judged.path
            yield Part.CLAIM, part(bounded(spec.devices)), "spec.devices"
        case ResourceClaimTemplate(spec=template):
            yield Part.OBJECT, part(judged.view), judged.path
            yield Part.CLAIM, part(bounded(template.spec.devices)), "spec.spec.devices"
        case DeviceClass():
            yield Part.OBJECT, part(judged.view), judged.path
            yield Part.CLASS, part(judged.view), judged.path
        case ResourceSlice():
            yield Part.OBJECT, part(judged.view), judged.path
            yield Part.SLICE, part(judged.view), judged.path
        case DeviceCompatibilityPolicy():
            yield Part.POLICY, part(judged.view), judged.path
        case Pod():
            yield Part.POD, part(judged.view), judged.path
        case _:
            pass


def _warned(finding: Finding, why: str) -> Finding:
    if not finding.is_error:
        return finding
    message = f"{finding.message}; only a warning, since {why}"
    return msgspec.structs.replace(finding, severity=Severity.WARNING, message=message)
