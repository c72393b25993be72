"""The message of kube-scheduler's event FailedScheduling: the number of rejected nodes per reason.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/types.go, FitError.Error; the reasons are those of
the first plugin that rejects a node.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

CANNOT_ALLOCATE: Final = "cannot allocate all claims"
"""Counted for a node on which claims cannot be allocated. Source: dynamicresources.go."""
NOT_ON_THIS_NODE: Final = "resourceclaim not available on the node"
"""Counted for a node that cannot reach the devices of an allocated claim."""


def count_reasons(
    rejected: Iterable[Iterable[str]], nodes_without_devices: int
) -> Mapping[str, int]:
    """Return the number of nodes by reason.

    Args:
        rejected: The reasons of each node that is rejected before its devices are evaluated.
        nodes_without_devices: Number of the other nodes, on which the claims cannot be allocated.
    """
    counts = Counter(reason for reasons in rejected for reason in reasons)
    counts[CANNOT_ALLOCATE] += nodes_without_devices
    return {reason: count for reason, count in counts.items() if count}


def failed_scheduling(counts: Mapping[str, int], nodes: int) -> str:
    """Return the message without its part about preemption.

    Args:
        counts: Reason to number of nodes; a node may have several.
        nodes: Number of all nodes.

    >>> failed_scheduling({"Insufficient memory": 10, "Insufficient cpu": 2}, 12)
    '0/12 nodes are available: 10 Insufficient memory, 2 Insufficient cpu.'
    """
    # Sorted as texts, so that 10 comes before 2.
    reasons = sorted(f"{count} {reason}" for reason, count in counts.items())
    head = f"0/{nodes} nodes are available:"
    return f"{head} {', '.join(reasons)}." if reasons else head
