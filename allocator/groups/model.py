"""The question about a group of pods, and its three answers, as values."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from allocator.groups.budget import GroupBudget
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.resource import ResourceClaim

MAX_MEMBERS: Final = 512
"""Members of a group that are decided together. A larger group is rejected."""

GROUP_BUDGET: Final = Budget(steps=200_000)
"""The cost of one decision about a group; half a second to some seconds."""


class Arrangement(StrEnum):
    """The preference among the placements of a group.

    No arrangement changes whether a group fits.
    """

    FIRST_FIT = "FirstFit"
    """Each member takes the first node by name that has devices for it, as upstream."""
    PACKED = "Packed"
    """Few nodes, so that members are close to each other."""
    SPREAD = "Spread"
    """The most nodes, up to one for each member, so that one node takes few of them down."""


class MemberOption(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that a member may use, and the claims that it needs there.

    Attributes:
        nodes: Names of nodes. Only what the group itself and other pods use is not checked yet.
        claims: The unallocated claims. A claim that several members name is allocated once.
    """

    nodes: tuple[str, ...]
    claims: tuple[ResourceClaim, ...] = ()


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a group that has no node yet.

    Attributes:
        name: `namespace/name`, unique in the group.
        options: Its nodes by the claims that it needs there; no node is in two of them.
        request: Its CPU, memory and other counted resources; None where only devices count.
    """

    name: str
    options: tuple[MemberOption, ...]
    request: PodRequest | None = None


class GroupQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A group of pods; some of them may hold their devices already.

    Attributes:
        members: The members without a node, in the order in which the scheduler tries them.
        min_count: Members that the group needs, those that are placed among them.
        placed: The node of each member that is placed. Their devices are in the cluster's usage, and
            their CPU and memory in `resources`.
        resources: Node to its resources; None where only devices count.
        from_claims: Extended resources that DeviceClasses map.
        strategy: The order of devices on each node.
        arrangement: The preference among nodes.
        domain: A label of nodes, such as their rack. The group is kept in one value of it where it fits
            one; empty for none.
        needs_one_domain: All members need one value of `domain`; nodes without the label are left out.
        earlier: Member to node of an earlier plan, which is kept while it holds.
        drivers: The drivers whose devices may be given; None for all. A node that has only a plan with
            others counts as one without devices.
        budget: The amounts that the members may take together; None for no limit. With it, the nodes where
            members take least come first, and no preference among nodes counts more.
    """

    members: tuple[GroupMember, ...]
    min_count: int
    placed: tuple[str, ...] = ()
    resources: Mapping[str, NodeResources] | None = None
    from_claims: frozenset[str] = frozenset()
    strategy: Strategy = FIRST_FIT
    arrangement: Arrangement = Arrangement.FIRST_FIT
    domain: str = ""
    needs_one_domain: bool = False
    earlier: Mapping[str, str] = msgspec.field(default_factory=dict)
    drivers: frozenset[str] | None = None
    budget: GroupBudget | None = None

    def may_give(self, plan: Plan) -> bool:
        """Return True if every device of a plan is of a driver that may give its devices."""
        drivers = self.drivers
        return drivers is None or all(
            choice.device.id.driver in drivers for choices in plan.choices for choice in choices
        )

    @property
    def missing(self) -> int:
        """The number of further members that the group needs."""
        return max(0, self.min_count - len(self.placed))


class NodeShare(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a group's plan on one node.

    Attributes:
        members: Names of the members, in their order; none where `pending` is a claim of several members,
            which is allocated before their own.
        plan: The devices of `pending`.
        pending: Claims that are allocated together.
    """

    node: str
    members: tuple[str, ...]
    plan: Plan
    pending: PendingClaims


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes and devices for enough members of a group.

    Attributes:
        shares: The allocations of each node, in an order that can be carried out.
        nodes: Member to node, in the order of the members.
        unplaced: Members without a place; the group does not need them.
        score: 0 to 100: how well the placement follows the arrangement; 0 for FIRST_FIT.
        steps: Cost of the decision.
    """

    shares: tuple[NodeShare, ...] = ()
    nodes: Mapping[str, str] = msgspec.field(default_factory=dict)
    unplaced: tuple[str, ...] = ()
    score: int = 0
    steps: int = 0


class MissingLabel(StrEnum):
    """The nodes without the topology label of a group."""

    ALL = "all"
    SUITABLE = "suitable"
    """All nodes that could take one of its members if they had the label."""


class GroupDoesNotFit(msgspec.Struct, frozen=True, kw_only=True):
    """No placement has as many members as the group needs.

    Attributes:
        closest: The largest placement that exists, with its members and those that are left.
        needed: Members that would have to be placed now.
        has_other_drivers: Some node has a plan that is left out for the drivers of its devices.
        missing_label: The nodes without the label of which the group needs one value; None where the label is not all
            that is missing.
    """

    closest: GroupPlan
    needed: int
    steps: int = 0
    has_other_drivers: bool = False
    missing_label: MissingLabel | None = None


class GroupUndecided(msgspec.Struct, frozen=True, kw_only=True):
    """The search ended before an answer was known.

    Attributes:
        closest: The largest placement that was met.
        needed: Members that would have to be placed now.
        why: The reason, for people.
        is_final: The search did not end for its budget, so it does not get further with more of it.
    """

    closest: GroupPlan
    needed: int
    why: str
    steps: int = 0
    is_final: bool = False


GroupOutcome = GroupPlan | GroupDoesNotFit | GroupUndecided
