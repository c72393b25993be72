"""The members and devices behind the numbers of a placement."""

from collections.abc import Mapping, Sequence

from allocator.cluster.cluster import Cluster
from allocator.groups.kinds import Counts, MemberKind
from allocator.groups.model import GroupMember, GroupQuestion, NodeShare
from allocator.model.plan import Plan
from allocator.pods.claims import Name, claim_name
from kube.api.resource import ResourceClaim


def assign_members(
    kinds: Sequence[MemberKind],
    placement: Mapping[str, Counts],
    first: Counts,
    earlier: Mapping[str, str],
) -> Mapping[str, Sequence[GroupMember]]:
    """Return the members of each node: as in an earlier plan if that holds, else in order.

    Args:
        kinds: The kinds of members.
        placement: Node to the number of members of each kind.
        first: The first member of each kind that has no node yet.
        earlier: Member to node of an earlier plan.
    """
    chosen: dict[str, list[GroupMember]] = {node: [] for node in placement}
    for index, kind in enumerate(kinds):
        free = {node: counts[index] for node, counts in placement.items()}
        others: list[GroupMember] = []
        for member in kind.members[first[index] :]:
            node = earlier.get(member.name)
            if node is not None and free.get(node):
                free[node] -= 1
                chosen[node].append(member)
            else:
                others.append(member)
        waiting = iter(others)
        for node, count in free.items():
            chosen[node] += [next(waiting) for _ in range(count)]
    return chosen


def node_share(
    cluster: Cluster,
    kinds: Sequence[MemberKind],
    node: str,
    members: Sequence[GroupMember],
    question: GroupQuestion,
) -> NodeShare:
    """Return the plan for members that fit together on a node, in the strategy's order of devices.

    Where that leads to a driver whose devices may not be given, it is in upstream's order, in which they fit.
    """
    option_of = {member.name: kind.option_of for kind in kinds for member in kind.members}
    claims: dict[Name, ResourceClaim] = {
        claim_name(claim): claim
        for member in members
        for claim in member.options[option_of[member.name][node]].claims
    }
    pending = cluster.resolve(tuple(claims.values()))
    plan = Plan(node=node, choices=(), alternatives=())
    if claims:
        outcome = cluster.verdict(pending, node, strategy=question.strategy)
        if isinstance(outcome, Plan) and not question.may_give(outcome):
            outcome = cluster.verdict(pending, node)
        if not isinstance(outcome, Plan):
            name = question.strategy.name
            raise RuntimeError(f"members fit {node}, but {name} finds no devices for them")
        plan = outcome
    return NodeShare(
        node=node, members=tuple(member.name for member in members), plan=plan, pending=pending
    )
