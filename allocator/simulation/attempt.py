"""A pod, or a claim on its own, that a simulation tries, with the facts that decide its nodes."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.nodes.pod_requests import PodRequest
from allocator.pods.claims import PodClaims
from allocator.pods.node_eligibility import demands_on_nodes
from findings.text import printable
from kube.api.core import Node, Pod
from kube.api.meta import encode
from kube.api.resource import ResourceClaim


class NodeDomain(NamedTuple):
    """The nodes with one value of a label."""

    label: str
    value: str

    def has(self, node: Node) -> bool:
        """Return True for a node of the domain."""
        return node.labels.get(self.label) == self.value

    def __str__(self) -> str:
        """Return the label and its value for people."""
        return printable(f"{self.label} {self.value}")


class PlacementAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or a claim on its own, that is to be placed.

    Attributes:
        pod: None for a claim on its own.
        resources: Extended resources of the pod that a class maps.
        request: The pod's CPU, memory and other counted resources; nothing for a claim on its own.
        domain: The nodes that the pod's group leaves it; None for all.
    """

    title: str
    pod: Pod | None = None
    claims: PodClaims = PodClaims()
    resources: frozenset[str] = frozenset()
    request: PodRequest | None = None
    domain: NodeDomain | None = None


class BestNode(msgspec.Struct, frozen=True, kw_only=True):
    """The best node so far, with its plan; the greater `rank` wins, then the smaller name."""

    rank: int
    node: str
    plan: Plan
    pending: PendingClaims


def eligibility_key(attempt: PlacementAttempt) -> bytes | None:
    """Return all of a pod that eligible nodes depend on; None if its claims matter as well."""
    if attempt.claims.held or attempt.claims.missing:
        return None
    if attempt.pod is None:
        return b""
    spec = attempt.pod.spec
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    resources = [container.resources for container in containers]
    return demands_on_nodes(spec) + encode((resources, attempt.domain))


def class_names(claim: ResourceClaim) -> Iterator[str]:
    """Yield the names of the classes that a claim requests."""
    for request in claim.spec.devices.requests or ():
        alternatives = (request.exactly, *(request.first_available or ()))
        yield from (
            alternative.device_class_name for alternative in alternatives if alternative is not None
        )
