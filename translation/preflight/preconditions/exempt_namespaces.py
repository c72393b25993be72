"""Pods of namespaces that no API server sends to the webhook are not translated."""

from findings.field_path import FieldPath
from findings.finding import Code, info
from translation.preflight.model.inputs import PodInput, Stop


def stop_in_exempt_namespaces(inputs: PodInput) -> Stop | None:
    """Stop at a pod of an exempt namespace, regardless of its labels."""
    if inputs.namespace not in inputs.options.exempt_namespaces:
        return None
    finding = info(
        Code.OPTED_OUT,
        FieldPath.of("metadata", "namespace"),
        f"not translated: API servers send no pod of the exempt namespace {inputs.namespace} to the webhook",
    )
    return Stop((finding,))
