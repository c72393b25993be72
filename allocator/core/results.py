"""A plan becomes the allocations that the API server stores.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
allocator_experimental.go, Allocate and createNodeSelector.
"""

import hashlib
from collections.abc import Iterable, Iterator

from allocator.core import config
from allocator.core.model import Asked, Choice, Features, Plan
from allocator.core.outcome import AttemptFailed
from kube.api.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)


def allocations(
    plan: Plan, asked: Asked, features: Features, share_ids: Iterator[str]
) -> tuple[AllocationResult, ...]:
    """Return the allocation of each claim, in order.

    Raises:
        AttemptFailed: As `allocation`.
    """
    return tuple(
        allocation(plan, index, asked, features, share_ids) for index in range(len(asked.claims))
    )


def allocation(
    plan: Plan, claim_index: int, asked: Asked, features: Features, share_ids: Iterator[str]
) -> AllocationResult:
    """Return the allocation of one claim.

    Args:
        plan: For all claims of the attempt.
        claim_index: Of the claim.
        asked: All claims of the attempt.
        features: The gates with which the plan was made.
        share_ids: Gives one for each share; unique among the shares of a device.

    Raises:
        AttemptFailed: A device's node selector has several terms, which cannot be merged.
    """
    choices = plan.choices[claim_index]
    results = tuple(_result(choice, features, share_ids) for choice in choices)
    merged = config.merged(asked, claim_index, plan.alternatives[claim_index])
    return AllocationResult(
        devices=DeviceAllocationResult(results=results or None, config=merged or None),
        node_selector=node_selector(choices, plan.node),
    )


def share_ids(seed: str) -> Iterator[str]:
    """Yield lower-case UUIDs without end, always the same of the same seed.

    Args:
        seed: Names one allocation of one claim, such as its uid.

    >>> next(share_ids("default/claim"))
    '2d43b9a7-3cfe-8a2c-8233-6ef0ad5f1c2f'
    """
    number = 0
    while True:
        digest = bytearray(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:16])
        # RFC 9562, 5.8: version 8 leaves all but version and variant to the maker.
        digest[6] = 0x80 | digest[6] & 0x0F
        digest[8] = 0x80 | digest[8] & 0x3F
        text = digest.hex()
        yield "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        number += 1


def node_selector(choices: Iterable[Choice], node: str) -> NodeSelector | None:
    """Return where the devices of a claim can be used; None for everywhere.

    One device of the node ties the claim to the node. Else it can be used where all of them can.

    Raises:
        AttemptFailed: A device's node selector has several terms, which cannot be merged.
    """
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for choice in choices:
        device, spec = choice.device.device, choice.device.slice.spec
        place = device if spec.per_device_node_selection else spec
        if place.node_name is not None or device.binds_to_node:
            return _only(node)
        terms = place.node_selector.node_selector_terms if place.node_selector else ()
        if len(terms) > 1:
            raise AttemptFailed(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for term in terms:
            _extend(fields, term.match_fields or ())
            _extend(expressions, term.match_expressions or ())
    if not (fields or expressions):
        return None
    merged = NodeSelectorTerm(
        match_fields=tuple(fields) or None, match_expressions=tuple(expressions) or None
    )
    return NodeSelector(node_selector_terms=(merged,))


def _only(node: str) -> NodeSelector:
    name = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(name,)),))


def _extend(
    merged: list[NodeSelectorRequirement], requirements: Iterable[NodeSelectorRequirement]
) -> None:
    """Append what is not there yet; the order of values makes no difference."""
    for one in requirements:
        if not any(_are_same(one, other) for other in merged):
            merged.append(one)


def _are_same(one: NodeSelectorRequirement, other: NodeSelectorRequirement) -> bool:
    return (one.key, one.operator) == (other.key, other.operator) and set(one.values or ()) == set(
        other.values or ()
    )


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
        # Upstream's incubating allocator does not know the field.
        skip_node_operations=device.slice.spec.skip_node_operations
        if features.experimental
        else None,
    )
