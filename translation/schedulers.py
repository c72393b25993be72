"""The scheduler of a pod: whether it allocates claims, and which one does where it does not.

The label of a namespace that opts in counts more than the name of a scheduler, which the webhook of a
legacy system may have set.
"""

from collections.abc import Iterator

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from findings.text import quote_text
from kube.names import TRANSLATE_LABEL
from translation.intents import LegacyPod
from translation.snapshot import TranslationOptions


def check_replaced_scheduler(
    legacy: LegacyPod, namespace: str, options: TranslationOptions
) -> Iterator[Finding]:
    """Yield a warning where a pod leaves its scheduler only because its namespace opted in."""
    name = legacy.scheduler_name
    if options.scheduler_for(name) is None:
        yield warning(
            Code.SCHEDULER_REPLACED,
            FieldPath.of("spec", "schedulerName"),
            f"{quote_text(name)} may not support claims, so the pod goes to "
            f"{options.scheduler_for(name, opted_in=True)}: namespace {namespace} has the label "
            f'{TRANSLATE_LABEL}: "true"',
            "list the scheduler in adoptSchedulers, with its own name if it supports claims",
        )


def check_kept_scheduler(
    name: str, kept_name: str, options: TranslationOptions
) -> Iterator[Finding]:
    """Yield a warning where an update names another scheduler than that of the translated pod."""
    if options.scheduler_for(name) is None:
        yield warning(
            Code.SCHEDULER_REPLACED,
            FieldPath.of("spec", "schedulerName"),
            f"the pod was translated and stays with {kept_name}, not {quote_text(name)}",
        )


def check_scheduler(
    legacy: LegacyPod, options: TranslationOptions, *, opted_in: bool
) -> Iterator[Finding]:
    """Yield the reason why no scheduler allocates claims for a pod."""
    if legacy.node_name and legacy.is_scheduled:
        yield info(
            Code.NODE_NAME_SET,
            FieldPath.of("spec", "nodeName"),
            "not translated: the pod is bound already; pods that replace it are translated",
        )
    elif legacy.node_name:
        yield warning(
            Code.NODE_NAME_SET,
            FieldPath.of("spec", "nodeName"),
            "not translated: nodeName bypasses the scheduler, and only a scheduler allocates claims",
            "remove nodeName, or select the node with a nodeSelector",
        )
    elif options.scheduler_for(legacy.scheduler_name, opted_in=opted_in) is None:
        yield warning(
            Code.FOREIGN_SCHEDULER,
            FieldPath.of("spec", "schedulerName"),
            f"not translated: {quote_text(legacy.scheduler_name)} may not support claims",
            "remove schedulerName, list the scheduler in adoptSchedulers, or label the namespace "
            f"{TRANSLATE_LABEL}=true",
        )
