"""Plans on nodes that are linked: devices allocated on one of them are lost to others.

Nodes are linked by pools that several of them see, and by claims of several members, which are allocated once. There the
first plan is not always the right one, so the plans that differ in what others lose are enumerated: after each plan, the
search is repeated without one of the devices that it took from others. A plan that takes more than another one is
never better, so none is missed, as long as a device is lost_devices as a whole.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.groups.feasibility import CandidateNode, Feasibility
from allocator.groups.kinds import Counts, MemberKind, claims_of
from allocator.groups.model import GroupQuestion, NodeShare
from allocator.groups.shared_pools import is_in_shared_pool
from allocator.groups.supply import supply_bound
from allocator.model.devices import DeviceId, NodeDevices, reorder
from allocator.model.outcome import AttemptFailed, BudgetExhausted
from allocator.model.plan import Choice, Plan
from allocator.model.requests import PendingClaims
from allocator.model.usage import Usage, with_claim
from allocator.pods.claims import Name, allocation_of, claim_name
from allocator.pods.node_eligibility import is_for
from allocator.search.results import allocations, share_ids
from allocator.search.search import allocate
from kube.api.resource import ResourceClaim, ResourceClaimStatus
from kube.cel.scope import current_scope


class LinkedState(msgspec.Struct, frozen=True, kw_only=True):
    """The linked nodes so far: usage that includes the group's own plans.

    Attributes:
        usage: The usage of the cluster with the group's allocations.
        allocated: The shared claims that the group has allocated.
        placed: Members of each kind that have a node.
        shares: The plans, in order.
    """

    usage: Usage
    placed: Counts
    allocated: Mapping[Name, ResourceClaim] = msgspec.field(default_factory=dict)
    shares: tuple[NodeShare, ...] = ()


class LinkedNodes:
    """Enumerates the plans of linked nodes.

    Attributes:
        steps: Cost of the searches so far.
        is_exact: False once a plan may have been missed.
    """

    def __init__(
        self,
        cluster: Cluster,
        kinds: Sequence[MemberKind],
        shared_claims: frozenset[Name],
        question: GroupQuestion,
    ) -> None:
        self.steps = 0
        self.is_exact = True
        self._cluster = cluster
        self._kinds = kinds
        self._shared_claims = shared_claims
        self._question = question

    def states(self, state: LinkedState, node: str, counts: Counts) -> Iterator[LinkedState | None]:
        """Yield the states after members are placed on a node; none if they do not fit.

        None stands for a search without a new plan, so that who counts steps can end the enumeration.

        Args:
            state: The state before.
            node: The node.
            counts: Members of each kind; the next ones that have no node yet.
        """
        claims = claims_of(self._kinds, counts, node, state.placed)
        for claim in claims:
            allocated_claim = state.allocated.get(claim_name(claim))
            allocation = allocation_of(allocated_claim) if allocated_claim is not None else None
            selector = allocation.node_selector if allocation is not None else None
            if selector is not None and not is_for(selector, self._cluster.nodes[node]):
                return
        waiting = [claim for claim in claims if claim_name(claim) not in state.allocated]
        members = tuple(
            member.name
            for kind, count, first in zip(self._kinds, counts, state.placed, strict=True)
            for member in kind.members[first : first + count]
        )
        # Claims do not constrain each other, so that those of several members can come first, one by one:
        # which devices they get decides where the other members can go.
        states: Iterator[LinkedState | None] = iter((state,))
        for claim in waiting:
            if claim_name(claim) in self._shared_claims:
                states = self._with_claims(states, node, (claim,), ())
        own_claims = [claim for claim in waiting if claim_name(claim) not in self._shared_claims]
        placed = tuple([sum(pair) for pair in zip(state.placed, counts, strict=True)])
        for after in self._with_claims(states, node, own_claims, members):
            yield None if after is None else replace(after, placed=placed)

    def supply_bound(
        self, counts: Counts, nodes: Sequence[CandidateNode], feasibility: Feasibility
    ) -> int:
        """Return a number of members that no placement on these nodes exceeds."""
        return supply_bound(self._cluster, self._kinds, counts, nodes, feasibility)

    def _with_claims(
        self,
        states: Iterable[LinkedState | None],
        node: str,
        claims: Sequence[ResourceClaim],
        members: tuple[str, ...],
    ) -> Iterator[LinkedState | None]:
        """Yield the states after claims are allocated together on a node."""
        pending = self._cluster.resolve(claims)
        for state in states:
            if state is None:
                yield None
                continue
            for plan in self._plans(node, pending, state.usage):
                if plan is None:
                    yield None
                    continue
                share = NodeShare(node=node, members=members, plan=plan, pending=pending)
                usage, allocated = state.usage, dict(state.allocated)
                for claim in self._allocated_claims(plan, pending):
                    usage = with_claim(usage, claim, self._cluster.options.features)
                    if claim_name(claim) in self._shared_claims:
                        allocated[claim_name(claim)] = claim
                yield replace(
                    state, usage=usage, allocated=allocated, shares=(*state.shares, share)
                )

    def _plans(self, node: str, pending: PendingClaims, usage: Usage) -> Iterator[Plan | None]:
        """Yield the plans that differ in the losses of other nodes, and None for each search without one."""
        devices, options = self._cluster.node_devices(node), self._cluster.options
        takes_all = any(
            request.all_devices
            for requests in pending.requests
            for alternatives in requests
            for request in alternatives
        )
        untried: list[frozenset[DeviceId]] = [frozenset()]
        tried: set[frozenset[DeviceId]] = set()
        met: set[frozenset[DeviceId]] = set()
        while untried:
            excluded = untried.pop()
            if excluded in tried:
                continue
            tried.add(excluded)
            rest = _without(devices, excluded)
            order = self._question.strategy.order(rest, usage, pending)
            self.steps += 1
            current_scope().meter.count(1)
            try:
                outcome = allocate(rest, pending, usage, options, order=order)
            except AttemptFailed as error:
                self.steps += error.steps
                self.is_exact = False
                yield None
                continue
            self.steps += outcome.steps
            if isinstance(outcome, BudgetExhausted):
                self.is_exact = False
            if not isinstance(outcome, Plan):
                yield None
                continue
            lost_devices = frozenset(
                choice.device.id for choice in self._choices_for_others(devices, pending, outcome)
            )
            is_new = lost_devices not in met and self._question.may_give(outcome)
            yield outcome if is_new else None
            met.add(lost_devices)
            if lost_devices and takes_all:
                # Without a device, mode All would request fewer.
                self.is_exact = False
                continue
            untried += [excluded | {device} for device in sorted(lost_devices, reverse=True)]

    def _choices_for_others(
        self, devices: NodeDevices, pending: PendingClaims, plan: Plan
    ) -> Iterator[Choice]:
        """Yield the choices that other nodes may miss, or that bind other members to nodes."""
        for claim, choices in zip(pending.claims, plan.choices, strict=True):
            binds_members = claim_name(claim) in self._shared_claims
            for choice in choices:
                if binds_members or is_in_shared_pool(devices, choice.device.id):
                    # A smaller share of the same device is not enumerated.
                    self.is_exact &= not choice.is_share
                    yield choice

    def _allocated_claims(self, plan: Plan, pending: PendingClaims) -> Iterator[ResourceClaim]:
        seed = ",".join("/".join(claim_name(claim)) for claim in pending.claims)
        try:
            results = allocations(plan, pending, self._cluster.options.features, share_ids(seed))
        except AttemptFailed:
            self.is_exact = False
            return
        for claim, allocation in zip(pending.claims, results, strict=True):
            status = replace(claim.status or ResourceClaimStatus(), allocation=allocation)
            yield replace(claim, status=status)


def _without(devices: NodeDevices, excluded: frozenset[DeviceId]) -> NodeDevices:
    if not excluded:
        return devices
    positions = range(len(devices.devices))
    return reorder(
        devices, [place for place in positions if devices.devices[place].id not in excluded]
    )
