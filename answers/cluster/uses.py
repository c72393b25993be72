"""Use of published devices by claims, and by pods of those that device plugins offer. Pure.

A device plugin's resources are in use as far as running pods request them, as quotas count it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from allocator.cluster.cluster import Cluster
from allocator.model.devices import PublishedDevice
from allocator.model.usage import Consumer
from allocator.pods.claims import Name, allocation_of, pinned_to
from allocator.pods.extended_resource_claim import device_plugin_resources, mapped_resources
from allocator.simulation.model import SimulationResult
from answers.cluster.devices import published_devices
from answers.model.cluster_state import ClusterState, is_pending, is_running
from findings.text import printable
from kube.api.core import Node, Pod
from kube.api.extended_resources import IMPLICIT_PREFIX, extended_resources
from kube.quantity import ZERO, Quantity, format_count
from quotas.resource_quotas.usage import REQUESTS, pod_usage
from translation.reading.arbiter import find_device_keys

USERS_SHOWN: Final = 5
"""Users of devices in one sentence."""

Amounts = Mapping[str, Quantity]
"""Name to amount."""


class ClaimUse(NamedTuple):
    """A device, or a share of it, that a claim uses.

    Attributes:
        capacity: The capacity in use; all of a device that is used as a whole, and nothing of one
            that takes from shared counters.
        counters: The amounts that the device takes from counter sets.
    """

    device: PublishedDevice
    consumer: Consumer
    capacity: Amounts
    counters: Amounts

    @property
    def is_share(self) -> bool:
        """Return True if other claims may use the device, too."""
        return self.consumer.share_id is not None


def claim_uses(cluster: Cluster) -> Iterator[ClaimUse]:
    """Yield the uses of published devices by claims, in order of the devices."""
    for device in published_devices(cluster):
        use = cluster.usage.of(device.id)
        for number, consumer in enumerate(use.consumers if use is not None else ()):
            # A device takes from counters once, however many shares of it are in use.
            counters = {} if number else _counters_of(device)
            yield ClaimUse(device, consumer, _capacity_of(device, consumer), counters)


def _capacity_of(device: PublishedDevice, consumer: Consumer) -> Amounts:
    if device.device.consumes_counters:
        return {}
    if consumer.share_id is not None:
        return consumer.consumed or {}
    return {name: capacity.value for name, capacity in (device.device.capacity or {}).items()}


def _counters_of(device: PublishedDevice) -> Amounts:
    return add_amounts(
        {name: counter.value for name, counter in (consumption.counters or {}).items()}
        for consumption in device.device.consumes_counters or ()
    )


def add_amounts(parts: Iterable[Amounts]) -> dict[str, Quantity]:
    """Return the sum of each amount, sorted by name."""
    total: dict[str, Quantity] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return dict(sorted(total.items()))


def node_of(device: PublishedDevice) -> str:
    """Return the node of a device; empty if several nodes can reach it."""
    return device.slice.spec.node_name or device.device.node_name or ""


def plugin_requests(state: ClusterState) -> Mapping[Name, Amounts]:
    """Return the requests that device plugins serve, not claims, by namespace and name of the running pod."""
    offered = {node.metadata.name: device_plugin_resources(node) for node in state.nodes}
    mapped_names = extended_resources(state.classes.values())
    requests: dict[Name, Amounts] = {}
    for name, pod in sorted(state.pods.items()):
        keys = requested_keys(pod) if is_running(pod) else {}
        if keys:
            by_claims = mapped_resources(pod, mapped_names)
            by_claims -= offered.get(pod.spec.node_name, frozenset())
            requests[name] = {key: amount for key, amount in keys.items() if key not in by_claims}
    return {name: amounts for name, amounts in requests.items() if amounts}


def waiting_pods(state: ClusterState) -> list[Pod]:
    """Return the pods without a node that request devices, sorted by namespace and name."""
    return [
        pod
        for _, pod in sorted(state.pods.items())
        if is_pending(pod) and (pod.spec.resource_claims or requested_keys(pod))
    ]


def requested_keys(pod: Pod) -> Amounts:
    """Return the device keys that a pod requests, also those that name a DeviceClass, and their amounts."""
    amounts = {name.removeprefix(REQUESTS): amount for name, amount in pod_usage(pod).items()}
    keys = {*find_device_keys(amounts.keys())}
    return {
        name: amount
        for name, amount in amounts.items()
        if amount > ZERO and (name in keys or name.startswith(IMPLICIT_PREFIX))
    }


def describe_requests(pod: Pod, state: ClusterState) -> tuple[str, ...]:
    """Return the device keys of a pod, each with its source: `nvidia.com/gpu 1 of a device plugin`."""
    classes = extended_resources(state.classes.values())
    nodes = [node for node in state.nodes if node.metadata.name == pod.spec.node_name]
    by_plugins = {name for node in nodes for name in device_plugin_resources(node)}
    by_claims = mapped_resources(pod, classes) - by_plugins
    return tuple(
        f"{key} {format_count(amount)} of "
        f"{f'DeviceClass {classes[key]}' if key in by_claims else 'a device plugin'}"
        for key, amount in requested_keys(pod).items()
    )


def describe_offers(nodes: Iterable[Node]) -> Mapping[str, str]:
    """Return the offers of device plugins by node: `nvidia.com/gpu 8 of a device plugin`."""
    texts = {}
    for node in nodes:
        allocatable = node.status.allocatable or {}
        keys = sorted(find_device_keys(device_plugin_resources(node)))
        if keys:
            amounts = ", ".join(f"{key} {format_count(allocatable[key])}" for key in keys)
            texts[node.metadata.name] = f"{amounts} of a device plugin"
    return texts


def users_of_node(node: str, state: ClusterState) -> list[str]:
    """Return the pods, or claims without any, that have devices of one node."""
    users: dict[str, None] = {}
    for (namespace, name), claim in sorted(state.claims.items()):
        allocation = allocation_of(claim)
        if allocation is None or pinned_to(allocation) != node:
            continue
        consumers = (claim.status.reserved_for if claim.status else None) or ()
        names = [
            f"{entry.resource.removesuffix('s')} {namespace}/{entry.name}" for entry in consumers
        ]
        users |= dict.fromkeys(names or [f"claim {namespace}/{name}"])
    return list(users)


def count_given_devices(answer: SimulationResult, node: str) -> list[str]:
    """Return the pods of a placement with devices of a node, and their numbers: `head has 1`."""
    numbers = {
        (claim.namespace, claim.name): len(claim.allocation.devices.results or ())
        for claim in answer.claims
        if claim.allocation is not None
    }
    users = []
    for pod in answer.pods:
        names = answer.uses.get((pod.namespace, pod.name), ())
        number = sum(numbers.get((pod.namespace, claim), 0) for claim in names)
        if pod.node == node and number:
            users.append(f"{printable(pod.name)} has {number}")
    return users
