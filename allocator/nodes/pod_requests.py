"""The resources that a pod requests of its node: containers, init containers, sidecars, overhead.

Not modelled: amounts that a resize in place has changed (`status.containerStatuses`), and resources of
the node that ResourceClaims account for (DRANodeAllocatableResources, alpha).

The API server's default is applied: a container requests its limits where it does not say otherwise.

Source: k8s.io/component-helpers v0.37.1, resource/helpers.go, PodRequests; k8s.io/kubernetes v1.37.1,
pkg/scheduler/framework/types.go, CalculateResource and getNonMissingContainerRequests.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from allocator.nodes.amounts import (
    CPU,
    MEMORY,
    ResourceAmounts,
    milli_value,
    read_amounts,
    whole_value,
)
from kube.api.core import Container, Pod
from kube.quantity import Quantity

DEFAULT_CPU: Final = Quantity("100m")
"""Counted in scores for a container without a CPU request. Source: DefaultMilliCPURequest."""
DEFAULT_MEMORY: Final = Quantity("200Mi")
"""Counted in scores for a container without a memory request. Source: DefaultMemoryRequest."""

_DEFAULTS: Final[Mapping[str, Quantity]] = {CPU: DEFAULT_CPU, MEMORY: DEFAULT_MEMORY}
_NO_DEFAULTS: Final[Mapping[str, Quantity]] = {}
_HUGE_PAGES: Final = "hugepages-"


class PodRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that a pod requests.

    Attributes:
        amounts: The amounts that must fit on the node.
        scored_cpu_milli: CPU that LeastAllocated and MostAllocated count for this pod while it is placed.
        scored_memory: Memory that they count.
        placed_cpu_milli: CPU that they count once the pod is on the node.
        placed_memory: Memory that they count then.
    """

    amounts: ResourceAmounts
    scored_cpu_milli: int
    scored_memory: int
    placed_cpu_milli: int
    placed_memory: int


def pod_request(pod: Pod) -> PodRequest:
    """Return the resources that a pod requests.

    >>> pod_request(Pod()).amounts.is_empty
    True
    """
    requests = _pod_requests(pod, _NO_DEFAULTS)
    scored = _pod_requests(pod, _DEFAULTS)
    # Upstream counts a placed pod with pod-level requests without the defaults that it scored it with.
    placed = scored
    if _pod_level_requests(pod):
        defaults = {name: amount for name, amount in _DEFAULTS.items() if name not in requests}
        placed = _pod_requests(pod, defaults)
    return PodRequest(
        amounts=read_amounts(requests),
        scored_cpu_milli=milli_value(scored.get(CPU, Quantity(0))),
        scored_memory=whole_value(scored.get(MEMORY, Quantity(0))),
        placed_cpu_milli=milli_value(placed.get(CPU, Quantity(0))),
        placed_memory=whole_value(placed.get(MEMORY, Quantity(0))),
    )


def requested_amounts(pod: Pod) -> ResourceAmounts:
    """Return the amounts of `pod_request` alone."""
    return read_amounts(_pod_requests(pod, _NO_DEFAULTS))


def _pod_requests(pod: Pod, defaults: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    """Return the requests of a pod by resource.

    Args:
        pod: The pod.
        defaults: Requests of a container that does not name the resource.
    """
    sums = sum_containers(pod, lambda container: _requests(container, defaults))
    sums.update(_pod_level_requests(pod))
    _add(sums, pod.spec.overhead or {})
    return sums


def sum_containers(
    pod: Pod, requests_of: Callable[[Container], Mapping[str, Quantity]]
) -> dict[str, Quantity]:
    """Return the requests of the containers of a pod together, by resource.

    Init containers run before the others, so the largest of them counts, beside the sidecars that are started already.

    Source: k8s.io/component-helpers, resource, PodRequests.

    Args:
        pod: The pod.
        requests_of: Returns the requests of one container.
    """
    sums: dict[str, Quantity] = {}
    for container in pod.spec.containers or ():
        _add(sums, requests_of(container))
    sidecars: dict[str, Quantity] = {}
    largest: dict[str, Quantity] = {}
    for container in pod.spec.init_containers or ():
        requests = requests_of(container)
        if container.restart_policy == "Always":
            # A sidecar keeps its resources, and runs while the init containers after it do.
            _add(sums, requests)
            _add(sidecars, requests)
            during = {name: sidecars[name] for name in requests}
        else:
            during = {
                name: sidecars[name] + amount if name in sidecars else amount
                for name, amount in requests.items()
            }
        # Only of these has anything changed: users choose how many containers and names there are.
        _raise(largest, during)
    _raise(sums, largest)
    return sums


def container_requests(container: Container) -> Mapping[str, Quantity]:
    """Return the requests of one container, with its limits in place of missing ones."""
    return _requests(container, _NO_DEFAULTS)


def _requests(container: Container, defaults: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    requests = container.requests
    if container.limits:
        # As the API server fills requests in; manifests have not been there.
        requests = {**container.limits, **requests}
    return {**defaults, **requests} if defaults else requests


def _pod_level_requests(pod: Pod) -> Mapping[str, Quantity]:
    """Return the requests of the pod as a whole that kube-scheduler supports."""
    requests = (pod.spec.resources.requests if pod.spec.resources else None) or {}
    return {
        name: amount
        for name, amount in requests.items()
        if name in {CPU, MEMORY} or name.startswith(_HUGE_PAGES)
    }


def _add(sums: dict[str, Quantity], amounts: Mapping[str, Quantity]) -> None:
    for name, amount in amounts.items():
        sums[name] = sums[name] + amount if name in sums else amount


def _raise(maximums: dict[str, Quantity], amounts: Mapping[str, Quantity]) -> None:
    for name, amount in amounts.items():
        if name not in maximums or maximums[name].nanos < amount.nanos:
            maximums[name] = amount
