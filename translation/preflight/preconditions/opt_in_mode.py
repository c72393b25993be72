"""In mode OptIn, only pods of namespaces with the label are translated."""

from findings.field_path import FieldPath
from findings.finding import Code, info
from kube.names import TRANSLATE_LABEL
from translation.cluster.snapshot import Mode
from translation.preflight.model.inputs import PodInput, Stop


def stop_without_opt_in(inputs: PodInput) -> Stop | None:
    """Stop at a pod in a namespace that does not ask for translation, in mode OptIn."""
    mode, namespace = inputs.options.mode, inputs.namespace
    if mode is not Mode.OPT_IN or inputs.opted_in:
        return None
    finding = info(
        Code.NOT_OPTED_IN,
        FieldPath.of("metadata", "namespace"),
        f"not translated: mode {mode}, and namespace {namespace} lacks the label "
        f'{TRANSLATE_LABEL}: "true"',
    )
    return Stop((finding,))
