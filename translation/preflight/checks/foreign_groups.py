"""Quotas, queues and gangs of another scheduler that a pod leaves."""

from collections.abc import Iterator
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import quote_text
from kube.api.foreign_quotas import GANG_NAMES, QUOTA_NAMES
from kube.names import DEFAULT_SCHEDULER_NAME, SCHEDULER_NAME
from translation.preflight.model.inputs import PreflightInput
from translation.reading.foreign_quotas import QUOTA_FIX

_GANG_FIX: Final = (
    "start the pods by a queue that admits them together, such as Kueue; or keep the scheduler: list it in "
    "adoptSchedulers with its own name, if it allocates claims"
)


def check_foreign_groups(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a warning for each quota, queue and gang of another scheduler that a pod leaves.

    Nothing for a pod that such a scheduler keeps: it counts and groups its pods as before.
    """
    legacy, scheduler = inputs.legacy, inputs.scheduler
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
