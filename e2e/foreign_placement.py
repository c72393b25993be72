"""A stand-in for the schedulers that place pods beside kube-scheduler: the node that such a pod gets. Pure.

All of them are kube-scheduler with another profile, so its filters come first: node selector, affinity, taints,
CPU, memory and other counted resources. Pods of HAMi get cards of the nodes that HAMi serves, and the others get
devices of the remaining nodes, by their number, on the fullest node.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from allocator.nodes.node_resources import node_resources
from allocator.nodes.pod_requests import PodRequest, pod_request
from allocator.nodes.resources_fit import has_resources
from allocator.pods.node_eligibility import counted_rejection
from e2e.hami_scheduler import (
    GPU,
    MANAGED,
    CardShare,
    find_cards,
    is_for_hami,
    node_score,
    registered_cards,
    wants_cards,
)
from kube.api.core import Node, Pod

_DEFAULT_SCHEDULERS: Final = frozenset({"", "default-scheduler"})


class Place:
    """A node with its use by pods.

    Attributes:
        cards: The cards that HAMi hands out; none on other nodes, and none once the node is switched.
        in_use: The shares of these cards that pods have.
    """

    def __init__(self, node: Node, *, is_switched: bool) -> None:
        """Take a node without its pods."""
        self.node = node
        self.cards = () if is_switched else registered_cards(node)
        self.in_use: list[CardShare] = []
        self._is_switched = is_switched
        self._resources = node_resources(node)

    def add(self, pod: Pod, shares: Iterable[CardShare]) -> None:
        """Let a pod use its resources and its cards."""
        self._resources = self._resources.with_pod(pod_request(pod))
        self.in_use += shares

    def takes(self, pod: Pod, request: PodRequest, ignored: frozenset[str]) -> bool:
        """Return True if kube-scheduler's own filters let a pod onto the node.

        Args:
            pod: The pod.
            request: The resources that it requests.
            ignored: The resource names that its scheduler does not count on nodes.
        """
        if self._is_switched or counted_rejection(pod, self.node) is not None:
            return False
        scalars = {
            name: amount for name, amount in request.amounts.scalars.items() if name not in ignored
        }
        amounts = msgspec.structs.replace(request.amounts, scalars=scalars)
        return has_resources(msgspec.structs.replace(request, amounts=amounts), self._resources)

    @property
    def offered(self) -> frozenset[str]:
        """Return the extended resources that the node names."""
        allocatable = self._resources.allocatable
        return frozenset(allocatable.scalars if allocatable is not None else ())

    def used(self, names: Iterable[str]) -> int:
        """Return the amount of some resources that pods request."""
        return sum(self._resources.requested.scalars.get(name, 0) for name in names)


def is_foreign(pod: Pod) -> bool:
    """Return True if another scheduler than kube-scheduler places a pod.

    HAMi's webhook would have named its scheduler in a pod with its keys, and no webhook of others runs here.
    """
    return pod.spec.scheduler_name not in _DEFAULT_SCHEDULERS or is_for_hami(pod)


def occupy(
    places: Mapping[str, Place],
    pods: Iterable[Pod],
    known: Mapping[str, tuple[CardShare, ...]],
) -> dict[str, tuple[CardShare, ...]]:
    """Let pods use their nodes; return the UID of each to the shares of cards that it has.

    Nothing tells which cards a pod has that was bound by somebody else. Those with the largest shares get theirs
    first, after the pods whose cards are known.

    Args:
        places: The nodes, without pods.
        pods: The pods; those without a node are left out.
        known: UID to the shares of pods that were seen before.
    """
    bound = [pod for pod in pods if pod.spec.node_name in places]
    shares: dict[str, tuple[CardShare, ...]] = {}
    for pod in sorted(bound, key=lambda pod: _order(pod, places, known)):
        place = places[pod.spec.node_name]
        own = known.get(pod.metadata.uid)
        if own is None:
            own = find_cards(pod, place.cards, place.in_use) if is_foreign(pod) else ()
        shares[pod.metadata.uid] = own or ()
        place.add(pod, own or ())
    return shares


def choose(pod: Pod, places: Iterable[Place]) -> tuple[Place, tuple[CardShare, ...]] | None:
    """Return the node that a pod's scheduler prefers, with the pod's cards; None if none has room."""
    request = pod_request(pod)
    if is_for_hami(pod) and wants_cards(pod):
        return _on_cards(pod, request, places)
    return _by_number(pod, request, tuple(places))


def _on_cards(
    pod: Pod, request: PodRequest, places: Iterable[Place]
) -> tuple[Place, tuple[CardShare, ...]] | None:
    found = [
        (place, shares)
        for place in places
        if place.cards
        and place.takes(pod, request, MANAGED)
        and (shares := find_cards(pod, place.cards, place.in_use))
    ]
    return max(
        found,
        key=lambda entry: (
            node_score(pod, entry[0].cards, entry[0].in_use),
            entry[0].node.metadata.name,
        ),
        default=None,
    )


def _by_number(
    pod: Pod, request: PodRequest, places: Sequence[Place]
) -> tuple[Place, tuple[CardShare, ...]] | None:
    requested = frozenset(name for name, amount in request.amounts.scalars.items() if amount)
    offered = frozenset[str]().union(*(place.offered for place in places))
    if not requested & offered:
        return None
    # What no node offers beside such a resource, as a memory, is counted by the scheduler itself.
    ignored = requested - offered
    nodes = [
        place
        for place in places
        # The number of GPUs that a node of HAMi offers is that of their shares.
        if not (place.cards and GPU in requested) and place.takes(pod, request, ignored)
    ]
    fullest = max(
        nodes,
        key=lambda place: (place.used(requested), place.node.metadata.name),
        default=None,
    )
    return (fullest, ()) if fullest is not None else None


def _order(
    pod: Pod, places: Mapping[str, Place], known: Mapping[str, tuple[CardShare, ...]]
) -> tuple[bool, int, int, str]:
    """Return the place of a pod in the order of getting the cards of their node."""
    shares = find_cards(pod, places[pod.spec.node_name].cards, ()) or ()
    cards = Counter(share.uuid for share in shares)
    memory = max((share.memory for share in shares), default=0)
    is_new = pod.metadata.uid not in known
    return is_new, -memory, -len(cards), pod.metadata.uid
