"""The labels that the switch of a node sets. Pure."""

from collections.abc import Mapping

import msgspec

from kube.api.core import Node


def with_labels(node: Node, labels: Mapping[str, str]) -> Node:
    """Return a node with additional labels."""
    metadata = msgspec.structs.replace(node.metadata, labels={**node.labels, **labels})
    return msgspec.structs.replace(node, metadata=metadata)
