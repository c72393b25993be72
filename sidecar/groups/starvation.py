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
from kube.cel.scope import STEPS_PER_LOOK, BudgetSpent, current_scope
from sidecar.commit.writes import consumers
from sidecar.groups.assumptions import waits_since
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.infeasible import InfeasibleGroups
from sidecar.groups.places import GroupOutcome, Places
from sidecar.model.protocol import GroupRequest
from sidecar.model.rejections import Code, Rejection, unfinished
from sidecar.plan.decisions import SEARCHING
from sidecar.plan.nominations import pools_of
from sidecar.plan.occupancy import Keep
from sidecar.plan.pod_claims import claim_names
from sidecar.plan.snapshot import Snapshot

KEEP_BUDGET: Final = Budget(steps=5_000)
"""The cost of one search, of which there are some for each doubling of the number of nodes. A group that is not decided
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


def find_keep(
    request: GroupRequest,
    snapshot: Snapshot,
    earlier: Keep | None,
    infeasible_groups: InfeasibleGroups | None = None,
) -> Keep | None:
    """Return the devices that a group keeps; None for one that does not fit on an idle cluster either.

    Args:
        earlier: The devices kept for it now. They stay kept if they can, and if there is no answer.
        infeasible_groups: Remembers the group if no pod keeps it from fitting.

    Raises:
        EvaluationAbandoned: Nobody waits for the answer any more.
    """
    request = replace(request, requests={}, headroom=None)
    infeasible_groups = infeasible_groups or InfeasibleGroups()
    if infeasible_groups.has(request, snapshot):
        return None
    search = _Search(request, snapshot, earlier)
    keep = search.find()
    if search.is_infeasible:
        infeasible_groups.add(request, snapshot)
    return keep


def keep_without_devices(request: GroupRequest) -> Keep:
    """Return the keep of a group before its devices are known. It has the importance that decides about it."""
    return Keep(
        group=request.group.uid,
        name=request.group.name,
        priority=request.group.priority,
        since=waits_since(request),
        namespace=request.group.namespace,
        claims=(),
        nodes=frozenset(),
    )


class _Search:
    """The search for the fewest of the least used nodes with devices for a group, without the pods there.

    Attributes:
        is_infeasible: The group does not fit on any nodes, whatever other pods and groups keep.
    """

    def __init__(self, request: GroupRequest, snapshot: Snapshot, earlier: Keep | None) -> None:
        self.is_infeasible = False
        self._request = request
        self._snapshot = snapshot
        self._earlier = earlier
        self._nodes = _least_used(snapshot, earlier)
        # Number of nodes to the answer about so many.
        self._outcomes: dict[int, GroupOutcome] = {}

    def find(self) -> Keep | None:
        """Return the devices that the group keeps; those kept now if there is no answer."""
        count = self._first_count()
        too_few = 0
        while not isinstance(outcome := self._ask(count), Places):
            # Between two searches nothing else tells that the time for the answer is over.
            if _is_unfinished(outcome) or (count >= len(self._nodes) and _is_undecided(outcome)):
                return self._undecided()
            if count >= len(self._nodes):
                self.is_infeasible = self._is_infeasible(outcome)
                return None
            too_few, count = count, min(2 * count, len(self._nodes))
        return _keep(self._request, self._fewest(too_few, count, outcome))

    def _undecided(self) -> Keep | None:
        """Return the devices kept now. Without any they are those among all nodes, if known."""
        places = self._outcomes.get(len(self._nodes))
        if self._earlier is None and isinstance(places, Places):
            return _keep(self._request, places)
        return self._earlier

    def _first_count(self) -> int:
        """Return a number of nodes to begin with: as many as are kept now, or as many as the group would take.

        All nodes if it does not fit on them.
        """
        if self._earlier is not None:
            return max(1, min(len(self._earlier.nodes), len(self._nodes)))
        outcome = self._ask(len(self._nodes))
        if isinstance(outcome, Places):
            return max(1, min(len(set(outcome.nodes.values())), len(self._nodes)))
        return 1 if _is_undecided(outcome) else len(self._nodes)

    def _fewest(self, too_few: int, enough: int, places: Places) -> Places:
        """Return the places on the fewest nodes; on those known by then if there is no time for all searches."""
        # The number of nodes is mostly right, or nearly so.
        step = 1
        while enough - too_few > 1:
            count = max(enough - step, (too_few + enough) // 2)
            outcome = self._ask(count)
            if _is_unfinished(outcome):
                break
            if isinstance(outcome, Places):
                enough, places, step = count, outcome, 2 * step
            else:
                too_few, step = count, enough
        return places

    def _ask(self, count: int) -> GroupOutcome:
        """Return the places of the group on so many nodes without the pods that use their devices."""
        outcome = self._outcomes.get(count)
        if outcome is None:
            outcome = self._outcomes[count] = self._decide(self._nodes[:count])
        return outcome

    def _decide(self, names: Sequence[str], *, keeps_devices: bool = True) -> GroupOutcome:
        try:
            current_scope().meter.count(STEPS_PER_LOOK)
        except BudgetSpent:
            return unfinished(SEARCHING)
        attempt = Attempt(
            budget=KEEP_BUDGET,
            released=_claims_on(names, self._request, self._snapshot),
            closed_nodes=frozenset(self._snapshot.cluster.nodes.keys() - set(names)),
            keeps_devices=keeps_devices,
        )
        return decide(self._request, self._snapshot, attempt)

    def _is_infeasible(self, outcome: GroupOutcome) -> bool:
        """Return True if the devices of all nodes do not suffice, with those that are kept for other pods and groups."""
        if self._snapshot.keeps or self._snapshot.nominated:
            outcome = self._decide(self._nodes, keeps_devices=False)
        return isinstance(outcome, Rejection) and outcome.code is Code.GROUP_DOES_NOT_FIT


def _is_unfinished(outcome: GroupOutcome) -> bool:
    return isinstance(outcome, Rejection) and outcome.is_unfinished


def _is_undecided(outcome: GroupOutcome) -> bool:
    """Check that an answer leaves open if the group fits."""
    return isinstance(outcome, Rejection) and (
        outcome.is_unfinished or outcome.code is Code.BUDGET_EXHAUSTED
    )


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
    # A claim that the PodGroup reserved for its pods has the UID of the group.
    own_uids |= {request.group.uid, *(pod.metadata.uid for pod in request.pods)}
    claims = (snapshot.claims.get(name) for name in sorted(names_in_use))
    return [
        claim
        for claim in claims
        if claim is not None and not any(consumer.uid in own_uids for consumer in consumers(claim))
    ]


def _keep(request: GroupRequest, places: Places) -> Keep | None:
    """Return the devices of as many pods as the group needs; None if these need no further ones."""
    needed = max(1, request.group.min_count - len(request.placed))
    pods = [pod for pod in request.pods if pod.metadata.uid in places.nodes][:needed]
    names = {name for pod in pods for name in claim_names(pod)}
    claims = tuple(planned.claim for name, planned in places.claims.items() if name in names)
    if not claims:
        return None
    nodes = frozenset(places.nodes[pod.metadata.uid] for pod in pods)
    return replace(keep_without_devices(request), claims=claims, nodes=nodes)
