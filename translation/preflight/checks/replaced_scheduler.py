"""Pods that leave their scheduler because a label opts them in, or that it would reject.

The label of a namespace counts more than the name of a scheduler, which the webhook of a legacy system may
have set.
"""

from collections.abc import Iterator

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import quote_text
from kube.names import TRANSLATE_LABEL
from translation.preflight.model.inputs import PreflightInput
from translation.vocabularies.kai import (
    SCHEDULERS,
    check_annotations_without_share,
    check_missing_config_maps,
)
from translation.vocabularies.kai import VOCABULARY as KAI


def check_replaced_scheduler(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield findings about a pod that leaves its scheduler by a label, that KAI rejects, or that its binder completes."""
    name, options = inputs.legacy.scheduler_name, inputs.options
    bridge_scheduler = inputs.snapshot.bridge_scheduler
    if name in SCHEDULERS:
        yield from check_annotations_without_share(inputs.legacy)
    of_kai = any(owner.name == KAI.name for owner in inputs.owners)
    if of_kai:
        yield from check_missing_config_maps(inputs.legacy)
    namespace = inputs.namespace
    if options.scheduler_for(name, bridge_scheduler) is None:
        carrier = "it" if inputs.snapshot.is_selective(namespace) else f"namespace {namespace}"
        yield warning(
            Code.SCHEDULER_REPLACED,
            FieldPath.of("spec", "schedulerName"),
            f"{quote_text(name)} may not support claims, so the pod goes to "
            f"{options.scheduler_for(name, bridge_scheduler, opted_in=True)}: "
            f'{carrier} has the label {TRANSLATE_LABEL}: "true"',
            "an administrator lists the scheduler in the setting translation.adoptSchedulers"
            f"{'' if of_kai else ', with its own name if it supports claims'}",
        )
