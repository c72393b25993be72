"""The nodes of a cluster by the use of their devices. Pure."""

from collections.abc import Mapping, Sequence

from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.outcomes import Outcome, translated_pod
from migration.cluster.evidence import mapping_at
from migration.cluster.node_devices import Source
from migration.plan.model.nodes_by_use import NodesByUse
from translation.cluster.native_allocation import makes_claims_of_names


def nodes_by_use(
    cluster: AssessedCluster,
    live_nodes: Mapping[str, Sequence[str]],
    changed_by_kai: frozenset[str],
) -> NodesByUse:
    """Return the nodes by the outcome of the workloads with pods there.

    Args:
        cluster: The cluster.
        live_nodes: Workload, as `Kind/namespace/name`, to the nodes of its pods.
        changed_by_kai: The workloads with shares that KAI's webhook changes, as `Kind/namespace/name`.
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
        kept_schedulers=_kept_schedulers(cluster),
        changed_by_kai=changed_by_kai,
    )


def _kept_schedulers(cluster: AssessedCluster) -> dict[str, str]:
    """Return the workloads that get claims to the scheduler of others that has to allocate these."""
    schedulers = {
        workload.key.reference: str(
            mapping_at(translated_pod(workload.result), "spec").get("schedulerName") or ""
        )
        for workload in cluster.workloads
        if workload.result is not None and workload.outcome is not Outcome.NATIVE
    }
    bridge = cluster.state.bridge_scheduler
    return {
        reference: name
        for reference, name in schedulers.items()
        if not makes_claims_of_names(name, bridge)
    }
