"""A translation as text: each object's requests, its result, their server, and warnings."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from admission.pods import Answer, Decision
from answers.manifests.translate import TranslatedObject
from answers.model.requested_keys import describe_keys
from cli.output.claim_text import requests
from cli.output.layout import (
    NARROWEST,
    Paragraph,
    Row,
    drop_repeated_labels,
    format_paragraph,
    format_rows,
)
from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity
from findings.text import count_text, reference_text
from kube.api.workloads import pod_path, resolve_path
from kube.names import REQUEST_ANNOTATION
from translation.compiling.claims import Claim
from translation.pipeline.patch import CONTAINER_FIELDS
from translation.profiles.profile import Profile
from translation.profiles.resource_profiles import names_for, served_keys
from translation.reading import arbiter
from translation.record.record import TranslationRecord, UsedProfile, decode_record

Profiles = Mapping[str, Profile]
"""Driver to profile."""


def format_results(results: Sequence[TranslatedObject], profiles: Profiles, width: int) -> str:
    """Return the whole answer, wrapped at `width` columns, but not below 40."""
    parts = [
        format_paragraph(result_paragraph(result, profiles), width)
        for result in results
        if _has_rows(result)
    ]
    unchanged_references = [
        reference_text(result.reference) for result in results if not _has_rows(result)
    ]
    if unchanged_references:
        parts.append(
            format_rows([Row(label="unchanged", text=", ".join(unchanged_references))], width)
        )
    parts.append("\n".join(textwrap.wrap(summary(results), max(width, NARROWEST))))
    return "\n\n".join(parts)


def summary(results: Sequence[TranslatedObject]) -> str:
    """Return the totals in one line."""
    rejected_count = sum(result.document is None for result in results)
    changed_count = sum(result.is_changed for result in results)
    accepted_count = sum(_is_accepted(result) for result in results)
    templates = sum(len(result.templates) for result in results)
    warnings = sum(
        finding.severity is Severity.WARNING for result in results for finding in result.findings
    )
    return ", ".join(
        (
            f"{count_text(changed_count, 'object')} translated",
            *([f"{accepted_count} translated before"] if accepted_count else []),
            count_text(templates, "template"),
            f"{len(results) - changed_count - accepted_count - rejected_count} unchanged",
            f"{rejected_count} rejected",
            count_text(warnings, "warning"),
        )
    )


def _is_accepted(result: TranslatedObject) -> bool:
    """Return True if an object came with claims of an earlier translation, and keeps them."""
    return (
        result.answer is not None
        and result.answer.decision is Decision.ACCEPTED
        and not result.is_changed
    )


def _has_rows(result: TranslatedObject) -> bool:
    is_changed = result.answer is not None and result.answer.decision is not Decision.UNTOUCHED
    return is_changed or bool(result.findings)


# --- rows ---------------------------------------------------------------------------------


def result_paragraph(result: TranslatedObject, profiles: Profiles) -> Paragraph:
    """Return the paragraph of one object."""
    kind, namespace, name = result.reference.split("/", 2)
    return Paragraph(
        title=f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}",
        place=f"{result.source.source}:{result.source.line}",
        rows=tuple(drop_repeated_labels(_rows(result, profiles))),
    )


class _Pod(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of an object: its only ones, or those of one template of a workload with several.

    Attributes:
        place: The path of their template; empty for the only ones.
        before: The pod or template as the manifest has it.
        after: The same in the output.
    """

    place: str
    before: Any
    after: Any
    answer: Answer

    def record(self) -> TranslationRecord | None:
        """Return the record in their annotation."""
        _, text = resolve_path(self.after, ("metadata", "annotations", REQUEST_ANNOTATION))
        return decode_record(text) if isinstance(text, str) else None

    def original_limits(self) -> Mapping[str, Mapping[str, Any]]:
        """Return container name to limits as the manifest writes them: 3000, though the record has 3k."""
        _, spec = resolve_path(self.before, ("spec",))
        containers = [
            container for f in CONTAINER_FIELDS for container in (spec or {}).get(f) or ()
        ]
        return {
            container.get("name", ""): (container.get("resources") or {}).get("limits") or {}
            for container in containers
        }


def _rows(result: TranslatedObject, profiles: Profiles) -> Iterator[Row]:
    for pod in _pods(result):
        yield from _pod_rows(pod, profiles)
    for finding in sorted(result.findings, key=lambda finding: not finding.is_error):
        yield from _finding_rows(finding, result)


def _pods(result: TranslatedObject) -> Iterator[_Pod]:
    """Yield the pods of an object that is not rejected."""
    if result.document is None or result.answer is None:
        return
    before, after = result.source.document, result.document
    path = pod_path(result.source.api_version, result.source.kind)
    if path is not None:
        _, pod_before = resolve_path(before, path)
        _, pod_after = resolve_path(after, path)
        yield _Pod(place="", before=pod_before, after=pod_after, answer=result.answer)
    for pod_place, answer in result.pods:
        yield _Pod(
            place=str(FieldPath.of(*pod_place)) if len(result.pods) > 1 else "",
            before=_value_at(before, pod_place),
            after=_value_at(after, pod_place),
            answer=answer,
        )


def _value_at(document: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        document = document[step]
    return document


def _pod_rows(pod: _Pod, profiles: Profiles) -> Iterator[Row]:
    request = pod.record()
    if request is None:
        return
    if pod.place:
        yield Row(label="pods of", text=pod.place)
    if pod.answer.decision is Decision.ACCEPTED:
        yield Row(label="unchanged", text="translated before; its claims match its annotation")
    yield from (
        Row(label="requested", text=text) for text in describe_keys(request, pod.original_limits())
    )
    for claim in pod.answer.claims:
        yield from _becomes(claim)
    if pod.answer.claims:
        keys_by_vocabulary = _keys_by_vocabulary(request, profiles)
        yield from (
            Row(label="served by", text=_driver(used, keys_by_vocabulary, profiles))
            for used in request.profiles
        )


def _becomes(claim: Claim) -> Iterator[Row]:
    users: dict[str, list[str]] = {}
    for use in claim.uses:
        users.setdefault(use.request, []).append(use.container)
    for name, words in requests(claim):
        yield Row(label="becomes", text=f"{' and '.join(users[name])}: {words}")
    yield Row(label="template", text=claim.template)


def _keys_by_vocabulary(
    request: TranslationRecord, profiles: Profiles
) -> Mapping[str, frozenset[str]]:
    """Return vocabulary to the keys that it owns, among them those that its profile adds."""
    resource_names = [
        (used.vocabulary, names_for(used.vocabulary, profiles[used.name]))
        for used in request.profiles
        if used.name in profiles
    ]
    speaking = arbiter.extended_vocabularies(resource_names)
    return arbiter.divide_keys(
        request.keys(), [speaking[used.vocabulary] for used in request.profiles]
    )


def _driver(
    used: UsedProfile, keys_by_vocabulary: Mapping[str, frozenset[str]], profiles: Profiles
) -> str:
    """Return the driver, the keys that it serves, and the memory sizes that the claims depend on."""
    of_vocabulary = keys_by_vocabulary[used.vocabulary]
    if used.name in profiles:
        of_vocabulary = served_keys(of_vocabulary, used.vocabulary, profiles[used.name])
    keys = ", ".join(sorted(of_vocabulary))
    subject = f"{used.vocabulary}: {keys}" if keys else used.vocabulary
    sizes = sorted({size.size for facts in used.facts.values() for size in facts.sizes or ()})
    sizes_text = f"; published memory sizes: {', '.join(map(str, sizes))}" if sizes else ""
    return f"{used.name} ({subject}){sizes_text}"


_LABELS: Final[Mapping[Severity, str]] = {
    Severity.ERROR: "rejected",
    Severity.WARNING: "warning",
    Severity.INFO: "note",
}


def _finding_rows(finding: Finding, result: TranslatedObject) -> Iterator[Row]:
    """Yield a finding; the path to the pod template and its spec is well known, and long."""
    path = finding.path
    pod = pod_path(result.source.api_version, result.source.kind)
    if pod is not None:
        path = path.remove_prefix(FieldPath.of(*pod)).remove_prefix(FieldPath.of("spec"))
    label = "skipped" if finding.code in _LEFT_ALONE else _LABELS[finding.severity]
    place = "" if path.is_root else f"{path}: "
    yield Row(label=label, text=f"{place}{finding.message}")
    if finding.fix:
        yield Row(label="fix", text=finding.fix)
    for reason in finding.reasons:
        yield Row(label="because", text=reason)


_LEFT_ALONE: Final = frozenset(
    {
        Code.ALREADY_CONVERTED,
        Code.FOREIGN_SCHEDULER,
        Code.NODE_NAME_SET,
        Code.NOT_OPTED_IN,
        Code.OPTED_OUT,
        Code.PASSED_THROUGH,
    }
)
