"""The DaemonSets with pods on each node of a plan. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from kube.api.workloads import DAEMON_SET
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.workloads import Workload
from migration.plan.facts.ready_pods import has_run, node_of
from migration.plan.facts.rollouts import pod_selector
from migration.plan.model.plan import PlannedDaemonSet


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
