"""Annotations about devices that stand on a workload, and not on its pods."""

from collections.abc import Iterator, Mapping
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import printable
from kube.api.core import Pod
from translation.model.intents import Vocabulary, annotation_path
from translation.reading.legacy_pod import has_device_keys
from translation.reading.workload_kinds import Shape, WorkloadKind

MAX_NAMED: Final = 5
"""Annotations of one workload that are told."""


def check_owner_annotations(
    kind: str,
    annotations: Mapping[str, str] | None,
    pod: Pod,
    template: FieldPath,
    vocabularies: Mapping[str, Vocabulary],
) -> Iterator[Finding]:
    """Yield a warning for each annotation of a workload on devices, without it on its pods.

    Args:
        kind: The kind of the workload; its controller copies no annotations to the pods.
        annotations: The annotations of the workload itself.
        pod: The pod of its template.
        template: The place of that template in the workload.
    """
    if not annotations:
        return
    is_read = has_device_keys(pod, vocabularies)
    names = {
        name
        for vocabulary in vocabularies.values()
        for name in (vocabulary.annotations if is_read else vocabulary.requesting)
    }
    misplaced_names = sorted((names & annotations.keys()) - pod.annotations.keys())
    for name in misplaced_names[:MAX_NAMED]:
        yield warning(
            Code.UNTRANSLATED_DEVICE_KEY,
            annotation_path(name),
            f"{printable(name)} is on the {printable(kind)}, not on its pods, so it has no effect",
            f"move it to {template.child('metadata', 'annotations')}",
        )


def keeps_annotations_apart(kind: WorkloadKind) -> bool:
    """Return True for a kind of another project with pod templates.

    Its pods have the annotations of these alone. Others, such as those of KServe, copy those of the object
    to its pods.
    """
    return kind.has_claims and kind.shape is Shape.TEMPLATE
