"""The use that a decision about a group assumes: without some pods, with those that others were evicted for.

The joint search asks a cluster about all of its nodes at once, so the assumption is made on the cluster, and taken
back after the decision.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.cluster.search_budget import SearchBudget
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from sidecar.model.protocol import GroupRequest
from sidecar.plan.nominations import (
    by_importance,
    nominated_node,
    nominated_placement,
    priority_of,
)
from sidecar.plan.occupancy import Occupancy, with_allocated, without_claims
from sidecar.plan.placement import with_allocation
from sidecar.plan.preemption import freed_claims, freed_claims_of_nodes
from sidecar.plan.snapshot import Snapshot

NEVER_YET: Final = "~"
"""Orders after all times, for a group without a known time: it has not waited."""
RIVALS_STEPS: Final = 8_000
"""Steps of all searches for the devices of nominated pods, some 0.2 seconds. Nodes of those that are not reached
are left out."""


class Assumption(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Other claims in use than there are.

    Attributes:
        released: Claims that are taken to be released.
        allocated: Claims that are taken to be allocated, as they are then.
        occupancy: The use with both.
        unknown_nodes: Nodes of nominated pods whose devices were not found in time.
    """

    released: tuple[ResourceClaim, ...]
    allocated: tuple[ResourceClaim, ...]
    occupancy: Occupancy
    unknown_nodes: frozenset[str] = frozenset()

    @contextmanager
    def on(self, cluster: Cluster) -> Iterator[None]:
        """Make the assumption on a cluster for a block."""
        usage = cluster.usage
        try:
            cluster.replace_usage(self.occupancy.usage)
            yield
        finally:
            cluster.replace_usage(usage)


def assume(
    request: GroupRequest,
    snapshot: Snapshot,
    *,
    released: Sequence[ResourceClaim] = (),
    allocated: Sequence[ResourceClaim] = (),
    rivals: Sequence[Pod] = (),
) -> Assumption:
    """Return the use to assume in a decision about a group.

    Args:
        released: Claims to be released, beside those of the pods that the request takes to be gone.
        allocated: Claims to be allocated before.
        rivals: Nominated pods whose devices are kept.
    """
    features = snapshot.cluster.options.features
    gone = {claim.metadata.uid: claim for claim in _freed_claims(request, snapshot)}
    gone |= {claim.metadata.uid: claim for claim in released}
    occupancy = without_claims(snapshot.occupancy, gone.values(), features)
    for claim in allocated:
        occupancy = with_allocated(occupancy, claim, features, snapshot.quotas)
    budget = SearchBudget(snapshot.cluster.costs, RIVALS_STEPS)
    assumed_claims = list(allocated)
    unknown_nodes: set[str] = set()
    for rival in rivals:
        node = nominated_node(rival)
        if budget.is_spent:
            unknown_nodes.add(node)
            continue
        placement = nominated_placement(occupancy, rival, node, snapshot, budget)
        for claim, result in placement.allocations if placement is not None else ():
            allocated_claim = with_allocation(claim, result)
            assumed_claims.append(allocated_claim)
            occupancy = with_allocated(occupancy, allocated_claim, features, snapshot.quotas)
    return Assumption(
        released=tuple(gone.values()),
        allocated=tuple(assumed_claims),
        occupancy=occupancy,
        unknown_nodes=frozenset(unknown_nodes),
    )


def _freed_claims(request: GroupRequest, snapshot: Snapshot) -> Sequence[ResourceClaim]:
    """Return the claims that are free without the pods that are taken to be gone, as far as they matter."""
    if request.pinned and snapshot.quotas is None:
        nodes = sorted(set(request.pinned.values()))
        return freed_claims_of_nodes(nodes, request.removed, snapshot)
    return freed_claims(request.removed, snapshot)


def kept_claims(request: GroupRequest, snapshot: Snapshot) -> Sequence[ResourceClaim]:
    """Return the claims, as allocated, with the devices that are kept for more important groups than this one."""
    if not snapshot.keeps:
        return ()
    group = request.group
    importance = (-group.priority, waits_since(request) or NEVER_YET, group.uid)
    return [
        claim
        for keep in snapshot.keeps
        if keep.importance < importance and keep.group != group.uid
        for claim in keep.claims
    ]


def waits_since(request: GroupRequest) -> str:
    """Return the beginning of a group's wait for devices, in RFC 3339; empty if it is not known.

    That is when so many of its pods without a node existed as it needs. It is read from the objects, so a new
    leader counts from the same time.
    """
    needed = max(1, request.group.min_count - len(request.placed))
    created = sorted(pod.metadata.creation_timestamp or "" for pod in request.pods)[:needed]
    if len(created) < needed or not all(created):
        return ""
    return max(created[-1], request.group.created)


def rivals_of(request: GroupRequest, snapshot: Snapshot) -> Sequence[Pod]:
    """Return the nominated pods with devices that a group must leave alone, the most important first."""
    own_uids = {pod.metadata.uid for pod in request.pods}
    priority = request.group.priority
    rivals: Iterable[Pod] = (
        pod
        for uid, pod in snapshot.nominated.items()
        if uid not in own_uids
        and priority_of(pod) >= priority
        and nominated_node(pod) in snapshot.cluster.nodes
    )
    return by_importance(rivals)
