"""Quotas, queues and gangs of another scheduler that a pod leaves."""

from collections.abc import Iterator, Mapping
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import quote_text
from kube.api.foreign_quotas import GANG_NAMES, QUOTA_NAMES
from kube.names import DEFAULT_SCHEDULER_NAME
from translation.preflight.model.inputs import PreflightInput
from translation.reading.foreign_quotas import QUOTA_FIX, or_kept_scheduler

_GANG_FIX: Final = "start the pods by a queue that admits them together, such as Kueue"

_LOSSES: Final[tuple[tuple[Mapping[str, str], str, str], ...]] = (
    (QUOTA_NAMES, "does not count its claims", QUOTA_FIX),
    (GANG_NAMES, "does not start it together with the others of its group", _GANG_FIX),
)


def check_foreign_groups(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a warning for each quota, queue and gang of another scheduler that a pod leaves.

    Nothing for a pod that such a scheduler keeps: it counts and groups its pods as before. Nor about gangs
    of pods that go to the bridge: their routing makes PodGroups of them, or says why not.
    """
    legacy, scheduler = inputs.legacy, inputs.scheduler
    if scheduler not in {"", DEFAULT_SCHEDULER_NAME, inputs.snapshot.bridge_scheduler}:
        return
    drivers = frozenset(driver for claim in inputs.claims for driver in claim.drivers)
    goes_to_bridge = bool(drivers) and drivers <= inputs.snapshot.owned_drivers
    next_scheduler = (
        inputs.snapshot.bridge_scheduler if goes_to_bridge else scheduler or DEFAULT_SCHEDULER_NAME
    )
    for field, values in (("labels", legacy.labels), ("annotations", legacy.annotations)):
        if not values:
            continue
        for names, loss, fix in _LOSSES[:1] if goes_to_bridge else _LOSSES:
            for name in sorted(name for name in values if name in names):
                yield warning(
                    Code.CLAIMS_NOT_SEEN,
                    FieldPath.of("metadata", field).key(name),
                    f"{names[name]} {loss}: the pod goes to the scheduler "
                    f"{quote_text(next_scheduler)}",
                    or_kept_scheduler(fix, names[name]),
                )
