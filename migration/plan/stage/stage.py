"""The pods of a plan and the moments of a migration, as values. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from allocator.pods.claims import Name, pod_claims
from kube.api.core import Pod
from kube.api.node_selector import NodeSelector
from kube.api.resource import ResourceClaimTemplate
from kube.api.workloads import DAEMON_SET
from kube.quantity import Quantity
from migration.assessment.capacity import build_pods
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.node_devices import labels_of_sharing
from migration.cluster.volumes import on_reachable_nodes
from migration.plan.model.plan import RESTARTED_KINDS, PlannedNode


class PodKey(NamedTuple):
    """A pod of a workload, by its number."""

    workload: str
    number: int


class PlannedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is to be placed.

    Attributes:
        has_claims: It has claims once its namespace is opted in, or it is; else Kubernetes serves it wherever
            there are devices.
        is_pinned: A DaemonSet's, whose place is its node. Its namespace may be opted in while its node has a
            device plugin: it is not restarted there. It cannot stay with device keys on a switched node.
        is_unrestarted: It runs with device keys, though its namespace or its workload is opted in already: no wave
            restarts it.
        ends: It runs to its end, and nothing creates it again.
    """

    key: PodKey
    namespace: str
    pod: Pod
    has_claims: bool
    is_pinned: bool
    is_unrestarted: bool = False
    ends: bool = False

    @property
    def outlives_opt_in(self) -> bool:
        """Return True if nothing creates it again with its namespace's label, as a Job's pod, until its node is drained.

        A person does that for a pod without a controller, unless it runs to its end.
        """
        kind = self.key.workload.partition("/")[0]
        is_created_again = kind in RESTARTED_KINDS or (kind == "Pod" and not self.ends)
        return self.is_pinned or self.is_unrestarted or not is_created_again


class UnmovedPod(NamedTuple):
    """A pod that nothing here moves: it keeps its node and its devices.

    Attributes:
        name: Its namespace and name.
        workload: Its workload, with the translation of this pod.
        node: The node that it runs on.
    """

    key: PodKey
    name: tuple[str, str]
    workload: AssessedWorkload
    node: str


class RequestedDevices(NamedTuple):
    """The devices of one request of a pod.

    Attributes:
        number: The number of devices; 1 for all of a node.
        amounts: Capacity to the amount of each, of a share, without zeros; empty for whole devices.
    """

    number: int
    amounts: Mapping[str, Quantity]

    @property
    def size(self) -> int:
        """Return a number to compare requests of the same devices by."""
        return self.number * (
            1 + max((amount.nanos for amount in self.amounts.values()), default=0)
        )


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of a migration; other nodes with devices have a device plugin.

    Attributes:
        switched: Nodes with a DRA driver.
        draining: Nodes that take no pods.
        waits: The drains have waited for pods that run to their end; those of nodes that are lost move.
        spreads: Pods that move are placed small ones first, each on the emptiest devices of the emptiest node; else packed.
        joins: Rules that keep pods apart do not count, so that it is seen which pods have no place for them alone.
        uncordons: Cordoned nodes take pods, so that it is seen which pods have no place for a cordon alone.
        closed: Nodes whose pods stay, and that take no others: nobody knows which of their devices are free, since
            pods that are not counted use some; and nodes that are not ready.
        unready: Those of them that are not ready: a percentage of devices to keep free is none of theirs.
        opted_in: Namespaces whose pods get claims.
        selected: Workloads, as `Kind/namespace/name`, of other namespaces whose pods get claims.
        labels: Node to the labels that a switch gives it.
    """

    switched: frozenset[str]
    draining: frozenset[str] = frozenset()
    waits: bool = False
    spreads: bool = False
    joins: bool = False
    uncordons: bool = False
    closed: frozenset[str] = frozenset()
    unready: frozenset[str] = frozenset()
    opted_in: frozenset[str]
    selected: frozenset[str] = frozenset()
    labels: Mapping[str, Mapping[str, str]]

    def moves(self, pod: PlannedPod) -> bool:
        """Return True if a pod has claims by now."""
        return pod.has_claims and self._is_opted_in(pod.namespace, pod.key.workload)

    def has_moved(self, workload: AssessedWorkload) -> bool:
        """Return True if a workload is opted in by now, by the label of its namespace or by its own."""
        return self._is_opted_in(workload.key.namespace, workload.key.reference)

    def lets_stay(self, pod: PlannedPod, node: str) -> bool:
        """Return True if a pod can go on in place; one that outlives the opt-in keeps its device keys there."""
        has_moved = self.moves(pod)
        is_switched = node in self.switched
        return not pod.has_claims or has_moved == is_switched or (pod.outlives_opt_in and has_moved)

    def _is_opted_in(self, namespace: str, reference: str) -> bool:
        return namespace in self.opted_in or reference in self.selected


def switched_labels(
    nodes: Iterable[PlannedNode], own_labels: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Return node to the labels that its switch gives it.

    No pod is to count on a label of sharing, nor on the value that takes its place.

    Args:
        nodes: The nodes that are switched.
        own_labels: Node to the labels that it has.
    """
    return {
        node.name: {
            **dict.fromkeys(labels_of_sharing(own_labels.get(node.name, {})), ""),
            **node.labels,
        }
        for node in nodes
    }


def planned_pod(
    workload: AssessedWorkload,
    number: int,
    pod: Pod,
    unrestarted: Collection[PodKey] = (),
    ending: Collection[PodKey] = (),
) -> PlannedPod:
    """Return a pod of a workload that is to be placed.

    Args:
        workload: The workload.
        number: The number of the pod.
        pod: The pod itself.
        unrestarted: The pods with device keys in spite of an opt-in.
        ending: The pods that run to their end.
    """
    key = PodKey(workload.key.reference, number)
    return PlannedPod(
        key=key,
        namespace=workload.key.namespace,
        pod=pod,
        has_claims=workload.outcome is not Outcome.NATIVE,
        is_pinned=workload.key.kind == DAEMON_SET,
        is_unrestarted=key in unrestarted,
        ends=key in ending,
    )


def planned_pods(
    workload: AssessedWorkload, unrestarted: Collection[PodKey], ending: Collection[PodKey]
) -> Iterator[PlannedPod]:
    """Yield the pods of a workload that are to be placed; a CronJob without a run has none.

    Args:
        workload: The workload.
        unrestarted: The pods with device keys in spite of an opt-in.
        ending: The pods that run to their end.
    """
    if workload.key.kind == "CronJob" and not workload.members:
        return
    for number, pod in enumerate(build_pods(workload)):
        yield planned_pod(workload, number, pod, unrestarted, ending)


def on_nodes(pod: PlannedPod, selectors: Sequence[NodeSelector]) -> PlannedPod:
    """Return a pod that only nodes take that some selectors match, all of them."""
    if not selectors:
        return pod
    return msgspec.structs.replace(pod, pod=on_reachable_nodes(pod.pod, selectors))


def requested_devices(
    pod: Pod, templates: Mapping[Name, ResourceClaimTemplate]
) -> Iterator[RequestedDevices]:
    """Yield the devices that the claims of a pod request; of alternatives the first ones."""
    for claim in pod_claims(pod, {}, templates).open:
        for request in claim.spec.devices.requests or ():
            chosen = request.exactly or next(iter(request.first_available or ()), None)
            if chosen is not None:
                capacity = chosen.capacity.requests if chosen.capacity is not None else None
                amounts = {name: amount for name, amount in (capacity or {}).items() if amount}
                yield RequestedDevices(number=chosen.count or 1, amounts=amounts)
