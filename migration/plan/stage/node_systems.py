"""The systems that hand out the devices of nodes today, as labels that simulated pods select nodes by. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from answers.model.cluster_state import ClusterState
from migration.cluster.node_devices import NodeDevices, Source
from migration.plan.model.node_labels import with_labels

SYSTEM: Final = "simulated-system"
"""Label of nodes with the system that hands out their devices today, where device keys ask one alone."""
OWN_NAMES: Final = "simulated-own-names"
"""Label of nodes whose GPUs have only names of their system until they are switched: no pod with `nvidia.com/gpu` fits there."""
_SYSTEMS: Final = frozenset({Source.DEVICE_PLUGIN, Source.HAMI, Source.KOORDINATOR})


def systems_by_node(nodes: Iterable[NodeDevices]) -> dict[str, str]:
    """Return node to the legacy system that hands out its devices; without those of two systems, or of a DRA driver."""
    return {node.node: node.source.value for node in nodes if node.source in _SYSTEMS}


def with_systems(state: ClusterState, nodes: Iterable[NodeDevices]) -> ClusterState:
    """Return a cluster with the labels of their system on its nodes.

    Args:
        state: The cluster.
        nodes: The devices of its nodes.
    """
    nodes = tuple(nodes)
    labels = {name: {SYSTEM: system} for name, system in systems_by_node(nodes).items()}
    for node in nodes:
        if node.has_own_names:
            labels.setdefault(node.node, {})[OWN_NAMES] = "true"
    labelled = tuple(
        with_labels(node, labels[node.metadata.name]) if node.metadata.name in labels else node
        for node in state.nodes
    )
    return msgspec.structs.replace(state, nodes=labelled)
