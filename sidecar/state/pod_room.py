"""The resources left on nodes beside devices, and the pods that usually come, as the sidecar knows them.

The scheduler says what nodes have left. The kinds of pods are learnt from those that it asks about, each once; a
process that begins to lead learns them from the pods in the cluster, so nothing is stored. Of selectors only those
of classes count: administrators write these. Where the settings name the kinds, none are learnt.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.model.outcome import AttemptFailed
from allocator.nodes.amounts import milli_value
from allocator.nodes.headroom import Headroom
from allocator.nodes.node_changes import NodeChanges
from allocator.nodes.pod_requests import pod_request
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.fragmentation_aware import FRAGMENTATION_AWARE, FragmentationAware
from allocator.strategies.kind_counts import WHOLE, KindCounts
from allocator.strategies.pod_kinds import DeviceDemand, PodKind, demands_of
from kube.api.core import Pod
from kube.api.meta import encode
from kube.api.resource import DeviceClass
from kube.cel.scope import AnswersPending, BudgetSpent
from kube.collections.least_recently_used import LeastRecentlyUsed
from kube.logs import get_logger
from kube.quantity import Quantity
from sidecar.model.protocol import HeadroomChanges, ResourceRequests
from sidecar.model.settings import UsualPod
from sidecar.plan.pod_claims import claim_names
from sidecar.plan.room import LossOrders, Room
from sidecar.plan.snapshot import Snapshot
from sidecar.state.told_slots import ToldSlots

MAX_COUNTED: Final = 1 << 14
"""Pods of which is remembered that they were counted."""
MAX_RELEARNT: Final = 4096
"""Pods in the cluster that the kinds are learnt from, the latest ones."""

log = get_logger()


class PodRoom:
    """The resources left on nodes, and the kinds of pods.

    Attributes:
        number: The number of the last changes that the scheduler sent; 0 if nothing is known.
        kinds: The kinds in use.
        kinds_hash: A hash of them, as the log has it; empty without kinds.
        headroom: Node to what it has left.
        changes: The nodes that have something else left.
        told: The slots of the usual pods for the scheduler; nothing before `look`.
        on_headroom: Called with each change of what nodes have left.
    """

    def __init__(self, usual_pods: Sequence[UsualPod] = ()) -> None:
        """Know nothing yet.

        Args:
            usual_pods: The kinds of pods that usually come; empty to learn them.
        """
        self.number = 0
        self.kinds: tuple[PodKind, ...] = ()
        self.kinds_hash = ""
        self._usual_pods = usual_pods
        self._pinned_classes: tuple[DeviceClass | None, ...] | None = None
        self.headroom: dict[str, Headroom] = {}
        self.changes = NodeChanges()
        self.told = ToldSlots()
        self.on_headroom: Callable[[HeadroomChanges], None] = lambda _changes: None
        self._counts = KindCounts()
        self._counted = LeastRecentlyUsed[str, bool](MAX_COUNTED)
        self._strategy: FragmentationAware = FRAGMENTATION_AWARE
        self._orders: LossOrders | None = None

    # --- what nodes have left ---------------------------------------------------------------------

    def take(self, changes: HeadroomChanges | None) -> None:
        """Take changes of nodes; those that came before, or add to unknown ones, change nothing."""
        if changes is None or changes.number <= self.number or changes.since > self.number:
            return
        if not changes.since:
            self.headroom.clear()
            self.changes.add_all()
        for node in changes.nodes:
            self.headroom[node.name] = Headroom(
                cpu_milli=node.cpu_milli, memory=node.memory, pods=node.pods
            )
        for name in changes.removed:
            self.headroom.pop(name, None)
        self.changes.add(node.name for node in changes.nodes)
        self.changes.add(changes.removed)
        self.number = changes.number
        self.on_headroom(changes)

    def forget_nodes(self) -> None:
        """Forget the resources left on nodes: another scheduler reports them from now on."""
        self.number = 0
        self.headroom.clear()
        self.changes.add_all()
        self.on_headroom(HeadroomChanges())

    # --- the usual pods ---------------------------------------------------------------------------

    def learn(
        self,
        pod: Pod,
        snapshot: Snapshot,
        *,
        requests: ResourceRequests | None,
        at_s: float,
    ) -> None:
        """Count a pod with claims, unless it was counted before.

        Args:
            pod: The pod.
            snapshot: Its claims, and the classes.
            requests: Its requests as the scheduler said; None if it did not.
            at_s: The time of its arrival, in seconds since 1970.
        """
        if self._usual_pods:
            self._pin_kinds(snapshot.classes)
            return
        names = claim_names(pod)
        claims = [claim for name in names if (claim := snapshot.claims.get(name)) is not None]
        if not claims or self._counted.get(pod.metadata.uid):
            return
        self._counted[pod.metadata.uid] = True
        selectors = frozenset(
            selector.cel.expression
            for device_class in snapshot.classes.values()
            for selector in device_class.spec.selectors or ()
            if selector.cel is not None
        )
        try:
            demands = demands_of(snapshot.cluster.resolve(claims))
        except AttemptFailed:
            return
        amounts = pod_request(pod).amounts if requests is None else requests
        self._counts.add(
            tuple(_by_class_alone(demand, selectors) for demand in demands),
            amounts.cpu_milli,
            amounts.memory,
            owner=_owner_of(pod),
            at_s=at_s,
        )
        self._take_over(self._counts.kinds)

    def relearn(self, snapshot: Snapshot, now_s: float) -> None:
        """Learn the kinds anew from the pods in the cluster, the latest ones.

        Args:
            snapshot: The pods and their claims.
            now_s: The time for pods that do not say when they were created.
        """
        if self._usual_pods:
            self._pin_kinds(snapshot.classes)
            return
        self._counts = KindCounts()
        self._counted = LeastRecentlyUsed[str, bool](MAX_COUNTED)
        pods = ((_created_s(pod, now_s), pod.metadata.uid, pod) for pod in snapshot.pods.values())
        for created_s, _, pod in sorted(pods, key=itemgetter(0, 1))[-MAX_RELEARNT:]:
            self.learn(pod, snapshot, requests=None, at_s=created_s)

    def _pin_kinds(self, classes: Mapping[str, DeviceClass]) -> None:
        """Take over the kinds of the settings, as their classes are now."""
        named_classes = tuple(classes.get(pod.device_class) for pod in self._usual_pods)
        if named_classes != self._pinned_classes:
            kinds = _pinned_kinds(self._usual_pods, named_classes)
            self._take_over(kinds)
            if self.kinds == kinds:
                self._pinned_classes = named_classes

    def _take_over(self, kinds: tuple[PodKind, ...]) -> None:
        if self.use_kinds(kinds):
            log.info("pod_kinds.learnt", kinds=len(self.kinds), hash=self.kinds_hash)

    def use_kinds(self, kinds: tuple[PodKind, ...]) -> bool:
        """Take over kinds, once their selectors are compiled; return True if they are others than before."""
        if self.kinds is kinds or self.kinds == kinds:
            return False
        try:
            strategy = FragmentationAware(kinds, self._strategy.weights)
        except (AnswersPending, BudgetSpent):
            return False
        self.kinds, self._strategy = kinds, strategy
        self.kinds_hash = hashlib.sha256(encode(self.kinds)).hexdigest()[:12]
        return True

    def look(self, snapshot: Snapshot) -> None:
        """Take in the news for the scheduler; nothing with FirstFit as the default strategy."""
        orders = snapshot.room.orders
        ranks_plain_pods = snapshot.default_strategy != FIRST_FIT.name
        # With other kinds than a moment ago the snapshot is out of date.
        if ranks_plain_pods and orders is not None and orders.strategy is self._strategy:
            self.told.look(orders.losses)

    # --- for decisions ----------------------------------------------------------------------------

    def view(self, cluster: Cluster, weights: CapacityWeights = NO_WEIGHTS) -> Room:
        """Return the view for decisions, valid until the next change.

        Args:
            cluster: The devices of the nodes.
            weights: Weights of capacities in loads.
        """
        if self._strategy.weights != weights:
            self._strategy = FragmentationAware(self.kinds, weights)
        orders = self._orders
        if (
            orders is None
            or orders.strategy is not self._strategy
            or orders.losses.cluster is not cluster
        ):
            orders = LossOrders(self._strategy, cluster, self.headroom, self.changes)
            self._orders = orders
        return Room(headroom=self.headroom, strategy=self._strategy, orders=orders)


def _pinned_kinds(
    usual_pods: Sequence[UsualPod], classes: Sequence[DeviceClass | None]
) -> tuple[PodKind, ...]:
    """Return the kinds that the settings name.

    Args:
        usual_pods: The kinds in the settings.
        classes: The class of each; None for one that is not there, whose kind is left out.
    """
    total = sum(pod.weight for pod in usual_pods)
    return tuple(
        PodKind(
            demands=(
                DeviceDemand(
                    selectors=tuple(
                        selector.cel.expression
                        for selector in device_class.spec.selectors or ()
                        if selector.cel is not None
                    ),
                    count=pod.count,
                    amounts=tuple(
                        sorted((name, Quantity(value)) for name, value in pod.capacity.items())
                    )
                    or None,
                ),
            ),
            cpu_milli=milli_value(Quantity(pod.cpu)),
            memory=Quantity(pod.memory).round_up(),
            weight=max(1, WHOLE * pod.weight // total),
        )
        for pod, device_class in zip(usual_pods, classes, strict=True)
        if device_class is not None
    )


def _by_class_alone(demand: DeviceDemand, selectors: Collection[str]) -> DeviceDemand:
    """Return a demand without the selectors of the claim, since other pods would pay for these.

    Args:
        demand: The devices of a request.
        selectors: Expressions of all classes.
    """
    kept_selectors = tuple(text for text in demand.selectors if text in selectors)
    return replace(demand, selectors=kept_selectors)


def _created_s(pod: Pod, now_s: float) -> float:
    try:
        return datetime.fromisoformat(pod.metadata.creation_timestamp or "").timestamp()
    except ValueError:
        return now_s


def _owner_of(pod: Pod) -> str:
    """Return the UID of the owner that controls a pod; empty without one."""
    owners = pod.metadata.owner_references or ()
    return next((owner.uid for owner in owners if owner.controller), "")
