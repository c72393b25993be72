"""The answers of mode Shadow: nothing is changed or rejected; dry runs report the effect. Pure."""

from collections.abc import Iterator

import msgspec

from admission.pods import Answer, Decision
from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity, warning
from translation.compiling.claims import Claim

_CHANGES = frozenset({Decision.TRANSLATED, Decision.VALIDATED, Decision.UNTRANSLATED})
"""Decisions after which pods have other devices than they ask for in their manifest."""


def shadow_answer(answer: Answer, *, dry_run: bool) -> Answer:
    """Return an answer that leaves the object alone.

    Args:
        answer: The answer of another mode.
        dry_run: Somebody asks what would happen, so they are told.
    """
    findings = tuple(_as_warnings(answer)) if dry_run else ()
    return Answer(decision=Decision.UNTOUCHED, findings=findings)


def describe_shadowed(answer: Answer) -> str:
    """Describe the effect of another mode, for people; empty if it would change nothing."""
    if not answer.allowed:
        return "would be rejected"
    if answer.decision in _CHANGES and answer.claims:
        return f"would get {describe_claims(answer.claims)} in place of its device keys"
    return ""


def describe_claims(claims: tuple[Claim, ...]) -> str:
    """Return the DeviceClasses of claims.

    A number of requests says little, since a request may be for several devices.
    """
    names = sorted({name for claim in claims for name in claim.class_names()})
    if not names:
        return "no claims"
    word = "DeviceClass" if len(names) == 1 else "DeviceClasses"
    return f"claims of {word} {', '.join(names)}"


def _as_warnings(answer: Answer) -> Iterator[Finding]:
    words = describe_shadowed(answer)
    if words:
        yield warning(
            Code.SHADOW_MODE,
            FieldPath.of("spec"),
            f"{words} if Drawbridge were not in mode Shadow; nothing is changed",
        )
    for finding in answer.findings:
        if finding.is_error:
            yield msgspec.structs.replace(finding, severity=Severity.WARNING)
        else:
            yield finding
