"""A cluster of many nodes with pods that come and go, as the sidecar's library knows it.

Objects come as the bytes that the API server sends, and go through the sidecar's projections into its view of the
devices. Half of all devices are in use, at random, each by a pod of its own.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from random import Random
from time import process_time
from typing import Any, Final

from msgspec.structs import replace

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name, claim_name
from allocator.strategies import registry
from clusterstate.kinds import Kind
from kube.api.core import Pod
from kube.api.meta import encode
from kube.api.resource import DeviceRequest, DeviceToleration, ResourceClaim, ResourceSlice
from sidecar.model.protocol import HeadroomChanges, NodeHeadroom, ResourceRequests
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.placement import Placement, place, with_allocation
from sidecar.plan.snapshot import Snapshot
from sidecar.state.consumers import ConsumerIndex
from sidecar.state.device_view import DeviceView
from sidecar.state.pod_room import PodRoom
from sidecar.state.projections import INVENTORY, project_claim, project_pod
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    device,
    device_class,
    match,
    node,
    request,
    result,
    slice_of,
)
from testing.sidecar import snapshots

DEVICES: Final = 8
BATCH: Final = 1_000
"""Objects whose bytes exist at one time."""
ROOT: Final = f"{DRIVER}/root"
NODE_CPU_MILLI: Final = 128_000
POD: Final = ResourceRequests(cpu_milli=100, memory=1 << 30)


class NoPlace(Exception):
    """A pod has no node or no devices, so there is nothing to measure."""


class ScaledCluster:
    """Objects of a cluster, the view of its devices, and pods that come and go.

    Attributes:
        nodes: The number of nodes.
        view: The view of the devices.
        claims: All claims by name.
        strategy: The name of the default strategy.
    """

    def __init__(self, nodes: int) -> None:
        """Begin without objects.

        Args:
            nodes: The number of nodes.
        """
        self.nodes: Final = nodes
        self.view: Final = DeviceView(Features(), frozenset(), everything=dict)
        self.claims: Final[dict[Name, ResourceClaim]] = {}
        self.strategy = registry.DEFAULT
        self._names: Final = [f"node-{number:05}" for number in range(nodes)]
        self._consumers: Final = ConsumerIndex(self.claims)
        self._room: Final = PodRoom()
        self._cpu_milli: Final = dict.fromkeys(self._names, NODE_CPU_MILLI)
        self._numbers: Final = count()
        self._running: Final[deque[Pod]] = deque()
        self._reserved: tuple[Pod, str] | None = None

    def decode(self) -> float:
        """Take in all objects from bytes; return the seconds of CPU, without those for making the bytes."""
        self._report_headroom(self._names)
        took_s = self._decode(INVENTORY[Kind.CLASS], Kind.CLASS, (device_class(),))
        took_s += self._decode(INVENTORY[Kind.NODE], Kind.NODE, map(node, self._names))
        took_s += self._decode(INVENTORY[Kind.SLICE], Kind.SLICE, map(build_slice, self._names))
        took_s += self._decode(project_pod, None, map(_running_pod, devices_in_use(self._names)))
        took_s += self._decode(
            project_claim, Kind.CLAIM, map(_claim_in_use, devices_in_use(self._names))
        )
        self._running.extend(self._consumers.pods.values())
        return took_s

    def build_view(self) -> float:
        """Build the first view; return the seconds of CPU."""
        return cpu_seconds(self._apply_changes)

    def ask_all(self, request_: DeviceRequest) -> float:
        """Ask about all nodes; return the seconds of CPU.

        Args:
            request_: The request of the claim that is asked about.
        """
        cluster = self.view.cache.cluster
        pending = cluster.resolve([_claim("all", request_)])
        return cpu_seconds(cluster.verdicts, pending)

    def decide(self, request_: DeviceRequest) -> float:
        """Find nodes for a new pod, as PreFilter does; return the seconds of CPU.

        Before it, as in the sidecar, come the changes since the last decision and the devices of the pod before. After
        it the oldest pod is deleted, so that as many devices are in use as before.

        Args:
            request_: The request of the pod's claim.
        """
        name = f"pod-{next(self._numbers)}"
        pod = snapshots.pod(name, name=name)
        self._take_pod(pod)
        self._take_claim(_claim(name, request_))
        began_s = process_time()
        snapshot = self._apply_changes()
        if self._reserved is not None:
            snapshot = self._place(*self._reserved, snapshot)
        self._room.learn(pod, snapshot, requests=POD, at_s=float(next(self._numbers)))
        outcome = find_nodes(pod, snapshot, requests=POD)
        self._room.look(snapshot)
        took_s = process_time() - began_s
        if not isinstance(outcome, Fits):
            raise NoPlace(f"{name} has no node: {outcome}")
        node_name = outcome.nodes[0].name
        self._reserved = (pod, node_name)
        self._cpu_milli[node_name] -= POD.cpu_milli
        self._report_headroom([node_name])
        self._delete(self._running.popleft())
        return took_s

    def change_slice(self, number: int) -> float:
        """Replace the slice of one node; return the seconds of CPU until the view has it.

        Args:
            number: The number of the change, from 1 on; it is the generation of the pool.
        """
        name = self._names[number * 7919 % len(self._names)]
        raw = encode(build_slice(name, generation=1 + number))

        def take() -> None:
            self._take(Kind.SLICE, INVENTORY[Kind.SLICE](raw))
            self._apply_changes()

        return cpu_seconds(take)

    # --- objects ----------------------------------------------------------------------------------

    def _decode(
        self, project: Callable[[bytes], Any], kind: Kind | None, objects: Iterable[Any]
    ) -> float:
        """Take in objects from bytes, in batches; None is the kind of pods."""
        raw_objects, took_s = map(encode, objects), 0.0
        while batch := tuple(islice(raw_objects, BATCH)):
            began_s = process_time()
            for raw in batch:
                new = project(raw)
                if kind is None:
                    self._take_pod(new)
                elif kind is Kind.CLAIM:
                    self._take_claim(new)
                else:
                    self._take(kind, new)
            took_s += process_time() - began_s
        return took_s

    def _take(self, kind: Kind, new: Any) -> None:
        self.view.put(kind, ("", new.metadata.name), new)

    def _take_pod(self, new: Pod) -> None:
        self._consumers.replace_pod(self._consumers.pods.get(new.metadata.uid), new)

    def _take_claim(self, new: ResourceClaim) -> None:
        name = claim_name(new)
        old, self.claims[name] = self.claims.get(name), new
        self._consumers.replace_claim(name, old, new)
        self.view.put(Kind.CLAIM, name, new)

    def _delete(self, pod: Pod) -> None:
        """Delete a pod with its claims."""
        for name in self._consumers.claims_of.get(pod.metadata.uid, frozenset()):
            self._consumers.replace_claim(name, self.claims.pop(name), None)
            self.view.put(Kind.CLAIM, name, None)
        self._consumers.replace_pod(pod, None)

    def _report_headroom(self, names: Sequence[str]) -> None:
        """Report the resources left on nodes, as the scheduler does."""
        number = self._room.number
        nodes = tuple(
            NodeHeadroom(name=name, cpu_milli=self._cpu_milli[name], memory=1 << 40, pods=500)
            for name in names
        )
        self._room.take(HeadroomChanges(number=number + 1, since=number, nodes=nodes))

    # --- decisions --------------------------------------------------------------------------------

    def _apply_changes(self) -> Snapshot:
        self.view.cache.apply(self.view.take_changes(()))
        return self._snapshot()

    def _place(self, pod: Pod, node_name: str, snapshot: Snapshot) -> Snapshot:
        """Choose the devices of the pod before, as those of a reserved pod, and return the snapshot with them."""
        placement = place(pod, node_name, snapshot)
        if not isinstance(placement, Placement):
            raise NoPlace(f"{pod.metadata.name} has no devices on {node_name}: {placement}")
        for pending, allocation in placement.allocations:
            new = snapshots.used_by(with_allocation(pending, allocation), pod.metadata.uid)
            self._take_claim(new)
        self._running.append(pod)
        return self._apply_changes()

    def _snapshot(self) -> Snapshot:
        cache = self.view.cache
        return Snapshot(
            cluster=cache.cluster,
            claims=cache.claims,
            classes=cache.classes,
            extended_resources=cache.extended_resources,
            pods=self._consumers.pods,
            claims_of=self._consumers.claims_of,
            lowest_priority=self._consumers.lowest_priority,
            drivers=frozenset({DRIVER}),
            default_strategy=self.strategy,
            room=self._room.view(cache.cluster),
        )


def build_slice(name: str, *, generation: int = 1) -> ResourceSlice:
    """A slice of eight GPUs with the attributes that drivers of GPUs publish, on two roots."""
    published = (
        device(
            f"gpu-{number}",
            attributes={
                "uuid": f"GPU-{name}-{number}",
                "index": number,
                "productName": "A100-SXM4-80GB",
                "brand": "Nvidia",
                "architecture": "Ampere",
                "cudaComputeCapability": "8.0.0",
                "driverVersion": "570.86.15",
                "pciBusID": f"0000:{number:02x}:00.0",
                "root": f"pci0000:{number // 4:02x}",
            },
            capacity={"memory": "80Gi"},
        )
        for number in range(DEVICES)
    )
    return slice_of(*published, pool=name, node=name, generation=generation)


def devices_in_use(names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield node and number of the devices that are in use at first: half of them, at random."""
    for name in names:
        random = Random(name)
        yield from ((name, number) for number in range(DEVICES) if random.random() < 0.5)


def two_gpus(memory: str = "40Gi", tolerations: Sequence[DeviceToleration] = ()) -> DeviceRequest:
    """A request for two GPUs with so much memory on one root."""
    text = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{memory}")) >= 0'
    return request("gpus", text, count=2, tolerations=tuple(tolerations) or None)


def cpu_seconds(call: Callable[..., object], *arguments: object) -> float:
    """Return the CPU time of a call, on all threads."""
    began_s = process_time()
    call(*arguments)
    return process_time() - began_s


def _claim(name: str, request_: DeviceRequest) -> ResourceClaim:
    return claim(request_, name=name, constraints=(match(ROOT),))


def _running_pod(place_: tuple[str, int]) -> Pod:
    node_name, number = place_
    name = f"{node_name}-{number}"
    return snapshots.pod(name, name=name, nodeName=node_name)


def _claim_in_use(place_: tuple[str, int]) -> ResourceClaim:
    node_name, number = place_
    name = f"{node_name}-{number}"
    in_use = allocated_claim(result(f"gpu-{number}", pool=node_name), name=name)
    requested = claim(request(), name=name)
    return snapshots.used_by(replace(in_use, spec=requested.spec), f"uid-{name}")
