"""The fourth step of a translation: the annotation that the claims can be derived from again."""

from collections.abc import Iterator

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from translation.pipeline.compile import Compilation
from translation.pipeline.read import PodReading
from translation.pipeline.route import Routing
from translation.record.record import TranslationRecord, build_record, excess_of


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """The translation record of a pod.

    Attributes:
        annotation: The record, encoded.
        findings: The error of a record that is too large to be read again.
    """

    record: TranslationRecord
    annotation: str
    findings: tuple[Finding, ...]


def record_pod(reading: PodReading, routing: Routing, compilation: Compilation) -> Recording:
    """Build the record of a translation."""
    record = build_record(
        reading.legacy,
        reading.owners,
        [
            (name, profile, compilation.facts[profile.driver])
            for name, profile in routing.providers.items()
        ],
    )
    annotation = record.encode()
    findings = tuple(_check_size(record, annotation))
    return Recording(record=record, annotation=annotation, findings=findings)


def _check_size(record: TranslationRecord, annotation: str) -> Iterator[Finding]:
    excess = excess_of(record, annotation)
    if excess is not None:
        yield error(
            Code.TOO_LONG,
            FieldPath.of("metadata", "annotations"),
            f"the translation record of the pod would be {excess}",
            "shorten the annotations about its devices",
        )
