"""The scheduler of a pod: whether it allocates claims, and which one does where it does not.

The label of a namespace that opts in counts more than the name of a scheduler, which the webhook of a
legacy system may have set.
"""

from collections.abc import Iterator
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from findings.text import quote_text
from kube.api.foreign_quotas import GANG_NAMES, QUOTA_NAMES
from kube.names import DEFAULT_SCHEDULER_NAME, SCHEDULER_NAME, TRANSLATE_LABEL
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.model.intents import LegacyPod
from translation.reading.foreign_quotas import QUOTA_FIX


def check_replaced_scheduler(
    legacy: LegacyPod, namespace: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Iterator[Finding]:
    """Yield a warning where a pod leaves its scheduler only because a label opts it in."""
    name = legacy.scheduler_name
    if options.scheduler_for(name) is None:
        carrier = "it" if snapshot.is_selective(namespace) else f"namespace {namespace}"
        yield warning(
            Code.SCHEDULER_REPLACED,
            FieldPath.of("spec", "schedulerName"),
            f"{quote_text(name)} may not support claims, so the pod goes to "
            f"{options.scheduler_for(name, opted_in=True)}: "
            f'{carrier} has the label {TRANSLATE_LABEL}: "true"',
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


def check_foreign_groups(
    legacy: LegacyPod, options: TranslationOptions, *, opted_in: bool
) -> Iterator[Finding]:
    """Yield a warning for each quota, queue and gang of another scheduler that a pod leaves.

    Nothing for a pod that such a scheduler keeps: it counts and groups its pods as before.

    Args:
        opted_in: As of `TranslationOptions.scheduler_for`.
    """
    scheduler = options.scheduler_for(legacy.scheduler_name, opted_in=opted_in)
    if scheduler not in {"", DEFAULT_SCHEDULER_NAME, SCHEDULER_NAME}:
        return
    for field, values in (("labels", legacy.labels), ("annotations", legacy.annotations)):
        for names, loss, fix in (
            (QUOTA_NAMES, "does not count its claims", QUOTA_FIX),
            (GANG_NAMES, "does not start it together with the others of its group", _GANG_FIX),
        ):
            for name in sorted(values.keys() & names.keys()):
                yield warning(
                    Code.CLAIMS_NOT_SEEN,
                    FieldPath.of("metadata", field).key(name),
                    f"{names[name]} {loss}: the pod goes to the scheduler "
                    f"{quote_text(scheduler or DEFAULT_SCHEDULER_NAME)}",
                    fix,
                )


_GANG_FIX: Final = (
    "start the pods by a queue that admits them together, such as Kueue; or keep the scheduler: list it in "
    "adoptSchedulers with its own name, if it allocates claims"
)
