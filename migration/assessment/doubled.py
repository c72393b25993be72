"""The nodes with devices that a device plugin and a DRA driver both hand out. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from allocator.pods.node_eligibility import is_eligible
from answers.model.cluster_state import ClusterState
from kube.api.core import FINISHED_PHASES, Node, Pod
from migration.assessment.blockers import Blocker
from migration.cluster.device_pods import has_device_keys
from migration.cluster.node_devices import NodeDevices, doubled_nodes
from translation.model.intents import Vocabulary

DOUBLED: Final = (
    "a legacy system (a device plugin or Koordinator) and a DRA driver both hand out the devices there, so two pods may "
    "get the same one"
)
DOUBLED_FIX: Final = (
    "cordon it now; set the label back that keeps one of both from it, such as nvidia.com/gpu.deploy.device-plugin=false "
    "(the GPU Operator may have set it to true: its issue 2288), or that of the driver; let a driver of NICs that Koordinator "
    "hands out, such as dra.net, run on switched nodes only, which have the label drawbridge.internal/dra-driver; where "
    "koordlet has left, delete what it registered (kubectl delete devices.scheduling.koordinator.sh NODE); then take a new snapshot"
)


def check_doubled(devices: Iterable[NodeDevices]) -> Iterator[Blocker]:
    """Yield a blocker for nodes with devices of two systems."""
    if names := doubled_nodes(devices):
        yield Blocker(
            code="handedOutTwice",
            message=DOUBLED,
            fix=DOUBLED_FIX,
            objects=tuple(f"Node//{name}" for name in names),
        )


class DoubledNodes(NamedTuple):
    """Nodes of two systems.

    Attributes:
        in_use: Those that new pods with devices may come to.
        cordoned: The others, which are cordoned.
        tolerating: Cordoned ones of the first to the pods with devices that tolerate it, as `namespace/name`.
    """

    in_use: tuple[str, ...] = ()
    cordoned: tuple[str, ...] = ()
    tolerating: Mapping[str, tuple[str, ...]] = {}


def find_doubled(
    devices: Iterable[NodeDevices], state: ClusterState, vocabularies: Mapping[str, Vocabulary]
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
    )


def _may_come(pod: Pod, node: Node) -> bool:
    """Return True if a node would take a pod that waits, or the next one of its controller."""
    phase = pod.status.phase if pod.status is not None else ""
    is_created_again = any(entry.controller for entry in pod.metadata.owner_references or ())
    if phase in FINISHED_PHASES or (pod.spec.node_name and not is_created_again):
        return False
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return is_eligible(msgspec.structs.replace(pod, spec=spec), node)
