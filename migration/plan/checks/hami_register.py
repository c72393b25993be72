"""The GPUs that HAMi's plugin has registered on a node and left there. Pure.

Source: Project-HAMi/HAMi v2.9.0, pkg/scheduler/scheduler.go, register: a node with both annotations and without a plugin is
counted again for a minute at a time.
"""

from migration.assessment.evidence import text_map
from translation.vocabularies.hami.keys import NODE_HANDSHAKE, NODE_REGISTER


def left_register(node: object) -> str:
    """Return the advice for a switched node that HAMi's scheduler may count again; empty if it does not."""
    annotations = text_map(node, "metadata", "annotations")
    if not (annotations.get(NODE_REGISTER) and annotations.get(NODE_HANDSHAKE)):
        return ""
    name = text_map(node, "metadata").get("name", "")
    return (
        f"; HAMi 2.9 and 2.10 may bind pods with device keys there: once its annotation {NODE_HANDSHAKE} begins with Deleted_ or "
        f"is gone, kubectl annotate node {name} {NODE_REGISTER}-"
    )
