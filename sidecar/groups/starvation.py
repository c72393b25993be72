"""The devices that a group keeps once it has waited for long: those that it gets when the pods on them have ended.

Small pods that come and go could otherwise keep every node a little in use, and the group out for ever. The devices
are those of the fewest, least used nodes on which the group would fit without what uses them now. Pods by themselves
and younger groups get devices beside them; what uses them is left alone.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from allocator.model.plan import Budget
from kube.api.resource import ResourceClaim
from sidecar.commit.writes import consumers
from sidecar.groups.assumptions import waits_since
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import GroupOutcome, Places
from sidecar.model.protocol import GroupRequest
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.nominations import pools_of
from sidecar.plan.occupancy import Keep
from sidecar.plan.pod_claims import claim_names
from sidecar.plan.snapshot import Snapshot

KEEP_BUDGET: Final = Budget(steps=5_000)
"""The cost of one search. There is one for each doubling of the number of nodes, twice; a group that is not decided
by then keeps nothing on these nodes."""
KEEPING_CODES: Final = frozenset({Code.GROUP_DOES_NOT_FIT, Code.KEPT_FOR_GROUP})
"""The reasons of groups that more devices help: not a lack of CPU, or of quota."""


def has_waited(request: GroupRequest, after: timedelta, now: datetime) -> bool:
    """Check that a group has waited for so long."""
    try:
        return now - datetime.fromisoformat(waits_since(request)) >= after
    except (ValueError, TypeError):  # No time, or one without a zone.
        return False


def waits_for_devices(outcome: GroupOutcome) -> bool:
    """Check that a group was turned away for devices."""
    return isinstance(outcome, Rejection) and outcome.code in KEEPING_CODES


def find_keep(request: GroupRequest, snapshot: Snapshot, earlier: Keep | None) -> Keep | None:
    """Return the devices that a group keeps; None for one that does not fit on an idle cluster either.

    Args:
        earlier: The devices kept for it now; they stay kept if they can.
    """
    request = replace(request, requests={}, headroom=None)
    nodes = _least_used(snapshot, earlier)
    size, places = 1, None
    while places is None:
        places = _places_on(nodes[:size], request, snapshot)
        if places is None and size >= len(nodes):
            return None
        size = size if places is not None else min(2 * size, len(nodes))
    # The fewest nodes: half as many do not suffice.
    too_few, enough = size // 2, size
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        fewer = _places_on(nodes[:middle], request, snapshot)
        if fewer is None:
            too_few = middle
        else:
            enough, places = middle, fewer
    return _keep(request, places)


def _least_used(snapshot: Snapshot, earlier: Keep | None) -> Sequence[str]:
    """Return the names of the nodes with devices, those with the fewest in use first."""
    usage, kept_nodes = snapshot.cluster.usage, earlier.nodes if earlier is not None else ()
    ranks: list[tuple[int, bool, str]] = []
    for name in snapshot.cluster.nodes:
        pools = pools_of(name, snapshot)
        if pools:
            used = sum(len(usage.pools.get(pool, ())) for pool in pools)
            ranks.append((used, name not in kept_nodes, name))
    return [name for _, _, name in sorted(ranks)]


def _places_on(names: Sequence[str], request: GroupRequest, snapshot: Snapshot) -> Places | None:
    """Return the places of a group on some nodes without the pods that use their devices; None without any."""
    closed_nodes = snapshot.cluster.nodes.keys() - set(names)
    attempt = Attempt(
        budget=KEEP_BUDGET,
        released=_claims_on(names, request, snapshot),
        closed_nodes=frozenset(closed_nodes),
    )
    outcome = decide(request, snapshot, attempt)
    return outcome if isinstance(outcome, Places) else None


def _claims_on(
    names: Sequence[str], request: GroupRequest, snapshot: Snapshot
) -> Sequence[ResourceClaim]:
    """Return the claims that use devices of some nodes, but those of the group itself."""
    pools = {pool for name in names for pool in pools_of(name, snapshot)}
    used = (use for pool in pools for use in snapshot.cluster.usage.pools.get(pool, {}).values())
    names_in_use = {
        (consumer.namespace, consumer.claim) for use in used for consumer in use.consumers
    }
    own_uids = {placed.pod_uid for placed in request.placed}
    own_uids |= {pod.metadata.uid for pod in request.pods}
    claims = (snapshot.claims.get(name) for name in sorted(names_in_use))
    return [
        claim
        for claim in claims
        if claim is not None and not any(consumer.uid in own_uids for consumer in consumers(claim))
    ]


def _keep(request: GroupRequest, places: Places | None) -> Keep | None:
    """Return the devices of as many pods as the group needs; None if these need no further ones."""
    if places is None:
        return None
    needed = max(1, request.group.min_count - len(request.placed))
    pods = [pod for pod in request.pods if pod.metadata.uid in places.nodes][:needed]
    names = {name for pod in pods for name in claim_names(pod)}
    claims = tuple(planned.claim for name, planned in places.claims.items() if name in names)
    if not claims:
        return None
    return Keep(
        group=request.group.uid,
        name=request.group.name,
        priority=request.group.priority,
        since=waits_since(request),
        namespace=request.group.namespace,
        claims=claims,
        nodes=frozenset(places.nodes[pod.metadata.uid] for pod in pods),
    )
