"""The question of a simulation, built from manifests and the state of a cluster. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from allocator.features.co_tenant_config import find_contradictions
from allocator.model.feature_gates import Features
from allocator.model.gated_pools import find_gated_pools, find_mixed_pools
from allocator.model.usage import Usage
from allocator.pods.claims import Name, allocation_of, claim_name, pod_name
from allocator.simulation.model import PlacedClaim, PlacedPod, SimulationInput, SimulationResult
from answers.cluster.budgets import Budgets, SimulatedQuotas
from answers.manifests.job_groups import job_group
from answers.manifests.not_modelled import used_features
from answers.manifests.quotas import check_quotas
from answers.manifests.translate import (
    TranslatedObject,
    findings_as_written,
    translate_objects,
)
from answers.manifests.workload_pods import (
    MAX_PODS,
    count_pods_of,
    has_countable_pods,
    workload_pods,
)
from answers.model.cluster_state import ClusterState, build_state, is_pending, with_namespace
from answers.model.findings import ObjectFinding, describe_rejection, namespace_of
from answers.model.findings import has_errors as has_rejections
from answers.model.inputs import Inputs
from answers.model.kinds import STATE_KINDS
from answers.model.kubernetes_version import counts_extended, parse_version
from answers.model.objects import decode_objects, merge_objects, of_kind
from clusterstate.fits_in_keys import findings_in_keys
from findings.equal_requests import name_requests
from findings.finding import Finding, has_errors
from findings.text import count_text
from kube.api.core import Pod
from kube.api.extended_resources import extended_resources
from kube.api.meta import encode
from kube.api.resource import ResourceClaim, ResourceSlice
from kube.api.workloads import pod_path
from kube.manifests.source import SourceObject
from quotas.resource_quotas.ledger import QuotaLedger
from translation.cluster.snapshot import TranslationSnapshot
from translation.reading.custom_workloads import workload_kind

N = TypeVar("N", Pod, ResourceClaim)


class SimulationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A simulation request and the manifests that it was made of.

    The question has no resources of nodes and no groups yet, since pods may still be left out of the state.

    Attributes:
        rejections: Pods and claims that are invalid or above a ResourceQuota, and therefore not part of the question.
        held_back: The pods among them that are above a ResourceQuota: they exist, and wait for their claims.
        workloads: References of other manifests that create pods, which are not placed.
        rejected_workloads: Reference of each workload that is invalid, or above a quota, to the reason.
        workload_notes: Notes on the number of a workload's pods that are not placed, since they
            exist or are too many.
        workload_of: The reference of the workload of each of its pods.
        unmodelled: The features of the pods that are not modelled, with the first of these pods.
    """

    question: SimulationInput
    state: ClusterState
    findings: tuple[ObjectFinding, ...]
    rejections: SimulationResult
    held_back: tuple[Pod, ...] = ()
    workloads: tuple[str, ...]
    rejected_workloads: Mapping[str, str] = msgspec.field(default_factory=dict)
    workload_notes: tuple[str, ...] = ()
    workload_of: Mapping[Name, str] = msgspec.field(default_factory=dict)
    unmodelled: tuple[str, ...] = ()


class WorkloadPart(NamedTuple):
    """Pods of a workload with equal requests.

    Attributes:
        workload: The reference of the workload.
        spec: The JSON of their spec; empty of pods that are not part of the question.
    """

    workload: str
    spec: bytes


class _WorkloadPods(NamedTuple):
    """The pods of a workload that are to be placed, the number of those that exist, and their PodGroup."""

    pods: tuple[SourceObject, ...]
    existing: int
    group: SourceObject | None


def build_request(inputs: Inputs, features: Features | None = None) -> SimulationRequest:
    """Return the question for the pods and claims of the manifests, on the state of the cluster.

    Pods with device keys are translated first; what is allocated or bound already is state. A
    workload stands for the pods that it has to make yet.

    Args:
        features: Feature gates of the cluster; None for the defaults of Kubernetes 1.37.
    """
    results = translate_objects(
        inputs.manifests,
        snapshot=inputs.snapshot,
        options=inputs.options,
        namespace=inputs.namespace,
    )
    findings_by_object = check_quotas(inputs, results, parse_version(inputs.kubernetes))
    results = [
        _without_quota(result, findings)
        for result, findings in zip(results, findings_by_object, strict=True)
    ]
    before, _ = decode_objects(inputs.state, STATE_KINDS, inputs.namespace)
    pods_by_workload = _pods_by_workload(results, build_state(before), inputs.namespace)
    rejected_workloads = dict(_rejected_workloads(results))
    documents = _documents(results, pods_by_workload)
    manifests = merge_objects((), documents, inputs.namespace)
    own, own_faults = decode_objects(manifests, STATE_KINDS, inputs.namespace)
    objects = merge_objects(inputs.state, manifests, inputs.namespace)
    views, faults = decode_objects(
        objects, STATE_KINDS, inputs.namespace, reported_elsewhere=manifests
    )
    state = build_state(views).under(features or Features())
    pods = state.admitted(
        _with_names(with_namespace(place, pod) for place, pod in of_kind(own, Pod))
    )
    claims = tuple(
        _with_names(with_namespace(place, claim) for place, claim in of_kind(own, ResourceClaim))
    )
    pending = tuple(filter(is_pending, pods))
    shared = tuple(claim for name, claim in state.claims.items() if name in state.uncreated)
    budgets = Budgets(
        state,
        pods={(pod.metadata.namespace, pod.metadata.name) for pod in pending},
        claims={claim_name(claim) for claim in (*claims, *shared)},
    )
    quota_ledger = QuotaLedger(
        ((quota.metadata.namespace, quota) for quota in state.resource_quotas),
        before=build_state(before),
        state=state,
        counts_extended=counts_extended(parse_version(inputs.kubernetes)),
    )
    admitted, held_back = _split_by_quotas(pending, claims, shared, quota_ledger, inputs.snapshot)
    unallocated = [claim for claim in claims if allocation_of(claim) is None]
    names = {(placed.namespace, placed.name) for placed in held_back}
    waiting_claims = _claims_of_waiting(pending, held_back)
    question = SimulationInput(
        pods=admitted,
        claims=tuple(claim for claim in unallocated if claim_name(claim) not in waiting_claims),
        known=state.claims,
        templates=state.templates,
        classes=state.classes,
        extended_resources=extended_resources(state.classes.values()),
        quotas=SimulatedQuotas(budgets, inputs.snapshot),
    )
    return SimulationRequest(
        question=question,
        state=state,
        findings=(*faults, *_collect_findings(results), *own_faults),
        rejections=_with_claims(
            _rejected_result(results, inputs.namespace, held_back),
            [claim for claim in unallocated if claim_name(claim) in waiting_claims],
        ),
        held_back=tuple(
            pod for pod in pending if (pod.metadata.namespace, pod.metadata.name) in names
        ),
        workloads=tuple(
            result.reference
            for result in results
            if _creates_pods(result)
            and result.reference not in pods_by_workload
            and result.reference not in rejected_workloads
        ),
        rejected_workloads=rejected_workloads,
        workload_notes=tuple(_workload_notes(pods_by_workload)),
        workload_of={
            (namespace_of(pod, inputs.namespace), pod.name): reference
            for reference, (pods_of_workload, _, _) in pods_by_workload.items()
            for pod in pods_of_workload
        },
        unmodelled=tuple(used_features(documents, inputs.namespace)),
    )


def _split_by_quotas(
    pods: Iterable[Pod],
    claims: Iterable[ResourceClaim],
    shared: Iterable[ResourceClaim],
    quota_ledger: QuotaLedger,
    snapshot: TranslationSnapshot,
) -> tuple[tuple[Pod, ...], tuple[PlacedPod, ...]]:
    """Return the pending pods with claims within ResourceQuotas, in this order, and the others.

    The claims of pods exist whether these are placed or not, so they count for those that come later.

    Args:
        claims: The claims of the manifests.
        shared: The claims of PodGroups.
        quota_ledger: The ResourceQuotas with their usage.
    """
    for claim in claims:
        quota_ledger.charge_claim(claim.metadata.namespace, claim)
    uncreated: dict[Name, str] = {}
    for claim in shared:
        excesses = quota_ledger.charge_claim(claim.metadata.namespace, claim)
        if excesses:
            reason = describe_rejection(excesses)
            uncreated[claim_name(claim)] = f"claim {claim.metadata.name} is not created: {reason}"
    within, held_back = [], []
    for pod in pods:
        # The findings are those of `check_quotas`, at the objects that make the pods.
        excesses = quota_ledger.charge_new_claims(pod.metadata.namespace, pod)
        reasons = [uncreated[name] for name in _named_claims(pod) if name in uncreated]
        if excesses:
            reasons.append(describe_rejection(findings_in_keys(excesses, pod, snapshot)))
        if reasons:
            held_back.append(
                PlacedPod(
                    namespace=pod.metadata.namespace,
                    name=pod.metadata.name,
                    reason=reasons[0],
                    waits=True,
                )
            )
        else:
            within.append(pod)
    return tuple(within), tuple(held_back)


def _named_claims(pod: Pod) -> tuple[Name, ...]:
    """Return the claims that a pod names."""
    return tuple(
        (pod.metadata.namespace, entry.resource_claim_name)
        for entry in pod.spec.resource_claims or ()
        if entry.resource_claim_name
    )


def _claims_of_waiting(pods: Iterable[Pod], held_back: Iterable[PlacedPod]) -> frozenset[Name]:
    """Return the claims of pods held back by a quota, without those of other pods, too."""
    names = {(pod.namespace, pod.name) for pod in held_back}
    waiting: set[Name] = set()
    others: set[Name] = set()
    for pod in pods:
        place = (pod.metadata.namespace, pod.metadata.name)
        claims = waiting if place in names else others
        claims.update(_named_claims(pod))
    return frozenset(waiting - others)


def _with_claims(result: SimulationResult, claims: Iterable[ResourceClaim]) -> SimulationResult:
    """Return a result with claims that are not allocated."""
    unplaced = [
        PlacedClaim(namespace=claim.metadata.namespace, name=claim.metadata.name)
        for claim in claims
    ]
    return msgspec.structs.replace(result, claims=(*result.claims, *unplaced))


def _collect_findings(results: Sequence[TranslatedObject]) -> Iterator[ObjectFinding]:
    """Yield the findings of each object, in order."""
    for result in results:
        for finding in name_requests(findings_as_written(result), result.source.document):
            yield ObjectFinding(object=result.reference, finding=finding)


def _without_quota(result: TranslatedObject, findings: tuple[Finding, ...]) -> TranslatedObject:
    """Return a result with findings about quotas; a pod or a claim with an error is not created."""
    if not findings:
        return result
    is_rejected = result.source.kind in {"Pod", "ResourceClaim"} and has_errors(findings)
    return msgspec.structs.replace(
        result,
        document=None if is_rejected else result.document,
        findings=(*result.findings, *findings),
    )


def _with_names(objects: Iterable[N]) -> Iterator[N]:
    """Yield objects with names: the first of a `generateName` gets that, later ones a number."""
    counts: Counter[tuple[str, str]] = Counter()
    for value in objects:
        metadata = value.metadata
        if metadata.name:
            yield value
            continue
        prefix = metadata.generate_name
        counts[metadata.namespace, prefix] += 1
        number = counts[metadata.namespace, prefix]
        name = prefix if number == 1 else f"{prefix}{number}"
        yield msgspec.structs.replace(value, metadata=msgspec.structs.replace(metadata, name=name))


def _documents(
    results: Sequence[TranslatedObject], pods_by_workload: Mapping[str, _WorkloadPods]
) -> list[SourceObject]:
    """Return the translated manifests without those that are rejected, and pods after their workload.

    The PodGroup of a Job comes before its pods.
    """
    sources: list[SourceObject] = []
    for result in results:
        documents = (*result.templates, *([] if result.document is None else [result.document]))
        sources += [
            msgspec.structs.replace(result.source, document=dict(document))
            for document in documents
        ]
        if result.reference in pods_by_workload:
            pods, _, group = pods_by_workload[result.reference]
            sources += pods if group is None else (group, *pods)
    return sources


def _pods_by_workload(
    results: Sequence[TranslatedObject], before: ClusterState, namespace: str
) -> dict[str, _WorkloadPods]:
    """Return for each workload that can make its pods those that the cluster does not have yet."""
    answers: dict[str, _WorkloadPods] = {}
    for result in results:
        is_accepted = result.document is not None and not has_errors(result.findings)
        if not (_creates_pods(result) and is_accepted and has_countable_pods(result.source)):
            continue
        place = namespace_of(result.source, namespace)
        existing = count_pods_of(result.source, place, before)
        document = result.document or {}
        pods = tuple(workload_pods(result.source, document, place, existing))
        group = job_group(result.source, document, place, existing)
        answers[result.reference] = _WorkloadPods(pods, existing, group)
    return answers


def _workload_notes(pods_by_workload: Mapping[str, _WorkloadPods]) -> Iterator[str]:
    for reference, (pods, existing, _) in pods_by_workload.items():
        if existing:
            yield f"{reference} has {existing} pods already, so {len(pods)} more are placed"
        if len(pods) == MAX_PODS:
            yield f"of {reference} at most {MAX_PODS} pods are placed"


def _rejected_workloads(results: Iterable[TranslatedObject]) -> Iterator[tuple[str, str]]:
    """Yield reference and reason of each workload that is rejected."""
    for result in results:
        source = result.source
        kind = (source.api_version, source.kind)
        is_workload = source.kind != "Pod" and (
            pod_path(*kind) is not None or workload_kind(*kind) is not None
        )
        if is_workload and (result.document is None or has_errors(result.findings)):
            yield result.reference, describe_rejection(result.findings)


def _rejected_result(
    results: Sequence[TranslatedObject], namespace: str, held_back: Iterable[PlacedPod]
) -> SimulationResult:
    rejections = [
        (result.source, describe_rejection(result.findings))
        for result in results
        if result.document is None
    ]
    return SimulationResult(
        pods=(
            *(
                PlacedPod(
                    namespace=namespace_of(source, namespace), name=source.name, reason=reason
                )
                for source, reason in rejections
                if source.kind == "Pod"
            ),
            *held_back,
        ),
        claims=tuple(
            PlacedClaim(namespace=namespace_of(source, namespace), name=source.name, reason=reason)
            for source, reason in rejections
            if source.kind == "ResourceClaim"
        ),
    )


def with_rejections(answer: SimulationResult, request: SimulationRequest) -> SimulationResult:
    """Return a result with the pods and claims that were rejected before."""
    return msgspec.structs.replace(
        answer,
        pods=(*answer.pods, *request.rejections.pods),
        claims=(*answer.claims, *request.rejections.claims),
    )


def pods_within_quotas(request: SimulationRequest) -> tuple[tuple[Pod, ...], SimulationResult]:
    """Return the pods of a request that DeviceQuotas let through one by one, and the others as held back."""
    quotas = request.question.quotas
    if quotas is None:
        return request.question.pods, SimulationResult()
    quotas.begin()
    reasons = {
        (pod.metadata.namespace, pod_name(pod)): quotas.hold_back(pod)
        for pod in request.question.pods
    }
    held_back = {name: reason for name, reason in reasons.items() if reason is not None}
    within = tuple(
        pod
        for pod in request.question.pods
        if (pod.metadata.namespace, pod_name(pod)) not in held_back
    )
    return within, SimulationResult(held_back=held_back)


def quota_findings(answer: SimulationResult) -> Iterator[ObjectFinding]:
    """Yield the findings about pods that a DeviceQuota holds back, in order."""
    for (namespace, name), held_back in answer.held_back.items():
        for finding in held_back.findings:
            yield ObjectFinding(object=f"Pod/{namespace}/{name}", finding=finding)


def is_fully_placed(answer: SimulationResult, request: SimulationRequest) -> bool:
    """Return True if all pods and claims are placed, and no object is rejected."""
    return answer.all_placed and not has_rejections(request.findings)


def _creates_pods(result: TranslatedObject) -> bool:
    return result.answer is not None and result.source.kind != "Pod"


def workload_parts(
    request: SimulationRequest, result: SimulationResult
) -> Mapping[Name, WorkloadPart]:
    """Return the part of its workload of each pod that is not placed and belongs to one."""
    specs = {(pod.metadata.namespace, pod_name(pod)): pod.spec for pod in request.question.pods}
    names = [(pod.namespace, pod.name) for pod in result.pods if pod.node is None]
    return {
        name: WorkloadPart(request.workload_of[name], encode(specs[name]) if name in specs else b"")
        for name in names
        if name in request.workload_of
    }


def decisive_notes(request: SimulationRequest, *, compares: bool) -> Iterator[str]:
    """Yield the unmodelled facts that may decide, to be read before the answer.

    Args:
        request: The request.
        compares: Whether a strategy is given, whose answer people compare with another one's.
    """
    if request.unmodelled:
        features = "; ".join(request.unmodelled)
        yield f"Not modelled, but used, so that a scheduler may decide otherwise: {features}."
    nodes = request.state.nodes
    unlimited = sum(node.status.allocatable is None for node in nodes)
    if compares and unlimited:
        yield (
            f"{unlimited} of {count_text(len(nodes), 'node')} without status.allocatable: CPU and memory have no "
            "limits there, so a cluster that is short of them may rank strategies the other way round."
        )


def gate_notes(slices: Iterable[ResourceSlice], features: Features) -> Iterator[str]:
    """Yield a note for the pools of each driver that a disabled gate or their layout keeps from use."""
    names: dict[tuple[str, str], list[str]] = {}
    slices = tuple(slices)
    causes = {**find_mixed_pools(slices, features), **find_gated_pools(slices, features)}
    for pool, cause in causes.items():
        names.setdefault((pool.driver, cause), []).append(pool.pool)
    for (driver, cause), pools in names.items():
        more = f" and {len(pools) - 1} more" if len(pools) > 1 else ""
        noun = "pools" if more else "pool"
        yield f"{noun} {pools[0]}{more} of driver {driver} cannot be used: {cause}"


def contradiction_notes(usage: Usage, uniform_config_drivers: Collection[str]) -> Iterator[str]:
    """Yield a note for each shared device that claims use with contradicting configurations.

    Args:
        uniform_config_drivers: Drivers that reject such configurations.
    """
    for contradiction in find_contradictions(usage, uniform_config_drivers):
        device = contradiction.device
        names = sorted(
            {f"{consumer.namespace}/{consumer.claim}" for consumer in contradiction.consumers}
        )
        kind = contradiction.kind or "configuration"
        yield (
            f"device {device.device} of pool {device.pool} is in use with contradicting {kind}s by "
            f"claims {', '.join(names)}; driver {device.driver} rejects a pod whose configuration "
            "differs from the first that it prepared"
        )
