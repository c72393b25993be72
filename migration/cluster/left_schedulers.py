"""The schedulers that pods leave once they get claims. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from findings.finding import Code
from findings.text import quote_text
from kube.manifests.source import SourceObject
from migration.cluster.device_pods import pod_of
from migration.settings_import.legacy_settings import KOORDINATOR_SCHEDULER
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.vocabularies import tensorfusion

_OF_SHARES: Final = frozenset({"hami-scheduler", KOORDINATOR_SCHEDULER, tensorfusion.SCHEDULER})
"""Schedulers that pods leave together with the shares that these hand out. Koordinator's quotas and gangs are named by
findings on the pods."""
LEFT_SCHEDULER_FIX: Final = (
    "limit claims by a DeviceQuota or by Kueue, and start groups of pods by Kueue; or an administrator lists it in the setting "
    "translation.adoptSchedulers with its own name, if it allocates claims"
)


def has_other_scheduler(
    pods: Iterable[SourceObject], snapshot: TranslationSnapshot, options: TranslationOptions
) -> bool:
    """Return True if a webhook gave live pods to a legacy system's scheduler that they have to leave."""
    specs = (pod.document.get("spec") for pod in pods)
    names = (spec.get("schedulerName", "") for spec in specs if isinstance(spec, Mapping))
    return any(
        isinstance(name, str) and options.scheduler_for(name, snapshot.bridge_scheduler) != name
        for name in names
    )


def left_schedulers(
    sources: Iterable[SourceObject], snapshot: TranslationSnapshot, options: TranslationOptions
) -> tuple[str, ...]:
    """Return the schedulers that pods leave only because a label opts them in, as the webhook decides it.

    None of those for which an administrator chose another, or that hand out shares and nothing else.

    Args:
        sources: Pods, and objects with a template of pods.
    """
    names = {pod.spec.scheduler_name for source in sources if (pod := pod_of(source)) is not None}
    return tuple(
        sorted(
            name
            for name in names - _OF_SHARES
            if options.scheduler_for(name, snapshot.bridge_scheduler) is None
        )
    )


def left_scheduler_loss(name: str) -> str:
    """Return the loss of pods that leave a scheduler.

    >>> left_scheduler_loss("volcano")
    'leaves scheduler "volcano": its queues, fair share and gangs no longer apply [schedulerReplaced]'
    """
    return (
        f"leaves scheduler {quote_text(name)}: its queues, fair share and gangs no longer apply "
        f"[{Code.SCHEDULER_REPLACED}]"
    )
