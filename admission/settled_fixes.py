"""Denials with the amounts for a pod that no later review rejects; pure.

The review of a pod ends at an amount in the wrong unit, and the review of its claims denies what no device
has. The amount of the first denial is tried in both here, as `drawbridge check` does.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from admission.objects import translation_of, validate_object
from admission.pods import Answer, Decision, admit_created
from admission.review import InvalidPodError, ReviewError, view_pod
from admission.workloads import Workload
from findings.checked_object import CheckedObject
from findings.equal_requests import name_requests
from findings.finding import Finding
from findings.settled_fixes import settle_fixes
from kube.api.core import Pod
from kube.api.meta import convert
from kube.cel.scope import STEPS_PER_LOOK, current_scope
from kube.jsonpatch import apply
from kube.manifests.source import SourceObject
from rules.context.context import Context
from rules.engine.engine import Target
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot

MAX_ROUNDS: Final = 1
"""All fixes of a pod together are proved, or none: somebody waits for the answer."""


def settle_pod(
    answer: Answer,
    document: dict[str, Any],
    context: Context,
    *,
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> Answer:
    """Return the denial of a pod with the amounts that will be admitted.

    Args:
        document: The pod as it was parsed; not changed.
        context: The cluster as rules read it.
    """
    source = SourceObject(document=document, source="", line=0)
    checked = CheckedObject(source=source, reference="", findings=answer.findings)

    def check(manifests: Sequence[SourceObject]) -> list[CheckedObject]:
        return [
            CheckedObject(
                source=manifest,
                reference="",
                findings=_review(manifest.document, context, namespace, snapshot, options),
            )
            for manifest in manifests
        ]

    try:
        (settled,) = settle_fixes([checked], check, max_rounds=MAX_ROUNDS)
    except ReviewError:
        return answer  # With other amounts it is no pod either, for another reason.
    return msgspec.structs.replace(answer, findings=settled.findings)


def settle_workload(
    answer: Answer,
    workload: Workload,
    context: Context,
    *,
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> Answer:
    """Return the denial of a workload with the amounts that will be admitted.

    Args:
        namespace: The namespace of its pods.
    """
    template = dict(workload.template)
    findings = tuple(
        name_requests(_review(template, context, namespace, snapshot, options), template)
    )
    denied = Answer(decision=Decision.REFUSED, findings=findings)
    settled = settle_pod(
        denied, template, context, namespace=namespace, snapshot=snapshot, options=options
    )
    amended = name_requests(settled.findings, template)
    changed = {
        workload.locate(before): workload.locate(after)
        for before, after in zip(findings, amended, strict=True)
        if before != after
    }
    return msgspec.structs.replace(
        answer, findings=tuple(changed.get(finding, finding) for finding in answer.findings)
    )


def _review(
    document: Mapping[str, Any],
    context: Context,
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> tuple[Finding, ...]:
    """Return the findings of both reviews of a pod: of its keys, and of its claims.

    Raises:
        AnswerInterrupted: There is no time for it, or nobody waits any more.
    """
    # Translations charge nothing, and several follow each other here.
    current_scope().meter.count(STEPS_PER_LOOK)
    try:
        pod = view_pod(document)
    except InvalidPodError as fault:
        return fault.findings
    answer = admit_created(document, pod, namespace=namespace, snapshot=snapshot, options=options)
    if answer.record is None:
        return answer.findings
    translated = apply(document, answer.operations)
    view = convert(translated, Pod)
    target = Target(view=view, raw=translated, namespace=namespace)
    translation = translation_of(answer.record, view, snapshot, options)
    validated = validate_object(target, context, answer.claims, translation)
    return (*answer.findings, *validated.findings)
