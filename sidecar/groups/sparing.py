"""Dry runs with fewer and fewer pods gone, answered from the places found before.

Preemption asks for each victim whether the group would still fit beside it, and nothing else is scheduled meanwhile.
Mostly the victim's devices are none of those that the group gets, or its node has others for the pods there. So only
these pods are placed anew; the whole group is where nodes depend on each other, or where quotas or other pods count.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/preemption/podgrouppreemption.go, selectVictimsOnDomain.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from allocator.cluster.equivalence import is_shared
from allocator.model.devices import PoolId
from allocator.model.plan import Budget
from allocator.model.usage import without_claims
from allocator.pods.claims import Name, allocation_of
from allocator.search.recheck import are_compatible
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from sidecar.groups.assumptions import kept_claims, rivals_of
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import GroupOutcome, Places
from sidecar.model.protocol import GroupRequest, PlacedMember
from sidecar.plan.pod_claims import claim_names
from sidecar.plan.preemption import freed_claims, freed_claims_of_nodes
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.tenant_budget import shared_accounts


class Found(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The places of a group while some pods are gone, in one cycle of the scheduler.

    Attributes:
        request: The what-if.
        places: The answer to it.
        shared_claims: The claims that several of the pods name.
    """

    request: GroupRequest
    places: Places
    shared_claims: frozenset[Name]


def found_places(request: GroupRequest, places: Places, earlier: Found | None) -> Found:
    """Return places that were found.

    Args:
        request: The what-if.
        places: The answer to it.
        earlier: The places found before in this cycle; None without any.
    """
    if earlier is not None and earlier.request.pods is request.pods:
        return Found(request=request, places=places, shared_claims=earlier.shared_claims)
    names = Counter(name for pod in request.pods for name in claim_names(pod))
    shared_claims = frozenset(name for name, count in names.items() if count > 1)
    return Found(request=request, places=places, shared_claims=shared_claims)


def with_pods(request: GroupRequest, known_places: Found | None) -> GroupRequest | None:
    """Return a dry run with its pods, by default those of the one before; None if unknown."""
    if request.pods or known_places is None:
        return request if request.pods else None
    before = known_places.request
    return replace(request, pods=before.pods, placed=before.placed, requests=before.requests)


def find_sparing(
    request: GroupRequest, snapshot: Snapshot, known_places: Found, budget: Budget
) -> GroupOutcome | None:
    """Return the places of a group on known nodes, with fewer pods gone than before.

    Args:
        request: The what-if.
        known_places: The places with more pods gone.
        budget: The cost of a search on the nodes whose devices come back.

    Returns:
        None where the whole group has to be looked at.
    """
    if not _is_about(request, known_places) or _counts_others(request, snapshot):
        return None
    nodes = _nodes_of(_claims_back(request, known_places, snapshot), request, snapshot)
    if nodes is None:
        return None
    pods = tuple(pod for pod in request.pods if request.pinned.get(pod.metadata.uid) in nodes)
    if not known_places.shared_claims.isdisjoint(_planned(pods, known_places.places)):
        return None
    if all(_holds(node, pods, request, snapshot, known_places.places) for node in sorted(nodes)):
        return known_places.places
    outcome = decide(_about(pods, request), snapshot, Attempt(budget=budget))
    if not isinstance(outcome, Places):
        return outcome
    return Places(
        nodes={**known_places.places.nodes, **outcome.nodes},
        rejections={**known_places.places.rejections, **outcome.rejections},
        claims={**known_places.places.claims, **outcome.claims},
    )


def _is_about(request: GroupRequest, known_places: Found) -> bool:
    """Return True if a dry run is about known places, with no further pod gone."""
    before, nodes = known_places.request, known_places.places.nodes
    return (
        bool(request.pinned)
        and request.group == before.group
        and request.placed == before.placed
        and all(nodes.get(uid) == node for uid, node in request.pinned.items())
        and set(request.removed) <= set(before.removed)
    )


def _counts_others(request: GroupRequest, snapshot: Snapshot) -> bool:
    """Return True if more counts than the devices in use: quotas, keeps, or nominated pods."""
    return bool(
        kept_claims(request, snapshot)
        or shared_accounts(request.group.namespace, snapshot)
        or rivals_of(request, snapshot)
    )


def _claims_back(
    request: GroupRequest, known_places: Found, snapshot: Snapshot
) -> Sequence[ResourceClaim]:
    """Return the claims in use that were free for the known places."""
    before = set(known_places.request.removed)
    return freed_claims(before, snapshot, of=before - set(request.removed))


def _nodes_of(
    claims: Sequence[ResourceClaim], request: GroupRequest, snapshot: Snapshot
) -> Collection[str] | None:
    """Return the nodes of the group that see devices of claims; None if others may see them, too."""
    pools = {
        PoolId(result.driver, result.pool)
        for claim in claims
        if (allocation := allocation_of(claim)) is not None
        for result in allocation.devices.results or ()
    }
    nodes: set[str] = set()
    for node in set(request.pinned.values()) & set(snapshot.cluster.nodes):
        for pool in snapshot.cluster.node_devices(node).pools:
            if pool.id in pools:
                if is_shared(pool):
                    return None
                nodes.add(node)
    return nodes


def _planned(pods: Sequence[Pod], places: Places) -> Collection[Name]:
    """Return the planned claims of pods."""
    return {name for pod in pods for name in claim_names(pod) if name in places.claims}


def _holds(
    node: str, pods: Sequence[Pod], request: GroupRequest, snapshot: Snapshot, places: Places
) -> bool:
    """Return True if the devices of pods on a node are free without those that are gone."""
    cluster = snapshot.cluster
    own = [pod for pod in pods if request.pinned[pod.metadata.uid] == node]
    claims = [places.claims[name].claim for name in sorted(_planned(own, places))]
    freed = freed_claims_of_nodes([node], request.removed, snapshot)
    usage = without_claims(snapshot.occupancy.usage, freed, cluster.options.features)
    return are_compatible(claims, cluster.node_devices(node), usage, cluster.options)


def _about(pods: Sequence[Pod], request: GroupRequest) -> GroupRequest:
    """Return the dry run about some pods of the group, with the others in place."""
    uids = {pod.metadata.uid for pod in pods}
    others = tuple(
        PlacedMember(pod_uid=uid, node=node)
        for uid, node in request.pinned.items()
        if uid not in uids
    )
    return replace(
        request,
        pods=tuple(pods),
        placed=(*request.placed, *others),
        pinned={uid: node for uid, node in request.pinned.items() if uid in uids},
    )
