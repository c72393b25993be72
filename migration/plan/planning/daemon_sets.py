"""The DaemonSets with pods on each node of a plan, the nodes that these hold, and nodes that pods wait for. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from answers.model.views import decode_view
from kube.api.node_selector import NodeSelector
from kube.api.workloads import DAEMON_SET
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.evidence import mapping_at
from migration.cluster.workloads import Workload
from migration.plan.facts.ready_pods import has_run, node_of
from migration.plan.facts.rollouts import pod_selector
from migration.plan.model.plan import Held, PlannedDaemonSet
from migration.plan.search.moments import Candidate
from migration.plan.stage.stage import PodKey


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


def named_nodes(groups: Iterable[Workload]) -> dict[PodKey, tuple[NodeSelector]]:
    """Return the pods that wait for nodes that their affinity names, with these; their template does not name them.

    The DaemonSet controller gives each pod its node so.
    """
    selectors: dict[PodKey, tuple[NodeSelector]] = {}
    for group in groups:
        for number, pod in enumerate(group.pods):
            spec = mapping_at(pod.document, "spec")
            affinity = mapping_at(spec, "affinity", "nodeAffinity")
            required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
            if not required or spec.get("nodeName"):
                continue
            selector = decode_view(required, NodeSelector)
            if isinstance(selector, NodeSelector) and any(
                term.match_fields for term in selector.node_selector_terms
            ):
                selectors[PodKey(group.key.reference, number)] = (selector,)
    return selectors
