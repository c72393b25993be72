"""The nodes of a cluster by the use of their devices. Pure."""

from collections.abc import Mapping, Sequence

from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.outcomes import Outcome
from migration.cluster.node_devices import Source
from migration.plan.model.nodes_by_use import NodesByUse


def nodes_by_use(cluster: AssessedCluster, live_nodes: Mapping[str, Sequence[str]]) -> NodesByUse:
    """Return the nodes by the outcome of the workloads with pods there.

    Args:
        cluster: The cluster.
        live_nodes: Workload, as `Kind/namespace/name`, to the nodes of its pods.
    """
    nodes: dict[bool, set[str]] = {True: set(), False: set()}
    for workload in cluster.workloads:
        is_native = workload.outcome is Outcome.NATIVE
        nodes[is_native].update(live_nodes.get(workload.key.reference, ()))
    return NodesByUse(
        native=frozenset(nodes[True]),
        claims=frozenset(nodes[False]),
        native_workloads={
            workload.key.reference: workload.keys
            for workload in cluster.workloads
            if workload.outcome is Outcome.NATIVE
        },
        hami=frozenset(entry.node for entry in cluster.nodes if entry.source is Source.HAMI),
    )
