"""Checks of the pods with devices on the nodes of a wave: a plan has each of them. Pure.

A drain takes pods that have come since the plan was made, too, and no script and no page names these.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from findings.text import join_names
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.unmoved import unmoved_text
from migration.cluster.workloads import Workload
from migration.plan.checks.checks import Check, failed_check, note_check
from migration.plan.facts.ready_pods import is_leaving, node_of
from migration.plan.facts.work import runs_out
from migration.plan.model.plan import RESTARTED_KINDS, Plan, PlannedNode

_UNPLANNED: Final = "the plan does not have it, and {} on {} would {}: let it end or move it elsewhere, or plan again from a new snapshot"
_EVICTED: Final = "be evicted, with nothing that waits for the next one"
_COMES_AGAIN: Final = (
    "no wave of the plan has it, and {} on {} will be evicted: its pods come again with their device keys on any node that has "
    "devices for these, and no script waits for that"
)
_STAYING: Final = "keep its devices there, which the DRA driver would hand out again"


def check_unplanned(
    plan: Plan,
    nodes: Iterable[PlannedNode],
    cluster: AssessedCluster,
    groups: Mapping[str, Workload],
) -> Iterator[Check]:
    """Yield a failed check for each workload with pods on some nodes that nothing in a plan moves; a note if it comes again.

    Pods that run to their end are left out, since `switch.sh` waits for those of today, and pods without a controller,
    since a drain stops at them.

    Args:
        plan: The whole plan. A drain may bring pods of each of its workloads to the nodes.
        nodes: The nodes of it that are drained.
        cluster: The cluster as it is now.
        groups: Workload, as `Kind/namespace/name`, to its pods with devices.
    """
    planned = _planned_workloads(plan)
    daemon_sets = {node.name: {entry.reference for entry in node.daemon_sets} for node in nodes}
    for workload in cluster.workloads:
        reference, kind = workload.key.reference, workload.key.kind
        if kind == "Pod":
            continue
        pods = [
            pod
            for pod in groups[reference].pods
            if (own := daemon_sets.get(str(node_of(pod)))) is not None
            and reference not in (own if kind == DAEMON_SET else planned)
            and not is_leaving(pod)
            and not runs_out(pod)
        ]
        if not pods:
            continue
        if _is_known_native(plan, workload):
            yield note_check(reference, _COMES_AGAIN.format(*_names(pods)))
            continue
        effect = _STAYING if kind == DAEMON_SET else _EVICTED
        text = _UNPLANNED.format(*_names(pods), effect)
        if workload.result is None:
            cause, fix = unmoved_text(workload, cluster.unserved_next.get(reference, ()))
            text = f"{text}; {cause}: {fix}"
        yield failed_check(reference, text)


def _is_known_native(plan: Plan, workload: AssessedWorkload) -> bool:
    """Return True for a native workload that a plan saw, and that creates its evicted pods again.

    Kubernetes serves these on either side. No wave of the plan has it where it had no pods then, or none on a node of a wave.
    """
    reference = workload.key.reference
    return (
        workload.outcome is Outcome.NATIVE
        and workload.key.kind in RESTARTED_KINDS
        and reference in (plan.scheduled_pods or {})
        and all(entry.object != reference for entry in plan.held)
    )


def _planned_workloads(plan: Plan) -> Collection[str]:
    """Return the workloads that a plan restarts, evicts, waits for or asks about, as `Kind/namespace/name`."""
    return {
        *(entry.object for entry in plan.opted_in_before),
        *(
            entry.object
            for wave in plan.waves
            for entry in (*wave.workloads, *wave.evicted_workloads)
        ),
        *(work.owner for wave in plan.waves for work in wave.work),
    }


def _names(pods: Iterable[SourceObject]) -> tuple[str, str]:
    """Return the names of pods, and those of their nodes."""
    names = {pod.name: str(node_of(pod)) for pod in pods}
    return join_names([*names]), join_names([*dict.fromkeys(names.values())])
