"""Pods that exceed a ResourceQuota by their devices: the claims, or the pods, would not be created now.

The API server tells nobody: the claims of a pod are made after the pod, and the pods of a workload after it. Of
the quotas only what they count, and their use as the API server last wrote it, is read here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from allocator.pods.claims import Name
from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity
from kube.api.core import Node, Pod
from kube.api.resource import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from quotas.resource_quotas.ledger import EqualPods, QuotaLedger
from rules.context.context import Context
from rules.context.rule import OTHER_OBJECTS, Category, Rule, Scope, Subject


class _Objects(NamedTuple):
    """The objects that a quota counts by; its status has the use."""

    classes: Mapping[str, DeviceClass]
    templates: Mapping[Name, ResourceClaimTemplate]
    claims: Mapping[Name, ResourceClaim] = {}
    pods: Mapping[Name, Pod] = {}
    nodes: Sequence[Node] = ()


def find_exceeded_quotas(pod: Subject[Pod], path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield a warning for each quota that has too little left for the devices of a pod, or of all pods of a workload."""
    if not context.resource_quotas or pod.view.spec.node_name:
        return
    objects = _Objects(context.classes, dict(_templates(pod, context)))
    ledger = QuotaLedger(
        ((pod.namespace, quota) for quota in context.resource_quotas),
        before=objects,
        state=objects,
    )
    pods = EqualPods(pod.view.metadata.name, pod.pods)
    for finding in ledger.charge_pods(pod.namespace, pod.view, path, pods):
        if finding.is_error:
            # By then something else may have ended.
            yield replace(
                finding,
                severity=Severity.WARNING,
                detail=f"the pods would be rejected now: {finding.detail}",
            )
        else:
            yield finding


def _templates(pod: Subject[Pod], context: Context) -> Iterator[tuple[Name, ResourceClaimTemplate]]:
    for entry in pod.view.spec.resource_claims or ():
        name = (pod.namespace, entry.resource_claim_template_name or "")
        devices = context.templates.get(name)
        if devices is not None:
            spec = ResourceClaimTemplateSpec(spec=ResourceClaimSpec(devices=devices))
            yield name, ResourceClaimTemplate(spec=spec)


RULES: Final[tuple[Rule[Any], ...]] = (
    Rule(
        code=Code.EXCEEDS_QUOTA,
        scope=Scope.POD,
        category=Category.NOT_YET,
        validate=find_exceeded_quotas,
        fix="Request less, or raise the ResourceQuota.",
        no_cel_reason=OTHER_OBJECTS,
    ),
)
