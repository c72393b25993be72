"""A group of pods that a simulation tries: the question about it, and the words for the answer."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.declarations.model import DeclaredGroup, GroupSystem
from allocator.explain.change import ClosestFit
from allocator.explain.failure import FailedAttempt, NodeReason
from allocator.explain.relaxations import cost_of_fewer
from allocator.groups.arrangement import arrangement_of
from allocator.groups.decide import decide_group
from allocator.groups.model import (
    GroupDoesNotFit,
    GroupMember,
    GroupOutcome,
    GroupPlan,
    GroupQuestion,
    GroupUndecided,
    MemberOption,
)
from allocator.groups.wording import describe_outcome
from allocator.model.outcome import Reason
from allocator.model.plan import Budget
from allocator.nodes.node_resources import NodeResources
from allocator.pods.claims import Name, pod_name
from allocator.simulation.attempt import NodeDomain, PlacementAttempt
from allocator.simulation.model import PlacedGroup
from allocator.simulation.quotas import Quotas
from allocator.strategies.strategy import Strategy
from findings.text import count_text
from kube.api.core import Pod

_MINIMUMS: Final = {
    GroupSystem.KUBERNETES: "minCount",
    GroupSystem.KOORDINATOR: "min-available",
    GroupSystem.VOLCANO: "minMember",
    GroupSystem.COSCHEDULING: "minMember",
    GroupSystem.KAI: "minMember",
}
"""System to the field, or the end of the annotation, with the number of pods that a group needs."""

_PODS: Final = "parallelism and completions of a Job, or replicas"
_PODS_OF_VOLCANO: Final = "minAvailable and replicas of a Volcano Job"
"""The fields that set the number of pods."""


def new_result(group: DeclaredGroup) -> PlacedGroup:
    """Return the result for a group without a placed member."""
    return PlacedGroup(
        kind=group.name.system,
        namespace=group.name.namespace,
        name=group.name.name,
        min_count=group.min_count,
        running=len(group.placed),
        pods=tuple(map(pod_name, group.waiting)),
    )


def obstacle(group: DeclaredGroup) -> NodeReason | None:
    """Return the reason a group is not tried on any node; None for one that is tried."""
    if group.fault is not None:
        fix = f"; {group.fault.fix}" if group.fault.fix else ""
        return NodeReason(code=group.fault.code, message=f"{group.fault.message}{fix}")
    tried = len(group.waiting) + len(group.placed)
    if tried >= group.min_count:
        return None
    pods = tried + group.held_back
    needs = f"{group.name} needs {count_text(group.min_count, 'pod')}"
    number, minimum = _PODS, f"{_MINIMUMS[group.name.system]}: "
    of_job = ""
    if group.name.system is GroupSystem.VOLCANO:
        number, of_job = "replicas of a Volcano Job", " (minAvailable of a Volcano Job)"
    if pods < group.min_count:
        message = (
            f"{needs}, and {pods} exist{'s' if pods == 1 else ''}; create {group.min_count} ({number}), "
            f"or write {minimum}{pods} in the group{of_job}"
        )
        return NodeReason(code=Reason.GROUP_INCOMPLETE, message=message)
    message = (
        f"{needs}, and a quota leaves too little for {group.held_back} of {pods}; request less, raise the "
        f"quota, or write {minimum}{tried} in the group{of_job}"
    )
    return NodeReason(code=Reason.QUOTA, message=message)


def member(attempt: PlacementAttempt, options: Sequence[MemberOption]) -> GroupMember:
    """Return a pod as a member."""
    assert attempt.pod is not None
    return GroupMember(
        name=member_name(attempt.pod), options=tuple(options), request=attempt.request
    )


def member_name(pod: Pod) -> str:
    """Return the name of a pod among the members."""
    return f"{pod.metadata.namespace}/{pod_name(pod)}"


def build_question(
    group: DeclaredGroup,
    members: Sequence[GroupMember],
    resources: Mapping[str, NodeResources] | None,
    extended_resources: frozenset[str],
    strategy: Strategy,
) -> GroupQuestion:
    """Return the question about a group.

    Args:
        resources: Node to its resources now.
        extended_resources: Extended resources that DeviceClasses map.
        strategy: The strategy of its first pod.
    """
    return GroupQuestion(
        members=tuple(members),
        min_count=group.min_count,
        placed=group.placed,
        resources=resources,
        from_claims=extended_resources,
        strategy=strategy,
        arrangement=arrangement_of(strategy),
        domain=group.domain,
        needs_one_domain=group.needs_one_domain,
    )


def decide_within(
    cluster: Cluster,
    group: DeclaredGroup,
    question: GroupQuestion,
    quotas: Quotas | None,
    budget: Budget,
) -> tuple[GroupOutcome, str]:
    """Return the decision about a group, and the limits that it would exceed by preference, in a sentence.

    As on the bridge: a placement that takes more than a quota has left is followed by a search for another one,
    with what is left as its budget.

    Args:
        budget: The cost of each search.
    """
    outcome = decide_group(cluster, question, budget)
    if quotas is None or not isinstance(outcome, GroupPlan):
        return outcome, ""
    excess = quotas.excess(group, outcome)
    if not excess:
        return outcome, ""
    within = replace(question, budget=quotas.budget(group))
    return decide_group(cluster, within, budget), excess


def pods_left(group: DeclaredGroup, nodes: Collection[Name]) -> tuple[Pod, ...]:
    """Return the pods that a placed group does without.

    Args:
        nodes: The placed pods.
    """
    return tuple(
        pod for pod in group.waiting if (pod.metadata.namespace, pod_name(pod)) not in nodes
    )


def domain_left(group: DeclaredGroup, nodes: Iterable[str], cluster: Cluster) -> NodeDomain | None:
    """Return the domain for the other pods of a placed group; None if any node will do.

    Args:
        nodes: The nodes of the placed pods.
    """
    used = [name for name in (*nodes, *group.placed) if name in cluster.nodes]
    if not group.needs_one_domain or not used:
        return None
    return NodeDomain(group.domain, cluster.nodes[used[0]].labels.get(group.domain, ""))


def describe(group: DeclaredGroup, outcome: GroupDoesNotFit | GroupUndecided) -> NodeReason:
    """Return the reason a group is not placed.

    The first member without a place is tried after this beside the others.
    """
    code = Reason.GROUP_DOES_NOT_FIT
    if isinstance(outcome, GroupUndecided):
        code = Reason.BUDGET_EXHAUSTED
    message = describe_outcome(
        outcome,
        min_count=group.min_count,
        placed=len(group.placed),
        domain=group.domain if group.needs_one_domain else "",
    )
    return NodeReason(code=code, message=message)


def describe_excess(
    group: DeclaredGroup, outcome: GroupDoesNotFit | GroupUndecided, excess: str
) -> NodeReason:
    """Return the reason for a group that fits, but not within the rest of a quota.

    Args:
        outcome: The outcome of the search for a placement within it.
        excess: The limits that its first placement exceeds, in a sentence.
    """
    if isinstance(outcome, GroupUndecided):
        message = f"{excess}; not decided about other devices: {outcome.why}"
        return NodeReason(code=Reason.BUDGET_EXHAUSTED, message=message)
    needs = f"{group.name} needs {count_text(group.min_count, 'pod')}"
    message = f"{needs}, and no placement keeps within what is left: {excess}; request less, or raise the quota"
    return NodeReason(code=Reason.QUOTA, message=message)


def failed_group(
    group: DeclaredGroup,
    outcome: GroupDoesNotFit | GroupUndecided,
    reason: NodeReason,
    fit: ClosestFit | None,
) -> FailedAttempt:
    """Return the failure of a group.

    A smaller group, which has a place, is part of the closest fit where it loses less than a smaller request of
    each pod; else it is advice.

    Args:
        group: The group.
        outcome: The decision about its pods without a node.
        reason: The outcome in words.
        fit: The closest fit of each of its pods; None without one.
    """
    title = new_result(group).title
    advice = _advise_minimum(group, outcome)
    pods = len(group.placed) + len(outcome.closest.nodes)
    if fit is not None and advice and cost_of_fewer(pods, group.min_count) <= fit.cost:
        fit, advice = replace(fit, smaller_group=advice[0]), ()
    return FailedAttempt(title=title, group_reason=reason, closest_fit=fit, advice=advice)


def _advise_minimum(
    group: DeclaredGroup, outcome: GroupDoesNotFit | GroupUndecided
) -> tuple[str, ...]:
    """Return the advice to lower the minimum of a group to the number of fitting pods; none without any.

    The number of pods has to follow: where a pod waits for ever, a Job does not complete.
    """
    pods = len(group.placed) + len(outcome.closest.nodes)
    if not outcome.closest.nodes or pods >= group.min_count:
        return ()
    follow = _PODS_OF_VOLCANO if group.name.system is GroupSystem.VOLCANO else _PODS
    minimum = f"{_MINIMUMS[group.name.system]}: {pods}"
    return (f"write {minimum} in {group.name}, and create as many pods ({follow})",)
