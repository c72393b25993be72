"""The nodes with devices that a legacy system and a DRA driver both hand out. Pure.

Koordinator and a DRA driver know a NIC by its PCI address, so drivers of any name count. With virtual functions those are
handed out.

Sources: koordinator v1.6 apis/scheduling/v1alpha1 Device (DeviceTopology, VirtualFunction); kubernetes-sigs/dranet
pkg/inventory/db.go, which publishes the attribute that k8s.io/dynamic-resource-allocation/deviceattribute names.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from allocator.pods.claims import allocation_of
from allocator.pods.node_eligibility import is_eligible
from answers.model.cluster_state import ClusterState
from findings.text import join_names
from kube.api.core import FINISHED_PHASES, Node, Pod
from kube.api.resource import ResourceSlice
from migration.assessment.blockers import Blocker
from migration.cluster.device_pods import has_device_keys
from migration.cluster.evidence import list_at, mapping_at
from migration.cluster.node_devices import MAX_PER_NODE, NodeDevices, doubled_nodes
from translation.model.intents import Vocabulary

DOUBLED: Final = (
    "a legacy system (a device plugin or Koordinator) and a DRA driver both hand out the devices there, so two pods may "
    "get the same one"
)
_FIX: Final = (
    "cordon it now; set the label back that keeps one of both from it, such as nvidia.com/gpu.deploy.device-plugin=false "
    "(the GPU Operator may have set it to true: its issue 2288), or that of the driver; let a driver of NICs that Koordinator "
    "hands out, such as dra.net, run on switched nodes only, which have the label drawbridge.internal/dra-driver; where "
    "koordlet has left, delete what it registered (kubectl delete devices.scheduling.koordinator.sh NODE); then take a new snapshot"
)
_NICS: Final = (
    "Koordinator and a DRA driver ({}) both hand out the NICs there, and no other devices, so a claim may get one that a pod of "
    "Koordinator has"
)
_NICS_IN_CLAIMS: Final = "cordon it now, since claims have devices of {} there; then "
_NICS_FIX: Final = (
    "take {0} away there: let its DaemonSet select the label drawbridge.internal/dra-driver, which only switched nodes have; "
    "where koordlet has left, delete what it registered instead (kubectl delete devices.scheduling.koordinator.sh NODE); then take "
    "a new snapshot"
)
_NIC: Final = "rdma"
_PCI_ADDRESS: Final = "resource.kubernetes.io/pciBusID"


class DoubledReason(NamedTuple):
    """The reason that a node of two systems blocks, and the fix."""

    message: str
    fix: str


def doubled_reasons(
    devices: Iterable[NodeDevices], state: ClusterState
) -> dict[str, DoubledReason]:
    """Return node to the reason of each node of two systems.

    New pods of the legacy system may come to one with NICs alone, unless claims have devices of their driver there.

    Args:
        devices: The devices of the cluster's nodes.
        state: The cluster.
    """
    doubled = [entry for entry in devices if entry.is_doubled]
    in_claims = _drivers_in_claims(state) if any(entry.nic_drivers for entry in doubled) else {}
    reasons: dict[str, DoubledReason] = {}
    for entry in doubled:
        reasons[entry.node] = DoubledReason(DOUBLED, _FIX)
        if drivers := join_names(entry.nic_drivers):
            used = in_claims.get(entry.node, set()).intersection(entry.nic_drivers)
            first = _NICS_IN_CLAIMS.format(join_names(sorted(used))) if used else ""
            fix = first + _NICS_FIX.format(drivers)
            reasons[entry.node] = DoubledReason(_NICS.format(drivers), fix)
    return reasons


def _drivers_in_claims(state: ClusterState) -> dict[str, set[str]]:
    """Return node to the drivers of the devices there that claims have."""
    nodes = {
        (slice_.spec.driver, slice_.spec.pool.name): slice_.spec.node_name
        for slice_ in state.slices
        if slice_.spec.node_name
    }
    drivers: dict[str, set[str]] = {}
    for claim in state.claims.values():
        allocation = allocation_of(claim)
        for result in (allocation.devices.results or ()) if allocation is not None else ():
            node = nodes.get((result.driver, result.pool))
            if node is not None:
                drivers.setdefault(node, set()).add(result.driver)
    return drivers


def check_doubled(devices: Iterable[NodeDevices], state: ClusterState) -> Iterator[Blocker]:
    """Yield a blocker for each reason of nodes with devices of two systems."""
    names_of: dict[DoubledReason, list[str]] = {}
    for name, reason in doubled_reasons(devices, state).items():
        names_of.setdefault(reason, []).append(f"Node//{name}")
    for reason, names in names_of.items():
        yield Blocker(
            code="handedOutTwice",
            message=reason.message,
            fix=reason.fix,
            objects=tuple(names),
        )


class DoubledNodes(NamedTuple):
    """Nodes of two systems.

    Attributes:
        in_use: Those that new pods with devices may come to.
        cordoned: The others, which are cordoned.
        tolerating: Cordoned ones of the first to the pods with devices that tolerate it, as `namespace/name`.
        reasons: All of both to the reason of each.
    """

    in_use: tuple[str, ...] = ()
    cordoned: tuple[str, ...] = ()
    tolerating: Mapping[str, tuple[str, ...]] = {}
    reasons: Mapping[str, DoubledReason] = {}


def find_doubled(
    devices: Collection[NodeDevices], state: ClusterState, vocabularies: Mapping[str, Vocabulary]
) -> DoubledNodes:
    """Return the nodes of a device plugin and a DRA driver that both hand out the same devices.

    Pods of DaemonSets, and others that tolerate it, come to a cordoned node, too. A DaemonSet has a pod for each node that
    it selects, so its pods tell.

    Args:
        devices: The devices of the cluster's nodes.
        state: The cluster.
        vocabularies: The vocabularies in force.
    """
    names = doubled_nodes(devices)
    closed = [
        node for node in state.nodes if node.metadata.name in names and node.spec.unschedulable
    ]
    pods = [
        (name, pod)
        for name, pod in (sorted(state.pods.items()) if closed else ())
        if pod.spec.resource_claims or has_device_keys(pod, vocabularies)
    ]
    coming = {
        node.metadata.name: tuple("/".join(name) for name, pod in pods if _may_come(pod, node))
        for node in closed
    }
    cordoned = tuple(name for name in names if coming.get(name) == ())
    return DoubledNodes(
        in_use=tuple(name for name in names if name not in cordoned),
        cordoned=cordoned,
        tolerating={name: own for name, own in coming.items() if own},
        reasons=doubled_reasons(devices, state),
    )


def _may_come(pod: Pod, node: Node) -> bool:
    """Return True if a node would take a pod that waits, or the next one of its controller."""
    phase = pod.status.phase if pod.status is not None else ""
    is_created_again = any(entry.controller for entry in pod.metadata.owner_references or ())
    if phase in FINISHED_PHASES or (pod.spec.node_name and not is_created_again):
        return False
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return is_eligible(msgspec.structs.replace(pod, spec=spec), node)


# --- NICs of Koordinator --------------------------------------------------------------------------


def with_doubled_nics(
    devices: list[NodeDevices],
    koordinator: Mapping[str, Mapping[str, Any]],
    slices: Iterable[ResourceSlice],
) -> list[NodeDevices]:
    """Return nodes with the drivers of NICs that Koordinator hands out there, too.

    Args:
        devices: The devices of the cluster's nodes.
        koordinator: Node to its Device object.
        slices: The slices of all drivers.
    """
    if not koordinator:
        return devices
    addresses = {node: frozenset(_nic_addresses(device)) for node, device in koordinator.items()}
    drivers: dict[str, set[str]] = {}
    for slice_ in slices:
        node = slice_.spec.node_name
        if node and not addresses.get(node, frozenset()).isdisjoint(_slice_addresses(slice_)):
            drivers.setdefault(node, set()).add(slice_.spec.driver)
    return [
        msgspec.structs.replace(
            entry, is_doubled=True, nic_drivers=tuple(sorted(drivers[entry.node]))
        )
        if entry.node in drivers and not entry.is_doubled
        else entry
        for entry in devices
    ]


def _nic_addresses(device: Mapping[str, Any]) -> Iterator[str]:
    """Yield the PCI addresses of the NICs of a Device object, and of their virtual functions."""
    for entry in list_at(device, "spec", "devices")[:MAX_PER_NODE]:
        if not isinstance(entry, Mapping) or entry.get("type") != _NIC:
            continue
        functions = [
            function
            for group in list_at(entry, "vfGroups")[:MAX_PER_NODE]
            if isinstance(group, Mapping)
            for function in list_at(group, "vfs")[:MAX_PER_NODE]
            if isinstance(function, Mapping)
        ]
        for place in (mapping_at(entry, "topology"), *functions):
            address = place.get("busID")
            if isinstance(address, str) and address:
                yield address.lower()


def _slice_addresses(slice_: ResourceSlice) -> Iterator[str]:
    """Yield the PCI addresses of the devices of a slice."""
    for device in slice_.spec.devices or ():
        attribute = (device.attributes or {}).get(_PCI_ADDRESS)
        if attribute is not None and attribute.string:
            yield attribute.string.lower()
