"""Slices that skip node operations; these need a node that declares the feature.

Only upstream's experimental allocator reads `skipNodeOperations`. Its default allocator ignores
the field, and so does this one while no gate asks for the experimental allocator.

Source: k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/allocator_experimental.go, allocateDevice.
"""

from typing import Final

from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason, Verb
from kube.api.resource import ResourceSlice

DECLARED: Final = "DRAOptionalNodeOperations"
"""The name by which a node declares the feature."""


def rejection(
    slice_: ResourceSlice, declared_operations: frozenset[str], features: Features
) -> RejectionReason | None:
    """Return the reason devices of a slice cannot be used on a node; None if they can.

    Args:
        slice_: The slice.
        declared_operations: The node's `status.declaredFeatures`.
        features: Feature gates.
    """
    if not slice_.spec.skip_node_operations or not features.experimental:
        return None
    if not features.optional_node_operations:
        remark = f"needs feature gate {DECLARED}"
    elif DECLARED not in declared_operations:
        remark = f"the node does not declare {DECLARED}"
    else:
        return None
    return RejectionReason(
        reason=Reason.NODE_FEATURE, verb=Verb.HAVE, subject="skipped node operations", remark=remark
    )
