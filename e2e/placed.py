"""A cluster's scheduler, pod by pod, beside the answer of `drawbridge simulate` for the same moment.

Pods arrive one after the other. Before each, the allocator is asked; after each, it takes over where the
scheduler put it, with the devices of its claims, so that a difference does not spread.
"""

import http.client
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from allocator.cluster.cluster import Cluster as Devices
from allocator.model.feature_gates import Features
from allocator.nodes.node_resources import NodeResources, node_resources
from allocator.nodes.pod_requests import pod_request
from allocator.nodes.scoring import DEFAULT_PROFILE, score_resources
from allocator.search.attempt import AllocatorOptions
from allocator.simulation.model import SimulationInput, SimulationOptions
from allocator.simulation.simulate import simulate_in_order
from e2e import inventory
from e2e.access import Access
from e2e.objects import Object, container
from kube.api.core import Node, Pod
from kube.api.meta import convert
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimStatus, ResourceSlice
from testing import documents
from testing.documents import api_object

PLUGIN_RESOURCE: Final = "example.com/plugin"
"""A resource that a device plugin would offer on some nodes."""
OVERHEAD: Final = "sandboxed"
"""A RuntimeClass whose pods have an overhead."""
_POLL_S: Final = 0.01
_TIMEOUT_S: Final = 180.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a pod.

    Attributes:
        node: Its node; None if it got none.
        message: The reason it got none, without the scheduler's words about preemption.
    """

    node: str | None
    message: str | None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that the scheduler and the simulation differ about."""

    pod: str
    scheduler: Outcome
    simulation: Outcome
    best: tuple[str, ...] = ()


class Comparison(msgspec.Struct, kw_only=True):
    """The pods that were compared.

    Attributes:
        differences: Pods with another outcome or another reason, or on a node that is not among the best.
        placed: Number of pods that got a node.
        ties: The number of these pods with several nodes of the best score.
        reasons: Number of nodes that rejected a pod, by reason.
    """

    differences: list[Difference] = msgspec.field(default_factory=list)
    placed: int = 0
    ties: int = 0
    failed: int = 0
    reasons: Counter[str] = msgspec.field(default_factory=Counter)


class Simulated:
    """The cluster as the allocator knows it, changed by the scheduler's decisions."""

    def __init__(
        self, nodes: Sequence[Node], slices: Sequence[ResourceSlice], classes: Sequence[DeviceClass]
    ) -> None:
        self._classes = {class_.metadata.name: class_ for class_ in classes}
        self._devices = Devices(
            slices=slices,
            nodes=nodes,
            claims=(),
            classes=self._classes,
            options=AllocatorOptions(features=Features()),
        )
        self._resources: dict[str, NodeResources] = {
            node.metadata.name: node_resources(node) for node in nodes
        }

    def ask(self, pod: Pod, claims: Sequence[ResourceClaim]) -> tuple[Outcome, tuple[str, ...]]:
        """Return the outcome of a pod, and all nodes with the best score."""
        question = SimulationInput(
            pods=(pod,),
            known={(pod.metadata.namespace, claim.metadata.name): claim for claim in claims},
            classes=self._classes,
            resources=self._resources,
        )
        options = SimulationOptions(profiles={"default-scheduler": DEFAULT_PROFILE}, traces=1)
        answer = simulate_in_order(self._devices, question, options)
        for claim in answer.claims:
            if claim.allocation is not None:
                (asked,) = [own for own in claims if own.metadata.name == claim.name]
                status = ResourceClaimStatus(allocation=claim.allocation)
                self._devices.release(msgspec.structs.replace(asked, status=status))
        (placed,) = answer.pods
        if placed.node is None:
            return Outcome(node=None, message=answer.failures[-1].event), ()
        request = pod_request(pod)
        scores = {
            name: score_resources(request, self._resources[name], DEFAULT_PROFILE)
            for class_ in answer.traces[0].nodes
            if class_.fits
            for name in class_.nodes
        }
        best = tuple(sorted(name for name in scores if scores[name] == max(scores.values())))
        return Outcome(node=placed.node, message=None), best

    def take_over(self, pod: Pod, node: str, claims: Sequence[ResourceClaim]) -> None:
        """Put a pod on the node that the scheduler chose."""
        self._resources[node] = self._resources[node].with_pod(pod_request(pod))
        for claim in claims:
            self._devices.allocate(claim)


class Scheduled:
    """Pods as a real scheduler places them, one at a time."""

    def __init__(self, cluster: Access, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def create(self, document: Mapping[str, Any], kind: str) -> Object:
        """Create an object, and return it as it is stored."""
        path = self._cluster.kind(kind).path(self._namespace)
        status, body = self._cluster.request("POST", path, document)
        assert status == http.client.CREATED, body.decode()
        stored: Object = json.loads(body)
        return stored

    def outcome(self, name: str) -> Outcome:
        """Wait until the scheduler has tried a pod, and return the outcome."""
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            pod = self._cluster.get("pods", name, self._namespace)
            node = pod["spec"].get("nodeName")
            if node:
                return Outcome(node=node, message=None)
            for condition in pod["status"].get("conditions", ()):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    message, _, _ = condition["message"].partition(" preemption: ")
                    return Outcome(node=None, message=message)
            time.sleep(_POLL_S)
        raise AssertionError(f"{name} was not tried within {_TIMEOUT_S:.0f} s")

    def claims(self, names: Sequence[str]) -> list[ResourceClaim]:
        """Return claims as they are stored now."""
        return [
            convert(self._cluster.get("resourceclaims", name, self._namespace), ResourceClaim)
            for name in names
        ]

    def delete(self, name: str) -> None:
        """Delete a pod that got no node, and not wait."""
        path = self._cluster.kind("pods").path(self._namespace, name)
        self._cluster.request("DELETE", f"{path}?gracePeriodSeconds=0")


def compare(
    cluster: Access, namespace: str, pods: Sequence[tuple[Object, Object | None]]
) -> Comparison:
    """Let pods arrive one by one, and compare each.

    Args:
        cluster: The cluster, whose nodes run no other pods.
        namespace: The namespace of the pods.
        pods: Each with its ResourceClaim, if it has one.
    """
    simulated = Simulated(
        [convert(node, Node) for node in cluster.objects("nodes")],
        [convert(slice_, ResourceSlice) for slice_ in cluster.objects("resourceslices")],
        [convert(class_, DeviceClass) for class_ in cluster.objects("deviceclasses")],
    )
    scheduled = Scheduled(cluster, namespace)
    comparison = Comparison()
    for document, claim in pods:
        names = [] if claim is None else [claim["metadata"]["name"]]
        claims = []
        if claim is not None:
            claims = [convert(scheduled.create(claim, "resourceclaims"), ResourceClaim)]
        pod = convert(scheduled.create(document, "pods"), Pod)
        outcome, best = simulated.ask(pod, claims)
        real = scheduled.outcome(pod.metadata.name)
        _count(comparison, pod.metadata.name, real, outcome, best)
        if real.node is None:
            scheduled.delete(pod.metadata.name)
        else:
            simulated.take_over(pod, real.node, scheduled.claims(names))
    return comparison


def _count(
    comparison: Comparison, pod: str, real: Outcome, simulated: Outcome, best: tuple[str, ...]
) -> None:
    if real.node is None:
        comparison.failed += 1
        for part in (real.message or "").rstrip(".").partition(": ")[2].split(", "):
            number, _, reason = part.partition(" ")
            comparison.reasons[reason] += int(number) if number.isdigit() else 0
    else:
        comparison.placed += 1
        comparison.ties += len(best) > 1
    is_equal = real == simulated if real.node is None else real.node in best
    if not is_equal:
        comparison.differences.append(
            Difference(pod=pod, scheduler=real, simulation=simulated, best=best)
        )


# --- a cluster and pods of all kinds --------------------------------------------------------------


def nodes(count: int, prefix: str) -> Iterator[Object]:
    """Yield nodes of four sizes, some of them tainted, and one cordoned."""
    for number in range(count):
        node = inventory.kwok_node(f"{prefix}-{number}")
        size = number % 4
        room = {
            "cpu": str((4, 8, 8, 16)[size]),
            "memory": f"{(16, 16, 64, 32)[size]}Gi",
            "ephemeral-storage": f"{(20, 40, 40, 100)[size]}Gi",
            "pods": str((6, 12, 20, 30)[size]),
        }
        if size == 2:
            room |= {PLUGIN_RESOURCE: "4"}
        if size == 3:
            room |= {"hugepages-2Mi": "512Mi"}
        node["status"] = {"capacity": room, "allocatable": room}
        node["metadata"]["labels"]["zone"] = "ab"[number // 4 % 2]
        if number % 7 == 5:
            node["spec"] = {"taints": [{"key": "reserved", "effect": "NoSchedule"}]}
        if number == count - 1:
            node["spec"] = {"unschedulable": True}
        yield node


def runtime_class() -> Object:
    """Return the RuntimeClass of pods with an overhead."""
    return api_object(
        "RuntimeClass",
        OVERHEAD,
        api_version="node.k8s.io/v1",
        handler=OVERHEAD,
        overhead={"podFixed": {"cpu": "250m", "memory": "128Mi"}},
    )


def pods(count: int, seed: int) -> Iterator[tuple[Object, Object | None]]:
    """Yield pods of many kinds, each with its claim, if it has one."""
    chance = random.Random(seed)
    for number in range(count):
        devices = chance.choice((0, 0, 1, 1, 2))
        claim = _claim(f"claim-{number}", devices) if devices else None
        yield _pod(f"pod-{number}", chance, claim), claim


def _claim(name: str, count: int) -> Object:
    request = {
        "name": "gpu",
        "exactly": {
            "deviceClassName": inventory.EXAMPLE,
            "allocationMode": "ExactCount",
            "count": count,
        },
    }
    return documents.claim(request, name=name)


def _amounts(chance: random.Random) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the requests and the limits of a container."""
    requests: dict[str, str] = {}
    if chance.random() < 0.9:
        requests["cpu"] = f"{chance.choice((100, 250, 500, 1000, 1500, 3000))}m"
    if chance.random() < 0.8:
        requests["memory"] = f"{chance.choice((64, 300, 1000, 2500, 6000))}Mi"
    if chance.random() < 0.2:
        requests["ephemeral-storage"] = f"{chance.choice((1, 5, 30))}Gi"
    limits: dict[str, str] = {}
    if chance.random() < 0.15:
        limits[PLUGIN_RESOURCE] = chance.choice(("1", "2"))
    if chance.random() < 0.1 and {"cpu", "memory"} & requests.keys():
        limits["hugepages-2Mi"] = chance.choice(("64Mi", "256Mi"))
    return {**requests, **limits}, limits


def _pod(name: str, chance: random.Random, claim: Object | None) -> Object:
    requests, limits = _amounts(chance)
    main = container("main", limits=limits, requests=requests)
    spec: dict[str, Any] = {"containers": [main]}
    if claim is not None:
        name_of_claim = claim["metadata"]["name"]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name_of_claim}]
        main["resources"]["claims"] = [{"name": "gpu"}]
    if chance.random() < 0.2:
        first = container("first", requests={"cpu": f"{chance.choice((1, 2, 4))}"})
        sidecar = container("proxy", requests={"cpu": "200m", "memory": "100Mi"})
        spec["initContainers"] = [first, {**sidecar, "restartPolicy": "Always"}]
    if chance.random() < 0.1:
        spec["runtimeClassName"] = OVERHEAD
    if chance.random() < 0.2:
        spec["nodeSelector"] = {"zone": chance.choice(("a", "b"))}
    if chance.random() < 0.2:
        spec["tolerations"] = [{"key": "reserved", "operator": "Exists"}]
    return api_object("Pod", name, spec=spec)
