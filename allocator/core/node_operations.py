"""Whether a node can do without the operations that a slice says are to be skipped.

Only upstream's experimental allocator looks at `skipNodeOperations`; the one that it chooses by
default ignores the field, and so do we.

Source: k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/allocator_experimental.go, allocateDevice.
"""

from typing import Final

from allocator.core.model import Features
from allocator.core.outcome import Reason, Refusal
from kube.api.resource import ResourceSlice

DECLARED: Final = "DRAOptionalNodeOperations"
"""The name under which a node declares that it can."""


def refusal(slice_: ResourceSlice, declared: frozenset[str], features: Features) -> Refusal | None:
    """Return why devices of a slice will not do on a node; None when they will.

    Args:
        declared: The node's `status.declaredFeatures`.
    """
    if not slice_.spec.skip_node_operations or not features.experimental:
        return None
    if not features.optional_node_operations:
        detail = f"its slice skips node operations, and the gate {DECLARED} is off"
    elif DECLARED not in declared:
        detail = f"its slice skips node operations, and the node does not declare {DECLARED}"
    else:
        return None
    return Refusal(reason=Reason.NODE_FEATURE, detail=detail)
