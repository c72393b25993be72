"""Notes of waves on smaller cards for pods of nodes that get one driver with nodes of another system. Pure."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from findings.text import join_names
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.blockers import claims_ahead
from migration.legacy.smaller_cards import CardSizes, SmallerCards, SwitchedNode
from migration.plan.model.node_labels import with_labels
from migration.plan.model.plan import PlannedWorkload, Wave


class SmallerCardNotes:
    """The notes on workloads with smaller cards ahead.

    Args:
        waves: All waves of the plan.
        cluster: The cluster.
        live_nodes: Workload to the nodes of its pods.
    """

    def __init__(
        self,
        waves: Sequence[Wave],
        cluster: AssessedCluster,
        live_nodes: Mapping[str, Iterable[str]],
    ) -> None:
        nodes_by_name = {node.metadata.name: node for node in cluster.state.nodes}
        nodes = [node for entry in waves for node in entry.nodes]
        planned = {
            node.name: SwitchedNode(
                frozenset(node.devices), with_labels(nodes_by_name[node.name], node.labels)
            )
            for node in nodes
        }
        changed = frozenset(key for node in nodes for key in node.labels)
        self._sizes = CardSizes(planned, changed, cluster.nodes, cluster.state)
        self._assessed = {workload.key.reference: workload for workload in cluster.workloads}
        self._live_nodes = live_nodes

    def with_notes(self, wave: Wave) -> Wave:
        """Return a wave with notes on its workloads with smaller cards ahead."""
        workloads: list[PlannedWorkload] = []
        names: dict[SmallerCards, list[str]] = {}
        for entry in wave.workloads:
            own, workload = frozenset(self._live_nodes[entry.object]), self._assessed[entry.object]
            smaller = self._sizes.smaller(
                workload.key, workload.members, claims_ahead(workload), own
            )
            if smaller is None:
                workloads.append(entry)
                continue
            names.setdefault(smaller, []).append(entry.object)
            loss = f"with claims they may get cards of {smaller.size}, with their device keys they have cards of {smaller.used}"
            losses = (*entry.losses, loss) if entry.is_restarted else entry.losses
            workloads.append(msgspec.structs.replace(entry, losses=losses))
        notes = (_note(own, smaller) for smaller, own in names.items())
        return msgspec.structs.replace(
            wave, workloads=tuple(workloads), notes=(*wave.notes, *notes)
        )


def _note(references: Sequence[str], smaller: SmallerCards) -> str:
    if smaller.leaves:
        verb = "have" if smaller.is_switched else "get"
        return (
            f"pods of {join_names(references)} leave their cards of {smaller.used}, and may get smaller cards: they request "
            f"whole cards or a percentage, their nodes get no driver of such claims, and {join_names(smaller.nodes)} with "
            f"cards of {smaller.size} {verb} it; a node selector would leave them without a node, so request an amount of "
            "memory before this wave if they need more"
        )
    selector = (
        f"the node selector {smaller.label}, which their nodes have and these have not,"
        if smaller.label
        else "a node selector, by a label that you give their nodes,"
    )
    when = (
        ", which have the same driver already"
        if smaller.is_switched
        else " as soon as these have the same driver"
    )
    return (
        f"pods of {join_names(references)} may get smaller cards: they request whole cards or a percentage, run on cards of "
        f"{smaller.used} today, and fit {join_names(smaller.nodes)} with cards of {smaller.size}{when}; "
        f"another system has kept them from these nodes so far; give them {selector} "
        "before this wave, or request an amount of memory"
    )
