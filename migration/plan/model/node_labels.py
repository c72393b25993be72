"""The labels that the switch of a node sets, and nodes without their cordon. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from kube.api.core import Node

_CORDON: Final = "node.kubernetes.io/unschedulable"


def with_labels(node: Node, labels: Mapping[str, str]) -> Node:
    """Return a node with additional labels."""
    metadata = msgspec.structs.replace(node.metadata, labels={**node.labels, **labels})
    return msgspec.structs.replace(node, metadata=metadata)


def without_cordon(node: Node) -> Node:
    """Return a node that takes pods."""
    taints = tuple(taint for taint in node.spec.taints or () if taint.key != _CORDON)
    spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
    return msgspec.structs.replace(node, spec=spec)
