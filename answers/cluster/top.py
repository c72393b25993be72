"""Devices in use by node, namespace, pod and device, and the pods that wait for some. Pure.

Devices and their amounts are those of `inventory`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.devices import DeviceId, Pool, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.scheduler_support import SchedulerSupport
from allocator.pods.claims import Name, claim_name, consuming_pods, pod_claims
from allocator.pods.extended_resource_claim import device_plugin_resources
from answers.cluster.devices import DeviceState, device_state, published_devices
from answers.cluster.inventory import (
    Amount,
    capacity_amounts,
    counter_amounts,
    devices_of_pool,
    published_pools,
)
from answers.cluster.pending_workload import group_pending_pods, waiting_reason
from answers.cluster.uses import (
    Amounts,
    ClaimUse,
    add_amounts,
    claim_uses,
    node_of,
    plugin_requests,
    waiting_pods,
)
from answers.cluster.why import scheduler_message
from answers.model.cluster_state import ClusterState, is_pending, is_running
from findings.text import count_text
from kube.api.core import Node
from kube.quantity import ZERO, Quantity
from translation.cluster.snapshot import TranslationSnapshot
from translation.reading.arbiter import find_device_keys

MAX_EXPLAINED: Final = 20
"""Groups of equal waiting pods that are explained; each is a search of its own."""


MAX_NAMED: Final = 3
"""Devices that a note names."""


class AmountInUse(msgspec.Struct, frozen=True, kw_only=True):
    """An amount, and the part of it in use.

    Attributes:
        largest: The largest amount of one device or counter set.
    """

    used: Quantity
    total: Quantity
    largest: Quantity


class DriverOnNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices of one driver on a node.

    Attributes:
        devices: The number of devices.
        in_use: Those that claims use, as a whole or in shares.
        shares: The number of shares in use.
        capacity: The capacity of devices that take nothing from shared counters.
        counters: The amounts of counter sets, from which partitions take.
    """

    driver: str
    devices: int
    in_use: int
    shares: int
    capacity: Mapping[str, AmountInUse]
    counters: Mapping[str, AmountInUse]


class PluginOnNode(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that a device plugin offers on a node, and the requests of the pods there."""

    resource: str
    used: Quantity
    total: Quantity


class NodeUse(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a node.

    Attributes:
        name: Empty for devices that several nodes can reach.
    """

    name: str
    drivers: tuple[DriverOnNode, ...]
    plugins: tuple[PluginOnNode, ...]


class DriverUse(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one driver that claims use.

    Attributes:
        devices: The number of devices that are used as a whole or in shares.
        shares: The number of shares among these.
        capacity: The capacity in use; of a device that is used as a whole all that it has.
        counters: The amounts that partitions take from counter sets.
    """

    driver: str
    devices: int
    shares: int
    capacity: Amounts
    counters: Amounts


class NamespaceUse(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a namespace.

    Attributes:
        pods: The number of its running pods that use devices.
        waiting: The number of its pods that wait for a node, and request devices.
        drivers: Its claims' devices.
        plugins: Resource of a device plugin to the requests of its running pods.
    """

    name: str
    pods: int
    waiting: int
    drivers: tuple[DriverUse, ...]
    plugins: Amounts


class PodUse(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a running pod; those of claims that pods share count for each of them.

    Attributes:
        claims: The names of its allocated claims.
        drivers: Their devices.
        plugins: Resource of a device plugin to the requests of the pod.
    """

    namespace: str
    name: str
    node: str
    claims: tuple[str, ...]
    drivers: tuple[DriverUse, ...]
    plugins: Amounts


class DeviceInUse(msgspec.Struct, frozen=True, kw_only=True):
    """A published device.

    Attributes:
        node: Empty where several nodes can reach it.
        shares: The number of shares in use.
        capacity: Its capacity.
        claims: `namespace/name` of the claims that use it.
    """

    driver: str
    pool: str
    name: str
    node: str
    state: DeviceState
    shares: int
    capacity: Mapping[str, AmountInUse]
    claims: tuple[str, ...]


class WaitingPods(msgspec.Struct, frozen=True, kw_only=True):
    """Pods with equal requests that wait for a node.

    Attributes:
        pods: `namespace/name` of each, sorted.
        reason: The reason no node has devices for them, or they wait for something else; else the
            scheduler's words; may be empty.
    """

    pods: tuple[str, ...]
    reason: str


class Top(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The devices in use, each list with the largest use first; a list that was not requested is None."""

    nodes: tuple[NodeUse, ...] | None = None
    namespaces: tuple[NamespaceUse, ...] | None = None
    pods: tuple[PodUse, ...] | None = None
    devices: tuple[DeviceInUse, ...] | None = None
    waiting: tuple[WaitingPods, ...] | None = None


# --- the lists ------------------------------------------------------------------------------------


def top_nodes(state: ClusterState, cluster: Cluster) -> tuple[NodeUse, ...]:
    """Return the nodes with devices."""
    devices: dict[tuple[str, str], list[PublishedDevice]] = {}
    for device in published_devices(cluster):
        devices.setdefault((node_of(device), device.id.driver), []).append(device)
    uses: dict[tuple[str, str], list[ClaimUse]] = {}
    for use in claim_uses(cluster):
        uses.setdefault((node_of(use.device), use.device.id.driver), []).append(use)
    pools: dict[tuple[str, str], list[Pool]] = {}
    for pool in published_pools(cluster).values():
        pools.setdefault((_node_of_pool(pool), pool.id.driver), []).append(pool)
    drivers: dict[str, list[DriverOnNode]] = {}
    for place, own in sorted(devices.items()):
        on_node = _driver_on_node(own, uses.get(place, ()), pools.get(place, ()), cluster)
        drivers.setdefault(place[0], []).append(on_node)
    requests: dict[str, list[Amounts]] = {}
    for name, amounts in plugin_requests(state).items():
        requests.setdefault(state.pods[name].spec.node_name, []).append(amounts)
    plugins = {
        node.metadata.name: _plugins(node, add_amounts(requests.get(node.metadata.name, ())))
        for node in state.nodes
    }
    nodes = (
        NodeUse(name=name, drivers=tuple(drivers.get(name, ())), plugins=plugins.get(name, ()))
        for name in sorted({*drivers, *(name for name, own in plugins.items() if own)})
    )
    return tuple(sorted(nodes, key=_use_of_node, reverse=True))


def top_namespaces(state: ClusterState, cluster: Cluster) -> tuple[NamespaceUse, ...]:
    """Return the namespaces that use devices, or have pods that wait for some."""
    uses: dict[str, list[ClaimUse]] = {}
    for use in claim_uses(cluster):
        uses.setdefault(use.consumer.namespace, []).append(use)
    pods: dict[str, list[PodUse]] = {}
    for pod in top_pods(state, cluster):
        pods.setdefault(pod.namespace, []).append(pod)
    waiting = [pod.metadata.namespace for pod in waiting_pods(state)]
    namespaces = (
        NamespaceUse(
            name=name,
            pods=len(pods.get(name, ())),
            waiting=waiting.count(name),
            drivers=_drivers(uses.get(name, ())),
            plugins=add_amounts(pod.plugins for pod in pods.get(name, ())),
        )
        for name in sorted({*uses, *pods, *waiting})
    )
    return tuple(
        sorted(namespaces, key=lambda entry: _use(entry.drivers, entry.plugins), reverse=True)
    )


def top_pods(state: ClusterState, cluster: Cluster) -> tuple[PodUse, ...]:
    """Return the running pods that use devices."""
    uses: dict[tuple[str, str], list[ClaimUse]] = {}
    for use in claim_uses(cluster):
        uses.setdefault((use.consumer.namespace, use.consumer.claim), []).append(use)
    claims: dict[tuple[str, str], list[str]] = {}
    consumers = _consumers(state)
    for (namespace, claim), _ in sorted(uses.items()):
        for pod_name in consumers.get((namespace, claim), ()):
            claims.setdefault((namespace, pod_name), []).append(claim)
    requests = plugin_requests(state)
    pods = []
    for (namespace, name), pod in sorted(state.pods.items()):
        own_claims = claims.get((namespace, name), []) if is_running(pod) else []
        plugins = requests.get((namespace, name), {})
        if own_claims or plugins:
            own_uses = [use for claim in own_claims for use in uses[namespace, claim]]
            pods.append(
                PodUse(
                    namespace=namespace,
                    name=name,
                    node=pod.spec.node_name,
                    claims=tuple(own_claims),
                    drivers=_drivers(own_uses),
                    plugins=plugins,
                )
            )
    return tuple(sorted(pods, key=lambda entry: _use(entry.drivers, entry.plugins), reverse=True))


def top_devices(cluster: Cluster) -> tuple[DeviceInUse, ...]:
    """Return the published devices, those with the largest use first."""
    uses: dict[DeviceId, list[ClaimUse]] = {}
    for use in claim_uses(cluster):
        uses.setdefault(use.device.id, []).append(use)
    devices = [
        _device_in_use(device, uses.get(device.id, ()), cluster)
        for device in published_devices(cluster)
    ]
    order = (DeviceState.ALLOCATED, DeviceState.SHARED, DeviceState.TAINTED, DeviceState.FREE)
    return tuple(sorted(devices, key=lambda device: (order.index(device.state), -device.shares)))


def top_waiting(
    state: ClusterState,
    features: Features,
    support: SchedulerSupport,
    namespace: str | None,
    snapshot: TranslationSnapshot,
) -> tuple[WaitingPods, ...]:
    """Return the pods that wait for devices, the largest group first; only the first are explained.

    Args:
        support: The schedulers that evaluate policies, which decide what such a pod waits for.
        namespace: None for all.
        snapshot: Its profiles are those in force.
    """
    pods = [pod for pod in waiting_pods(state) if namespace in (None, pod.metadata.namespace)]
    declared_groups = state.groups(list(filter(is_pending, state.pods.values()))).groups
    clusters: dict[bool, Cluster] = {}
    groups = []
    for number, group in enumerate(group_pending_pods(pods, state)):
        reason = scheduler_message(group[0]) or ""
        if number < MAX_EXPLAINED:
            with_policies = support.evaluates_policies(group[0].spec.scheduler_name)
            if with_policies not in clusters:
                clusters[with_policies] = state.cluster(features, with_policies=with_policies)
            cluster = clusters[with_policies]
            explained = waiting_reason(group[0], state, cluster, declared_groups, snapshot)
            reason = explained or reason
        names = sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in group)
        groups.append(WaitingPods(pods=tuple(names), reason=reason))
    return tuple(groups)


def uncounted(state: ClusterState, cluster: Cluster) -> tuple[str, ...]:
    """Return notes on allocations of devices that the lists leave out, or count more than once."""
    uses = {
        DeviceId(pool.driver, pool.pool, device): use
        for pool, devices in cluster.usage.pools.items()
        for device, use in devices.items()
    }
    published_ids = {device.id for device in published_devices(cluster)}
    unpublished = [device for device in sorted(uses) if device not in published_ids]
    doubled = [
        device
        for device, use in sorted(uses.items())
        if device in published_ids and use.exclusive and len(use.consumers) > 1
    ]
    notes = []
    if unpublished:
        claims = {
            (consumer.namespace, consumer.claim)
            for device in unpublished
            for consumer in uses[device].consumers
        }
        pods = {
            (claim[0], pod_name)
            for claim, pod_names in _consumers(state).items()
            if claim in claims
            for pod_name in pod_names
        }
        notes.append(
            f"not counted: {count_text(len(unpublished), 'allocated device')} that no known node has "
            f"({_first(unpublished)}), of {count_text(len(claims), 'claim')} and "
            f"{count_text(len(pods), 'pod')}; drawbridge inventory lists the devices that are published"
        )
    if doubled:
        notes.append(
            f"counted more than once: {count_text(len(doubled), 'device')} allocated as a whole and "
            f"again ({_first(doubled)}); drawbridge verify names the claims"
        )
    return tuple(notes)


def _first(devices: Sequence[DeviceId]) -> str:
    """Return the first of some devices; the rest is a number."""
    names = [str(device) for device in devices[:MAX_NAMED]]
    more = [f"{len(devices) - MAX_NAMED} more"] if len(devices) > MAX_NAMED else []
    return ", ".join([*names, *more])


# --- parts ----------------------------------------------------------------------------------------


def _consumers(state: ClusterState) -> Mapping[Name, Sequence[str]]:
    """Return claims to the names of the pods that use them.

    A claim without reservations, as in a recording of a simulation, is used by the running pods that
    refer to it.
    """
    consumers: dict[Name, list[str]] = {}
    for name, claim in state.claims.items():
        if reserved := [pod.name for pod in consuming_pods(claim)]:
            consumers[name] = reserved
    reserved_claims = frozenset(consumers)
    for (_, pod_name), pod in sorted(state.pods.items()):
        for claim in pod_claims(pod, state.claims, state.templates).held if is_running(pod) else ():
            if claim_name(claim) not in reserved_claims:
                consumers.setdefault(claim_name(claim), []).append(pod_name)
    return consumers


def _drivers(uses: Iterable[ClaimUse]) -> tuple[DriverUse, ...]:
    by_driver: dict[str, list[ClaimUse]] = {}
    for use in uses:
        by_driver.setdefault(use.device.id.driver, []).append(use)
    return tuple(
        DriverUse(
            driver=driver,
            devices=len({use.device.id for use in own}),
            shares=sum(use.is_share for use in own),
            capacity=add_amounts(use.capacity for use in own),
            counters=add_amounts(use.counters for use in own),
        )
        for driver, own in sorted(by_driver.items())
    )


def _driver_on_node(
    devices: Sequence[PublishedDevice],
    uses: Sequence[ClaimUse],
    pools: Iterable[Pool],
    cluster: Cluster,
) -> DriverOnNode:
    """Return the devices of one driver on one node, at least one, and their uses."""
    return DriverOnNode(
        driver=devices[0].id.driver,
        devices=len(devices),
        in_use=len({use.device.id for use in uses}),
        shares=sum(use.is_share for use in uses),
        capacity=_in_use(capacity_amounts(devices, cluster), (use.capacity for use in uses)),
        counters=_in_use(counter_amounts(cluster, pools), (use.counters for use in uses)),
    )


def _in_use(totals: Mapping[str, Amount], used: Iterable[Amounts]) -> dict[str, AmountInUse]:
    amounts = add_amounts(used)
    return {
        name: AmountInUse(used=amounts.get(name, ZERO), total=amount.total, largest=amount.largest)
        for name, amount in totals.items()
    }


def _device_in_use(
    device: PublishedDevice, uses: Sequence[ClaimUse], cluster: Cluster
) -> DeviceInUse:
    used = add_amounts(use.capacity for use in uses)
    claims = (f"{use.consumer.namespace}/{use.consumer.claim}" for use in uses)
    return DeviceInUse(
        driver=device.id.driver,
        pool=device.id.pool,
        name=device.id.device,
        node=node_of(device),
        state=device_state(device, cluster.usage),
        shares=sum(use.is_share for use in uses),
        capacity={
            name: AmountInUse(
                used=used.get(name, ZERO), total=capacity.value, largest=capacity.value
            )
            for name, capacity in sorted((device.device.capacity or {}).items())
        },
        claims=tuple(dict.fromkeys(claims)),
    )


def _node_of_pool(pool: Pool) -> str:
    """Return the node of all devices of a pool; empty if there are several, or none."""
    nodes = {node_of(device) for device in devices_of_pool(pool)}
    return nodes.pop() if len(nodes) == 1 else ""


def _plugins(node: Node, used: Amounts) -> tuple[PluginOnNode, ...]:
    """Return the devices that device plugins offer on a node."""
    offered = node.status.allocatable or {}
    return tuple(
        PluginOnNode(resource=key, used=used.get(key, ZERO), total=offered[key])
        for key in sorted(find_device_keys(device_plugin_resources(node)))
    )


# --- order ----------------------------------------------------------------------------------------


def _use(drivers: Iterable[DriverUse], plugins: Amounts) -> tuple[int, int]:
    """Return the use that lists are sorted by: devices, then requests to device plugins."""
    return sum(driver.devices for driver in drivers), sum(
        amount.nanos for amount in plugins.values()
    )


def _use_of_node(node: NodeUse) -> tuple[int, int]:
    return (
        sum(driver.in_use for driver in node.drivers),
        sum(plugin.used.nanos for plugin in node.plugins),
    )
