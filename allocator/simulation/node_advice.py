"""The smallest change of a pending pod for a node with free devices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from shlex import quote
from typing import Final, NamedTuple

from allocator.cluster.cluster import Cluster
from allocator.explain.failure import NodeGroup
from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest, pod_request
from allocator.nodes.resources_fit import insufficient_resources
from allocator.pods.claims import PodClaims, allocation_of
from allocator.pods.extended_resource_claim import unavailable_resources
from allocator.pods.node_eligibility import (
    PodChange,
    is_eligible,
    is_for,
    pod_changes,
    removable_taints,
)
from allocator.simulation.lowered_requests import lower_request
from kube.api.core import Node, Pod

_TAINTS_SHOWN: Final = 3
_CHANGES_SHOWN: Final = 3
_HOSTNAME: Final = "kubernetes.io/hostname"


def node_advice(
    pod: Pod,
    claims: PodClaims,
    rejecting: Iterable[tuple[Sequence[str], NodeGroup]],
    cluster: Cluster,
    *,
    extended_resources: Mapping[str, str],
    resources: Mapping[str, NodeResources],
) -> Iterator[str]:
    """Yield the smallest change of a pod for a node with free devices, in a sentence.

    The smallest one changes the fewest fields, rather those other than labels in nodeSelector, and of
    as many the least. Another label may be another kind of device than the author wants, so after such a
    change come those with other labels.

    Args:
        rejecting: The nodes that reject the pod, though its devices are free there, as from
            `rejecting_nodes_with_devices`.
        extended_resources: Name of an extended resource to name of the class that maps it.
        resources: Node to its CPU, memory and other counted resources.
    """
    smallest: dict[frozenset[str], _Change] = {}
    request = pod_request(pod)
    for nodes, _ in rejecting:
        for name in nodes:
            node = cluster.nodes[name]
            if not _has_reach(pod, claims, node, extended_resources):
                continue
            lowered_requests = _lowered(pod, request, resources[name], extended_resources)
            if lowered_requests is None:
                continue
            node_changes = pod_changes(pod, node)
            if not node_changes and not is_eligible(pod, node):
                continue
            words, lost = lowered_requests
            change = _Change(name, node_changes, words, lost)
            other = smallest.get(change.labels)
            if change.words and (other is None or change.size < other.size):
                smallest[change.labels] = change
    changes = sorted(smallest.values(), key=lambda change: change.size)
    for change in changes[: _CHANGES_SHOWN if changes and changes[0].labels else 1]:
        removal = _removal(pod, cluster.nodes[change.node], change)
        yield f"{', '.join(change.words)} to get node {change.node}, where devices are free{removal}"


class _Change(NamedTuple):
    """A change of a pod for a node.

    Attributes:
        node_changes: Changes of the fields that choose nodes.
        lowered: Lowered requests.
        lost: The parts that are taken from lowered requests, added up; 1 is all of one request.
    """

    node: str
    node_changes: tuple[PodChange, ...]
    lowered: tuple[str, ...]
    lost: Fraction

    @property
    def words(self) -> tuple[str, ...]:
        """All changes in the imperative."""
        return (*(change.words for change in self.node_changes), *self.lowered)

    @property
    def labels(self) -> frozenset[str]:
        """The changes of nodeSelector, without that of the node's own name."""
        return frozenset(
            change.words for change in self.node_changes if change.label not in {"", _HOSTNAME}
        )

    @property
    def size(self) -> tuple[int, int, Fraction]:
        """The number of changed fields, of labels among them, then the parts that are taken."""
        return len(self.words), len(self.labels), self.lost


def _removal(pod: Pod, node: Node, change: _Change) -> str:
    """Return the way of an administrator for a node with no obstacle but taints; empty for others."""
    removable = removable_taints(pod, node)
    if len(removable) != len(change.words) or len(removable) > _TAINTS_SHOWN:
        return ""
    what = "the taint" if len(removable) == 1 else "the taints"
    words = " ".join(quote(f"{taint}-") for taint in removable)
    return f"; or an administrator removes {what}: kubectl taint node {quote(change.node)} {words}"


def _has_reach(
    pod: Pod, claims: PodClaims, node: Node, extended_resources: Mapping[str, str]
) -> bool:
    """Return True if a node reaches the devices that a pod has, and offers the resources that no class maps."""
    allocations = filter(None, map(allocation_of, claims.held))
    selectors = (allocation.node_selector for allocation in allocations)
    return all(
        selector is None or is_for(selector, node) for selector in selectors
    ) and not unavailable_resources(pod, node, extended_resources)


def _lowered(
    pod: Pod, request: PodRequest, node: NodeResources, extended_resources: Mapping[str, str]
) -> tuple[tuple[str, ...], Fraction] | None:
    """Return the requests that a node has room for, of those that it has not, and the parts that are taken from them.

    None if nothing is left of one.
    """
    lacks = insufficient_resources(request, node, extended_resources.keys())
    lowered_requests = []
    lost = Fraction(0)
    for lack in lacks:
        left = lack.capacity - lack.used
        if left <= 0 or "/" in lack.name or lack.requested <= left:
            return None
        lowered_requests.append(lower_request(pod, lack.name, left))
        lost += 1 - Fraction(left, lack.requested)
    return tuple(lowered_requests), lost
