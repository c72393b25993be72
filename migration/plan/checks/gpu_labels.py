"""Notes before a wave on nodes that the Cluster Autoscaler takes for unready by a label of GPUs. Pure.

Nodes without a device plugin count whether they are of the plan or not.
"""

from collections.abc import Iterator

from findings.text import join_names
from migration.plan.checks.checks import Check, ClusterView, note_check
from migration.plan.facts.node_autoscalers import (
    SCALE_DOWN_DISABLED,
    halt_text,
    is_halted,
    unready_label,
)
from migration.plan.model.plan import Plan, Wave


def check_gpu_labels(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield a note on switched nodes that have such a label still, and one if the autoscaler halts after this wave.

    Args:
        plan: The whole plan.
        wave: The wave that is to begin.
        view: The cluster.
    """
    nodes = {
        source.name: source.document
        for source in view.objects
        if (source.api_version, source.kind) == ("v1", "Node")
    }
    unready = {name for name, document in nodes.items() if unready_label(document)}
    switched = [
        node.name
        for earlier in plan.waves
        if earlier.wave < wave.wave
        for node in earlier.nodes
        if node.gpu_label and node.name in unready
    ]
    if switched:
        labels = sorted({unready_label(nodes[name]) for name in switched})
        yield note_check(
            "Cluster//",
            f"Cluster Autoscaler takes {join_names(switched)} for unready by the label {', '.join(labels)}, see the notes of the "
            f"plan on it: leave {SCALE_DOWN_DISABLED} on them until it is seen to",
        )
    coming = {
        node.name
        for node in wave.nodes
        if node.name in nodes and unready_label(nodes[node.name], node.resources)
    }
    count = len(unready | coming)
    if coming - unready and is_halted(count, len(nodes)):
        yield note_check("Cluster//", halt_text(count, len(nodes)))
