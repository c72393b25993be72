"""The container of a pod to lower the request of, and the amount to write there."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from allocator.nodes.amounts import amount_of, format_resource, read_amounts
from allocator.nodes.pod_requests import container_requests, pod_request
from findings.text import join_names, printable
from kube.api.core import Container, Pod, ResourceRequirements
from kube.quantity import Quantity

_CONTAINERS_NAMED: Final = 4


class _Place(NamedTuple):
    """A container in its pod, with its own request of a resource."""

    container: Container
    is_init: bool
    requested: int

    @property
    def name(self) -> str:
        """The kind and the name of the container."""
        return f"{'init ' if self.is_init else ''}container {printable(self.container.name)}"

    @property
    def runs_beside(self) -> bool:
        """True if the container runs as long as the pod."""
        return not self.is_init or self.container.restart_policy == "Always"


def lower_request(pod: Pod, resource: str, most: int) -> str:
    """Return the change of one container to a total of the pod within an amount, in the imperative.

    Where no single container can be lowered that far, the change is to all of them together.

    Args:
        pod: The pod, which requests more.
        resource: CPU, memory or another counted resource of nodes.
        most: The amount; thousandths of a core for CPU, else whole units.
    """
    total = amount_of(pod_request(pod).amounts, resource)
    places = sorted(_places(pod, resource), key=lambda place: (place.is_init, -place.requested))
    if resource in ((pod.spec.resources.requests if pod.spec.resources else None) or {}):
        return f"request {resource} {format_resource(resource, most)} or less in spec.resources"
    for place in places:
        amount = format_resource(resource, place.requested - (total - most))
        if place.requested > total - most and _fits(pod, place, resource, amount, most):
            if len(places) == 1 and not place.is_init:
                return f"request {resource} {amount} or less"
            others = [
                f"{other.name} takes {format_resource(resource, other.requested)}"
                for other in places
                if other is not place and other.runs_beside and place.runs_beside
            ]
            beside = f" ({join_names(others, _CONTAINERS_NAMED)})" if others else ""
            return f"request {resource} {amount} or less in {place.name}{beside}"
    amounts = [f"{place.name} {format_resource(resource, place.requested)}" for place in places]
    return (
        f"request {resource} {format_resource(resource, most)} or less in all containers together "
        f"({join_names(amounts, _CONTAINERS_NAMED)})"
    )


def _places(pod: Pod, resource: str) -> Iterator[_Place]:
    """Yield the containers that request some of a resource."""
    for is_init, containers in ((False, pod.spec.containers), (True, pod.spec.init_containers)):
        for container in containers or ():
            requested = amount_of(read_amounts(container_requests(container)), resource)
            if requested > 0:
                yield _Place(container, is_init, requested)


def _fits(pod: Pod, place: _Place, resource: str, amount: str, most: int) -> bool:
    """Return True if a pod requests no more than an amount once a container requests another one."""
    requests = {**place.container.requests, resource: Quantity(amount)}
    resources = replace(place.container.resources or ResourceRequirements(), requests=requests)
    lowered_container = replace(place.container, resources=resources)

    def with_lowered(containers: tuple[Container, ...] | None) -> tuple[Container, ...] | None:
        return containers and tuple(
            lowered_container if container is place.container else container
            for container in containers
        )

    spec = replace(
        pod.spec,
        containers=with_lowered(pod.spec.containers) or (),
        init_containers=with_lowered(pod.spec.init_containers),
    )
    return amount_of(pod_request(replace(pod, spec=spec)).amounts, resource) <= most
