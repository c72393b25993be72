"""The answer to a review of a workload: its pods' findings, reported when it is applied; pure.

The pods of its template go through the pipeline of pods, and what rejects them rejects the workload,
so that the reason is not only in the events of a ReplicaSet. There are two differences, because the
pods come later and a controller creates them:

* An error whose cause may pass until then is a warning (`findings.transient_causes`).
* Only what a person or a tool applies is validated: no workload that a controller created, and no
  update that leaves the pod template as it was.

Nothing is ever changed: the pods are translated when they are created.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from admission.custom_workloads import locate
from admission.pods import (
    UNTOUCHED,
    Answer,
    Decision,
    Translator,
    admit_created,
    first_findings,
)
from findings.equal_requests import name_requests
from findings.field_path import FieldPath
from findings.finding import Finding, Severity, has_errors
from findings.transient_causes import TRANSIENT_CAUSES
from kube.api.core import Container, Pod, PodResourceClaim
from kube.api.meta import ObjectMeta
from kube.names import REQUEST_ANNOTATION
from rules.engine.engine import Target
from translation.cluster.claim_awareness import check_claim_awareness
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.intents import Vocabulary
from translation.pipeline.patch import claim_labels
from translation.pipeline.translate import translate
from translation.reading.custom_workloads import EmbeddedPod, Path
from translation.reading.legacy_pod import containers, device_keys
from translation.reading.owner_annotations import check_owner_annotations, keeps_annotations_apart
from translation.reading.untranslated_keys import check_untranslated_requests
from translation.reading.workload_kinds import WorkloadKind
from translation.record.record import decode_record
from translation.vocabularies.nvidia import GPU

REJECTED_NOW: Final = "pods would be rejected now: "
"""The words before a reason that rejects the pods of today, and maybe none of those that come later."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """An object with a pod template.

    Attributes:
        path: The steps that lead to its pod template.
        template: The pod template as it was parsed.
        pod: The typed view of the same.
        kind_name: Its kind; empty where that is not known.
        kind: The row of a kind of another project.
        embedded: The place of its pod; None for built-in kinds.
        pods: The number of its pods at a time.
        faults: The faults by which the template cannot be read; the view is empty then.
    """

    metadata: ObjectMeta
    path: Path
    template: Mapping[str, Any]
    pod: Pod
    kind_name: str = ""
    kind: WorkloadKind | None = None
    embedded: EmbeddedPod | None = None
    pods: int = 1
    faults: tuple[Finding, ...] = ()

    @property
    def is_controlled(self) -> bool:
        """Return True if a controller owns it, and would create it again."""
        return any(owner.controller for owner in self.metadata.owner_references or ())

    @property
    def has_claims(self) -> bool:
        """Return True if the template may have claims, so that rules apply to it."""
        return self.kind is None or self.kind.has_claims

    def locate(self, finding: Finding) -> Finding:
        """Return a finding about its pod with its path in the workload."""
        if self.embedded is None:
            return finding.nested_under(FieldPath.of(*self.path))
        return locate(finding, self.embedded)


def validate_workload(
    workload: Workload,
    old: Workload | None,
    *,
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    translator: Translator = translate,
) -> Answer:
    """Answer the creation or update of a workload; the patch is empty, paths start at the workload.

    Args:
        old: The workload before the update; None when it is created.
        namespace: The namespace of its pods.
        translator: Translates its pods.
    """
    if workload.is_controlled or (old is not None and old.template == workload.template):
        return UNTOUCHED
    if workload.faults:
        findings = tuple(map(workload.locate, workload.faults))
        decision = Decision.REFUSED if has_errors(findings) else Decision.VALIDATED
        return Answer(decision=decision, findings=findings)
    answer = admit_created(
        workload.template,
        workload.pod,
        namespace=namespace,
        snapshot=snapshot,
        options=options,
        translator=translator,
    )
    vocabularies = vocabularies_in_force(options, snapshot.profiles)
    findings = tuple(
        workload.locate(finding)
        for finding in first_findings(
            tuple(map(for_future_pods, name_requests(answer.findings, workload.template))),
            tuple(_check_claim_awareness(workload, answer.claims, snapshot, options)),
            tuple(_check_requests(workload, vocabularies)),
        )
    )
    misplaced = _check_owner(workload, vocabularies)
    return Answer(
        decision=_decision(answer, findings),
        findings=(*findings, *misplaced),
        claims=answer.claims,
        record=answer.record,
        drivers=answer.drivers,
    )


def _check_owner(workload: Workload, vocabularies: Mapping[str, Vocabulary]) -> Iterator[Finding]:
    """Yield the findings about annotations of the workload itself; paths start at it."""
    if workload.kind is None or keeps_annotations_apart(workload.kind):
        yield from check_owner_annotations(
            workload.kind_name,
            workload.metadata.annotations,
            workload.pod,
            FieldPath.of(*workload.path),
            vocabularies,
        )


def _check_requests(
    workload: Workload, vocabularies: Mapping[str, Vocabulary]
) -> Iterator[Finding]:
    """Yield errors of requests that the API server rejects when the pods are created.

    It has validated the templates of its own kinds before it asks.
    """
    if workload.embedded is not None:
        yield from check_untranslated_requests(workload.pod, vocabularies)


def _decision(answer: Answer, findings: tuple[Finding, ...]) -> Decision:
    if has_errors(findings):
        return Decision.REFUSED
    if answer.decision in {Decision.UNTOUCHED, Decision.UNTRANSLATED}:
        return Decision.UNTOUCHED
    return Decision.VALIDATED


def for_future_pods(finding: Finding) -> Finding:
    """Return a finding about a pod as it applies to pods that are created later."""
    if not finding.is_error or finding.code not in TRANSIENT_CAUSES:
        return finding
    return msgspec.structs.replace(
        finding,
        severity=Severity.WARNING,
        detail=f"{REJECTED_NOW}{finding.detail}",
    )


def _check_claim_awareness(
    workload: Workload,
    claims: tuple[Claim, ...],
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> Iterator[Finding]:
    if claims and snapshot.claim_unaware_components:
        keys = _replaced_keys(workload.pod, vocabularies_in_force(options, snapshot.profiles))
        # Annotations alone may have requested the devices.
        resource = min(keys, default=GPU)
        yield from check_claim_awareness(claims, resource, snapshot, options, workload.kind_name)


def _replaced_keys(pod: Pod, vocabularies: Mapping[str, Vocabulary]) -> frozenset[str]:
    """Return the device keys of a pod, and those that an earlier translation removed."""
    present = (device_keys(container, vocabularies) for _, container in containers(pod))
    text = pod.annotations.get(REQUEST_ANNOTATION)
    removed_keys = frozenset() if text is None else decode_record(text).keys()
    return removed_keys.union(*present)


# --- for the rules --------------------------------------------------------------------------------


def workload_target(
    workload: Workload, namespace: str, claims: Sequence[Claim], *, is_new: bool
) -> Target:
    """Return a workload for the rules, as if its pods were translated already.

    Args:
        namespace: The namespace of its pods.
        claims: The claims that its pods will get, or have in the template already.
        is_new: The workload is created; pods of an updated one are replaced one by one.
    """
    pod = workload.pod
    if claims:
        templates = {claim.template for claim in claims}
        own_entries = [
            entry
            for entry in pod.spec.resource_claims or ()
            if entry.resource_claim_template_name not in templates
        ]
        labels = claim_labels(claims, {entry.name for entry in own_entries})
        entries = (
            *own_entries,
            *(
                PodResourceClaim(name=label, resource_claim_template_name=claim.template)
                for label, claim in zip(labels, claims, strict=True)
            ),
        )
        # The claims replace the device keys.
        spec = msgspec.structs.replace(
            pod.spec,
            resource_claims=entries,
            containers=_without_resources(pod.spec.containers),
            init_containers=_without_resources(pod.spec.init_containers),
        )
        pod = msgspec.structs.replace(pod, spec=spec)
    return Target(
        view=pod,
        path=FieldPath.of(*workload.path),
        metadata=workload.metadata,
        namespace=namespace,
        pods=workload.pods if is_new else 1,
    )


def _without_resources(containers: Sequence[Container] | None) -> tuple[Container, ...]:
    return tuple(
        msgspec.structs.replace(container, resources=None) for container in containers or ()
    )
