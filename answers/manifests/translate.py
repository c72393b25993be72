"""The decisions of `drawbridge translate` about each object of a manifest. Pure.

The decision about a pod is the webhook's own function. This module adds what files have beside pods:
pod templates in workloads, the ResourceClaimTemplates of claims, and objects of other kinds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from admission.custom_workloads import check_kind, locate
from admission.pods import Answer, Decision, admit_created
from admission.workloads import for_future_pods
from answers.model.findings import ObjectFinding, namespace_of, reference
from answers.model.kinds import KINDS
from answers.model.views import decode_object, decode_view, view_type
from findings.equal_requests import name_requests
from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding
from kube.api.conversion import current_version
from kube.api.core import Pod
from kube.api.meta import ObjectHead
from kube.api.workloads import pod_path, replace_at, resolve_path
from kube.jsonpatch import apply
from kube.manifests.source import SourceObject
from translation.cluster.claim_awareness import check_provisioned_template
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.intents import Vocabulary
from translation.reading.custom_workloads import (
    Path,
    embedded_pods,
    replace_in,
    value_at,
    workload_kind,
)
from translation.reading.embedded_templates import MANIFEST_FIELDS, check_embedded_templates
from translation.reading.owner_annotations import check_owner_annotations, keeps_annotations_apart
from translation.reading.untranslated_keys import check_untranslated_requests
from translation.reading.workload_kinds import WorkloadKind

Document = Mapping[str, Any]

_ABOUT_TRANSLATED_TEMPLATES: Final = (Code.CONTROLLER_READS_KEYS, Code.NO_PROVISIONED_CAPACITY)
_AUTOSCALING: Final = "autoscaling.x-k8s.io"
TEMPLATE_KIND: Final = ("resource.k8s.io/v1", "ResourceClaimTemplate")


class TranslatedObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object and its translation.

    Attributes:
        reference: `Kind/namespace/name`.
        document: The object as it is now; None when it is rejected.
        templates: The ResourceClaimTemplates that this object is the first to need.
        answer: The webhook's answer to its pod, or to all pods of a kind of another project; None where
            there is no pod.
        pods: Path and answer of each pod of a kind of another project.
        findings: The findings with paths from the root of the object.
    """

    source: SourceObject
    reference: str
    document: Document | None
    templates: tuple[Document, ...] = ()
    answer: Answer | None = None
    pods: tuple[tuple[Path, Answer], ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Return True if the document differs from the one that was given."""
        return self.document is not None and self.document != self.source.document

    @property
    def is_translated(self) -> bool:
        """Return True if the object's device keys were translated."""
        return self.answer is not None and self.answer.decision is Decision.TRANSLATED

    @property
    def is_template(self) -> bool:
        """Return True if the object itself is a ResourceClaimTemplate."""
        version = current_version(self.source.api_version, self.source.kind)
        return (version, self.source.kind) == TEMPLATE_KIND

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims that its pods got from the translation; none if it is rejected."""
        return self.answer.claims if self.answer and self.document is not None else ()


def translate_objects(
    manifests: Sequence[SourceObject],
    *,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    namespace: str,
    track: Callable[[Sequence[SourceObject]], Iterable[SourceObject]] = iter,
) -> list[TranslatedObject]:
    """Return the outcome of each object, in order.

    Args:
        namespace: The namespace for objects that name none.
        track: Yields the manifests.
    """
    results = [
        _translate_object(manifest, snapshot, options, namespace) for manifest in track(manifests)
    ]
    known_templates = _known_templates(results, namespace)
    requests = _provisioned_templates(manifests, namespace)
    return [
        _add_templates(_check_provisioned(result, requests, namespace), known_templates, namespace)
        for result in results
    ]


def _provisioned_templates(
    objects: Iterable[SourceObject], namespace: str
) -> Mapping[tuple[str, str], str]:
    """Return namespace and name of PodTemplates to the name of the ProvisioningRequest of each.

    Args:
        namespace: The namespace for objects that name none.
    """
    return {
        (source.namespace or namespace, template): source.name
        for source in objects
        if source.kind == "ProvisioningRequest"
        and source.api_version.partition("/")[0] == _AUTOSCALING
        for template in _template_names(source.document.get("spec"))
    }


def _template_names(spec: Any) -> Iterator[str]:
    pod_sets = spec.get("podSets") if isinstance(spec, dict) else None
    for pod_set in pod_sets if isinstance(pod_sets, list) else ():
        template = pod_set.get("podTemplateRef") if isinstance(pod_set, dict) else None
        name = template.get("name") if isinstance(template, dict) else None
        if isinstance(name, str):
            yield name


def _check_provisioned(
    result: TranslatedObject, requests: Mapping[tuple[str, str], str], namespace: str
) -> TranslatedObject:
    """Return the result of a PodTemplate with the warning about its ProvisioningRequest; others as they are."""
    source = result.source
    if result.document is None or (source.api_version, source.kind) != ("v1", "PodTemplate"):
        return result
    request = requests.get((namespace_of(source, namespace), source.name))
    template = result.document.get("template")
    if request is None or not isinstance(template, dict):
        return result
    prefix = FieldPath.of("template")
    warnings = check_provisioned_template(template, request)
    findings = (*result.findings, *(finding.nested_under(prefix) for finding in warnings))
    return msgspec.structs.replace(result, findings=findings)


def move_templates(results: Sequence[TranslatedObject], namespace: str) -> list[TranslatedObject]:
    """Return the results with each template at the first object that changes and needs it.

    An object that was translated before does not change, so its text in a file takes no template.

    Args:
        namespace: The namespace for objects that name none.
    """
    known_templates = _known_templates(results, namespace)
    return [
        _add_templates(result, known_templates, namespace)
        if result.is_changed
        else msgspec.structs.replace(result, templates=())
        for result in results
    ]


def _known_templates(results: Sequence[TranslatedObject], namespace: str) -> set[tuple[str, str]]:
    """Return namespace and name of the templates that the manifests have themselves."""
    return {
        (namespace_of(result.source, namespace), result.source.name)
        for result in results
        if result.is_template and result.document is not None
    }


def _add_templates(
    result: TranslatedObject, known_templates: set[tuple[str, str]], namespace: str
) -> TranslatedObject:
    """Return the result with those of its templates that are not `known` yet, and add these."""
    place = namespace_of(result.source, namespace)
    templates = []
    for claim in result.claims:
        if (place, claim.template) not in known_templates:
            known_templates.add((place, claim.template))
            templates.append(build_template(claim, result.source.namespace))
    return msgspec.structs.replace(result, templates=tuple(templates))


def build_template(claim: Claim, namespace: str) -> Document:
    """Return the ResourceClaimTemplate of a claim.

    Args:
        namespace: The namespace as written in the object that needs the template: if it names none,
            `kubectl apply -n` decides for both.
    """
    api_version, kind = TEMPLATE_KIND
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": claim.template, **place},
        "spec": claim.spec,
    }


def collect_findings(results: Sequence[TranslatedObject]) -> list[ObjectFinding]:
    """Return every finding with its object, in order."""
    return [
        ObjectFinding(object=result.reference, finding=finding)
        for result in results
        for finding in name_requests(result.findings, result.source.document)
    ]


def findings_as_written(result: TranslatedObject) -> Iterator[Finding]:
    """Yield the findings of an object that is applied as it is in its manifest.

    In the cluster only the pods of a workload are translated: its template keeps the keys for the
    controller that reads them, and a PodTemplate for its ProvisioningRequest.
    """
    for finding in result.findings:
        is_of_claims = finding.code is Code.NO_PROVISIONED_CAPACITY and not result.is_translated
        if finding.code not in _ABOUT_TRANSLATED_TEMPLATES or is_of_claims:
            yield finding


def documents(results: Sequence[TranslatedObject]) -> Iterator[Document]:
    """Yield the documents to apply: each object after the templates that it is the first to need."""
    for result in results:
        yield from result.templates
        if result.document is not None:
            yield result.document


# --- one object -----------------------------------------------------------------------------------


def _translate_object(
    source: SourceObject, snapshot: TranslationSnapshot, options: TranslationOptions, namespace: str
) -> TranslatedObject:
    untouched = TranslatedObject(
        source=source, reference=reference(source, namespace), document=source.document
    )
    custom = workload_kind(source.api_version, source.kind)
    if custom is not None:
        return _translate_custom(untouched, custom, snapshot, options, namespace)
    path = pod_path(source.api_version, source.kind)
    kind = view_type(source, KINDS) if path is None else ObjectHead
    head = decode_object(source, kind) if kind else None
    if isinstance(head, list):
        return _reject(untouched, head)
    vocabularies = vocabularies_in_force(options, snapshot.profiles)
    where, before = resolve_path(source.document, path or ())
    if path is None and kind is None:
        embedded_findings = check_embedded_templates(
            source.document, vocabularies, snapshot.extended_resources, options.kept
        )
        return msgspec.structs.replace(untouched, findings=embedded_findings)
    if path is None or before is None:
        return untouched
    prefix = FieldPath.of(*where)
    pod = decode_view(before, Pod)
    if not isinstance(pod, Pod):
        faults = _without_guesses(pod, vocabularies)
        return _reject(untouched, [fault.nested_under(prefix) for fault in faults])
    answer = admit_created(
        before, pod, namespace=namespace_of(source, namespace), snapshot=snapshot, options=options
    )
    after = apply(before, answer.operations)
    faulty_requests = tuple(check_untranslated_requests(pod, vocabularies))
    findings = (
        *(map(_of_created_pods, answer.findings) if path else answer.findings),
        *faulty_requests,
    )
    is_accepted = answer.allowed and not faulty_requests
    return msgspec.structs.replace(
        untouched,
        document=replace_at(source.document, path, after) if is_accepted else None,
        answer=answer,
        findings=(
            *(finding.nested_under(prefix) for finding in findings),
            *(
                check_owner_annotations(
                    source.kind, head.metadata.annotations, pod, prefix, vocabularies
                )
                if isinstance(head, ObjectHead) and path
                else ()
            ),
        ),
    )


def _translate_custom(
    untouched: TranslatedObject,
    kind: WorkloadKind,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    namespace: str,
) -> TranslatedObject:
    """Translate a workload of another project: each of its pods."""
    source = untouched.source
    head = decode_object(source, ObjectHead)
    if isinstance(head, list):
        return _reject(untouched, head)
    vocabularies = vocabularies_in_force(options, snapshot.profiles)
    document: Document = source.document
    pods: list[tuple[Path, Answer]] = []
    findings: list[Finding] = []
    has_faulty_requests = False
    for embedded in embedded_pods(kind, source.document):
        pod = decode_view(embedded.template, Pod)
        if not isinstance(pod, Pod):
            faults = _without_guesses(pod, vocabularies)
            return _reject(untouched, [locate(fault, embedded) for fault in faults])
        answer = admit_created(
            embedded.template,
            pod,
            namespace=namespace_of(source, namespace),
            snapshot=snapshot,
            options=options,
        )
        faulty_requests = tuple(check_untranslated_requests(pod, vocabularies))
        has_faulty_requests |= bool(faulty_requests)
        of_pod = (
            *(
                _of_created_pods(finding)
                for finding in answer.findings
                # A pod that keeps its keys gets tolerations for them when it is created.
                if kind.has_claims or finding.code is not Code.TOLERATION_MISSING
            ),
            *faulty_requests,
        )
        findings += (locate(finding, embedded) for finding in of_pod)
        if keeps_annotations_apart(kind):
            findings += check_owner_annotations(
                source.kind,
                head.metadata.annotations,
                pod,
                FieldPath.of(*embedded.path),
                vocabularies,
            )
        if answer.decision is not Decision.UNTOUCHED:
            findings += check_kind(kind, embedded, pod, vocabularies)
        if not kind.has_claims:
            claimless = Decision.UNTOUCHED if answer.allowed else answer.decision
            answer = msgspec.structs.replace(answer, decision=claimless, operations=(), claims=())
        pods.append((embedded.path, answer))
        if answer.operations:
            # The template as it is written: one that inherits its scheduler goes on to do so.
            before = value_at(source.document, embedded.path)
            after = apply(before, answer.operations)
            document = replace_in(document, embedded.path, after)
    # A template elsewhere in the object is not its controller's, as far as is known.
    read_paths = [FieldPath.of(*path) for path, _ in pods]
    findings += (
        finding
        for finding in check_embedded_templates(
            source.document, vocabularies, snapshot.extended_resources, options.kept
        )
        if (not finding.path.is_root and finding.path.steps[-1] in MANIFEST_FIELDS)
        or all(finding.path.relative_to(path) is None for path in read_paths)
    )
    answers = [answer for _, answer in pods]
    return msgspec.structs.replace(
        untouched,
        document=document
        if all(answer.allowed for answer in answers) and not has_faulty_requests
        else None,
        answer=_answer_of_all(answers),
        pods=tuple(pods),
        findings=tuple(findings),
    )


def _answer_of_all(answers: Sequence[Answer]) -> Answer | None:
    """Return one answer with the claims of all, and the decision that matters most."""
    decisions = [answer.decision for answer in answers]
    order = (Decision.REFUSED, Decision.TRANSLATED, Decision.UNTRANSLATED, Decision.ACCEPTED)
    decision = next((entry for entry in order if entry in decisions), Decision.UNTOUCHED)
    claims = tuple(claim for answer in answers for claim in answer.claims)
    return Answer(decision=decision, claims=claims) if answers else None


def _reject(untouched: TranslatedObject, faults: Sequence[Finding]) -> TranslatedObject:
    return msgspec.structs.replace(untouched, document=None, findings=tuple(faults))


def _without_guesses(
    faults: Sequence[Finding], vocabularies: Mapping[str, Vocabulary]
) -> Iterator[Finding]:
    """Yield faults of a pod, without corrections of resources in a unit that nobody knows here."""
    for fault in faults:
        (*_, last) = fault.path.steps or ("",)
        is_unknown = (
            isinstance(last, Key)
            and "/" in last.name
            and not any(vocabulary.handles(last.name) for vocabulary in vocabularies.values())
        )
        yield msgspec.structs.replace(fault, corrections=()) if is_unknown else fault


def _of_created_pods(finding: Finding) -> Finding:
    """Return a finding about a pod as one about the workload that creates such pods.

    In the cluster the workload itself passes with a warning where the error may be gone by the time
    its pods are created. Files have no such time, so here it stays an error.
    """
    return msgspec.structs.replace(for_future_pods(finding), severity=finding.severity)
