"""The places of pods at a stage of a migration, and the allocator with the devices of all that are placed. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from allocator.model.devices import DeviceId, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest
from allocator.pods.claims import consuming_pods, pod_claims
from allocator.pods.node_eligibility import counted_rejection
from allocator.simulation.model import SimulationInput, SimulationOptions
from allocator.simulation.simulate import simulate_in_order
from allocator.strategies.strategy import Strategy
from answers.cluster.devices import DeviceState, device_state, free_capacity, published_devices
from answers.model.cluster_state import ClusterState
from kube.api.core import Node
from kube.api.meta import ObjectMeta
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)
from kube.quantity import ZERO, Quantity
from migration.cluster.equivalence import bound_pod, pod_shape
from migration.plan.model.node_labels import with_labels, without_cordon
from migration.plan.stage.node_systems import OWN_NAMES, SYSTEM
from migration.plan.stage.other_pods import PodName
from migration.plan.stage.stage import PlannedPod, PodKey, Stage, UnmovedPod

OPEN: Final = "simulated-open"
"""Label of nodes that take pods that Kubernetes serves."""
STAGE: Final = "simulated-stage"
"""Label of nodes that take pods, with what serves pods there."""
SWITCHED: Final = "dra"
LEGACY: Final = "legacy"
_OCCUPIED: Final = "occupied"
PlaceKey = tuple[bytes, str, str, str]
"""All properties of a pod that its feasible nodes depend on."""
_BATCH: Final = 64
"""Pods that are placed before it is seen which of them have found a node."""


class FreeDevices(NamedTuple):
    """Devices without a consumer, by the pods that may use them.

    Attributes:
        for_keys: The free devices of device plugins, for pods with device keys.
        for_claims: The free devices of DRA drivers, for pods with claims.
    """

    for_keys: int
    for_claims: int


class DriverDevices(NamedTuple):
    """The devices of a driver, and those of them without a consumer, of nodes that take pods; cordoned ones, and those that are not ready, take none."""

    free: int
    devices: int


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The places of pods at a stage.

    Attributes:
        nodes: The nodes of the pods that have one.
        claims: The claims of these pods, with their devices.
        unplaced: The others.
        stranded: Those of them that cannot leave a switched node, and have device keys.
        unmatched: Pods that go on where they are with the devices that the system of their node has given them, though
            their claims do not fit there. Their claims have some of that node, as many as they request and it has.
        free: Devices without a consumer, of nodes that take pods.
        devices: Driver to the number of its devices on these nodes, and of those without a consumer.
        in_use: Node to the number of its devices that are not free, or may be in use.
        others: Pods without devices that have left their node to their new ones; empty for those without one.
        ended: Pods that a drain has waited for until they ended; they use nothing any more.
        resources: Node to its CPU, memory and other counted resources, with all pods that are placed.
    """

    nodes: Mapping[PodKey, str]
    claims: Mapping[PodKey, tuple[ResourceClaim, ...]] = {}
    unplaced: frozenset[PodKey] = frozenset()
    stranded: frozenset[PodKey] = frozenset()
    unmatched: frozenset[PodKey] = frozenset()
    free: FreeDevices = FreeDevices(0, 0)
    devices: Mapping[str, DriverDevices] = {}
    in_use: Mapping[str, int] = {}
    others: Mapping[PodName, str] = {}
    ended: frozenset[PodKey] = frozenset()
    resources: Mapping[str, NodeResources] = {}

    def after(self, before: "Placement") -> "Placement":
        """Return this placement, with pods that were left out on their nodes before; their claims have to fit there by now."""
        missing = {
            key: node
            for key, node in before.nodes.items()
            if key not in self.nodes and key not in self.unplaced and key not in self.ended
        }
        return msgspec.structs.replace(
            self,
            nodes={**missing, **self.nodes},
            claims={
                **{
                    key: before.claims[key]
                    for key in missing
                    if key in before.claims and key not in before.unmatched
                },
                **self.claims,
            },
        )


def free_shortage(
    devices: Mapping[str, DriverDevices], percentage: int, drivers: Collection[str]
) -> str:
    """Return the shortage of free devices of the first driver with too few; empty without one.

    Devices of one driver serve no pod that requests those of another.

    Args:
        devices: Driver to its devices.
        percentage: The percentage of the devices of each that stays without a consumer.
        drivers: The drivers that count.
    """
    for driver, (free, number) in devices.items():
        minimum = -(-number * percentage // 100)
        if driver in drivers and free < minimum:
            of_driver = f" of {driver}" if len(devices) > 1 else ""
            return f"{free} of {number} devices{of_driver} are free, and --keep-free {percentage} asks for {minimum}"
    return ""


def drivers_with_fewer_free(
    before: Mapping[str, DriverDevices], after: Mapping[str, DriverDevices]
) -> frozenset[str]:
    """Return the drivers with fewer free devices than before."""
    return frozenset(
        driver
        for driver, (free, _) in after.items()
        if driver in before and free < before[driver].free
    )


class StageAllocator:
    """The allocator at the last stage, with the devices of all pods that are placed.

    Attributes:
        allocated: Pod to its claims, with their devices.
        resources: Node to its CPU, memory and other counted resources, with all pods that are placed.
    """

    def __init__(self, state: ClusterState, other_drivers: Collection[str] = ()) -> None:
        """Prepare the allocator.

        Args:
            state: The cluster with the inventory of all nodes.
            other_drivers: Drivers whose devices, such as NICs, are allocated like others, and not counted.
        """
        self._other_drivers = other_drivers
        self._classes = state.classes
        self.cluster = state.cluster(Features())
        self.allocated: dict[PodKey, tuple[ResourceClaim, ...]] = {}
        self.resources: Mapping[str, NodeResources] = {}
        self.devices = published_devices(self.cluster)
        self._by_node = _by_node(self.counted())
        self._by_id = {device.id: device for device in self.devices}
        self.nodes: Mapping[str, Node] = {node.metadata.name: node for node in state.nodes}
        self.cordoned = frozenset(
            name for name, node in self.nodes.items() if node.spec.unschedulable
        )
        self._places: dict[str, tuple[str, Mapping[str, str], bool]] = {}
        # Devices of several nodes are seen by what labels these have, which a stage changes.
        self._is_local = all(node_of(device) is not None for device in self.devices)

    def add_pods(self, requests: Mapping[PodKey, PodRequest], places: Mapping[PodKey, str]) -> None:
        """Add pods to the resources of their nodes.

        Args:
            requests: The requests of all pods.
            places: The pods to add, with their nodes.
        """
        resources = dict(self.resources)
        for key, node in places.items():
            if node in resources:
                resources[node] = resources[node].with_pod(requests[key])
        self.resources = resources

    def show(self, stage: Stage) -> None:
        """Give the nodes the labels of a stage."""
        is_changed = False
        for name, node in self.nodes.items():
            place = _place_of(name, stage)
            labels = stage.labels.get(name, {}) if name in stage.switched else {}
            takes = stage.uncordons and name in self.cordoned
            if self._places.get(name) != (place, labels, takes):
                self._places[name] = place, labels, takes
                own = without_cordon(node) if takes else node
                self.cluster.replace_node(name, _labelled(own, place, labels))
                is_changed = True
        if is_changed and not self._is_local:
            self.devices = published_devices(self.cluster)
            self._by_node = _by_node(self.counted())

    def keep(self, claims: Mapping[PodKey, tuple[ResourceClaim, ...]]) -> None:
        """Release all devices but those of some claims."""
        for key in [
            key for key, current in self.allocated.items() if claims.get(key) is not current
        ]:
            for claim in self.allocated.pop(key):
                self.cluster.release(claim)
        for key, own in claims.items():
            if key not in self.allocated:
                self.allocated[key] = own
                for claim in own:
                    self.cluster.allocate(claim)

    def exchange(self, key: PodKey, names: Sequence[str]) -> None:
        """Give a pod other devices of its node, unless these are too many, too few, or have no room."""
        claims = self.allocated[key]
        for claim in claims:
            self.cluster.release(claim)
        exchanged = _with_devices(claims, names)
        if exchanged is not None and self._has_room(exchanged):
            self.allocated[key] = claims = exchanged
        for claim in claims:
            self.cluster.allocate(claim)

    def occupy(self, key: PodKey, node: str, number: int) -> None:
        """Give a pod devices of its node against the selectors of its claims: free ones, then the rest of shared ones."""
        states = {
            device.id: device_state(device, self.cluster.usage)
            for device in self._by_node.get(node, ())
        }
        free = [name for name, state in states.items() if state is DeviceState.FREE]
        shared = [name for name, state in states.items() if state is DeviceState.SHARED]
        results = tuple(
            DeviceRequestAllocationResult(
                request=_OCCUPIED, driver=name.driver, pool=name.pool, device=name.device
            )
            for name in (*free, *shared)[:number]
        )
        allocation = AllocationResult(devices=DeviceAllocationResult(results=results))
        claim = ResourceClaim(
            metadata=ObjectMeta(name=f"{key.workload}/{key.number}"),
            status=ResourceClaimStatus(allocation=allocation),
        )
        self.allocated[key] = (claim,)
        self.cluster.allocate(claim)

    def eligible_nodes(self, pod: PlannedPod) -> list[str]:
        """Return the nodes that take a pod at this stage, devices and resources aside, in their order."""
        nodes = self.cluster.nodes.items()
        return sorted(name for name, node in nodes if counted_rejection(pod.pod, node) is None)

    def place(
        self,
        pods: Iterable[tuple[PlannedPod, str | None]],
        templates: Mapping[tuple[str, str], ResourceClaimTemplate],
        shapes: Mapping[PodKey, bytes],
        strategy: Strategy | None = None,
        among: Collection[str] | None = None,
    ) -> dict[PodKey, str]:
        """Allocate the devices of pods in order, each on its node if it has one; return those with a node.

        Args:
            pods: The pods, each with its node, or None.
            templates: The templates of their claims, by namespace and name.
            shapes: Pod to its shape; that of others is read.
            strategy: The way to choose devices; None for the first that fit.
            among: The nodes that are tried; None for all.
        """
        nodes: dict[PodKey, str] = {}
        full: set[PlaceKey] = set()
        remaining = iter(pods)
        while batch := tuple(islice(remaining, _BATCH)):
            # Where one pod finds nothing, equal ones after it find nothing, either: a run frees nothing.
            pods_and_nodes = [
                (pod, node)
                for pod, node in batch
                if node or place_key(pod, templates, shapes) not in full
            ]
            question = SimulationInput(
                pods=tuple(
                    pod.pod if not node else bound_pod(pod.pod, node)
                    for pod, node in pods_and_nodes
                ),
                templates=templates,
                classes=self._classes,
                resources=self.resources,
            )
            answer = simulate_in_order(
                self.cluster,
                question,
                SimulationOptions(strategy=strategy, named_nodes_only=True, nodes=among),
            )
            self.resources = answer.resources or {}
            allocations = {
                (claim.namespace, claim.name): claim.allocation for claim in answer.claims
            }
            for (pod, node), placed in zip(pods_and_nodes, answer.pods, strict=True):
                if placed.node is not None:
                    nodes[pod.key] = placed.node
                    self.allocated[pod.key] = tuple(
                        msgspec.structs.replace(
                            claim,
                            status=ResourceClaimStatus(
                                allocation=allocations[
                                    claim.metadata.namespace, claim.metadata.name
                                ]
                            ),
                        )
                        for claim in pod_claims(pod.pod, {}, templates).open
                    )
                elif not node:
                    full.add(place_key(pod, templates, shapes))
        return nodes

    def _has_room(self, claims: Iterable[ResourceClaim]) -> bool:
        """Return True if the devices of claims are published, and have the capacity that these take together."""
        amounts_of: dict[DeviceId, dict[str, Quantity]] = {}
        for result in _allocated_devices(claims):
            if result.consumed_capacity is None:
                return False
            amounts = amounts_of.setdefault(DeviceId(result.driver, result.pool, result.device), {})
            for name, amount in result.consumed_capacity.items():
                amounts[name] = amounts.get(name, ZERO) + amount
        return all(
            (device := self._by_id.get(name)) is not None
            and _fits(amounts, free_capacity(device, self.cluster.usage))
            for name, amounts in amounts_of.items()
        )

    def counted(self) -> Iterator[PublishedDevice]:
        """Yield the devices that count, published and assumed ones."""
        return (device for device in self.devices if device.id.driver not in self._other_drivers)

    def drivers_on(self, nodes: Collection[str]) -> frozenset[str]:
        """Return the drivers of devices that count and are attached to some nodes, or to several ones."""
        return frozenset(
            device.id.driver
            for device in self.counted()
            if (node := node_of(device)) is None or node in nodes
        )

    def free_devices(self, stage: Stage) -> Mapping[str, Sequence[Mapping[str, Quantity]]]:
        """Return node to the free capacity of each device that is free or shared, of nodes that take pods."""
        free: dict[str, list[Mapping[str, Quantity]]] = {}
        for device in self.counted():
            node = node_of(device)
            if node is None or node in stage.draining or node in stage.closed | self.cordoned:
                continue
            state = device_state(device, self.cluster.usage)
            if state in {DeviceState.FREE, DeviceState.SHARED}:
                free.setdefault(node, []).append(free_capacity(device, self.cluster.usage))
        return free

    def count(
        self, stage: Stage
    ) -> tuple[FreeDevices, Mapping[str, DriverDevices], Mapping[str, int]]:
        """Return free devices, devices by driver, and devices in use by node, of those that count and not of draining nodes."""
        usage, counts = self.cluster.usage, Counter[bool]()
        in_use, numbers, free = Counter[str](), Counter[str](), Counter[str]()
        out_of_service = self.cordoned | stage.unready
        for device in self.counted():
            node = node_of(device)
            if node in stage.draining:
                continue
            numbers[device.id.driver] += node not in out_of_service
            if device_state(device, usage) is not DeviceState.FREE or node in stage.closed:
                if node is not None:
                    in_use[node] += 1
            else:
                counts[node is None or node in stage.switched] += 1
                free[device.id.driver] += node not in out_of_service
        by_driver = {
            driver: DriverDevices(free=free[driver], devices=number)
            for driver, number in sorted(numbers.items())
        }
        return FreeDevices(for_keys=counts[False], for_claims=counts[True]), by_driver, in_use


def node_of(device: PublishedDevice) -> str | None:
    """Return the node that a device is attached to; None if several can reach it."""
    return device.slice.spec.node_name or device.device.node_name


def _by_node(devices: Iterable[PublishedDevice]) -> dict[str, list[PublishedDevice]]:
    """Return node to the devices that are attached to it."""
    by_node: dict[str, list[PublishedDevice]] = {}
    for device in devices:
        if (node := node_of(device)) is not None:
            by_node.setdefault(node, []).append(device)
    return by_node


def on_place(pod: PlannedPod, place: Mapping[str, str], home: str) -> PlannedPod:
    """Return a pod that only nodes with further labels take, and only its home if it has one."""
    selector = {**(pod.pod.spec.node_selector or {}), **place}
    spec = msgspec.structs.replace(pod.pod.spec, node_selector=selector, node_name=home)
    return msgspec.structs.replace(pod, pod=msgspec.structs.replace(pod.pod, spec=spec))


def pods_with_claims(state: ClusterState, pods: Iterable[UnmovedPod]) -> frozenset[PodKey]:
    """Return the pods with claims: they have their devices already."""
    consumers = {
        (consumer.namespace, consumer.name)
        for claim in state.claims.values()
        for consumer in consuming_pods(claim)
    }
    return frozenset(pod.key for pod in pods if pod.name in consumers)


def place_key(
    pod: PlannedPod,
    templates: Mapping[tuple[str, str], ResourceClaimTemplate],
    shapes: Mapping[PodKey, bytes],
) -> PlaceKey:
    """Return the key of all properties of a pod that its feasible nodes depend on."""
    spec = pod.pod.spec
    shape = shapes.get(pod.key) or pod_shape(pod.pod, templates)
    selector = spec.node_selector or {}
    return shape, selector.get(STAGE, ""), selector.get(SYSTEM, ""), spec.node_name


def _place_of(node: str, stage: Stage) -> str:
    if node in stage.draining or node in stage.closed:
        return ""
    return SWITCHED if node in stage.switched else LEGACY


def _allocated_devices(claims: Iterable[ResourceClaim]) -> Iterator[DeviceRequestAllocationResult]:
    for claim in claims:
        if claim.status is not None and claim.status.allocation is not None:
            yield from claim.status.allocation.devices.results or ()


def _with_devices(
    claims: Sequence[ResourceClaim], names: Sequence[str]
) -> tuple[ResourceClaim, ...] | None:
    """Return claims with other devices of their pools, in order; None if these are too many or too few."""
    results = list(_allocated_devices(claims))
    if len(results) != len(names):
        return None
    remaining = iter(names)
    exchanged = []
    for claim in claims:
        status = claim.status
        if status is None or status.allocation is None:
            exchanged.append(claim)
            continue
        devices = msgspec.structs.replace(
            status.allocation.devices,
            results=tuple(
                msgspec.structs.replace(result, device=next(remaining))
                for result in status.allocation.devices.results or ()
            ),
        )
        allocation = msgspec.structs.replace(status.allocation, devices=devices)
        status = msgspec.structs.replace(status, allocation=allocation)
        exchanged.append(msgspec.structs.replace(claim, status=status))
    return tuple(exchanged)


def _fits(amounts: Mapping[str, Quantity], free: Mapping[str, Quantity]) -> bool:
    return all(amount <= free.get(name, ZERO) for name, amount in amounts.items())


def _labelled(node: Node, place: str, switched: Mapping[str, str]) -> Node:
    """Return a node with the labels of a stage; without a place it takes no pods."""
    simulated = {STAGE: place} if place else {}
    if place == SWITCHED or (place and OWN_NAMES not in node.labels):
        simulated[OPEN] = "true"
    return with_labels(node, {**switched, **simulated})
