"""The pods of a replay, and the order of their arrival."""

from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum

import msgspec

from allocator.model.requests import PendingClaims
from allocator.nodes.pod_requests import PodRequest
from allocator.replay.tie_breaker import TieBreaker
from kube.api.core import Node, Pod
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice


class Order(StrEnum):
    """The order of pods' arrival.

    FILE and SHUFFLE try each pod once, and nothing leaves. With ARRIVAL time passes: pods arrive and leave, and
    those that wait are tried again whenever one leaves.
    """

    FILE = "file"
    ARRIVAL = "arrival"
    SHUFFLE = "shuffle"


class ReplayPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that arrives.

    Attributes:
        pod: The pod, with its requests, node selector, affinity and tolerations.
        claims: Its own claims, without an allocation; empty for a pod without devices.
        priority: Its priority; of the pods that wait the highest is tried first.
        arrival: The second in which it arrives; None for the second of the pod before it.
        departure: The second in which it leaves if it never waits; None if it stays.
        gives_up: The second from which it waits no longer; None if it waits until the end.
    """

    pod: Pod
    claims: tuple[ResourceClaim, ...] = ()
    priority: int = 0
    arrival: float | None = None
    departure: float | None = None
    gives_up: float | None = None

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.pod.metadata.name


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that pods arrive on.

    Attributes:
        nodes: The nodes; those without `status.allocatable` have no limits.
        slices: The ResourceSlices.
        classes: Name to DeviceClass.
        claims: All claims; those with an allocation use devices.
        pods: The pods that are bound to nodes and have not finished.
        extended_resources: Extended resource to the class that serves it.
    """

    nodes: tuple[Node, ...]
    slices: tuple[ResourceSlice, ...] = ()
    classes: Mapping[str, DeviceClass] = msgspec.field(default_factory=dict)
    claims: tuple[ResourceClaim, ...] = ()
    pods: tuple[Pod, ...] = ()
    extended_resources: Mapping[str, str] = msgspec.field(default_factory=dict)


class Candidate(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A pod that is ready to be placed.

    Attributes:
        pod: The pod.
        request: Its CPU, memory and other counted resources.
        pending: Its claims; None for a pod without devices.
        shape: Equal for pods that differ in names only.
        eligible: Names of the nodes that its selector, affinity and tolerations allow; None for all.
    """

    pod: ReplayPod
    request: PodRequest
    pending: PendingClaims | None
    shape: Hashable
    eligible: frozenset[str] | None


def in_order(pods: Sequence[ReplayPod], order: Order, seed: int) -> list[tuple[float, ReplayPod]]:
    """Return the pods with the second of each arrival."""
    if order is not Order.ARRIVAL:
        shuffled = list(pods)
        if order is Order.SHUFFLE:
            TieBreaker(seed).shuffle(shuffled)
        return [(0.0, pod) for pod in shuffled]
    arrivals: list[tuple[float, ReplayPod]] = []
    second = 0.0
    for pod in pods:
        second = second if pod.arrival is None else pod.arrival
        arrivals.append((second, pod))
    return sorted(arrivals, key=lambda entry: entry[0])
