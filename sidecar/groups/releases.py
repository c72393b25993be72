"""Releases that are under way and help a group: while there are some, a victim would be evicted for nothing."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from allocator.model.plan import Budget
from allocator.pods.claims import Name
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import Places
from sidecar.model.protocol import GroupRequest
from sidecar.plan.nominations import nominated_node
from sidecar.plan.preemption import released_claims
from sidecar.plan.snapshot import Snapshot

RELEASE_BUDGET: Final = Budget(steps=10_000)
"""The cost of each of two searches; a group that is not decided by then counts as not helped."""


def find_awaited_claims(request: GroupRequest, snapshot: Snapshot) -> frozenset[Name]:
    """Return claims that are being released and leave places for a group then; empty if none do.

    What nodes have left does not count: the pods that are gone may still be counted there.
    """
    claims: dict[Name, ResourceClaim] = {}
    for pod in _with_different_nominations(request).values():
        claims |= released_claims(pod, snapshot)
    if not claims:
        return frozenset()
    request = replace(request, requests={})
    freed = Attempt(budget=RELEASE_BUDGET, released=tuple(claims.values()))
    # A group that fits without the release waits for something other than devices.
    is_helped = isinstance(decide(request, snapshot, freed), Places) and not isinstance(
        decide(request, snapshot, Attempt(budget=RELEASE_BUDGET)), Places
    )
    return frozenset(claims) if is_helped else frozenset()


def _with_different_nominations(request: GroupRequest) -> Mapping[str, Pod]:
    """Return a pod for each node that pods of a group are nominated for."""
    return {nominated_node(pod): pod for pod in request.pods}
