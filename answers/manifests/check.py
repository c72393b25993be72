"""The findings on each object of a manifest: the decisions of `drawbridge check`. Pure.

Pods with device keys are translated as by the webhook, and every object is validated with the same
rules. Classes, slices and policies of `-f` are added to the state of the cluster.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from admission.objects import profile_findings
from admission.pods import Answer, Decision
from allocator.model.feature_gates import Features
from allocator.model.scheduler_support import SchedulerSupport
from allocator.pods.claims import Name
from answers.cluster.quota_usage import usage_beside
from answers.manifests.groups import group_findings
from answers.manifests.pod_checks import (
    capacity_findings,
    field_findings,
    scheduler_findings,
    with_queues,
)
from answers.manifests.quotas import at_keys, check_quotas
from answers.manifests.targets import (
    fields_of_undecodable,
    object_target,
    pod_target,
    template_target,
)
from answers.manifests.translate import (
    TranslatedObject,
    build_template,
    findings_as_written,
    translate_objects,
)
from answers.manifests.workload_pods import count_new_pods
from answers.model.cluster_state import ClusterState, build_state, is_pending
from answers.model.findings import ObjectFinding, namespace_of
from answers.model.inputs import Inputs
from answers.model.kinds import STATE_KINDS
from answers.model.kubernetes_version import SEPARATE_COUNTERS, Version, parse_version
from answers.model.objects import decode_objects, merge_objects
from answers.model.views import decode_view, original_paths
from clusterstate.autoscalers import AUTOSCALERS
from clusterstate.kinds import Changes, Kind
from clusterstate.rule_cache import ClusterFacts, RuleCache
from findings.checked_object import CheckedObject
from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity
from kube.api.core import NAMESPACE_NAME, Node, Pod
from kube.api.meta import ObjectHead, ObjectMeta
from kube.api.resource import ResourceSlice
from kube.api.translation_profile import API_VERSION, KIND, DeviceTranslationProfile
from kube.manifests.source import SourceObject
from quotas.device_quotas.book import QuotaBook
from rules.context.context import Context
from rules.engine.engine import Target, validate
from translation.cluster.native_allocation import wide_mapping_finding
from translation.cluster.snapshot import vocabularies_in_force
from translation.compiling.claims import Claim
from translation.preflight.quotas.uncounted_templates import QuotaName, find_uncounted_templates
from translation.reading.claim_blind_objects import find_unseen_claims
from translation.reading.custom_workloads import workload_kind
from translation.record.claim_sources import source_path

_QUOTA: Final = "ResourceQuota"
_CLAIM_KINDS = frozenset({"ResourceClaim", "ResourceClaimTemplate"})


class CheckedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, its object, and the place of the object's manifest.

    Attributes:
        object: `Kind/namespace/name`.
        file: None for an object of the cluster's state.
        line: The line of the object in its file; 0 without a file.
    """

    object: str
    finding: Finding
    file: str | None = None
    line: int = 0

    @property
    def described(self) -> ObjectFinding:
        """Return the finding without its place in a file."""
        return ObjectFinding(object=self.object, finding=self.finding)


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of a check, and those of them that are to be shown.

    Attributes:
        objects: The number of objects that were checked.
        places: File and reference of each of them.
        findings: The findings in order, those on the state of the cluster first; ignored ones are
            left out.
        shown: The findings of the severity to show, or of a worse one.
        ignored: The number of findings that were ignored.
    """

    objects: int
    places: tuple[tuple[str, str], ...]
    findings: tuple[CheckedFinding, ...]
    shown: tuple[CheckedFinding, ...]
    ignored: int = 0

    def has(self, worst: Severity) -> bool:
        """Return True if there is a finding of a severity or of a worse one."""
        return any(is_at_least(entry.finding, worst) for entry in self.findings)


def is_at_least(finding: Finding, severity: Severity) -> bool:
    """Return True if a finding is of a severity or of a worse one."""
    severities = list(Severity)
    return severities.index(finding.severity) <= severities.index(severity)


def build_report(
    results: Sequence[CheckedObject],
    faults: Iterable[ObjectFinding],
    ignored_codes: Collection[Code] = (),
    severity: Severity = Severity.INFO,
) -> CheckReport:
    """Return the report of a check.

    Args:
        faults: Findings on the state of the cluster.
        severity: The least that is shown.
    """
    entries = [
        *(CheckedFinding(object=fault.object, finding=fault.finding) for fault in faults),
        *(
            CheckedFinding(
                object=result.reference,
                finding=finding,
                file=result.source.source,
                line=result.source.line,
            )
            for result in results
            for finding in result.findings
        ),
    ]
    findings = tuple(entry for entry in entries if entry.finding.code not in ignored_codes)
    return CheckReport(
        objects=len(results),
        places=tuple((result.source.source, result.reference) for result in results),
        findings=findings,
        shown=tuple(entry for entry in findings if is_at_least(entry.finding, severity)),
        ignored=len(entries) - len(findings),
    )


def check_objects(
    inputs: Inputs,
    features: Features,
    policy_aware_schedulers: Collection[str] = (),
    track: Callable[[list[TranslatedObject]], Iterable[TranslatedObject]] = iter,
    *,
    kubernetes: Version | None = None,
) -> list[CheckedObject]:
    """Return the findings on each object, in order.

    Args:
        features: Feature gates of the cluster.
        policy_aware_schedulers: Names of those that evaluate DeviceCompatibilityPolicies.
        track: Yields the objects to be checked, and may end before all of them are.
        kubernetes: Version of the API server; None for that of the cluster, or for the newest.
    """
    results = translate_objects(
        inputs.manifests,
        snapshot=inputs.snapshot,
        options=inputs.options,
        namespace=inputs.namespace,
    )
    version = kubernetes or parse_version(inputs.kubernetes)
    context = build_context(inputs, results, features, policy_aware_schedulers, version)
    vocabularies = vocabularies_in_force(inputs.options, inputs.snapshot.profiles)
    quotas = check_quotas(inputs, results, version)
    pods = count_new_pods(inputs, [result.source for result in results])
    uncounted_templates = find_uncounted_templates(inputs.snapshot, inputs.options)
    groups = group_findings(inputs, results, context)
    manifest_templates = {
        (namespace_of(result.source, inputs.namespace), result.source.name)
        for result in results
        if result.is_template
    }
    return [
        CheckedObject(
            source=result.source,
            reference=result.reference,
            findings=_errors_first(
                (
                    *field_findings(result, version),
                    *_translation_findings(result),
                    *_rule_findings(result, context, inputs, manifest_templates, number),
                    *scheduler_findings(result, context, inputs, policy_aware_schedulers),
                    *capacity_findings(result, context, inputs.namespace),
                    *quota_findings,
                    *_profile_findings(result.source, inputs),
                    *_mapping_findings(result.source, inputs),
                    *find_unseen_claims(result.source.document, vocabularies),
                    *_findings_on_quota(result.source, inputs.namespace, uncounted_templates),
                    *groups.get(result.reference, ()),
                )
            ),
        )
        for result, quota_findings, number in zip(track(results), quotas, pods, strict=False)
    ]


def _findings_on_quota(
    source: SourceObject, namespace: str, uncounted_templates: Mapping[QuotaName, Finding]
) -> Iterator[Finding]:
    """Yield the finding on a ResourceQuota; none on an object of another kind."""
    if source.kind == _QUOTA:
        finding = uncounted_templates.get((namespace_of(source, namespace), source.name))
        if finding is not None:
            yield finding


def build_context(
    inputs: Inputs,
    results: Iterable[TranslatedObject],
    features: Features,
    policy_aware_schedulers: Collection[str] = (),
    kubernetes: Version | None = None,
) -> Context:
    """Return the context of rules: the state of the cluster, with the manifests in it.

    Args:
        results: The results of the translation; the templates that the objects need exist, too.
        features: Feature gates of the cluster.
        policy_aware_schedulers: Names of those that evaluate DeviceCompatibilityPolicies.
        kubernetes: Version of the API server; None for the newest.
    """
    templates = [
        msgspec.structs.replace(result.source, document=dict(template))
        for result in results
        for template in result.templates
    ]
    everything = merge_objects(inputs.state, (*inputs.manifests, *templates), inputs.namespace)
    state = build_state(decode_objects(everything, STATE_KINDS, inputs.namespace)[0])
    support = SchedulerSupport(policy_aware=frozenset(policy_aware_schedulers))
    validation = inputs.validation
    cache = RuleCache(features, support=support, bridge_scheduler=state.bridge_scheduler)
    cache.apply(_changes_to(state))
    components = inputs.snapshot.claim_unaware_components
    facts = ClusterFacts(
        namespaces=state.namespaces,
        enforcement=validation.enforcement_settings(),
        autoscalers=frozenset(
            name for component, name in AUTOSCALERS.items() if component in components
        ),
        accepts_mixed_slices=kubernetes is not None and kubernetes < SEPARATE_COUNTERS,
    )
    return msgspec.structs.replace(
        cache.context(facts),
        quota_book=_quota_book(inputs, state, features) if state.quotas else None,
        has_all_classes=inputs.snapshot.classes is not None,
        has_all_claims=any(object_.kind in _CLAIM_KINDS for object_ in inputs.state),
        applied_together=True,
        # Files do not show which schedulers the cluster has.
        support=None,
        # Without nodes it is unknown what their device plugins offer.
        extended_resources=inputs.snapshot.extended_resources if state.has_nodes else {},
        uniform_config_drivers=frozenset(validation.uniform_config_drivers),
    )


def _changes_to(state: ClusterState) -> Changes:
    """Return the changes that lead from an empty cluster to a state."""
    # Where no node is known, there is one that has only what slices give to all of them.
    nodes = state.nodes or (Node(metadata=ObjectMeta(name="any")),)
    return {
        Kind.NODE: {("", node.metadata.name): node for node in nodes},
        Kind.SLICE: {
            ("", slice_.metadata.name or str(number)): slice_
            for number, slice_ in enumerate(_slices(state))
        },
        Kind.CLASS: {("", name): device_class for name, device_class in state.classes.items()},
        Kind.CLAIM: state.claims,
        Kind.TEMPLATE: state.templates,
        Kind.TAINT_RULE: {("", rule.metadata.name): rule for rule in state.taint_rules},
        Kind.POLICY: {("", policy.metadata.name): policy for policy in state.policies},
        Kind.OWNERSHIP: {
            ("", ownership.metadata.name): ownership for ownership in state.ownerships
        },
    }


def _quota_book(inputs: Inputs, state: ClusterState, features: Features) -> QuotaBook:
    """Return the use of quotas beside the pods and claims of the manifests."""
    own = merge_objects((), inputs.manifests, inputs.namespace)
    checked = build_state(decode_objects(own, STATE_KINDS, inputs.namespace)[0])
    pods = {name for name, pod in checked.pods.items() if is_pending(pod)}
    book = usage_beside(state, features, pods=pods, claims=checked.claims).book
    for name in sorted({namespace_of(source, inputs.namespace) for source in inputs.manifests}):
        if name and name not in state.namespaces:
            # It is created for the manifests, with the label that every namespace gets.
            book.replace_namespace(name, {NAMESPACE_NAME: name})
    return book


def _slices(state: ClusterState) -> Iterator[ResourceSlice]:
    """Yield the slices; if no node is known, those for some nodes are for all of them."""
    for slice_ in state.slices:
        if state.has_nodes or slice_.spec.node_selector is None:
            yield slice_
        else:
            spec = msgspec.structs.replace(slice_.spec, node_selector=None, all_nodes=True)
            yield msgspec.structs.replace(slice_, spec=spec)


def _errors_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    rank = list(Severity)
    return tuple(sorted(findings, key=lambda finding: rank.index(finding.severity)))


# --- one object -----------------------------------------------------------------------------------


def _translation_findings(result: TranslatedObject) -> Iterator[Finding]:
    """Yield the findings of the translation; a pod that a controller made only gets warnings.

    Nobody applies such a pod, and its workload gets the error.
    """
    head = decode_view(result.source.document, ObjectHead)
    owners = head.metadata.owner_references if isinstance(head, ObjectHead) else None
    is_controlled = any(owner.controller for owner in owners or ())
    for finding in findings_as_written(result):
        if is_controlled and finding.is_error:
            detail = f"{finding.detail}; only a warning, since a controller made it"
            yield msgspec.structs.replace(finding, severity=Severity.WARNING, detail=detail)
        else:
            yield finding


def _profile_findings(source: SourceObject, inputs: Inputs) -> tuple[Finding, ...]:
    """Return the findings on a DeviceTranslationProfile; none on an object of another kind."""
    if (source.api_version, source.kind) != (API_VERSION, KIND):
        return ()
    value = decode_view(source.document, DeviceTranslationProfile)
    if not isinstance(value, DeviceTranslationProfile):
        return ()  # The type of a field is told with those of the other kinds.
    return profile_findings(value, inputs.snapshot, inputs.options, inputs.shipped_drivers)


def _mapping_findings(source: SourceObject, inputs: Inputs) -> Iterator[Finding]:
    """Yield the finding on a DeviceClass that maps more than a resource name means."""
    if source.kind == "DeviceClass":
        for mapping in inputs.snapshot.wide_mappings.values():
            if mapping.device_class == source.name:
                path = FieldPath.of("spec", "extendedResourceName")
                yield wide_mapping_finding(mapping, path, inputs.options)


def _rule_findings(
    result: TranslatedObject,
    context: Context,
    inputs: Inputs,
    manifest_templates: Collection[Name],
    pods: int,
) -> Iterator[Finding]:
    """Yield the findings of rules on an object after its translation.

    Args:
        manifest_templates: Templates of the manifests, which have findings of their own.
        pods: The number of new pods that a workload stands for.
    """
    place = namespace_of(result.source, inputs.namespace)
    kind = workload_kind(result.source.api_version, result.source.kind)
    if kind is not None:
        for path, answer in result.pods if kind.has_claims else ():
            pod = pod_target(result.document or result.source.document, kind, path, place)
            if pod is not None:
                yield from _embedded_findings(pod, answer, result, context, inputs)
        return
    target = object_target(result.source, result.document or result.source.document, place)
    if target is None:
        yield from fields_of_undecodable(result.source)
        return
    target = msgspec.structs.replace(target, pods=pods)
    located_findings = original_paths(validate(target, context), result.source)
    # Rules read the keys of a rejected pod as Kubernetes would, which never gets to see them.
    rejected = {(finding.code, finding.path) for finding in result.findings if finding.is_error}
    findings = [
        finding
        for finding in _at_keys(with_queues(located_findings, target), target, result, inputs)
        if (finding.code, finding.path) not in rejected
    ]
    # A finding on all claims of a pod is not repeated for each; nor one of the translation.
    codes = {finding.code for finding in (*result.findings, *findings)}
    yield from findings
    for claim in result.claims:
        if (place, claim.template) not in manifest_templates:
            for finding in _claim_findings(claim, target, result, context):
                if finding.code not in codes:
                    yield finding


def _embedded_findings(
    target: Target,
    answer: Answer,
    result: TranslatedObject,
    context: Context,
    inputs: Inputs,
) -> Iterator[Finding]:
    """Yield the findings of rules on one pod of a workload of another project."""
    is_translated = answer.decision is Decision.TRANSLATED
    of_pod = msgspec.structs.replace(result, answer=answer)
    codes = {finding.code for finding in result.findings}
    pod_findings: Iterable[Finding] = validate(target, context)
    if is_translated:
        pod_findings = _at_keys(pod_findings, target, of_pod, inputs)
    for finding in pod_findings:
        yield finding
        codes.add(finding.code)
    for claim in of_pod.claims:
        yield from (
            finding
            for finding in _claim_findings(claim, target, of_pod, context)
            if finding.code not in codes
        )


def _at_keys(
    findings: Iterable[Finding], target: Target, result: TranslatedObject, inputs: Inputs
) -> Iterator[Finding]:
    """Yield findings, those about claims of the translation at the keys that requested them."""
    if isinstance(target.view, Pod):
        yield from at_keys(findings, target.view, target.path, result, inputs)
    else:
        yield from findings


def _claim_findings(
    claim: Claim, target: Target, result: TranslatedObject, context: Context
) -> Iterator[Finding]:
    """Yield the findings about a claim of the translation, at its pod."""
    template = template_target(build_template(claim, target.namespace), target)
    for finding in validate(template, context):
        if result.is_translated:
            cause = finding.path.relative_to(_TEMPLATE_DEVICES)
            path = target.path.join(source_path([claim], cause))
            yield msgspec.structs.replace(finding.without_edits(), path=path)
        else:
            path = target.path.child("spec", "resourceClaims")
            detail = f"{finding.path}: {finding.detail}"
            yield msgspec.structs.replace(finding.without_edits(), path=path, detail=detail)


_TEMPLATE_DEVICES: Final = FieldPath.of("spec", "spec", "devices")
