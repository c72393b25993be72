"""Quotas of other schedulers that stop counting a pod.

Such a quota counts the device keys of pods. A pod that leaves its scheduler has claims, which it does not see.
"""

from collections.abc import Collection, Iterator
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from kube.names import DEFAULT_SCHEDULER_NAME
from translation.model.intents import LegacyPod
from translation.preflight.model.inputs import PreflightInput
from translation.reading.foreign_quotas import QUOTA_FIX, or_kept_scheduler

MAX_NAMED: Final = 5
"""The number of keys and of quotas that are named in findings of one pod."""


def check_foreign_quotas(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a warning for each quota of another scheduler that stops counting a pod.

    Nothing for a pod that such a scheduler keeps: it counts its pods as before.
    """
    if inputs.scheduler not in {"", DEFAULT_SCHEDULER_NAME, inputs.snapshot.bridge_scheduler}:
        return
    quotas = inputs.snapshot.foreign_quotas.get(inputs.namespace, ())
    counting = [(quota, keys) for quota in quotas if (keys := quota.counted_keys(inputs.owners))]
    for quota, keys in counting[:MAX_NAMED]:
        yield warning(
            Code.CLAIMS_NOT_SEEN,
            _place(inputs.legacy, keys),
            f"{quota.label} limits {', '.join(keys[:MAX_NAMED])} in this namespace, and {quota.owner} does not "
            "count the claims of the pod",
            or_kept_scheduler(QUOTA_FIX, quota.owner),
        )


def _place(legacy: LegacyPod, keys: Collection[str]) -> FieldPath:
    """Return the place of a counted key, else of the first amount of a device, else the whole pod."""
    annotated = [key for key in keys if key in legacy.annotations]
    if annotated:
        return FieldPath.of("metadata", "annotations").key(annotated[0])
    amounts: list[tuple[bool, FieldPath]] = [
        (key not in keys, container.limit_path(key))
        for container in legacy.containers
        for key in sorted(container.limits)
    ]
    return min(amounts, key=lambda entry: entry[0])[1] if amounts else FieldPath.of("spec")
