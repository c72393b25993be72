"""The workloads with next pods that a LimitRange of their namespace rejects. Pure.

Pods that run were there before the LimitRange, or before it was changed: Kubernetes asks it when a pod is created.

Source: k8s.io/kubernetes v1.37.1, plugin/pkg/admission/limitranger (PodMutateLimitFunc, PodValidateLimitFunc), and
pkg/apis/core/v1/defaults.go, SetDefaults_LimitRangeItem.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from allocator.nodes.pod_requests import container_requests, sum_containers
from answers.model.objects import decode_objects, of_kind
from kube.api.core import Container, LimitRange, LimitRangeItem, Pod
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from kube.quantity import Quantity
from migration.cluster.device_pods import pod_of
from migration.cluster.evidence import text_map
from migration.cluster.owners import OwnerKey
from migration.cluster.workloads import Workload
from translation.reading.legacy_pod import containers

_LIMIT_RANGER: Final = "kubernetes.io/limit-ranger"
"""The annotation of a pod with amounts that a LimitRange has set; those of its author are not known."""
_LEFT_BY_DRAINS: Final = frozenset({DAEMON_SET, "Node"})
"""Owners of pods that `kubectl drain` leaves; nodes have mirror pods."""
_CONTAINER: Final = "Container"
_POD: Final = "Pod"
_NANOS: Final = 10**9
_Amounts = Mapping[str, Quantity]


class LimitRangeFault(NamedTuple):
    """A bound of a LimitRange that a new pod is outside of.

    Attributes:
        reference: `LimitRange/namespace/name`.
        detail: The bound and the amount of the pod, in the words of Kubernetes.
    """

    reference: str
    detail: str

    @property
    def text(self) -> str:
        """Return the LimitRange with its bound."""
        return f"{self.reference} ({self.detail})"

    @property
    def fix(self) -> str:
        """Return the change that lets the pods be created."""
        return "change that bound, or the amounts in their pod template; then plan again from a new snapshot"


class RejectedWorkload(NamedTuple):
    """The reason for the next pods of a workload to be rejected, so that evicted ones do not come again.

    Attributes:
        fault: The bound.
        nodes: The nodes of its live pods.
    """

    fault: LimitRangeFault
    nodes: frozenset[str]


class _Usage(NamedTuple):
    """The amounts of a container, or of a pod."""

    requests: _Amounts
    limits: _Amounts


def find_rejected_workloads(
    objects: Iterable[SourceObject],
    workloads: Iterable[Workload],
    with_devices: Collection[OwnerKey],
    namespace: str,
) -> dict[str, RejectedWorkload]:
    """Return the workloads, as `Kind/namespace/name`, with the first bound of a LimitRange that their next pods are outside of.

    Pods that run to their end are waited for, and others of a node stay at its drain.

    Args:
        objects: The cluster's objects.
        workloads: The workloads.
        with_devices: Those of them with devices.
        namespace: The namespace for objects that name none.
    """
    documents = [source for source in objects if source.kind == LimitRange.__name__]
    views, _ = decode_objects(documents, {("v1", LimitRange.__name__): LimitRange}, namespace)
    ranges: dict[str, list[LimitRange]] = {}
    for place, view in of_kind(views, LimitRange):
        ranges.setdefault(place, []).append(view)
    for own in ranges.values():
        own.sort(key=lambda view: view.metadata.name)
    rejected: dict[str, RejectedWorkload] = {}
    for workload in workloads:
        key = workload.key
        is_left = key.kind in _LEFT_BY_DRAINS and key not in with_devices
        if key.namespace not in ranges or is_left or workload.runs_to_completion:
            continue
        fault = _first_fault(workload, ranges[key.namespace])
        if fault is not None:
            nodes = (text_map(entry.document, "spec").get("nodeName") for entry in workload.pods)
            rejected.setdefault(
                key.reference, RejectedWorkload(fault, frozenset(filter(None, nodes)))
            )
    return rejected


def _first_fault(workload: Workload, limit_ranges: Sequence[LimitRange]) -> LimitRangeFault | None:
    """Return the first reason to reject a next pod of a workload; None if there is none."""
    return next(
        (
            fault
            for pod in _next_pods(workload)
            for fault in limit_faults(pod, limit_ranges, workload.key.namespace)
        ),
        None,
    )


def _next_pods(workload: Workload) -> Iterator[Pod]:
    """Yield the pods that the controller of a workload creates in the place of live ones, as far as they are known."""
    if not workload.pods:
        return
    owner = workload.owner
    sources = (owner,) if owner is not None and owner.kind != "Pod" else workload.pods
    for source in sources:
        is_as_written = _LIMIT_RANGER not in text_map(source.document, "metadata", "annotations")
        if is_as_written and (pod := pod_of(source)) is not None:
            yield pod


def limit_faults(
    pod: Pod, limit_ranges: Sequence[LimitRange], namespace: str
) -> Iterator[LimitRangeFault]:
    """Yield the reasons of LimitRanges to reject a new pod; none for one with resources of the pod as a whole.

    Args:
        pod: The pod, as its author wrote it.
        limit_ranges: All LimitRanges of the namespace.
        namespace: The namespace of both.
    """
    if pod.spec.resources is not None:
        return
    defaults = _defaults(limit_ranges)

    def requests_of(container: Container) -> _Amounts:
        return {**defaults.requests, **container_requests(container)}

    def limits_of(container: Container) -> _Amounts:
        return {**defaults.limits, **container.limits}

    usages = {
        _CONTAINER: [
            _Usage(requests_of(container), limits_of(container)) for _, container in containers(pod)
        ],
        _POD: [_Usage(sum_containers(pod, requests_of), sum_containers(pod, limits_of))],
    }
    for limit_range in limit_ranges:
        for item in limit_range.spec.limits or ():
            for usage in usages.get(item.type, ()):
                for text in _faults(item, usage):
                    reference = f"LimitRange/{namespace}/{limit_range.metadata.name}"
                    yield LimitRangeFault(reference, text)


def _defaults(limit_ranges: Iterable[LimitRange]) -> _Usage:
    """Return the amounts that containers get by default; files may lack those that the API server fills in."""
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    for limit_range in limit_ranges:
        for item in limit_range.spec.limits or ():
            if item.type == _CONTAINER:
                own_limits = {**(item.max or {}), **(item.default or {})}
                own_requests = {**(item.min or {}), **own_limits, **(item.default_request or {})}
                limits = {**own_limits, **limits}
                requests = {**own_requests, **requests}
    return _Usage(requests, limits)


def _faults(item: LimitRangeItem, usage: _Usage) -> Iterator[str]:
    """Yield the bounds of a LimitRange that an amount is outside of, or that lack one, in the words of Kubernetes."""
    for check, bounds in (
        (_below_minimum, item.min),
        (_above_maximum, item.max),
        (_above_ratio, item.max_limit_request_ratio),
    ):
        for name, bound in sorted((bounds or {}).items()):
            if text := check(usage.requests.get(name), usage.limits.get(name), bound):
                yield text.format(name, item.type)


def _below_minimum(request: Quantity | None, limit: Quantity | None, bound: Quantity) -> str:
    text = f"minimum {{}} usage per {{}} is {bound}"
    if request is None:
        return f"{text}, and no request is specified"
    if request < bound:
        return f"{text}, but request is {request}"
    return f"{text}, but limit is {limit}" if limit is not None and limit < bound else ""


def _above_maximum(request: Quantity | None, limit: Quantity | None, bound: Quantity) -> str:
    text = f"maximum {{}} usage per {{}} is {bound}"
    if limit is None:
        return f"{text}, and no limit is specified"
    if limit > bound:
        return f"{text}, but limit is {limit}"
    return f"{text}, but request is {request}" if request is not None and request > bound else ""


def _above_ratio(request: Quantity | None, limit: Quantity | None, bound: Quantity) -> str:
    text = f"{{}} max limit to request ratio per {{}} is {bound}"
    if not request or not limit:
        return f"{text}, but no {'limit' if request else 'request'} is specified, or it is 0"
    is_above = limit.nanos * _NANOS > bound.nanos * request.nanos
    return f"{text}, but limit is {limit} and request is {request}" if is_above else ""
