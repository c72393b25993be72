"""The placement of all pods of a workload of manifests, one beside the other. Pure."""

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.model.usage import Usage
from allocator.pods.claims import Name, pod_name
from allocator.simulation.model import (
    PlacedPod,
    SimulationInput,
    SimulationOptions,
    SimulationResult,
)
from allocator.simulation.simulate import simulate_in_order
from answers.cluster.hints import pool_advice
from answers.cluster.pending_workload import PodsTogether
from answers.cluster.why import ObjectStatus, explain_pending, with_advice
from answers.manifests.scheduler_views import (
    RoutedRequest,
    SchedulerViews,
    build_views,
    route_request,
)
from answers.manifests.simulate import SimulationRequest, build_request
from answers.manifests.trial_placements import template_advice, with_spared_devices
from answers.model.findings import reference
from answers.model.inputs import Inputs
from kube.api.core import Pod
from kube.api.workloads import number_path, pod_path
from kube.manifests.source import SourceObject
from translation.cluster.snapshot import TranslationSnapshot
from translation.reading.custom_workloads import workload_kind


class WorkloadPlacement(NamedTuple):
    """The placement of all pods of a workload of manifests.

    Attributes:
        result: The placement, with the reasons for the first pod without a place.
        rejections: The pods that quotas hold back, with their reasons.
        cluster: The cluster after the placement.
        before: The usage before it.
        fewer_pods: The change to as many pods as get a place, in a sentence; empty where there is none.
    """

    together: PodsTogether
    result: SimulationResult
    rejections: tuple[PlacedPod, ...]
    cluster: Cluster
    before: Usage
    fewer_pods: str = ""

    @property
    def unplaced_pods(self) -> frozenset[Name]:
        """The pods without a place."""
        pods = (*self.result.pods, *self.rejections)
        return frozenset((pod.namespace, pod.name) for pod in pods if pod.node is None)


def place_workload(
    inputs: Inputs,
    target: str,
    features: Features,
    schedulers: Collection[str],
    *,
    beside: Collection[str] = (),
) -> WorkloadPlacement | None:
    """Place the pods of a workload of the manifests as `simulate` does; None without pods to be made.

    Args:
        target: `Kind/namespace/name` of the workload.
        schedulers: The names of schedulers that evaluate policies.
        beside: References of other objects with pods in a group of its pods, to be placed with them.
    """

    def routed(names: Collection[str]) -> RoutedRequest:
        manifests = tuple(
            source
            for source in inputs.manifests
            if not _makes_pods(source) or reference(source, inputs.namespace) in names
        )
        request = build_request(msgspec.structs.replace(inputs, manifests=manifests), features)
        only_pods = msgspec.structs.replace(request.question, claims=())
        return route_request(
            msgspec.structs.replace(request, question=only_pods), features, schedulers
        )

    request, support, views = routed((target,))
    if beside and request.question.groups.groups:
        request, support, views = routed((target, *beside))
    own = {place for place, workload in request.workload_of.items() if workload == target}
    state, question = request.state, request.question
    held_back = tuple(pod for pod in request.rejections.pods if (pod.namespace, pod.name) in own)
    rejections = msgspec.structs.replace(request.rejections, pods=held_back)
    request = msgspec.structs.replace(request, rejections=rejections)
    total = len(held_back) + sum(_name_of(pod) in own for pod in question.pods)
    if not total:
        return None
    before = views.cluster.usage
    options = SimulationOptions(closest_fits=1, explained_failures=1)
    result = simulate_in_order(views.cluster, question, options, views.other_views)
    pods = tuple(pod for pod in result.pods if (pod.namespace, pod.name) in own)
    result = msgspec.structs.replace(result, pods=pods)

    def place(other: SimulationInput) -> SimulationResult:
        fresh = build_views(state, other, features, support)
        return simulate_in_order(fresh.cluster, other, SimulationOptions(), fresh.other_views)

    placed = sum(pod.node is not None for pod in result.pods)
    if placed < total:
        advice = template_advice(question, result, place)
        result = with_advice(result, question.pods, state, views.cluster, advice)
        result = with_spared_devices(question, result, place, request.workload_of)
    reason = _reason(request, result, views, inputs.snapshot) if placed < total else ""
    together = PodsTogether(pods=total, placed=placed, reason=reason)
    fewer_pods = _fewer_pods(target, result) if placed < total else ""
    by_budgets = tuple(pod for pod in pods if pod.reason)
    return WorkloadPlacement(
        *(together, result, (*held_back, *by_budgets), views.cluster, before, fewer_pods)
    )


def _makes_pods(source: SourceObject) -> bool:
    kind = (source.api_version, source.kind)
    return pod_path(*kind) is not None or workload_kind(*kind) is not None


def _name_of(pod: Pod) -> Name:
    return pod.metadata.namespace, pod_name(pod)


def _fewer_pods(target: str, result: SimulationResult) -> str:
    """Return the change of a workload to the number of placed pods; empty without any."""
    kind, _, name = target.split("/", 2)
    placed = sum(pod.node is not None for pod in result.pods)
    path = number_path(kind)
    if not placed or path is None:
        return ""
    return f"write {path[-1]}: {placed} in {kind} {name}: as many pods have a place together"


def status_beside_others(
    status: ObjectStatus, name: Name, placement: WorkloadPlacement
) -> ObjectStatus:
    """Return the state of a pod that has a place alone as that of an equal pod without one beside the others."""
    own_name = msgspec.structs.replace(status, namespace=name[0], name=name[1])
    rejection = next(
        (pod for pod in placement.rejections if (pod.namespace, pod.name) == name), None
    )
    if rejection is not None:
        return msgspec.structs.replace(
            own_name,
            simulation=None,
            beside="a quota leaves too little for it beside the other pods of the workload",
            advice=(str(rejection.reason), *status.advice),
        )
    answer = placement.result
    of_group = next((group.reason for group in answer.groups if name[1] in group.pods), "")
    names = answer.uses.get(name, ())
    failures = tuple(
        failure for failure in answer.failures if failure.title == f"Pod {name[0]}/{name[1]}"
    )
    return msgspec.structs.replace(
        own_name,
        beside=of_group or "no node can take it beside the other pods of the workload",
        advice=(*filter(None, (placement.fewer_pods,)), *own_name.advice),
        simulation=msgspec.structs.replace(
            answer,
            pods=tuple(pod for pod in answer.pods if (pod.namespace, pod.name) == name),
            claims=tuple(claim for claim in answer.claims if claim.name in names),
            failures=failures,
        ),
    )


def _reason(
    request: SimulationRequest,
    result: SimulationResult,
    views: SchedulerViews,
    snapshot: TranslationSnapshot,
) -> str:
    """Return the reason that the first pod without a place has none."""
    group_reasons = [group.reason for group in result.groups if group.reason]
    if group_reasons:
        return group_reasons[0]
    names = {
        (pod.namespace, pod.name) for pod in result.pods if pod.node is None and not pod.reason
    }
    pods = [
        pod for pod in request.question.pods if (pod.metadata.namespace, pod.metadata.name) in names
    ]
    if not pods:
        held_back = (*request.rejections.pods, *result.pods)
        return next((str(pod.reason) for pod in held_back if pod.reason), "")
    cluster = views.other_views.get(pods[0].spec.scheduler_name, views.cluster)
    failure = next(iter(result.failures), None)
    waits = (
        ()
        if failure is None
        else tuple(pool_advice(pods[0], failure, request.state, cluster.options.features))
    )
    if waits:
        return waits[0]
    waiting_helps = failure is None or failure.closest_fit_when_idle is not None
    # Beside a group the fits stand below, in the keys of the pod.
    explanation = explain_pending(
        pods[0],
        request.state,
        cluster,
        snapshot,
        waiting_helps=waiting_helps,
        with_fits=not result.groups,
        names_claims=True,
    )
    if explanation is not None:
        return explanation.note
    return next((failure.event for failure in result.failures if failure.event), "no node is left")
