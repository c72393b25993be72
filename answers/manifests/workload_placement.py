"""The placement of all pods of a workload of manifests, one beside the other. Pure."""

from collections.abc import Collection

import msgspec

from allocator.model.feature_gates import Features
from allocator.simulation.model import SimulationOptions, SimulationResult
from allocator.simulation.simulate import simulate_in_order
from answers.cluster.pending_workload import PodsTogether
from answers.cluster.why import explain_pending
from answers.manifests.scheduler_views import (
    SchedulerViews,
    build_views,
    routed_question,
    scheduler_support,
)
from answers.manifests.simulate import SimulationRequest, build_request
from answers.model.findings import namespace_of
from answers.model.inputs import Inputs
from kube.api.workloads import pod_path
from kube.manifests.source import SourceObject
from translation.reading.custom_workloads import workload_kind


def place_workload(
    inputs: Inputs, kind: str, name: str, features: Features, schedulers: Collection[str]
) -> PodsTogether | None:
    """Place the pods of a workload of the manifests as `simulate` does; None without pods to be made.

    Args:
        schedulers: The names of schedulers that evaluate policies.
    """

    def is_kept(source: SourceObject) -> bool:
        if pod_path(source.api_version, source.kind) is None and not workload_kind(
            source.api_version, source.kind
        ):
            return True
        place = namespace_of(source, inputs.namespace)
        return (source.kind, place, source.name) == (kind, inputs.namespace, name)

    alone = msgspec.structs.replace(inputs, manifests=tuple(filter(is_kept, inputs.manifests)))
    request = build_request(alone)
    state, held_back = request.state, request.rejections.pods
    total = len(request.question.pods) + len(held_back)
    if not total:
        return None
    question = msgspec.structs.replace(routed_question(request.question, state), claims=())
    request = msgspec.structs.replace(request, question=question)
    support = scheduler_support(state, features, schedulers)
    views = build_views(state, question, features, support)
    result = simulate_in_order(views.cluster, question, SimulationOptions(), views.other_views)
    placed = sum(pod.node is not None for pod in result.pods)
    reason = _reason(request, result, views) if placed < total else ""
    return PodsTogether(pods=total, placed=placed, reason=reason)


def _reason(request: SimulationRequest, result: SimulationResult, views: SchedulerViews) -> str:
    """Return the reason that the first pod without a place has none."""
    group_reasons = [group.reason for group in result.groups if group.reason]
    if group_reasons:
        return group_reasons[0]
    names = {(pod.namespace, pod.name) for pod in result.pods if pod.node is None}
    pods = [
        pod for pod in request.question.pods if (pod.metadata.namespace, pod.metadata.name) in names
    ]
    if not pods:
        return next((str(pod.reason) for pod in request.rejections.pods if pod.reason), "")
    cluster = views.other_views.get(pods[0].spec.scheduler_name, views.cluster)
    explanation = explain_pending(pods[0], request.state, cluster)
    if explanation is not None:
        return explanation.note
    return next((failure.event for failure in result.failures if failure.event), "no node is left")
