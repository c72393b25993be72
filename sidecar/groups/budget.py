"""A group's part of its tenant's remaining amounts: the plans of its nodes are charged in turn.

A node whose devices are too expensive beside those before it is searched again under what is left, then with fewer
pods. Where too few pods are left, the group is decided about again with what is left as its budget (QuotaBudget).
"""

from collections.abc import Mapping, Sequence

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.groups.model import GroupPlan, GroupQuestion, NodeShare
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.pods.claims import Name, claim_name
from allocator.pods.node_eligibility import is_for
from allocator.search.results import allocation, node_selector, share_ids
from kube.api.resource import ResourceClaim
from quotas.device_quotas.affordable_nodes import Excesses, TenantBudget, closest
from quotas.device_quotas.group_budget import QuotaBudget
from sidecar.groups.places import PlannedClaim
from sidecar.plan.occupancy import Occupancy, with_allocated
from sidecar.plan.placement import NODE_STEPS, budget_for, share_seed, with_allocation
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.tenant_budget import tenant_budget


def quota_budget(namespace: str, snapshot: Snapshot, occupancy: Occupancy) -> QuotaBudget | None:
    """Return the budget of a group; None if nothing limits it.

    Args:
        namespace: The namespace of the group.
        occupancy: The use beside the group.
    """
    quotas = snapshot.quotas
    if quotas is None:
        return None
    tenant = tenant_budget(namespace, quotas, snapshot, occupancy)
    return None if tenant is None else QuotaBudget(tenant.accounts, tenant.left(), quotas)


class ChargedPlan(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The part of a plan that the tenant can pay.

    Attributes:
        claims: The devices of the claims.
        unaffordable: Names of the members that get no place.
        excesses: The limits that their devices exceed; None if all can be paid.
    """

    claims: Mapping[Name, PlannedClaim]
    unaffordable: tuple[str, ...] = ()
    excesses: Excesses | None = None


def charge_plan(
    plan: GroupPlan,
    question: GroupQuestion,
    namespace: str,
    snapshot: Snapshot,
    occupancy: Occupancy,
) -> ChargedPlan:
    """Return the devices of a plan, as far as the tenant can pay them.

    Args:
        namespace: The namespace of the group.
        occupancy: The use beside the group.
        question: The question about the group; each of its members has one option.

    Raises:
        AttemptFailed: The node selectors of the devices cannot be combined.
        AnswerInterrupted: It takes too much, or has to be evaluated first.
    """
    return _Charging(question, namespace, snapshot, occupancy).charge(plan)


class _Charging:
    """A plan that is charged node by node."""

    def __init__(
        self, question: GroupQuestion, namespace: str, snapshot: Snapshot, occupancy: Occupancy
    ) -> None:
        self._question = question
        self._namespace = namespace
        self._snapshot = snapshot
        self._cluster: Cluster = snapshot.cluster
        self._occupancy = occupancy
        self._claims: dict[Name, PlannedClaim] = {}
        self._claims_of = {member.name: member.options[0].claims for member in question.members}
        self._is_changed = False

    def charge(self, plan: GroupPlan) -> ChargedPlan:
        """Return the part of a plan that the tenant can pay."""
        unaffordable: list[str] = []
        excesses: Excesses | None = None
        for share in plan.shares:
            tenant = self._tenant()
            exceeded = () if tenant is None else self._excesses(share, tenant)
            payable: NodeShare | None = share
            if tenant is not None and (exceeded or self._is_changed):
                self._is_changed = True
                payable = self._search(share, tenant)
                # Other devices for a claim of several members may be out of the reach of some of them.
                if payable is not None and not (
                    share.members or self._is_within_reach(payable, plan.nodes)
                ):
                    payable = None
            kept_names = () if payable is None else payable.members
            dropped_names = [name for name in share.members if name not in kept_names]
            if payable is None and not share.members:
                # A claim of several pods: without it none of them has a place, and few groups have others.
                return ChargedPlan(claims={}, unaffordable=tuple(plan.nodes), excesses=exceeded)
            if dropped_names:
                unaffordable += dropped_names
                excesses = closest(excesses, exceeded) if exceeded else excesses
            if payable is not None:
                self._take(payable)
        return ChargedPlan(
            claims=self._claims,
            unaffordable=tuple(unaffordable),
            excesses=(excesses or ()) if unaffordable else None,
        )

    def _tenant(self) -> TenantBudget | None:
        quotas = self._snapshot.quotas
        if quotas is None:
            return None
        return tenant_budget(self._namespace, quotas, self._snapshot, self._occupancy)

    def _excesses(self, share: NodeShare, tenant: TenantBudget) -> Excesses:
        return tenant.excesses_of_plan(share.plan)

    def _search(self, share: NodeShare, tenant: TenantBudget) -> NodeShare | None:
        """Return the devices of as many members of a node as the tenant can pay; None for none of them."""
        payers = [name for name in share.members if self._own_claims(name, share)]
        others = [name for name in share.members if name not in payers]
        for count in range(len(payers), -1, -1):
            names = {*others, *payers[:count]}
            members = tuple(name for name in share.members if name in names)
            if share.members and not members:
                return None
            pending = share.pending
            if count < len(payers):
                claims = {
                    claim_name(claim): claim
                    for name in members
                    for claim in self._own_claims(name, share)
                }
                pending = self._cluster.resolve(tuple(claims.values()))
            plan = self._plan(share.node, pending, tenant)
            if plan is not None:
                return NodeShare(node=share.node, members=members, plan=plan, pending=pending)
            if not share.members:
                return None
        return None

    def _is_within_reach(self, share: NodeShare, nodes: Mapping[str, str]) -> bool:
        """Return True if every member can use the claims of a share from its node.

        Args:
            nodes: Member to node.
        """
        selectors = {
            claim_name(claim): node_selector(choices, share.node)
            for claim, choices in zip(share.pending.claims, share.plan.choices, strict=True)
        }
        return all(
            is_for(selector, self._cluster.nodes[node])
            for name, node in nodes.items()
            for claim in self._claims_of[name]
            if (selector := selectors.get(claim_name(claim))) is not None
        )

    def _plan(self, node: str, pending: PendingClaims, tenant: TenantBudget) -> Plan | None:
        if not pending.claims:
            return Plan(node=node, choices=(), alternatives=())
        strategy = self._question.strategy
        outcome = self._cluster.verdict(
            pending,
            node,
            strategy=strategy,
            budget=budget_for(strategy, NODE_STEPS),
            usage=self._occupancy.usage,
            bounds=tenant.bounds(self._cluster.node_devices(node)),
        )
        is_plan = isinstance(outcome, Plan) and self._question.may_give(outcome)
        return outcome if is_plan and isinstance(outcome, Plan) else None

    def _own_claims(self, name: str, share: NodeShare) -> Sequence[ResourceClaim]:
        """Return the claims of a member that are allocated with its node."""
        pending_names = {claim_name(claim) for claim in share.pending.claims}
        return [claim for claim in self._claims_of[name] if claim_name(claim) in pending_names]

    def _take(self, share: NodeShare) -> None:
        """Count the devices of a node as in use."""
        features = self._cluster.options.features
        for index, claim in enumerate(share.pending.claims):
            result = allocation(
                share.plan, index, share.pending, features, share_ids(share_seed(claim))
            )
            allocated_claim = with_allocation(claim, result)
            self._claims[claim_name(claim)] = PlannedClaim(
                claim=allocated_claim, choices=share.plan.choices[index]
            )
            if self._snapshot.quotas is not None:
                self._occupancy = with_allocated(
                    self._occupancy, allocated_claim, features, self._snapshot.quotas
                )
