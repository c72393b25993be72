"""DaemonSets with devices, whose pods `kubectl drain` leaves on their node. Pure.

Such a pod keeps a device that the node's next system hands out as well, so it is deleted when the node has
changed hands, before other pods come. Its DaemonSet creates it again.
"""

from collections.abc import Iterable, Mapping

from kube.api.workloads import DAEMON_SET
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.workloads import Workload
from migration.plan.attempts import Candidate
from migration.plan.evidence import list_at, mapping_at, text_map
from migration.plan.model import Held, PlannedDaemonSet


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
            selector=_selector(workload),
            translated=assessed.outcome is not Outcome.NATIVE,
        )
        nodes = {
            str(mapping_at(pod.document, "spec").get("nodeName") or "") for pod in workload.pods
        }
        for node in sorted(nodes):
            daemon_sets.setdefault(node, []).append(entry)
    return daemon_sets


def _selector(workload: Workload) -> str:
    """Return the label selector for kubectl; empty if the selector has expressions."""
    document = workload.owner.document if workload.owner is not None else {}
    if list_at(document, "spec", "selector", "matchExpressions"):
        return ""
    labels = text_map(document, "spec", "selector", "matchLabels")
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def held_by_daemon_sets(candidates: Iterable[Candidate]) -> list[Held]:
    """Return the nodes with pods that no runbook finds."""
    return [
        Held(
            object=f"Node//{entry.node.name}",
            reason=f"kubectl drain leaves the pods of DaemonSet/{unknown.namespace}/{unknown.name} there with "
            "their devices, and its selector is not one of labels alone",
            fix="keep the DaemonSet from this node before the plan is made",
        )
        for entry in candidates
        for unknown in [
            daemon_set for daemon_set in entry.node.daemon_sets if not daemon_set.selector
        ][:1]
    ]
