"""Findings about translated claims, at the keys that requested them and with fixes in these keys. Pure."""

from collections.abc import Iterable, Iterator

from admission.objects import translation_of
from answers.manifests.translate import TranslatedObject
from findings.field_path import FieldPath
from findings.finding import Finding
from kube.api.core import Pod
from translation.cluster.snapshot import TranslationSnapshot
from translation.record.claim_sources import locate_at_keys, match_claims
from translation.record.key_fixes import with_key_fixes


def at_keys(
    findings: Iterable[Finding],
    pod: Pod,
    path: FieldPath,
    result: TranslatedObject,
    snapshot: TranslationSnapshot,
) -> Iterator[Finding]:
    """Yield findings, those about claims of the translation at the keys that requested them.

    Args:
        pod: The pod after its translation.
        path: The path of the pod in its object.
        snapshot: Its profiles are those in force.
    """
    findings = list(findings)
    if not findings or not result.is_translated:
        yield from findings
        return
    claims = match_claims(pod.spec.resource_claims or (), result.claims)
    record = result.answer.record if result.answer is not None else None
    if record is not None and any(finding.fitting for finding in findings):
        translation = translation_of(record, pod, snapshot)
        findings = list(with_key_fixes(findings, path, claims, translation))
    for finding in findings:
        yield locate_at_keys(finding, path, claims)
