"""Pods that another converter gave claims are not translated."""

from findings.field_path import FieldPath
from findings.finding import Code, info
from translation.preflight.model.inputs import PodInput, Stop
from translation.reading.legacy_pod import CONVERTED_LABELS, find_label


def stop_at_converted_pods(inputs: PodInput) -> Stop | None:
    """Stop at a pod with the label of another converter."""
    label = find_label(inputs.legacy.labels, CONVERTED_LABELS)
    if label is None:
        return None
    finding = info(
        Code.ALREADY_CONVERTED,
        FieldPath.of("metadata", "labels"),
        f"label {label}: another converter created this pod's claims",
    )
    return Stop((finding,))
