"""Findings of `drawbridge check` on pods beside translation and rules: routing, queues, unknown fields. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from admission.routing import Bridge, route_pod
from answers.manifests.targets import pod_targets
from answers.manifests.translate import TranslatedObject
from answers.model.inputs import Inputs
from answers.model.kubernetes_version import Version
from findings.field_path import FieldPath
from findings.finding import Code, Finding
from kube.api.core import Pod
from kube.api.workloads import pod_path
from rules.context.claim_entries import are_selectors_short, entries_of_pod
from rules.context.context import Context
from rules.context.rule import Subject
from rules.engine.engine import Target
from rules.feasibility.node_capacity import find_excesses
from rules.model.recorded_pods import VERSION
from rules.objects.pod_fields import find_unknown_pod_fields
from translation.compiling.claims import Claim
from translation.preflight.preconditions.schedulers import find_foreign_scheduler
from translation.reading.custom_workloads import inherits_scheduler, value_at, workload_kind
from translation.reading.workload_kinds import Shape

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
EVICTED: Final = "; Kueue evicts a workload whose pods wait for longer than the timeout of its waitForPodsReady, where that is on"


def field_findings(result: TranslatedObject, version: Version | None) -> Iterator[Finding]:
    """Yield fields that the pods of an object do not have.

    Args:
        version: The API server's version; a version newer than the recorded ones yields nothing.
    """
    if version is not None and version > VERSION:
        return
    source = result.source
    custom = workload_kind(source.api_version, source.kind)
    if custom is not None and not (custom.shape is Shape.TEMPLATE and custom.has_pod_fields):
        return  # Its fields beside those of a pod are in the schema of the kind.
    path = pod_path(source.api_version, source.kind)
    places: list[Sequence[str | int]] = [place for place, _ in result.pods]
    for place in places if path is None else [path]:
        yield from find_unknown_pod_fields(
            value_at(source.document, place), FieldPath.of(*place), is_template=bool(place)
        )


def scheduler_findings(
    result: TranslatedObject,
    context: Context,
    inputs: Inputs,
    policy_aware_schedulers: Collection[str],
) -> Iterator[Finding]:
    """Yield the findings about the schedulers of an object's pods with claims.

    Args:
        policy_aware_schedulers: Names of those that evaluate DeviceCompatibilityPolicies.
    """
    # The translation reports it where keys are left in the pod.
    is_reported = any(finding.code is Code.FOREIGN_SCHEDULER for finding in result.findings)
    for target in pod_targets(result, inputs.namespace):
        pod = target.view
        if not isinstance(pod, Pod) or not pod.spec.resource_claims or pod.spec.node_name:
            continue
        findings = [
            _locate(finding, target, result)
            for finding in _routing_findings(pod, target, context, result.claims)
        ]
        yield from findings
        foreign = find_foreign_scheduler(
            pod.spec.scheduler_name,
            context.bridge_scheduler,
            inputs.options,
            policy_aware_schedulers,
        )
        # A scheduler that may not allocate the bridge's devices needs no second warning.
        if foreign is not None and not findings and not is_reported:
            yield _locate(foreign, target, result)


def capacity_findings(
    result: TranslatedObject, context: Context, namespace: str
) -> Iterator[Finding]:
    """Yield the requests of an object's pods in excess of all nodes with their devices."""
    if context.idle_cluster is None or result.document is None:
        return
    for target in pod_targets(result, namespace):
        pod = target.view
        if not isinstance(pod, Pod) or pod.spec.node_name:
            continue
        subject = Subject(view=pod, namespace=target.namespace)
        entries = entries_of_pod(subject, target.path, context)
        claims = [entry.claim for entry in entries]
        if are_selectors_short(claims):
            yield from find_excesses(pod, target.path, claims, context.idle_cluster)


def _routing_findings(
    pod: Pod, target: Target, context: Context, claims: Iterable[Claim]
) -> Iterator[Finding]:
    """Yield the webhook's findings about the scheduler of a pod, or of a workload's pods."""
    if not context.owned_drivers:
        return
    derived = {claim.template: claim.drivers for claim in claims}
    bridge = Bridge(context.bridge_scheduler)
    yield from route_pod(pod, target.namespace, context, bridge, derived).findings


def _locate(finding: Finding, target: Target, result: TranslatedObject) -> Finding:
    """Return a finding about a pod with its path in the object; that of an inherited scheduler is the object's own."""
    kind = workload_kind(result.source.api_version, result.source.kind)
    is_inherited = kind is not None and inherits_scheduler(kind, target.raw)
    if kind is not None and is_inherited and finding.path == FieldPath.of("spec", "schedulerName"):
        return msgspec.structs.replace(finding, path=FieldPath.of(*kind.scheduler_path))
    return msgspec.structs.replace(finding, path=target.path.join(finding.path))


def with_queues(findings: Iterable[Finding], target: Target) -> Iterator[Finding]:
    """Yield findings, those on pods that wait for a quota with the evictions of their queue."""
    metadata = (target.metadata, getattr(target.view, "metadata", None))
    is_queued = any(QUEUE_NAME in (part.labels or {}) for part in metadata if part is not None)
    for finding in findings:
        if is_queued and finding.code is Code.DEVICE_QUOTA_FULL:
            yield msgspec.structs.replace(finding, detail=f"{finding.detail}{EVICTED}")
        else:
            yield finding
