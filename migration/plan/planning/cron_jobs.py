"""CronJobs that start pods with devices while a plan is run. Pure."""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from answers.model.views import decode_view
from findings.text import printable
from kube.api.core import Pod
from kube.api.workloads import pod_path, resolve_path
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.evidence import mapping_at
from migration.cluster.workloads import Workload
from migration.plan.facts.ready_pods import node_of
from migration.plan.model.plan import Wave
from migration.plan.search.usable_nodes import EligibleNodes

_MAX_SCHEDULE: Final = 64
"""Characters of a schedule that a note shows."""
_PATCH: Final = '--patch={"spec":{"suspend":true}}'


def with_cron_jobs(
    waves: Sequence[Wave],
    cluster: AssessedCluster,
    groups: Mapping[str, Workload],
    usable: Mapping[str, frozenset[str]],
) -> Iterator[Wave]:
    """Yield the waves with a note on each CronJob with devices that is not suspended, on the first that it has to wait for.

    Its next pods may begin on nodes of a wave, before it and in it.

    Args:
        waves: The waves, in order.
        cluster: The cluster with its workloads.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
        usable: Workload to the nodes with devices of its classes that its pods may use today. They may begin on others that
            offer their keys, too.
    """
    notes: dict[int, list[str]] = {}
    eligible = EligibleNodes(cluster)
    for workload in cluster.workloads:
        group = groups.get(workload.key.reference)
        schedule = _schedule(group) if group is not None else ""
        if group is None or not schedule:
            continue
        nodes = usable.get(workload.key.reference, frozenset()) | eligible.offering(workload)
        if workload.result is None:
            nodes = _taking(group, eligible)
        if numbers := _touching(workload, nodes | _own_nodes(group), waves):
            which = f"wave {', '.join(map(str, numbers))}"
            if len(numbers) == len(waves):
                which = "each wave"
            notes.setdefault(numbers[0], []).append(
                _note(workload, schedule, which, last=numbers[-1])
            )
    for wave in waves:
        yield replace(wave, notes=(*wave.notes, *notes.get(wave.wave, ())))


def _touching(
    workload: AssessedWorkload, nodes: Collection[str], waves: Iterable[Wave]
) -> list[int]:
    """Return the numbers of the waves with nodes that the next pods of a workload may use.

    Once these get claims they begin on switched nodes only.
    """
    numbers = []
    for wave in waves:
        if any(node.name in nodes for node in wave.nodes):
            numbers.append(wave.wave)
        if workload.outcome is not Outcome.NATIVE and workload.key.namespace in wave.namespaces:
            break
    return numbers


def _taking(group: Workload, eligible: EligibleNodes) -> frozenset[str]:
    """Return the nodes that take the next pods of a workload with unknown devices; all of them if no pod can be read."""
    template: object = None
    if group.owner is not None:
        path = pod_path(group.owner.api_version, group.owner.kind)
        _, template = resolve_path(group.owner.document, path or ())
    pod = decode_view(template, Pod) if isinstance(template, Mapping) else None
    return eligible.taking_pod(pod) if isinstance(pod, Pod) else eligible.names


def _own_nodes(group: Workload) -> frozenset[str]:
    """Return the nodes of the pods of a workload."""
    return frozenset(name for name in map(node_of, group.pods) if isinstance(name, str) and name)


def _note(workload: AssessedWorkload, schedule: str, which: str, *, last: int) -> str:
    """Return the note on a CronJob.

    Args:
        workload: The CronJob.
        schedule: Its schedule.
        which: The waves that it has to wait for, as text.
        last: The number of the last of them.
    """
    key = workload.key
    namespace = f"--namespace={key.namespace}"
    suspend = shlex.join(("kubectl", "patch", "cronjob", key.name, namespace, _PATCH))
    return (
        f"{key.reference} starts pods with devices at {schedule}: run the switch.sh of {which} between two runs, "
        f"or suspend it first ({suspend}) and set suspend to false after wave {last}"
    )


def _schedule(group: Workload) -> str:
    """Return the schedule of a CronJob that is not suspended; empty for others."""
    if group.key.kind != "CronJob" or group.owner is None or group.is_suspended:
        return ""
    spec = mapping_at(group.owner.document, "spec")
    parts = (spec.get("schedule"), spec.get("timeZone"))
    text = " ".join(part for part in parts if isinstance(part, str) and part)
    return printable(text[:_MAX_SCHEDULE])
