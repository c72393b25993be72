"""Placement of the pods of a cluster with device plugins, DRA and draining nodes. Pure.

Pods keep their node and their devices as long as it can serve them; the allocator's search places the others.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from allocator.model.feature_gates import Features
from allocator.nodes.pod_requests import PodRequest, pod_request
from allocator.pods.claims import claim_name
from allocator.strategies.low_load_first import LOW_LOAD_FIRST
from allocator.strategies.strategy import Strategy
from answers.cluster.device_classes import select_devices
from answers.cluster.devices import published_devices
from answers.model.cluster_state import ClusterState
from kube.api.meta import encode
from kube.api.node_selector import NodeSelector
from kube.api.resource import ResourceClaimTemplate
from kube.quantity import Quantity
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.capacity import (
    MAX_ALL_PODS,
    MAX_PODS,
    build_pods,
    build_templates,
    class_names,
    release_claims,
)
from migration.assessment.outcomes import AssessedWorkload
from migration.cluster.equivalence import (
    NodeGroup,
    device_pod,
    group_nodes,
    pod_shape,
)
from migration.cluster.node_devices import Source
from migration.plan.stage.apart import PodsApart, place_apart
from migration.plan.stage.colocated import Colocated, Leaving
from migration.plan.stage.daemon_pods import DaemonPods
from migration.plan.stage.node_systems import SYSTEM, systems_by_node, with_systems
from migration.plan.stage.other_pods import OtherPods, PodName
from migration.plan.stage.separation import PodSeparation
from migration.plan.stage.stage import (
    PlannedPod,
    PodKey,
    RequestedDevices,
    Stage,
    UnmovedPod,
    on_nodes,
    planned_pod,
    planned_pods,
    requested_devices,
)
from migration.plan.stage.stage_allocator import (
    LEGACY,
    OPEN,
    STAGE,
    SWITCHED,
    Placement,
    StageAllocator,
    node_of,
    on_place,
    place_key,
    pods_with_claims,
)


class Placer:
    """The pods and devices of an assessed cluster.

    It keeps the allocator of the last stage, and changes what differs at the next one.
    """

    def __init__(
        self,
        cluster: AssessedCluster,
        evicted: Iterable[PodName] = (),
        left_out: Mapping[PodKey, tuple[str, str]] = {},
        *,
        ending: Mapping[PodKey, str] = {},
        homes: Mapping[PodKey, str] = {},
        cards: Mapping[PodKey, Sequence[str]] = {},
        held_gpus: Mapping[PodKey, int] = {},
        reachable: Mapping[PodKey, Sequence[NodeSelector]] = {},
        named_nodes: Mapping[PodKey, Sequence[NodeSelector]] = {},
        volume_nodes: Mapping[tuple[str, str], Sequence[NodeSelector]] = {},
        unrestarted: Collection[PodKey] = (),
        unmoved: Iterable[UnmovedPod] = (),
        colocation: tuple[Collection[str], Leaving] = ((), lambda _: frozenset()),
        reuses: bool = True,
    ) -> None:
        """Prepare the pods of all workloads that can be placed.

        Args:
            cluster: The cluster with the inventory of all nodes.
            evicted: Pods without devices that get another node when theirs is drained; others stay.
            left_out: Pods that stay as they are, with namespace and name.
            ending: Pods that end before the drain of their node, with this node; nothing creates them again.
            homes: Pods with a volume of their node, with this node; they wait there while it is drained.
            cards: Pods to the names of the devices of their nodes that they have today, where these are known.
            held_gpus: Pods that share GPUs of their node to the number of those that are not counted with another one.
            reachable: Other pods with volumes that some nodes do not reach, each with the nodes of its volumes.
            named_nodes: Pods that wait for nodes that their own affinity names, as those of DaemonSets, with these.
            volume_nodes: The nodes of volumes that some nodes do not reach, by namespace and name of a pod.
            unrestarted: Pods with device keys whose namespace or workload is opted in already.
            unmoved: Pods that keep their node and its devices for good.
            colocation: The amounts of a node that leave it with koordlet, and the nodes that lose them.
            reuses: The allocator of a stage is changed for the next one, with its verdicts; else it is
                built anew for each stage, which has the same answers.
        """
        self._systems = systems_by_node(cluster.nodes)
        state = with_systems(cluster.state, cluster.nodes)
        selected = select_devices(state.classes, published_devices(state.cluster(Features())))
        classes = frozenset(name for name, devices in selected.items() if devices)
        workloads = [
            workload
            for workload in cluster.workloads
            if workload.result is not None and class_names(workload) <= classes
        ]
        # Pods that are not placed anew, such as those that would be refused, keep their claims.
        placed_pods = frozenset(
            pod for workload in workloads for pod in workload.members
        ).difference(left_out.values())
        claims = release_claims(state.claims, placed_pods)
        resources = state.node_resources(placed_pods)
        self._state: ClusterState = msgspec.structs.replace(state, claims=claims)
        pods = (
            on_nodes(pod, (*reachable.get(pod.key, ()), *named_nodes.get(pod.key, ())))
            for workload in workloads
            for pod in planned_pods(workload, unrestarted, ending)
            if pod.key not in left_out
        )
        self.pods = tuple(islice(pods, MAX_ALL_PODS))
        self.not_counted = tuple(
            workload.key.reference
            for workload in cluster.workloads
            if workload.result is not None and workload not in workloads
        )
        self._templates: dict[tuple[str, str], ResourceClaimTemplate] = {}
        for workload in workloads:
            self._templates.update(build_templates(workload))
        by_name = {node.metadata.name: node for node in state.nodes}
        self.separation = PodSeparation(workloads, by_name)
        self._by_key = {pod.key: pod for pod in self.pods}
        self.daemon_pods = DaemonPods(self.pods)
        self._shapes = {pod.key: pod_shape(pod.pod, self._templates) for pod in self.pods}
        by_shape: dict[bytes, PodRequest] = {}
        for pod in self.pods:
            shape = self._shapes[pod.key]
            if shape not in by_shape:
                by_shape[shape] = pod_request(pod.pod)
        self._requests = {key: by_shape[shape] for key, shape in self._shapes.items()}
        self.colocated = Colocated(*colocation, self._requests, resources)
        self._resources = resources
        self.others = OtherPods(state, evicted, volume_nodes)
        self.unrestarted_workloads = frozenset(key.workload for key in unrestarted)
        self._ending = ending
        self._homes = homes
        self._reachable = reachable
        self._cards = cards
        self._held_gpus = held_gpus
        self._reuses = reuses
        self._remaining = cluster.remaining.nodes.keys()
        self._claim_nodes: dict[tuple[bytes, frozenset[str]], frozenset[str]] = {}
        self._other_drivers = cluster.other_drivers
        self._allocator = StageAllocator(self._state, self._other_drivers)
        self.cordoned = self._allocator.cordoned
        places = {node.node for node in cluster.nodes if node.source is not Source.DRA}
        unmoved_pods = [pod for pod in unmoved if pod.key not in left_out]
        self.counted_unmoved = pods_with_claims(self._state, unmoved_pods) | self._allocate_unmoved(
            pod
            for pod in unmoved_pods
            if pod.node in places and class_names(pod.workload) <= classes
        )
        self._serving = {
            name: frozenset(node_of(device) or "" for device in devices)
            for name, devices in selected.items()
            if not isinstance(devices, str)
        }

    def _allocate_unmoved(self, pods: Iterable[UnmovedPod]) -> frozenset[PodKey]:
        """Allocate devices of their nodes to pods for good; return those that have some.

        Where others find none beside them, their node has fewer than the device plugin has given out.
        """
        places: list[tuple[PlannedPod, str]] = []
        for key, (namespace, name), workload, node in islice(pods, MAX_ALL_PODS):
            self._templates.update(build_templates(workload))
            for pod in build_pods(msgspec.structs.replace(workload, pods=1)):
                metadata = msgspec.structs.replace(pod.metadata, name=name, namespace=namespace)
                own = msgspec.structs.replace(pod, metadata=metadata)
                places.append((planned_pod(workload, key.number, own), node))
        nodes = self._place_on_nodes(places)
        claims = {
            claim_name(claim): claim
            for allocated in self._allocator.allocated.values()
            for claim in allocated
        }
        self._state = msgspec.structs.replace(self._state, claims={**self._state.claims, **claims})
        self._allocator = StageAllocator(self._state, self._other_drivers)
        self.cordoned = self._allocator.cordoned
        return frozenset(nodes)

    def requested(self, key: PodKey) -> tuple[RequestedDevices, ...]:
        """Return the devices that a pod requests."""
        return tuple(requested_devices(self._by_key[key].pod, self._templates))

    def serves(self, stage: Stage, key: PodKey, node: str) -> bool:
        """Return True if a node may serve a pod at a stage, by its device plugin or by its DRA driver."""
        pod = self._by_key[key]
        return not pod.has_claims or stage.moves(pod) == (node in stage.switched)

    def free_devices(
        self, stage: Stage, placement: Placement
    ) -> Mapping[str, Sequence[Mapping[str, Quantity]]]:
        """Return node to the free capacity of each device that is free or shared, of nodes that take pods."""
        self._allocator.show(stage)
        self._allocator.keep(placement.claims)
        return self._allocator.free_devices(stage)

    def serving_nodes(self, workload: AssessedWorkload) -> frozenset[str]:
        """Return the nodes with devices of a class that a workload's claims name."""
        return self.nodes_of_classes(class_names(workload))

    def nodes_of_classes(self, names: Iterable[str]) -> frozenset[str]:
        """Return the nodes with devices of one of some classes."""
        return frozenset[str]().union(*(self._serving.get(name, frozenset()) for name in names))

    def claim_nodes(self, workload: AssessedWorkload, taking: frozenset[str]) -> frozenset[str]:
        """Return the nodes of some with devices for all claims of a workload's pod, however few of them are free."""
        pod = next(build_pods(msgspec.structs.replace(workload, pods=1)), None)
        if pod is None or not class_names(workload) <= self._serving.keys():
            return frozenset()
        names = self.serving_nodes(workload) & taking
        return self._nodes_with_devices(planned_pod(workload, 0, pod), names)

    def card_nodes(self, key: PodKey, names: frozenset[str]) -> frozenset[str]:
        """Return the nodes of some with devices that the claims of a pod select, however few of them are free."""
        return self._nodes_with_devices(self._by_key[key], names)

    def _nodes_with_devices(self, pod: PlannedPod, names: frozenset[str]) -> frozenset[str]:
        """Return the nodes of some that have devices for a pod once no other pod has any."""
        shape = pod_shape(device_pod(pod.pod), self._templates), names
        if shape in self._claim_nodes:
            return self._claim_nodes[shape]
        self._allocator.keep({})
        self._allocator.resources = {}
        pods: list[tuple[PlannedPod, str]] = []
        metadata = pod.pod.metadata
        for number, name in enumerate(sorted(names)):
            own = msgspec.structs.replace(metadata, name=f"{metadata.name}-{number}")
            key = PodKey(pod.key.workload, number)
            copied = msgspec.structs.replace(pod.pod, metadata=own)
            pods.append((msgspec.structs.replace(pod, key=key, pod=copied), name))
        self._claim_nodes[shape] = frozenset(self._place(pods).values())
        self._allocator.keep({})
        return self._claim_nodes[shape]

    def reachable_places(self, workload: AssessedWorkload) -> Sequence[Sequence[NodeSelector]]:
        """Return the nodes of the volumes of a workload's pods, each set once; empty if all nodes reach those of a pod."""
        reference, number = workload.key.reference, min(workload.pods, MAX_PODS)
        places = {
            tuple(self._reachable.get(PodKey(reference, index), ()))
            for index in range(number if self._reachable else 0)
        }
        return () if () in places else sorted(places, key=encode)

    def unserved(self, stage: Stage, keys: Iterable[PodKey]) -> frozenset[str]:
        """Return the workloads of some pods that no node would serve after their move, however empty it was.

        A pod that requests a whole device of nodes whose driver publishes devices for shares is an example.
        """
        stage = msgspec.structs.replace(
            stage,
            switched=frozenset(self._allocator.nodes),
            closed=frozenset(),
            opted_in=frozenset(pod.namespace for pod in self.pods),
        )
        self._allocator.show(stage)
        unserved = set[str]()
        for workload, pod in {key.workload: self._by_key[key] for key in keys}.items():
            self._allocator.keep({})
            self._allocator.resources = self.colocated.resources(stage, self._resources)
            if not self._place([(self._movable(pod, stage), None)]):
                unserved.add(workload)
        return frozenset(unserved)

    def node_groups(self) -> Mapping[str, NodeGroup]:
        """Return node to its group."""
        return group_nodes(self._allocator.nodes, (pod.pod for pod in self.pods), self._serving)

    def drivers_on(self, nodes: Collection[str]) -> frozenset[str]:
        """Return the drivers with devices on some nodes, without other drivers, such as those of NICs."""
        return self._allocator.drivers_on(nodes)

    def device_counts(self) -> Mapping[str, int]:
        """Return node to the number of its devices, without those of other drivers, such as NICs."""
        return Counter(
            node for device in self._allocator.counted() if (node := node_of(device)) is not None
        )

    def place(
        self, stage: Stage, before: Placement, left_out: frozenset[PodKey] = frozenset()
    ) -> Placement:
        """Place all pods: first those that stay on their nodes, then the others.

        Args:
            stage: The stage of nodes and namespaces.
            before: The present places of the pods.
            left_out: Pods that are not placed, and use no devices.
        """
        if not self._reuses:
            self._allocator = StageAllocator(self._state, self._other_drivers)
        self.cordoned = self._allocator.cordoned
        allocator = self._allocator
        allocator.show(stage)
        ended = before.ended | {
            key for key, node in self._ending.items() if stage.waits and node in stage.draining
        }
        open_nodes = self._remaining | (allocator.nodes.keys() - stage.draining)
        staying: dict[PodKey, str] = {}
        moving: list[PlannedPod] = []
        stranded: set[PodKey] = set()
        for pod in self.pods:
            node = before.nodes.get(pod.key)
            if (
                pod.key in ended
                or pod.key in left_out
                or ((pod.is_pinned or pod.key in self._homes) and node in stage.draining)
            ):
                continue  # Such a pod is served again when its node is back, and no earlier.
            if node is not None and node in open_nodes and stage.lets_stay(pod, node):
                staying[pod.key] = node
            elif node is not None and node in open_nodes and pod.is_pinned:
                stranded.add(pod.key)
            else:
                moving.append(pod)
        kept_claims = before.claims
        # Those on nodes that stay have devices of no driver.
        unmoved = {k: v for k, v in staying.items() if k in kept_claims or v in self._remaining}
        allocator.keep({key: kept_claims[key] for key in unmoved if key in kept_claims})
        moved = self.others.resources(before.others, self._resources)
        allocator.resources = self.colocated.resources(stage, moved)
        allocator.add_pods(self._requests, unmoved)
        nodes = dict(staying)
        without = [(self._by_key[key], staying[key]) for key in staying if key not in unmoved]
        placed = self._place_on_nodes(without)
        unmatched = frozenset(
            key
            for key in before.unmatched.intersection(staying) - placed.keys()
            if staying[key] not in self._remaining
        )
        for pod, node in without:
            if pod.key in unmatched:
                number = sum(own.number for own in self.requested(pod.key))
                allocator.occupy(pod.key, node, self._held_gpus.get(pod.key, number))
            elif pod.key not in placed:
                del nodes[pod.key]
                moving.append(pod)
        # In one call, since each copies the resources of all nodes.
        allocator.add_pods(self._requests, {key: staying[key] for key in unmatched})

        nodes |= self._place_moving(moving, stage, before.nodes, nodes)
        free, devices, in_use = allocator.count(stage)
        return Placement(
            nodes=nodes,
            claims=dict(allocator.allocated),
            unplaced=frozenset(stranded) | {pod.key for pod in moving if pod.key not in nodes},
            stranded=frozenset(stranded),
            unmatched=unmatched,
            free=free,
            devices=devices,
            in_use=in_use,
            others=self.others.place(stage, before.others, allocator.resources),
            ended=ended,
            resources=allocator.resources,
        )

    def place_more(
        self, stage: Stage, placement: Placement, pods: Iterable[PlannedPod]
    ) -> dict[PodKey, str]:
        """Return the nodes of further pods that find devices beside the pods of a placement, by the rules between them."""
        self._allocator.show(stage)
        self._allocator.keep(placement.claims)
        self._allocator.resources = placement.resources
        movable = [self._movable(pod, stage) for pod in pods]
        nodes = self._place_movable(movable, stage, placement.nodes)
        self._allocator.keep(placement.claims)
        return nodes

    def _place_moving(
        self,
        pods: Iterable[PlannedPod],
        stage: Stage,
        before: Mapping[PodKey, str],
        placed: Mapping[PodKey, str],
    ) -> dict[PodKey, str]:
        """Allocate devices to pods that leave their nodes; return those with a new one.

        Args:
            pods: The pods.
            stage: The stage.
            before: The nodes that they come from.
            placed: The pods that have a place already, with their nodes.
        """

        def size(pod: PlannedPod) -> int:
            return sum(entry.size for entry in self.requested(pod.key)) if stage.spreads else 0

        # Pods with claims have fewer nodes to choose from, and so have those that rules keep apart.
        ordered = sorted(pods, key=lambda pod: (not pod.has_claims, size(pod), pod.key))
        movable = [self._movable(pod, stage, before.get(pod.key)) for pod in ordered]
        strategy = LOW_LOAD_FIRST if stage.spreads else None
        return self._place_movable(movable, stage, placed, strategy)

    def _place_movable(
        self,
        pods: Iterable[PlannedPod],
        stage: Stage,
        placed: Mapping[PodKey, str],
        strategy: Strategy | None = None,
    ) -> dict[PodKey, str]:
        """Allocate devices to pods, first to those that rules keep apart, each on a node that these leave it; return those with a node.

        Args:
            pods: The pods.
            stage: The stage.
            placed: The pods that have a place already, with their nodes.
            strategy: The way to choose devices; None for the first that fit.
        """
        apart, others = list[PlannedPod](), list[tuple[PlannedPod, None]]()
        for pod in pods:
            if self.separation.keeps(pod) and not stage.joins:
                apart.append(pod)
            else:
                others.append((pod, None))
        if not apart:
            return self._place(others, strategy)

        def place(pod: PlannedPod, names: Sequence[str]) -> dict[PodKey, str]:
            return self._allocator.place(
                [(pod, None)], self._templates, self._shapes, strategy, among=names
            )

        keyed = ((pod, place_key(pod, self._templates, self._shapes)) for pod in apart)
        rules = PodsApart(self.separation, stage, placed)
        return place_apart(keyed, rules, self._allocator, place) | self._place(others, strategy)

    def _place_on_nodes(self, pods: Sequence[tuple[PlannedPod, str]]) -> dict[PodKey, str]:
        """Allocate devices to pods, each on its node, those that they have today first; return those with a node."""
        nodes = self._place_on_cards([entry for entry in pods if entry[0].key in self._cards])
        return nodes | self._place([entry for entry in pods if entry[0].key not in self._cards])

    def _place_on_cards(self, pods: Iterable[tuple[PlannedPod, str]]) -> dict[PodKey, str]:
        """Allocate the devices that pods have today, each on its node; return those with a node.

        The search has others for them where shares of several pods fit on one device, and not all of these are on one.
        """
        nodes: dict[PodKey, str] = {}
        for pod, node in pods:
            nodes |= self._place([(pod, node)])
            if pod.key in nodes:
                self._allocator.exchange(pod.key, self._cards[pod.key])
        return nodes

    def _movable(self, pod: PlannedPod, stage: Stage, node: str | None = None) -> PlannedPod:
        """Return a pod that only nodes take that can serve it at a stage.

        With device keys it asks the system that serves it: those of HAMi's nodes are not those of a device plugin.

        Args:
            pod: The pod.
            stage: The stage.
            node: The node that it comes from; None for one without.
        """
        place = {OPEN: "true"}
        if pod.has_claims:
            place = {STAGE: SWITCHED if stage.moves(pod) else LEGACY}
            if not stage.moves(pod) and (system := self._systems.get(node or "")):
                place[SYSTEM] = system
        return on_place(pod, place, self._homes.get(pod.key, pod.pod.spec.node_name))

    def _place(
        self, pods: Iterable[tuple[PlannedPod, str | None]], strategy: Strategy | None = None
    ) -> dict[PodKey, str]:
        """Allocate the devices of pods, each on its node if it has one; return those with a node."""
        return self._allocator.place(pods, self._templates, self._shapes, strategy)
