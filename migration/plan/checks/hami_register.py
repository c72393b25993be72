"""The GPUs that HAMi's plugin has registered on a node and left there. Pure.

A node without a plugin is counted again for a minute at a time. With HAMi 2.10 it has no handshake in between, and nothing tells
it from a node of HAMi 2.8, which is not counted again.

Source: Project-HAMi/HAMi v2.9.0 and branch release-v2.10, pkg/scheduler/scheduler.go (register) and pkg/device/devices.go
(CheckHealth).
"""

from migration.cluster.evidence import text_map
from translation.vocabularies.hami.keys import NODE_HANDSHAKE, NODE_REGISTER


def left_register(node: object) -> str:
    """Return the advice for a switched node that HAMi's scheduler may count again; empty if it does not."""
    annotations = text_map(node, "metadata", "annotations")
    if not annotations.get(NODE_REGISTER):
        return ""
    name = text_map(node, "metadata").get("name", "")
    return (
        f"; HAMi 2.9 and 2.10 may bind pods with device keys there: once its annotation {NODE_HANDSHAKE} begins with Deleted_ or "
        f"is gone, kubectl annotate node {name} {NODE_REGISTER}-"
    )
