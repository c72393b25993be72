"""The allocation results of a plan, as the API server stores them.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
allocator_experimental.go, Allocate and createNodeSelector.
"""

import hashlib
from collections.abc import Iterable, Iterator

from allocator.features import opaque_config as config
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Choice, Plan
from allocator.model.requests import PendingClaims
from kube.api.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)


def allocations(
    plan: Plan, pending: PendingClaims, features: Features, share_ids: Iterator[str]
) -> tuple[AllocationResult, ...]:
    """Return the allocation of each claim, in order.

    Raises:
        AttemptFailed: See `allocation`.
    """
    return tuple(
        allocation(plan, index, pending, features, share_ids)
        for index in range(len(pending.claims))
    )


def allocation(
    plan: Plan,
    claim_index: int,
    pending: PendingClaims,
    features: Features,
    share_ids: Iterator[str],
) -> AllocationResult:
    """Return the allocation of one claim.

    Args:
        plan: The plan for all claims of the attempt.
        claim_index: Index of the claim.
        pending: All claims of the attempt.
        features: The feature gates of the attempt.
        share_ids: Ids for shares; unique among the shares of a device.

    Raises:
        AttemptFailed: A device's node selector has several terms, which cannot be merged.
    """
    choices = plan.choices[claim_index]
    results = tuple(_result(choice, features, share_ids) for choice in choices)
    merged_config = config.merge_configuration(pending, claim_index, plan.alternatives[claim_index])
    return AllocationResult(
        devices=DeviceAllocationResult(results=results or None, config=merged_config or None),
        node_selector=node_selector(choices, plan.node),
    )


def share_ids(seed: str) -> Iterator[str]:
    """Yield an endless sequence of lower-case UUIDs; the same seed gives the same sequence.

    Args:
        seed: Identifies one allocation of one claim, such as its uid.

    >>> next(share_ids("default/claim"))
    '2d43b9a7-3cfe-8a2c-8233-6ef0ad5f1c2f'
    """
    number = 0
    while True:
        digest = bytearray(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:16])
        # RFC 9562, 5.8: version 8 fixes only version and variant.
        digest[6] = 0x80 | digest[6] & 0x0F
        digest[8] = 0x80 | digest[8] & 0x3F
        text = digest.hex()
        yield "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        number += 1


def node_selector(choices: Iterable[Choice], node: str) -> NodeSelector | None:
    """Return the nodes that can use the devices of a claim; None for all nodes.

    A local device ties the claim to the node. Otherwise the claim can be used where all devices can.

    Raises:
        AttemptFailed: A device's node selector has several terms, which cannot be merged.
    """
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for choice in choices:
        device, spec = choice.device.device, choice.device.slice.spec
        place = device if spec.per_device_node_selection else spec
        if place.node_name is not None or device.binds_to_node:
            return _single_node(node)
        terms = place.node_selector.node_selector_terms if place.node_selector else ()
        if len(terms) > 1:
            raise AttemptFailed(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for term in terms:
            _extend(fields, term.match_fields or ())
            _extend(expressions, term.match_expressions or ())
    if not (fields or expressions):
        return None
    term = NodeSelectorTerm(
        match_fields=tuple(fields) or None, match_expressions=tuple(expressions) or None
    )
    return NodeSelector(node_selector_terms=(term,))


def _single_node(node: str) -> NodeSelector:
    name = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(name,)),))


def _extend(
    merged_requirements: list[NodeSelectorRequirement],
    requirements: Iterable[NodeSelectorRequirement],
) -> None:
    """Append requirements that are not there yet; the order of values makes no difference."""
    for requirement in requirements:
        if not any(_are_equivalent(requirement, other) for other in merged_requirements):
            merged_requirements.append(requirement)


def _are_equivalent(first: NodeSelectorRequirement, second: NodeSelectorRequirement) -> bool:
    return (first.key, first.operator) == (second.key, second.operator) and set(
        first.values or ()
    ) == set(second.values or ())


def _result(
    choice: Choice, features: Features, share_ids: Iterator[str]
) -> DeviceRequestAllocationResult:
    device, request = choice.device, choice.request
    with_conditions = features.binding_conditions
    return DeviceRequestAllocationResult(
        request=request.full_name,
        driver=device.id.driver,
        pool=device.id.pool,
        device=device.id.device,
        admin_access=True if request.admin else None,
        tolerations=request.tolerations or None,
        binding_conditions=device.device.binding_conditions if with_conditions else None,
        binding_failure_conditions=device.device.binding_failure_conditions
        if with_conditions
        else None,
        share_id=next(share_ids) if choice.is_share else None,
        consumed_capacity=choice.consumed or None,
        # Upstream's incubating allocator does not set the field.
        skip_node_operations=device.slice.spec.skip_node_operations
        if features.experimental
        else None,
    )
