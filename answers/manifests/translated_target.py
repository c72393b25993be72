"""The pods of manifests as they are created: translated, rejected, or left with their keys. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from allocator.declarations.model import Declaration, GroupName
from allocator.declarations.read import read_declaration
from allocator.model.feature_gates import Features
from answers.manifests.quotas import check_quotas
from answers.manifests.scheduler_views import with_routed_pods
from answers.manifests.second_check import check_again, is_new
from answers.manifests.translate import TranslatedObject, translate_objects
from answers.manifests.workload_pods import count_pods_of, has_countable_pods, workload_pods
from answers.model.cluster_state import ClusterState, build_state, with_namespace
from answers.model.findings import describe_rejection, finding_text, namespace_of
from answers.model.inputs import Inputs
from answers.model.kinds import STATE_KINDS
from answers.model.kubernetes_version import parse_version
from answers.model.objects import InputObject, decode_objects, merge_objects, of_kind
from answers.model.views import decode_view
from findings.finding import Code, has_errors
from kube.api.core import Pod
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.names import REQUEST_ANNOTATION
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.pipeline.translate import translate
from translation.reading.legacy_pod import legacy_pod


class TranslatedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A pod or workload of manifests, as it is after its review.

    Attributes:
        objects: Its templates, the object itself, and the pods of a workload that has none yet, with those of
            `beside`; empty for a rejected one.
        rejection: The reason it is rejected and has no claims; empty if it is not.
        denial: The reason that `check` denies it all the same, or a claim or template that it names; empty
            without one.
        has_pods: It is a workload without pods, so that all of its pods are among the objects.
        beside: `Kind/namespace/name` of other new objects of the manifests with pods in a group of its pods.
    """

    objects: tuple[SourceObject, ...] = ()
    rejection: str = ""
    denial: str = ""
    has_pods: bool = False
    beside: frozenset[str] = frozenset()


def translate_target(
    inputs: Inputs,
    kind: str,
    name: str,
    *,
    features: Features,
    policy_aware_schedulers: Collection[str],
) -> TranslatedTarget | None:
    """Return a pod or workload of the manifests after its review; None for one that exists, or is not there.

    Args:
        kind: `Pod`, or the kind of a workload.
        features: Feature gates of the cluster.
        policy_aware_schedulers: Names of those that evaluate DeviceCompatibilityPolicies.
    """
    source = next(
        (
            source
            for source in inputs.manifests
            if (source.kind, source.name) == (kind, name)
            and namespace_of(source, inputs.namespace) == inputs.namespace
        ),
        None,
    )
    if source is None or not is_new(source):
        return None
    (result,) = translate_objects(
        (source,), snapshot=inputs.snapshot, options=inputs.options, namespace=inputs.namespace
    )
    (excesses,) = check_quotas(inputs, (result,), parse_version(inputs.kubernetes))
    if has_errors(excesses):
        return TranslatedTarget(rejection=describe_rejection((*result.findings, *excesses)))
    if result.document is None:
        return TranslatedTarget(rejection=describe_rejection(result.findings))
    denial = _denial(inputs, source, result.document, features, policy_aware_schedulers)
    before, _ = decode_objects(inputs.state, STATE_KINDS, inputs.namespace)
    state = build_state(before)
    objects = _created(result, state, inputs.namespace)
    beside = _of_groups(_groups(objects, inputs.namespace), source, inputs, state)
    return TranslatedTarget(
        objects=(*objects, *(entry for entries in beside.values() for entry in entries)),
        denial=denial,
        has_pods=kind != "Pod" and any(entry.kind == "Pod" for entry in objects),
        beside=frozenset(beside),
    )


def untranslated_reason(
    pod: Pod, snapshot: TranslationSnapshot, options: TranslationOptions
) -> str | None:
    """Return the warning of `check` that a pod keeps its device keys for its scheduler; None if it does not."""
    if REQUEST_ANNOTATION in pod.annotations:
        return None
    outcome = translate(
        legacy_pod(pod, vocabularies_in_force(options, snapshot.profiles)),
        namespace=pod.metadata.namespace,
        snapshot=snapshot,
        options=options,
    )
    return next(
        (
            finding_text(finding)
            for finding in outcome.findings
            if finding.code is Code.FOREIGN_SCHEDULER
        ),
        None,
    )


def _denial(
    inputs: Inputs,
    source: SourceObject,
    document: Mapping[str, Any],
    features: Features,
    policy_aware_schedulers: Collection[str],
) -> str:
    """Return the first error on an object of the manifests, or on a claim or template of them that it names."""
    claims = _named_claims(source, document)
    sources = [
        source,
        *(
            other
            for other in inputs.manifests
            if (other.kind, other.name) in claims
            and namespace_of(other, inputs.namespace) == inputs.namespace
        ),
    ]
    kubernetes = parse_version(inputs.kubernetes)
    checked = check_again(inputs, features, policy_aware_schedulers, kubernetes, sources)
    denied = next((entry for entry in checked if has_errors(entry.findings)), None)
    if denied is None:
        return ""
    reason = describe_rejection(denied.findings)
    return reason if denied is checked[0] else f"{denied.reference}: {reason}"


def _named_claims(source: SourceObject, document: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return kind and name of the claims and templates that the pods of an object name."""
    _, pod = resolve_path(document, pod_path(source.api_version, source.kind) or ())
    view = decode_view(pod, Pod) if isinstance(pod, Mapping) else None
    if not isinstance(view, Pod):
        return set()
    return {
        (kind, name)
        for entry in view.spec.resource_claims or ()
        for kind, name in (
            ("ResourceClaim", entry.resource_claim_name),
            ("ResourceClaimTemplate", entry.resource_claim_template_name),
        )
        if name
    }


def with_target(inputs: Inputs, target: TranslatedTarget | None) -> tuple[InputObject, ...]:
    """Return the objects of the cluster and the manifests, with a pod or workload as it is after its review."""
    objects = merge_objects(inputs.state, inputs.manifests, inputs.namespace)
    if target is not None:
        objects = merge_objects(objects, target.objects, inputs.namespace)
    return tuple(objects)


def routed_state(
    state: ClusterState, inputs: Inputs, target: TranslatedTarget | None
) -> ClusterState:
    """Return the state with the new pods of the manifests, and of a workload among them, as they are routed."""
    sources = (*inputs.manifests, *(target.objects if target is not None else ()))
    names = {
        (namespace_of(source, inputs.namespace), source.name)
        for source in sources
        if source.kind == "Pod"
    }
    return with_routed_pods(state, names)


def _created(
    result: TranslatedObject, state: ClusterState, namespace: str
) -> tuple[SourceObject, ...]:
    """Return the templates of an object, itself after its review, and the pods of a workload without any."""
    if result.document is None:
        return ()
    documents = (*result.templates, result.document)
    return (
        *(replace(result.source, document=dict(document)) for document in documents),
        *_pods(result, result.document, state, namespace),
    )


def _groups(objects: Iterable[SourceObject], namespace: str) -> frozenset[GroupName]:
    """Return the groups of the pods among some objects."""
    pods, _ = decode_objects(objects, STATE_KINDS, namespace)
    readings = (read_declaration(with_namespace(place, pod)) for place, pod in of_kind(pods, Pod))
    return frozenset(reading.group for reading in readings if isinstance(reading, Declaration))


def _of_groups(
    groups: frozenset[GroupName], target: SourceObject, inputs: Inputs, state: ClusterState
) -> Mapping[str, tuple[SourceObject, ...]]:
    """Return the objects of the manifests with pods in some groups, beside the target, by their references.

    Each stands for all that is created of it.

    Args:
        target: The object with these groups.
        state: The cluster before.
    """
    if not groups:
        return {}
    others = [
        source
        for source in inputs.manifests
        if source is not target
        and namespace_of(source, inputs.namespace) == inputs.namespace
        and (source.kind == "Pod" or has_countable_pods(source))
        and is_new(source)
    ]
    results = translate_objects(
        others, snapshot=inputs.snapshot, options=inputs.options, namespace=inputs.namespace
    )
    created = {
        result.reference: _created(result, state, inputs.namespace)
        for result in results
        if result.source.kind == "Pod" or not has_errors(result.findings)
    }
    return {
        name: objects
        for name, objects in created.items()
        if not groups.isdisjoint(_groups(objects, inputs.namespace))
    }


def _pods(
    result: TranslatedObject, document: Mapping[str, Any], state: ClusterState, namespace: str
) -> Iterator[SourceObject]:
    """Yield the pods of a workload without any, with the workload as their owner."""
    source = result.source
    if not has_countable_pods(source) or count_pods_of(source, namespace, state):
        return
    owner = {"kind": source.kind, "name": source.name, "controller": True}
    if source.kind == "Deployment":
        owner |= {"kind": "ReplicaSet", "name": f"{source.name}-"}
    for pod in workload_pods(source, document, namespace, 0):
        metadata = {**pod.document["metadata"], "ownerReferences": [owner]}
        yield replace(pod, document={**pod.document, "metadata": metadata})
