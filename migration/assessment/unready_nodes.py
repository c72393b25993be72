"""Nodes that the Cluster Autoscaler takes for unready by a label of GPUs once they are switched, as notes. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kube.manifests.source import SourceObject
from migration.assessment.blockers import Blocker
from migration.cluster.node_devices import NodeDevices, with_renamed
from migration.legacy.gpu_labels import is_halted, unready_label, unready_reason, unready_remedy

_HALTS: Final = "; with all of these switched it adds and removes no node of the cluster"


def unready_notes(
    nodes: Iterable[NodeDevices],
    objects: Sequence[SourceObject],
    renamed_keys: Mapping[str, str],
) -> Iterator[Blocker]:
    """Yield a note for each label of GPUs of nodes that a switch makes unready for the Cluster Autoscaler, or has made so.

    Args:
        nodes: The nodes with devices, without those that stay with their device plugin.
        objects: The cluster's objects.
        renamed_keys: Resource name in pods to the name that it stands for.
    """
    documents = {
        source.name: source.document
        for source in objects
        if (source.api_version, source.kind) == ("v1", "Node")
    }
    labels: dict[str, str] = {}
    for node in nodes:
        keys = with_renamed(tuple({device.key for device in node.legacy}), renamed_keys)
        if label := unready_label(documents.get(node.node, {}), keys):
            labels[node.node] = label
    unready = {name for name, document in documents.items() if unready_label(document)}
    halts = _HALTS if is_halted(len(unready | labels.keys()), len(documents)) else ""
    for label in sorted(set(labels.values())):
        yield Blocker(
            code="gpuLabel",
            message=f"{unready_reason(label)}, and a switched node has none{halts}",
            fix=unready_remedy(label, objects),
            objects=tuple(f"Node//{name}" for name, own in labels.items() if own == label),
        )
