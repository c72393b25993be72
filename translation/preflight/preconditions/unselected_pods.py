"""In a selective namespace, only pods with the label of their own are translated."""

from findings.field_path import FieldPath
from findings.finding import Code, info
from kube.names import TRANSLATE_LABEL, TRANSLATE_SELECTED
from translation.preflight.model.inputs import PodInput, Stop


def stop_at_unselected_pods(inputs: PodInput) -> Stop | None:
    """Stop at a pod without the label, in a namespace that takes part with labelled pods only."""
    namespace = inputs.namespace
    if not inputs.snapshot.is_selective(namespace) or inputs.opted_in:
        return None
    finding = info(
        Code.NOT_OPTED_IN,
        FieldPath.of("metadata", "labels"),
        f"not translated: namespace {namespace} has the label {TRANSLATE_LABEL}: "
        f'{TRANSLATE_SELECTED}, and the pod lacks the label {TRANSLATE_LABEL}: "true"',
    )
    return Stop((finding,))
