"""CronJobs that start pods with devices while a plan is run. Pure."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from findings.text import printable
from migration.assessment.evidence import mapping_at
from migration.assessment.outcomes import AssessedWorkload
from migration.assessment.workloads import Workload
from migration.plan.model.plan import Wave

_MAX_SCHEDULE: Final = 64
"""Characters of a schedule that a note shows."""
_PATCH: Final = '--patch={"spec":{"suspend":true}}'


def with_cron_jobs(
    waves: Iterable[Wave], workloads: Iterable[AssessedWorkload], groups: Mapping[str, Workload]
) -> Iterator[Wave]:
    """Yield the waves, the first with a note on each CronJob with devices that is not suspended.

    The next pods of such a CronJob may begin on the nodes of any wave, before it and in it.

    Args:
        waves: The waves, in order.
        workloads: The assessed workloads, all with device keys.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
    """
    notes = tuple(_notes(workloads, groups))
    for number, wave in enumerate(waves):
        yield replace(wave, notes=(*wave.notes, *notes)) if notes and not number else wave


def _notes(workloads: Iterable[AssessedWorkload], groups: Mapping[str, Workload]) -> Iterator[str]:
    for workload in workloads:
        group = groups.get(workload.key.reference)
        schedule = _schedule(group) if group is not None else ""
        if schedule:
            key = workload.key
            namespace = f"--namespace={key.namespace}"
            suspend = shlex.join(("kubectl", "patch", "cronjob", key.name, namespace, _PATCH))
            yield (
                f"{key.reference} starts pods with devices at {schedule}: run the switch.sh of each wave between two runs, "
                f"or suspend it first ({suspend}) and set suspend to false after the last wave"
            )


def _schedule(group: Workload) -> str:
    """Return the schedule of a CronJob that is not suspended; empty for others."""
    if group.key.kind != "CronJob" or group.owner is None or group.is_suspended:
        return ""
    spec = mapping_at(group.owner.document, "spec")
    parts = (spec.get("schedule"), spec.get("timeZone"))
    text = " ".join(part for part in parts if isinstance(part, str) and part)
    return printable(text[:_MAX_SCHEDULE])
