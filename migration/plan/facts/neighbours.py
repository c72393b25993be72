"""Notes on autoscalers and queues beside a migration, with an action for each statement. Pure."""

from collections.abc import Mapping
from typing import Final

from translation.cluster.component_statements import Component, Statement, Topic

_KEEP_NODES: Final = "count on no new node of its pools for these pods: keep as many as they need, or add nodes by hand"
_ACTIONS: Final[Mapping[tuple[Component, Topic], str]] = {
    (Component.CLUSTER_AUTOSCALER, Topic.SEES_CLAIMS): (
        "before this wave see that --enable-dynamic-resource-allocation is true, or, from 1.35 on, not set"
    ),
    (Component.CLUSTER_AUTOSCALER, Topic.SCALE_FROM_ZERO): (
        "keep a healthy node with the DRA driver in each of its groups, as their least size"
    ),
    (Component.KARPENTER, Topic.SEES_CLAIMS): _KEEP_NODES,
    (Component.KARPENTER, Topic.SCALE_FROM_ZERO): _KEEP_NODES,
    (Component.KARPENTER, Topic.EXTENDED_RESOURCES): _KEEP_NODES,
    (Component.KARPENTER, Topic.NATIVE): (
        "delete the NodeClaim of such a node by hand once the node is empty"
    ),
    (Component.KARPENTER, Topic.EXPIRY): (
        "end all waves before the oldest of these nodes expires (kubectl get nodeclaims shows their age), or plan for nodes of "
        "a NodePool with expireAfter: Never; a change of expireAfter makes the nodes of its NodePool drift"
    ),
    (Component.KUEUE, Topic.COUNTS_TEMPLATE): (
        "leave the quota of the device keys in its ClusterQueue until the templates themselves have claims"
    ),
    (Component.KUEUE, Topic.COUNTS_POD): (
        "before this wave give its ClusterQueue a quota of the resource that deviceClassMappings names for their class"
    ),
    (Component.KUEUE, Topic.UNMAPPED_CLASS): (
        "before this wave add the classes of their claims to deviceClassMappings"
    ),
    (Component.KUEUE, Topic.SHARES): (
        "set the quota in its ClusterQueue to the number of shares that may run, or use sources with capacity"
    ),
}


def statement_note(statement: Statement) -> str:
    """Return a note with a statement, its source, and the action.

    >>> from translation.cluster.component_statements import statements_about
    >>> (statement,) = statements_about(Component.KARPENTER, Topic.NATIVE)
    >>> statement_note(statement).rpartition(": ")[2]
    'delete the NodeClaim of such a node by hand once the node is empty'
    """
    action = _ACTIONS.get((statement.component, statement.topic), "")
    return f"{statement.sentence} [{statement.source}]{f': {action}' if action else ''}"
