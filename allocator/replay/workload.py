"""The pods of a replay, and the order of their arrival."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from allocator.model.requests import PendingClaims
from allocator.nodes.pod_requests import PodRequest
from allocator.replay.tie_breaker import TieBreaker
from findings.text import printable, shorten
from kube.api.core import Node, Pod
from kube.api.resource import DeviceClass, DeviceRequest, ResourceClaim, ResourceSlice

GROUP_INCOMPLETE: Final = "groupIncomplete"
"""The reason of a pod whose group needs more pods than arrived."""

GROUP_DOES_NOT_FIT: Final = "groupDoesNotFit"
"""The reason of a pod whose group has no place for as many pods as it needs, or none for one more."""

_MAX_DESCRIPTION: Final = 120
"""Characters of the description of a pod's devices."""


class Order(StrEnum):
    """The order of pods' arrival.

    FILE and SHUFFLE try each pod once, and nothing leaves. With ARRIVAL time passes: pods arrive and leave, and
    those that wait are tried again whenever one leaves.
    """

    FILE = "file"
    ARRIVAL = "arrival"
    SHUFFLE = "shuffle"


class ReplayGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of pods that are placed together, or not at all.

    Attributes:
        name: Its kind and name, which no other group has.
        min_count: The number of pods that it needs.
        placed: The nodes of its pods that run before the replay.
        domain: A label of nodes of which its pods should have one value; empty for none.
        needs_one_domain: All of their nodes need one value of it.
    """

    name: str
    min_count: int
    placed: tuple[str, ...] = ()
    domain: str = ""
    needs_one_domain: bool = False


class ReplayPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that arrives.

    Attributes:
        pod: The pod, with its requests, node selector, affinity and tolerations.
        claims: Its own claims, without an allocation; empty for a pod without devices.
        shared: Claims that other pods use, too, without an allocation, each of a name that no other claim has. They are
            allocated with the first of these pods, and freed with the last.
        allocated: Claims that are allocated before it comes, and stay so; they limit its nodes.
        priority: Its priority; of the pods that wait the highest is tried first.
        arrival: The second in which it arrives; None for the second of the pod before it.
        departure: The second in which it leaves if it never waits; None if it stays.
        gives_up: The second from which it waits no longer; None if it waits until the end.
        group: The group that it belongs to; None for a pod by itself.
        is_denied: It is not created, since the webhook would deny it.
        line: Its line in a CSV; 0 for a pod from elsewhere.
    """

    pod: Pod
    claims: tuple[ResourceClaim, ...] = ()
    shared: tuple[ResourceClaim, ...] = ()
    allocated: tuple[ResourceClaim, ...] = ()
    priority: int = 0
    arrival: float | None = None
    departure: float | None = None
    gives_up: float | None = None
    group: ReplayGroup | None = None
    is_denied: bool = False
    line: int = 0

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.pod.metadata.name

    @property
    def all_claims(self) -> tuple[ResourceClaim, ...]:
        """Its own claims, behind those that it shares; without those that are allocated before it comes."""
        return (*self.shared, *self.claims)


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
        pending: Its claims, without those shared ones that are allocated now; None for a pod that needs none.
        shape: Equal for pods that differ in names only.
        devices: Equal for pods that run on the same nodes and request the same devices there.
        eligible: Names of the nodes that its selector, affinity and tolerations allow, and its claims that are allocated
            now; None for all.
    """

    pod: ReplayPod
    request: PodRequest
    pending: PendingClaims | None
    shape: Hashable
    devices: Hashable
    eligible: frozenset[str] | None


def describe_devices(claims: Iterable[ResourceClaim]) -> str:
    """Return the devices that claims request, in one line.

    >>> from kube.api.resource import DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaimSpec
    >>> exactly = ExactDeviceRequest(device_class_name="gpu", count=2)
    >>> devices = DeviceClaim(requests=(DeviceRequest(name="r", exactly=exactly),))
    >>> describe_devices([ResourceClaim(spec=ResourceClaimSpec(devices=devices))])
    '2 gpu'
    """
    parts = [
        _describe_request(request)
        for claim in claims
        for request in claim.spec.devices.requests or ()
    ]
    return printable(shorten(" and ".join(parts), _MAX_DESCRIPTION)) or "no devices"


def _describe_request(request: DeviceRequest) -> str:
    alternatives = request.first_available or ()
    first = next(iter(alternatives), request.exactly)
    if first is None:
        return "a request without devices"
    count = "all" if first.allocation_mode == "All" else first.count or 1
    amounts = (first.capacity.requests if first.capacity is not None else None) or {}
    requested = ", ".join(f"{name} {amounts[name]}" for name in sorted(amounts))
    conditions = [entry.cel.expression for entry in first.selectors or () if entry.cel is not None]
    return "".join(
        (
            f"{count} {first.device_class_name}",
            f" with {requested}" if requested else "",
            f" where {' && '.join(conditions)}" if conditions else "",
            " or another" if len(alternatives) > 1 else "",
        )
    )


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
