"""The schedulers of pods and claims, and the cluster as each of them sees it. Pure.

Which schedulers evaluate policies is the decision of `SchedulerSupport.evaluates_policies`, as in the webhook.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from admission.group_routing import AdmittedMember, Groups, admit_member
from allocator.cluster.cluster import Cluster
from allocator.declarations.collect import without_denied
from allocator.declarations.model import Declaration
from allocator.declarations.read import read_declaration
from allocator.declarations.schedulers import without_ignored_groups
from allocator.model.feature_gates import Features
from allocator.model.scheduler_support import SchedulerSupport
from allocator.pods.claims import Name, pod_group_name, pod_name
from allocator.pods.extended_resource_claim import mapped_resources
from allocator.simulation.model import SimulationInput, SimulationResult
from answers.cluster.bridge import context_of
from answers.manifests.simulate import SimulationRequest
from answers.model.cluster_state import ClusterState, is_pending
from findings.finding import Code, Finding
from findings.text import join_names
from kube.api.core import Pod
from kube.api.extended_resources import extended_resources
from kube.api.ownership import owned_drivers
from kube.api.policy import DeviceCompatibilityPolicy, Enforcement, effective_policies
from kube.api.resource import ResourceClaim
from kube.names import DEFAULT_SCHEDULER_NAME
from rules.context.claim_drivers import ClaimDrivers, drivers_of_claim, drivers_of_class
from rules.context.context import Context
from rules.context.pod_scheduler import drivers_of_pod, scheduler_of_claim


class SchedulerViews(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster as the schedulers of a question see it.

    Attributes:
        cluster: The cluster for claims without a pod, and for schedulers without a view of their
            own.
        other_views: schedulerName to the view of a scheduler that sees the cluster otherwise.
        notes: Sentences on the effect of policies.
    """

    cluster: Cluster
    other_views: Mapping[str, Cluster] = {}
    notes: tuple[str, ...] = ()


class RoutedRequest(NamedTuple):
    """A simulation request after the routing of its pods, and the cluster as their schedulers see it."""

    request: SimulationRequest
    support: SchedulerSupport
    views: SchedulerViews


def route_request(
    request: SimulationRequest,
    features: Features,
    policy_aware_schedulers: Collection[str],
    uniform_config_drivers: Collection[str] = (),
    *,
    is_joint: bool = False,
) -> RoutedRequest:
    """Return a request with its pods as the webhook routes them; the other arguments are those of `build_views`."""
    state = request.state
    question = routed_question(request.question, state, request.held_back)
    support = scheduler_support(state, features, policy_aware_schedulers)
    views = build_views(
        state, question, features, support, uniform_config_drivers, is_joint=is_joint
    )
    return RoutedRequest(msgspec.structs.replace(request, question=question), support, views)


def scheduler_support(
    state: ClusterState, features: Features, policy_aware_schedulers: Collection[str]
) -> SchedulerSupport:
    """Return the features that a cluster's schedulers evaluate, and the drivers of its bridge."""
    return SchedulerSupport(
        policy_aware=frozenset(policy_aware_schedulers),
        compatibility_groups=features.compatibility_groups,
        owned_drivers=owned_drivers(state.ownerships),
        bridge_scheduler=state.bridge_scheduler,
    )


class RoutedPods(NamedTuple):
    """New pods with the schedulerName that the webhook would give them.

    Attributes:
        refusals: Namespace and name of each pod that it would deny for the sake of its group, to the reason.
    """

    pods: tuple[Pod, ...]
    refusals: Mapping[Name, Finding] = {}


def routed_pods(pods: Iterable[Pod], state: ClusterState) -> RoutedPods:
    """Return new pods after the webhook."""
    context = routing_context(state)
    if not context.owned_drivers:
        return RoutedPods(tuple(pods))
    groups = Groups(by_name=state.kubernetes_groups, is_served=True)
    routed: list[Pod] = []
    refusals: dict[Name, Finding] = {}
    for pod in pods:
        admitted = _admitted(pod, context, groups)
        routed.append(_with_scheduler(pod, admitted.scheduler))
        refusal = admitted.refusal
        if refusal is not None and not (pod.metadata.uid or _is_of_controller(pod, refusal, state)):
            refusals[pod.metadata.namespace, pod.metadata.name] = refusal
    return RoutedPods(tuple(routed), refusals)


def _is_of_controller(pod: Pod, refusal: Finding, state: ClusterState) -> bool:
    """Return True if a pod of a controller's own PodGroup is denied since pods of files have no owners."""
    group = state.kubernetes_groups.get((pod.metadata.namespace, pod_group_name(pod)))
    owners = (group.metadata.owner_references or ()) if group is not None else ()
    is_unknown = refusal.code is Code.GROUP_SCHEDULER_UNKNOWN
    return is_unknown and any(owner.controller for owner in owners)


def with_routed_pods(state: ClusterState, names: Collection[Name]) -> ClusterState:
    """Return a state with the new ones of some pods as the webhook routes them.

    A pod with a UID has been admitted, so its scheduler stays.
    """
    new_pods = {
        name: pod
        for name, pod in state.pods.items()
        if name in names and is_pending(pod) and not pod.metadata.uid
    }
    routed = dict(zip(new_pods, routed_pods(new_pods.values(), state).pods, strict=True))
    return msgspec.structs.replace(state, pods={**state.pods, **routed})


def routed_question(
    question: SimulationInput, state: ClusterState, held_back: Iterable[Pod]
) -> SimulationInput:
    """Return a question with its routed pods, their groups, and the resources of the nodes.

    Args:
        held_back: Pods of the manifests that are not in the question, since a quota leaves too little.
    """
    pods, refusals = routed_pods(question.pods, state)
    return msgspec.structs.replace(
        question,
        known=state.claims,
        pods=pods,
        groups=without_denied(state.groups(pods, held_back, are_new=True), refusals),
        resources=state.node_resources(),
    )


def claim_scheduler(claim: ResourceClaim, state: ClusterState) -> str:
    """Return the scheduler that alone can allocate a claim; empty if the pods decide."""
    return scheduler_of_claim(claim.spec.devices, routing_context(state))


def routing_context(state: ClusterState) -> Context:
    """Return the context that decides on schedulers."""
    owned = owned_drivers(state.ownerships)
    return msgspec.structs.replace(context_of(state), owned_drivers=owned)


def _admitted(pod: Pod, context: Context, groups: Groups) -> AdmittedMember:
    return admit_member(pod, pod.metadata.namespace, context, groups)


def _with_scheduler(pod: Pod, scheduler: str) -> Pod:
    if scheduler == pod.spec.scheduler_name:
        return pod
    spec = msgspec.structs.replace(pod.spec, scheduler_name=scheduler)
    return msgspec.structs.replace(pod, spec=spec)


def build_views(
    state: ClusterState,
    question: SimulationInput,
    features: Features,
    support: SchedulerSupport,
    uniform_config_drivers: Collection[str] = (),
    *,
    is_joint: bool = False,
) -> SchedulerViews:
    """Return the views for the pods and claims of a question.

    Claims without a pod are evaluated with policies: that of their driver may be the bridge's, and an
    administrator asks what it would do.

    Args:
        uniform_config_drivers: Drivers that reject contradicting sharing configurations.
        is_joint: One scheduler places everything at once: that of the first pod.
    """
    policies = _enforced_policies(state)
    schedulers = dict.fromkeys(pod.spec.scheduler_name for pod in question.pods)
    ignoring = [name for name in schedulers if not support.evaluates_policies(name)]
    ignored = ignored_policy_notes(state, question.pods, support)
    of_claims = ClaimDrivers()
    if policies and question.claims:
        context = routing_context(state)
        for claim in question.claims:
            of_claims |= drivers_of_claim(claim.spec.devices, context)
    evaluated = tuple(
        f"DeviceCompatibilityPolicy {policy.metadata.name} of driver {policy.spec.driver} is evaluated"
        + (" for claims without a pod" if question.pods else "")
        + "; kube-scheduler ignores it"
        for policy in policies
        if question.claims and policy.spec.driver not in support.owned_drivers
        if of_claims.unknown or policy.spec.driver in of_claims.all
    )
    if is_joint:
        first = next(iter(schedulers), None)
        with_policies = first is None or support.evaluates_policies(first)
        cluster = state.cluster(features, uniform_config_drivers, with_policies=with_policies)
        return SchedulerViews(cluster=cluster, notes=ignored if not with_policies else evaluated)
    cluster = state.cluster(features, uniform_config_drivers)
    is_alike = not policies and not cluster.options.consumer_limits
    other_views = {}
    if ignoring and not is_alike:
        plain = state.cluster(features, uniform_config_drivers, with_policies=False)
        other_views = dict.fromkeys(ignoring, plain)
    return SchedulerViews(cluster=cluster, other_views=other_views, notes=(*ignored, *evaluated))


def shared_claim_notes(state: ClusterState) -> tuple[str, ...]:
    """Return a sentence on the gate for the new claims of PodGroups; none without such claims."""
    groups = sorted(
        {
            f"{owner.kind} {namespace}/{owner.name}"
            for namespace, name in state.uncreated
            for owner in state.claims[namespace, name].metadata.owner_references or ()
        }
    )
    if not groups:
        return ()
    note = (
        f"the pods of {join_names(groups)} share claims, which needs the feature gate DRAWorkloadResourceClaims; it is "
        "off by default, and without it each pod gets claims of its own"
    )
    return (note,)


def ignored_group_notes(pods: Sequence[Pod], state: ClusterState) -> tuple[str, ...]:
    """Return a sentence for each scheduler that does not know the groups of its new pods."""
    readers = without_ignored_groups(pods, state.bridge_scheduler, are_adopted=True)
    names = {(pod.metadata.namespace, pod_name(pod)) for pod in readers}
    groups: dict[str, dict[str, None]] = {}
    for pod in pods:
        reading = read_declaration(pod)
        is_read = (pod.metadata.namespace, pod_name(pod)) in names
        if isinstance(reading, Declaration) and not is_read:
            scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER_NAME
            groups.setdefault(scheduler, {})[str(reading.group)] = None
    return tuple(
        f"{scheduler} does not know {join_names(list(unknown))}, and places the pods one by one"
        for scheduler, unknown in groups.items()
    )


def ignored_policy_notes(
    state: ClusterState, pods: Iterable[Pod], support: SchedulerSupport
) -> tuple[str, ...]:
    """Return a sentence for each policy of drivers of pods that their schedulers ignore."""
    policies = _enforced_policies(state)
    schedulers: dict[str, dict[str, None]] = {policy.metadata.name: {} for policy in policies}
    context = routing_context(state) if policies else None
    for pod in pods:
        scheduler = pod.spec.scheduler_name
        if context is None or support.evaluates_policies(scheduler):
            continue
        drivers = _drivers_of(pod, state, context)
        for policy in policies:
            if drivers is None or policy.spec.driver in drivers:
                schedulers[policy.metadata.name][scheduler or DEFAULT_SCHEDULER_NAME] = None
    return tuple(
        f"DeviceCompatibilityPolicy {policy.metadata.name} of driver {policy.spec.driver} is ignored for "
        f"pods of scheduler {', '.join(schedulers[policy.metadata.name])}; own the driver "
        "(drawbridge bridge own), or name a scheduler that evaluates policies (--policy-aware-scheduler)"
        for policy in policies
        if schedulers[policy.metadata.name]
    )


def _enforced_policies(state: ClusterState) -> list[DeviceCompatibilityPolicy]:
    """Return the policies in force, without those that only audit."""
    return [
        policy
        for policy in effective_policies(state.policies).values()
        if policy.spec.enforcement is not Enforcement.AUDIT
    ]


def _drivers_of(pod: Pod, state: ClusterState, context: Context) -> frozenset[str] | None:
    """Return the drivers of a pod's devices; None if some are unknown."""
    of_claims = drivers_of_pod(pod, pod.metadata.namespace, context)
    drivers = of_claims.drivers
    mapped = extended_resources(state.classes.values())
    for resource in mapped_resources(pod, mapped):
        drivers |= drivers_of_class(state.classes[mapped[resource]], context)
    return None if of_claims.missing or drivers.unknown else drivers.all


def fenced_drivers(
    scheduler: str, answer: SimulationResult | None, support: SchedulerSupport
) -> frozenset[str]:
    """Return the drivers of a placement that its scheduler may not allocate, as the bridge owns them.

    Args:
        scheduler: The scheduler's name in the pod.
        answer: The placement that the search finds.
    """
    if answer is None or scheduler == support.bridge_scheduler:
        return frozenset()
    return support.owned_drivers.intersection(
        result.driver
        for claim in answer.claims
        if claim.allocation is not None
        for result in claim.allocation.devices.results or ()
    )
