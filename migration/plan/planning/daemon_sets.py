"""The DaemonSets with pods on each node of a plan, and the nodes that these hold. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from kube.api.workloads import DAEMON_SET
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.workloads import Workload
from migration.plan.facts.ready_pods import has_run, node_of
from migration.plan.facts.rollouts import pod_selector
from migration.plan.model.plan import Held, PlannedDaemonSet
from migration.plan.search.moments import Candidate


def daemon_sets_by_node(
    workloads: Iterable[AssessedWorkload], groups: Mapping[str, Workload]
) -> Mapping[str, list[PlannedDaemonSet]]:
    """Return node to the DaemonSets that have pods there.

    Args:
        workloads: The workloads with devices.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
    """
    daemon_sets: dict[str, list[PlannedDaemonSet]] = {}
    for assessed in workloads:
        if assessed.key.kind != DAEMON_SET:
            continue
        workload = groups[assessed.key.reference]
        entry = PlannedDaemonSet(
            namespace=workload.key.namespace,
            name=workload.key.name,
            selector=pod_selector(workload),
            translated=assessed.outcome is not Outcome.NATIVE,
        )
        is_ready: dict[str, bool] = {}
        for pod in workload.pods:
            node = str(node_of(pod) or "")
            is_ready[node] = is_ready.get(node, False) or has_run(pod)
        for node, ready in sorted(is_ready.items()):
            own = msgspec.structs.replace(entry, ready=ready)
            daemon_sets.setdefault(node, []).append(own)
    return daemon_sets


def held_by_daemon_sets(candidates: Iterable[Candidate]) -> list[Held]:
    """Return the nodes with pods that no runbook finds."""
    return [
        Held(
            object=f"Node//{entry.node.name}",
            reason=f"kubectl drain leaves the pods of DaemonSet/{unknown.namespace}/{unknown.name} there with "
            "their devices, and its selector cannot be read",
            fix="keep the DaemonSet from this node before the plan is made",
        )
        for entry in candidates
        for unknown in [
            daemon_set for daemon_set in entry.node.daemon_sets if not daemon_set.selector
        ][:1]
    ]
