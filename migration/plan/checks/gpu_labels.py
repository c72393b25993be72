"""Notes on nodes that the Cluster Autoscaler takes for unready by a label of GPUs, before a wave and after it. Pure.

Nodes without a device plugin count whether they are of the plan or not.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from findings.text import join_names
from migration.legacy.gpu_labels import is_halted, unready_label
from migration.plan.checks.checks import Check, ClusterView, note_check
from migration.plan.model.plan import Plan, Wave
from migration.plan.neighbours.node_autoscalers import SCALE_DOWN_DISABLED, halt_text, halted_text


def check_gpu_labels(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield a note on switched nodes that have such a label still, and one if the autoscaler halts after this wave.

    Args:
        plan: The whole plan.
        wave: The wave that is to begin.
        view: The cluster.
    """
    nodes = _nodes(view)
    unready = _unready_labels(nodes)
    yield from _switched_notes(plan, wave.wave - 1, unready)
    coming = {
        node.name
        for node in wave.nodes
        if node.name in nodes and unready_label(nodes[node.name], node.resources)
    }
    count = len(unready.keys() | coming)
    if coming - unready.keys() and is_halted(count, len(nodes)):
        yield note_check("Cluster//", halt_text(count, len(nodes)))


def check_switched_labels(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield a note on nodes with such a label that are switched by now, and one if the autoscaler halts for these.

    Args:
        plan: The whole plan.
        wave: The wave that is done.
        view: The cluster.
    """
    nodes = _nodes(view)
    unready = _unready_labels(nodes)
    notes = [*_switched_notes(plan, wave.wave, unready)]
    yield from notes
    if notes and is_halted(len(unready), len(nodes)):
        yield note_check("Cluster//", halted_text(len(unready), len(nodes)))


def _nodes(view: ClusterView) -> dict[str, Mapping[str, Any]]:
    """Return the nodes of a cluster by name."""
    return {
        source.name: source.document
        for source in view.objects
        if (source.api_version, source.kind) == ("v1", "Node")
    }


def _unready_labels(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the nodes that are unready by a label of GPUs, each with the label."""
    labels = {name: unready_label(document) for name, document in nodes.items()}
    return {name: label for name, label in labels.items() if label}


def _switched_notes(plan: Plan, last: int, unready: Mapping[str, str]) -> Iterator[Check]:
    """Yield a note on the nodes of all waves up to one that are unready by their label.

    Args:
        plan: The whole plan.
        last: The number of the wave.
        unready: Node that is unready to its label.
    """
    switched = [
        node.name
        for wave in plan.waves
        if wave.wave <= last
        for node in wave.nodes
        if node.gpu_label and node.name in unready
    ]
    if switched:
        labels = sorted({unready[name] for name in switched})
        yield note_check(
            "Cluster//",
            f"Cluster Autoscaler takes {join_names(switched)} for unready by the label {', '.join(labels)}, see the notes of the "
            f"plan on it: leave {SCALE_DOWN_DISABLED} on them until it is seen to",
        )
