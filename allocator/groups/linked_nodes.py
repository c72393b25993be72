"""Plans on nodes that are linked: devices allocated on one of them are lost to others.

Nodes are linked by pools that several of them see, and by claims of several members, which are allocated once. There the
first plan is not always the right one, so the plans that differ in what others lose are enumerated: after each plan, the
search is repeated without one of the devices that it took from others. A plan that takes more than another one is
never better, so none is missed, as long as a device is lost_devices as a whole.

A budget of the group links all nodes. After each plan the search is repeated for one that takes less of some amount.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.groups.budget import (
    Amounts,
    KindCharges,
    Least,
    covers,
    marginal_charges,
    minus,
    plus,
)
from allocator.groups.feasibility import CandidateNode, Feasibility
from allocator.groups.kinds import Counts, MemberKind, claims_of
from allocator.groups.model import GroupQuestion, NodeShare
from allocator.groups.shared_pools import is_in_shared_pool
from allocator.groups.supply import supply_bound
from allocator.model.amount_bound import AmountBound
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

_MOST_SEARCHED: Final = 16
"""Members of one kind on a node whose least amount is searched for; further ones count with that of one alone."""
_NARROWING_STEPS: Final = 20_000
"""Steps of all of these searches, a tenth of those of a decision."""
_MOST_PLANS: Final = 8
"""Plans of these members that are compared; devices of which less is taken come first in each."""


class LinkedState(msgspec.Struct, frozen=True, kw_only=True):
    """The linked nodes so far: usage that includes the group's own plans.

    Attributes:
        usage: The usage of the cluster with the group's allocations.
        allocated: The shared claims that the group has allocated.
        placed: Members of each kind that have a node.
        shares: The plans, in order.
        taken: The amounts of the budget that they take; none without a budget.
    """

    usage: Usage
    placed: Counts
    allocated: Mapping[Name, ResourceClaim] = msgspec.field(default_factory=dict)
    shares: tuple[NodeShare, ...] = ()
    taken: Amounts = ()


class LinkedNodes:
    """Enumerates the plans of linked nodes.

    Attributes:
        steps: Cost of the searches so far.
        is_exact: False once a plan may have been missed.
        left: The amounts of the group's budget; none without one.
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
        self._budget = question.budget
        self.left: Amounts = () if self._budget is None else self._budget.left
        self._nothing = (0,) * len(self.left)
        self._least: dict[Hashable, Amounts | None] = {}
        # Of one member on a node of a class, of two and so on.
        self._totals: dict[Hashable, tuple[Amounts, ...]] = {}
        self._narrowing_steps = 0

    @property
    def has_budget(self) -> bool:
        """Return True if members take amounts of a budget."""
        return self._budget is not None

    @property
    def start(self) -> LinkedState:
        """The state without a member."""
        return LinkedState(
            usage=self._cluster.usage, placed=(0,) * len(self._kinds), taken=self._nothing
        )

    def least(self, node: CandidateNode, limit: int | None = None) -> Least:
        """Return the least amounts of the budget that a member of each kind takes on a node.

        Args:
            limit: The cost at which no further node is looked at, as if no member could pay; None for none.
        """
        amounts: list[Amounts | None] = []
        for index, kind in enumerate(self._kinds):
            if node.options[index] < 0:
                amounts.append(None)
            elif kind.shares_claims:
                # A claim is allocated once, for whoever comes first.
                amounts.append(self._nothing)
            else:
                key = node.key, index
                if key not in self._least:
                    if limit is not None and self.steps > limit:
                        amounts.append(None)
                        continue
                    self._least[key] = self._find_least(node, index)
                amounts.append(self._least[key])
        return tuple(amounts)

    def _find_least(self, node: CandidateNode, kind: int) -> Amounts | None:
        counts = tuple([int(index == kind) for index in range(len(self._kinds))])
        pending = self._cluster.resolve(claims_of(self._kinds, counts, node.name))
        devices = self._cluster.node_devices(node.name)
        was_exact, self.is_exact = self.is_exact, True
        plans = [
            plan
            for plan in self._cheapest(devices, pending, self.start, self._nothing)
            if plan is not None
        ]
        is_known, self.is_exact = self.is_exact, was_exact
        if not is_known:
            return self._nothing
        amounts = [self._amounts(plan) for plan in plans]
        return tuple(map(min, *amounts, amounts[0])) if amounts else None

    def charges(self, node: CandidateNode, kind: int, most: int) -> KindCharges:
        """Return the least charges of members of one kind on a node.

        Args:
            kind: The index of the kind.
            most: The members of the kind that the node takes if it has no others.
        """
        return marginal_charges(self._totals_of(node, kind, most)[:most], len(self.left))

    def _totals_of(self, node: CandidateNode, kind: int, most: int) -> tuple[Amounts, ...]:
        """Return amounts that one member takes at least, two members together and so on; none if one cannot pay."""
        key = node.key, kind
        totals = self._totals.get(key, ())
        if len(totals) < most:
            of_one = self.least(node)[kind]
            if of_one is None:
                return ()
            by_limit = [
                self._totals_of_limit(node, kind, most, index, amount)
                for index, amount in enumerate(of_one)
            ]
            totals = self._totals[key] = tuple(zip(*by_limit, strict=True))
        return totals

    def _totals_of_limit(
        self, node: CandidateNode, kind: int, most: int, index: int, of_one: int
    ) -> list[int]:
        """Return the totals of one limit: two members take at least as much as one and one."""
        equal = [number * of_one for number in range(1, most + 1)]
        is_equal = most == 1 or (
            equal[-1] <= self.left[index]
            and self._least_above(node, kind, most, index, equal[-1]) == equal[-1]
        )
        if is_equal:
            return equal
        totals = equal[:1]
        for number in range(2, most + 1):
            least = totals[-1] + of_one
            if number <= _MOST_SEARCHED and self._narrowing_steps < _NARROWING_STEPS:
                least = self._least_above(node, kind, number, index, least)
            totals.append(least)
        return totals

    def _least_above(
        self, node: CandidateNode, kind: int, number: int, index: int, least: int
    ) -> int:
        """Return the least amount of one limit that members of one kind take together, as far as is known.

        Args:
            number: The number of members.
            least: An amount that they take at least.
        """
        if self._kinds[kind].shares_claims or least > self.left[index]:
            return least  # A claim is allocated once, for whoever comes first.
        counts = tuple([number if place == kind else 0 for place in range(len(self._kinds))])
        pending = self._cluster.resolve(claims_of(self._kinds, counts, node.name))
        bound = self.left[index]
        for _ in range(_MOST_PLANS):
            amount = self._taken_within(node, pending, index, bound)
            if amount is None:
                return bound + 1
            if amount <= least:
                return least
            bound = amount - 1
        return least

    def _taken_within(
        self, node: CandidateNode, pending: PendingClaims, index: int, bound: int
    ) -> int | None:
        """Return the amount of one limit that claims take, hardly more than they have to; None if there is no plan.

        It is 0 where that is not known.
        """
        assert self._budget is not None
        devices = self._cluster.node_devices(node.name)
        left = (*self.left[:index], bound, *self.left[index + 1 :])
        bounds = self._budget.bounds(devices, left)
        amounts = bounds[index].amounts
        order = sorted(
            range(len(devices.devices)),
            key=lambda place: amounts.get(devices.devices[place].id, 0),
        )
        was_exact, self.is_exact = self.is_exact, True
        before = self.steps
        plan = self._search(devices, pending, self._cluster.usage, bounds, order)
        self._narrowing_steps += self.steps - before
        is_known, self.is_exact = self.is_exact, was_exact
        if not is_known:
            return 0
        return None if plan is None else self._amounts(plan)[index]

    def states(
        self, state: LinkedState, node: CandidateNode, counts: Counts
    ) -> Iterator[LinkedState | None]:
        """Yield the states after members are placed on a node; none if they do not fit.

        None stands for a search without a new plan, so that who counts steps can end the enumeration.

        Args:
            state: The state before.
            node: The node.
            counts: Members of each kind; the next ones that have no node yet.
        """
        claims = claims_of(self._kinds, counts, node.name, state.placed)
        for claim in claims:
            allocated_claim = state.allocated.get(claim_name(claim))
            allocation = allocation_of(allocated_claim) if allocated_claim is not None else None
            selector = allocation.node_selector if allocation is not None else None
            if selector is not None and not is_for(selector, self._cluster.nodes[node.name]):
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
                states = self._with_claims(states, node.name, (claim,), (), self._nothing)
        own_claims = [claim for claim in waiting if claim_name(claim) not in self._shared_claims]
        placed = tuple([sum(pair) for pair in zip(state.placed, counts, strict=True)])
        floor = self._floor(node, counts)
        for after in self._with_claims(states, node.name, own_claims, members, floor):
            yield None if after is None else replace(after, placed=placed)

    def _floor(self, node: CandidateNode, counts: Counts) -> Amounts:
        """Return amounts of the budget that members take on a node at least."""
        floor = self._nothing
        if self._budget is not None:
            for kind, count in enumerate(counts):
                totals = self._totals_of(node, kind, count) if count else ()
                floor = plus(floor, totals[count - 1]) if totals else floor
        return floor

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
        floor: Amounts,
    ) -> Iterator[LinkedState | None]:
        """Yield the states after claims are allocated together on a node."""
        pending = self._cluster.resolve(claims)
        for state in states:
            if state is None:
                yield None
                continue
            for plan in self._plans(node, pending, state, floor):
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
                    state,
                    usage=usage,
                    allocated=allocated,
                    shares=(*state.shares, share),
                    taken=plus(state.taken, self._amounts(plan)),
                )

    def _plans(
        self, node: str, pending: PendingClaims, state: LinkedState, floor: Amounts
    ) -> Iterator[Plan | None]:
        """Yield the plans that differ in the losses of other nodes, and None for each search without one.

        Args:
            floor: Amounts of the budget that every plan takes.
        """
        devices = self._cluster.node_devices(node)
        takes_all = any(
            request.all_devices
            for requests in pending.requests
            for alternatives in requests
            for request in alternatives
        )
        untried: list[frozenset[DeviceId]] = [frozenset()]
        tried: set[frozenset[DeviceId]] = set()
        met: set[tuple[frozenset[DeviceId], Amounts]] = set()
        while untried:
            excluded = untried.pop()
            if excluded in tried:
                continue
            tried.add(excluded)
            rest = _without(devices, excluded)
            for plan in self._cheapest(rest, pending, state, floor):
                if plan is None:
                    yield None
                    continue
                lost_devices = frozenset(
                    choice.device.id for choice in self._choices_for_others(devices, pending, plan)
                )
                losses = lost_devices, self._amounts(plan)
                is_new = losses not in met and self._question.may_give(plan)
                yield plan if is_new else None
                met.add(losses)
                if lost_devices and takes_all:
                    # Without a device, mode All would request fewer.
                    self.is_exact = False
                    continue
                untried += [excluded | {device} for device in sorted(lost_devices, reverse=True)]

    def _cheapest(
        self, devices: NodeDevices, pending: PendingClaims, state: LinkedState, floor: Amounts
    ) -> Iterator[Plan | None]:
        """Yield the cheapest plans, each with less of some amount than any other; one plan without a budget.

        None stands for a search, or for a plan that is not even searched for.

        Args:
            floor: Amounts of the budget that every plan takes.
        """
        if self._budget is None:
            yield self._search(devices, pending, state.usage, ())
            return
        untried, tried = [minus(self.left, state.taken)], set[Amounts]()
        plans: dict[Amounts, Plan] = {}
        while untried:
            left = untried.pop()
            if left in tried or not covers(left, floor):
                yield None
                continue
            tried.add(left)
            bounds = self._budget.bounds(devices, left)
            plan = self._search(devices, pending, state.usage, bounds)
            yield None
            if plan is None:
                continue
            # A plan with drivers that may not give devices can hide one without them.
            self.is_exact &= self._question.may_give(plan)
            amounts = self._amounts(plan)
            plans.setdefault(amounts, plan)
            untried += [
                (*left[:index], amount - 1, *left[index + 1 :])
                for index, amount in enumerate(amounts)
                if amount > floor[index]
            ]
        for amounts in sorted(plans):
            if not any(other != amounts and covers(amounts, other) for other in plans):
                yield plans[amounts]

    def _search(
        self,
        devices: NodeDevices,
        pending: PendingClaims,
        usage: Usage,
        bounds: Sequence[AmountBound],
        order: Sequence[int] | None = None,
    ) -> Plan | None:
        if order is None:
            order = self._question.strategy.order(devices, usage, pending)
        self.steps += 1
        current_scope().meter.count(1)
        try:
            outcome = allocate(
                devices, pending, usage, self._cluster.options, order=order, bounds=bounds
            )
        except AttemptFailed as error:
            self.steps += error.steps
            self.is_exact = False
            return None
        self.steps += outcome.steps
        if isinstance(outcome, BudgetExhausted):
            self.is_exact = False
        return outcome if isinstance(outcome, Plan) else None

    def _amounts(self, plan: Plan) -> Amounts:
        return () if self._budget is None else self._budget.amounts(plan)

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
