"""ResourceQuotas charged with the objects of manifests, one after the other. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from admission.objects import translation_of
from allocator.declarations.pod_group import KIND, PodGroup
from allocator.pods.claims import Name
from answers.manifests.translate import TranslatedObject
from answers.manifests.workload_pods import part_name
from answers.model.cluster_state import ClusterState, build_state, with_namespace
from answers.model.findings import namespace_of
from answers.model.inputs import Inputs
from answers.model.kinds import STATE_KINDS
from answers.model.kubernetes_version import Version, counts_extended
from answers.model.objects import decode_objects, merge_objects, of_kind
from answers.model.views import decode_view
from findings.field_path import FieldPath
from findings.finding import Finding
from kube.api.conversion import CURRENT, to_current_version
from kube.api.core import Pod, PodSpec, ResourceQuota
from kube.api.meta import ObjectMeta
from kube.api.resource import ResourceClaim
from kube.api.urls import POD_GROUPS
from kube.api.workloads import number_path, pod_path, pods_at_a_time, resolve_path
from quotas.resource_quotas.ledger import EqualPods, QuotaLedger
from translation.reading.custom_workloads import EmbeddedPod, embedded_pods, value_at, workload_kind
from translation.reading.workload_kinds import WorkloadKind
from translation.record.claim_sources import locate_at_keys, match_claims
from translation.record.key_fixes import with_key_fixes


def check_quotas(
    inputs: Inputs, results: Sequence[TranslatedObject], kubernetes: Version | None = None
) -> list[tuple[Finding, ...]]:
    """Return the findings about quotas for each object; objects are applied in order.

    Args:
        kubernetes: Version of the API server; None for the newest.
    """
    templates = [
        replace(result.source, document=dict(template))
        for result in results
        for template in result.templates
    ]
    before, _ = decode_objects(inputs.state, STATE_KINDS, inputs.namespace)
    objects = merge_objects(inputs.state, (*inputs.manifests, *templates), inputs.namespace)
    views, _ = decode_objects(objects, STATE_KINDS, inputs.namespace)
    quotas = of_kind(views, ResourceQuota)
    if not quotas:
        return [()] * len(results)
    state, state_before = build_state(views), build_state(before)
    quota_ledger = QuotaLedger(
        quotas,
        before=state_before,
        state=state,
        counts_extended=counts_extended(kubernetes),
    )
    groups = state.kubernetes_groups
    new_groups = {name: groups[name] for name in groups.keys() - state_before.kubernetes_groups}
    return [_charge(quota_ledger, result, inputs, state, new_groups) for result in results]


def _charge(
    quota_ledger: QuotaLedger,
    result: TranslatedObject,
    inputs: Inputs,
    state: ClusterState,
    new_groups: Mapping[Name, PodGroup],
) -> tuple[Finding, ...]:
    """Charge an object as it is after its translation; a rejected one counts nothing."""
    if result.document is None:
        return ()
    source, place = result.source, namespace_of(result.source, inputs.namespace)
    custom = workload_kind(source.api_version, source.kind)
    if custom is not None:
        return tuple(_charge_custom(quota_ledger, result, custom, place))
    path = pod_path(source.api_version, source.kind)
    if source.kind == KIND and source.api_version.startswith(f"{POD_GROUPS.group}/"):
        group = new_groups.get((place, source.name))
        entries = group.spec.resource_claims if group is not None else None
        metadata = ObjectMeta(name=f"{KIND} {source.name}")  # No pod has this name.
        pod_with_claims = Pod(metadata=metadata, spec=PodSpec(resource_claims=entries))
        return quota_ledger.charge_new_claims(place, pod_with_claims)
    if path is None:
        current_document = to_current_version(result.document)
        is_claim = source.kind == "ResourceClaim" and current_document["apiVersion"] == CURRENT
        claim = decode_view(current_document, ResourceClaim) if is_claim else None
        return quota_ledger.charge_claim(place, claim) if isinstance(claim, ResourceClaim) else ()
    _, document = resolve_path(result.document, path)
    pod = decode_view(document, Pod) if document is not None else None
    if not isinstance(pod, Pod):
        return ()
    (pod,) = state.admitted([with_namespace(place, pod)])
    number = pods_at_a_time(source.kind, result.document)
    field = number_path(source.kind)
    pods = EqualPods(source.name, number, {FieldPath.of(*field): number} if field else {})
    findings = quota_ledger.charge_pods(place, pod, FieldPath.of(*path), pods)
    return tuple(at_keys(findings, pod, FieldPath.of(*path), result, inputs))


def _charge_custom(
    quota_ledger: QuotaLedger, result: TranslatedObject, kind: WorkloadKind, namespace: str
) -> Iterator[Finding]:
    """Charge the pods of a workload of another project; of one without claims nothing is known."""
    if not kind.has_claims:
        return
    document = result.document or {}
    several = tuple(embedded_pods(kind, document))
    for embedded in several:
        pod = decode_view(embedded.template, Pod)
        if not isinstance(pod, Pod):
            continue
        path = FieldPath.of(*embedded.path)
        claims = match_claims(pod.spec.resource_claims or (), result.claims)
        part = part_name(embedded.path, document) if len(several) > 1 else ""
        pods = EqualPods(
            f"{result.source.name}-{part}" if part else result.source.name,
            embedded.number,
            _reducible(embedded, document),
        )
        for finding in quota_ledger.charge_pods(namespace, pod, path, pods):
            yield locate_at_keys(finding, path, claims) if result.is_translated else finding


def _reducible(embedded: EmbeddedPod, document: Mapping[str, Any]) -> Mapping[FieldPath, int]:
    """Return the factors above 1 of the number of pods, by field."""
    numbers = {path: value_at(document, path) for path in embedded.number_paths}
    return {
        FieldPath.of(*path): number
        for path, number in numbers.items()
        if isinstance(number, int) and number > 1
    }


def at_keys(
    findings: Iterable[Finding],
    pod: Pod,
    path: FieldPath,
    result: TranslatedObject,
    inputs: Inputs,
) -> Iterator[Finding]:
    """Yield findings, those about claims of the translation at the keys that requested them.

    Args:
        pod: The pod after its translation.
        path: The path of the pod in its object.
        inputs: Its options and profiles are those in force.
    """
    findings = list(findings)
    if not findings or not result.is_translated:
        yield from findings
        return
    claims = match_claims(pod.spec.resource_claims or (), result.claims)
    record = result.answer.record if result.answer is not None else None
    if record is not None and any(finding.fitting or finding.widening for finding in findings):
        translation = translation_of(record, pod, inputs.snapshot, inputs.options)
        findings = list(with_key_fixes(findings, path, claims, translation))
    for finding in findings:
        yield locate_at_keys(finding, path, claims)
