"""The resource names of NVIDIA's domain that are no parts of GPUs: another device plugin offers them, such as one of NICs.

A name itself says nothing. An administrator chooses those of NVIDIA's network operator, such as `nvidia.com/rail_0`. No
release of NVIDIA's device plugin lets them choose one for GPUs: 0.12.0 to 0.20.0 ignore `resources` in its configuration, and
each `rename` but `<name>.shared`. A fork may: that of Volcano reads `resources`.

Source: Mellanox/network-operator, resourceName of the SR-IOV and RDMA device plugins; NVIDIA/k8s-device-plugin v0.20.0
api/config/v1/config.go (DisableResourceNamingInConfig), which cmd/nvidia-device-plugin/main.go calls, and
docs/gpu-feature-discovery; volcano-sh/devices v1.1.0 cmd/nvidia-device-plugin/main.go, which does not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube.api.core import Node
from kube.quantity import ZERO
from migration.cluster.node_devices import COUNT, GPU
from migration.cluster.workloads import Workload
from migration.legacy.remaining import pods_or_template, requested_names
from translation.reading.arbiter import is_handled
from translation.vocabularies.nvidia import DISCOVERY_PREFIX, MIG_PREFIX, is_replica_name


def names_of_other_plugins(
    nodes: Sequence[Node], workloads: Iterable[Workload], renamed_keys: Mapping[str, str]
) -> frozenset[str]:
    """Return the names of NVIDIA's domain that nodes offer, and that stand neither for GPUs nor for parts of them.

    There is evidence for each: all GPUs of a node with the name are offered whole; or a pod requests it beside a whole GPU or
    MIG device, which has no use for a part.

    Args:
        nodes: The nodes of the cluster.
        workloads: Its workloads.
        renamed_keys: Resource name in pods to the name that it stands for.
    """
    offered = [(node, frozenset(_unknown_names(node, renamed_keys))) for node in nodes]
    names = frozenset[str]().union(*(own for _, own in offered))
    if not names:
        return names
    proved = frozenset[str]().union(
        *(own for node, own in offered if _offers_all_whole(node)),
        *(_beside_whole_devices(workload, renamed_keys) for workload in workloads),
    )
    return names & proved


def _unknown_names(node: Node, renamed_keys: Mapping[str, str]) -> Iterator[str]:
    for name, amount in (node.status.allocatable or {}).items():
        is_known = name in renamed_keys or is_handled(name)
        if name.startswith(DISCOVERY_PREFIX) and not is_known and amount > ZERO:
            yield name


def _offers_all_whole(node: Node) -> bool:
    """Return True if a node offers as many GPUs and MIG devices as it has: no parts of one under another name.

    Its labels have the number that there is.
    """
    amounts = node.status.allocatable or {}
    counts = {
        label.removesuffix(COUNT): number
        for label, number in node.labels.items()
        if label.endswith(COUNT) and label.startswith((GPU, MIG_PREFIX))
    }
    return GPU in counts and all(
        number == str(amounts.get(name, ZERO)) for name, number in counts.items()
    )


def _beside_whole_devices(workload: Workload, renamed_keys: Mapping[str, str]) -> Iterator[str]:
    """Yield the names that a pod of a workload requests beside whole GPUs or MIG devices."""
    for source in pods_or_template(workload):
        names = requested_names(source)
        if any(_is_whole_device(renamed_keys.get(name, name)) for name in names):
            yield from names


def _is_whole_device(name: str) -> bool:
    return name == GPU or (name.startswith(MIG_PREFIX) and not is_replica_name(name))
