"""The resource names of NVIDIA's domain that are no parts of GPUs: another device plugin offers them, such as one of NICs.

A name itself says nothing. An administrator chooses those of NVIDIA's network operator, such as `nvidia.com/rail_0`, as
well as those that a configuration of the device plugin of GPUs gives to parts of them.

Source: Mellanox/network-operator, resourceName of the SR-IOV and RDMA device plugins; NVIDIA/k8s-device-plugin
api/config/v1 (resources[].rename) and docs/gpu-feature-discovery.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kube.api.core import Node
from kube.quantity import ZERO
from migration.cluster.node_devices import COUNT, GPU
from migration.cluster.remaining import pods_or_template, requested_names
from migration.cluster.workloads import Workload
from translation.reading.arbiter import NICS, OTHER_VENDORS, VOCABULARIES, is_handled
from translation.vocabularies.nvidia import DISCOVERY_PREFIX, MIG_PREFIX, is_replica_name

_OF_GPUS: Final = [
    entry for name, entry in VOCABULARIES.items() if name not in {*NICS, *OTHER_VENDORS}
]


def names_of_other_plugins(
    nodes: Iterable[Node], workloads: Iterable[Workload], renamed_keys: Mapping[str, str]
) -> dict[str, frozenset[str]]:
    """Return node to the names of NVIDIA's domain that it offers, and that are no parts of its GPUs.

    There is evidence for each: it has no GPUs; or all of its GPUs are offered whole, on this node or on another one with the
    name; or a pod requests it beside a whole GPU or MIG device, which has no use for a part.

    Args:
        nodes: The nodes of the cluster.
        workloads: Its workloads.
        renamed_keys: Resource name in pods to the name that it stands for.
    """
    offered = {
        node.metadata.name: (node, names)
        for node in nodes
        if (names := frozenset(_unknown_names(node, renamed_keys)))
    }
    if not offered:
        return {}
    proved = frozenset[str]().union(
        *(names for node, names in offered.values() if _offers_all_whole(node)),
        *(_beside_whole_devices(workload, renamed_keys) for workload in workloads),
    )
    return {
        name: names & proved if _has_gpus(node, renamed_keys) else names
        for name, (node, names) in offered.items()
    }


def _unknown_names(node: Node, renamed_keys: Mapping[str, str]) -> Iterator[str]:
    for name, amount in (node.status.allocatable or {}).items():
        is_known = name in renamed_keys or is_handled(name)
        if name.startswith(DISCOVERY_PREFIX) and not is_known and amount > ZERO:
            yield name


def _has_gpus(node: Node, renamed_keys: Mapping[str, str]) -> bool:
    """Return True if a node has a sign of GPUs: a name of theirs, be there none left of it, or a label."""
    names = [renamed_keys.get(name, name) for name in node.status.allocatable or {}]
    return any(label.startswith(GPU) for label in node.labels) or any(
        vocabulary.handles(name) for vocabulary in _OF_GPUS for name in names
    )


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
