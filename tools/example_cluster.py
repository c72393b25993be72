"""The recorded cluster states of the examples, made with the builders of the stories."""

from collections.abc import Mapping, Sequence
from typing import Final

from e2e.accelerators import (
    accelerator_classes,
    amd_gpus,
    amd_partitions,
    ascend_npus,
    gaudi_devices,
    hygon_devices,
    intel_gpus,
    neuron_devices,
    rebellions_devices,
    tpu_chips,
)
from e2e.inventory import (
    A100_40GB,
    A100_80GB,
    H100_80GB,
    MIG_LAYOUT_40GB,
    Object,
    device_classes,
    dranet_nics,
    example_gpus,
    hami_class,
    hami_gpus,
    kwok_node,
    nic_classes,
    nvidia_classes,
    nvidia_gpus,
    nvidia_mig,
    virtual_functions,
)
from kube.manifests.dump import dump_yaml

MEDIA_LAYOUT: Final = ("1g.10gb", "1g.10gb+me", "2g.20gb", "3g.40gb")
SHARES: Final = 4
"""The driver's option consumable-shares in the cluster that shares GPUs."""


def cluster() -> str:
    """Return a cluster of six nodes that three drivers serve."""
    nodes: Mapping[str, Sequence[Object]] = {
        "nvidia-0": nvidia_gpus("nvidia-0", gpus=4, model=H100_80GB),
        "mig-0": nvidia_mig("mig-0", gpus=2, model=A100_40GB, layout=MIG_LAYOUT_40GB),
        "mig-1": nvidia_mig("mig-1", gpus=1, model=A100_80GB, layout=MEDIA_LAYOUT),
        "hami-0": hami_gpus("hami-0", gpus=2, model=A100_40GB),
        "hami-1": hami_gpus("hami-1", gpus=2, model=A100_80GB),
        "example-0": example_gpus("example-0", gpus=2),
    }
    return dump_yaml([*device_classes(), *_nodes(nodes), *_slices(nodes)])


def sharing_cluster() -> str:
    """Return a cluster of one node with GPUs that NVIDIA's driver hands out in shares."""
    nodes = {"shared-0": [_in_shares(slice_) for slice_ in nvidia_gpus("shared-0", gpus=2)]}
    return dump_yaml([*nvidia_classes(), *_nodes(nodes), *_slices(nodes)])


def nic_cluster() -> str:
    """Return a cluster of three nodes: RDMA NICs beside GPUs, EFA as EC2's p4d has it, SR-IOV."""
    efa = "Elastic Fabric Adapter (EFA)"
    nodes: Mapping[str, Sequence[Object]] = {
        "rdma-0": [*nvidia_gpus("rdma-0", model=H100_80GB), *dranet_nics("rdma-0")],
        "efa-0": [
            *nvidia_gpus("efa-0", model=A100_40GB),
            *dranet_nics("efa-0", nics=4, model=efa, per_root=1),
        ],
        "sriov-0": virtual_functions("sriov-0", "mlnx_rdma"),
    }
    return dump_yaml(
        [
            *nvidia_classes(),
            *nic_classes(),
            *map(_with_huge_pages, _nodes(nodes)),
            *_slices(nodes),
        ]
    )


def koordinator_cluster() -> str:
    """Return a cluster of three nodes, two with a NIC under the PCIe root of every two GPUs."""
    nodes: Mapping[str, Sequence[Object]] = {
        **{
            name: [*hami_gpus(name), *dranet_nics(name, nics=4, per_root=1)]
            for name in ("hami-rdma-0", "hami-rdma-1")
        },
        "hami-0": hami_gpus("hami-0"),
    }
    return dump_yaml([hami_class(), *nic_classes(), *_nodes(nodes), *_slices(nodes)])


def accelerator_cluster() -> str:
    """Return a cluster of a node per vendor with drivers that give whole devices and partitions."""
    nodes: Mapping[str, Sequence[Object]] = {
        "amd-0": amd_gpus("amd-0", gpus=2),
        "amd-1": amd_partitions("amd-1"),
        "intel-0": [*intel_gpus("intel-0"), *gaudi_devices("intel-0", devices=2)],
        "intel-1": intel_gpus("intel-1", module="i915"),
        "tpu-0": tpu_chips("tpu-0", chips=8, topology="2x4"),
        "tpu-1": tpu_chips("tpu-1"),
        "neuron-0": neuron_devices("neuron-0"),
        "rebellions-0": rebellions_devices("rebellions-0"),
        "ascend-0": ascend_npus("ascend-0"),
        "hygon-0": hygon_devices("hygon-0"),
    }
    return dump_yaml([*accelerator_classes(), *_nodes(nodes), *_slices(nodes)])


def _nodes(nodes: Mapping[str, Sequence[Object]]) -> list[Object]:
    return [_with_labels(kwok_node(name)) for name in nodes]


def _with_labels(node: Object) -> Object:
    """Return the node, with the label that HAMi's installation asks for if it serves the node."""
    metadata = node["metadata"]
    if metadata["name"].startswith("hami-"):
        metadata["labels"]["gpu"] = "on"
    return node


def _with_huge_pages(node: Object) -> Object:
    """Return the node, with the memory that RDMA applications map."""
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        amounts["hugepages-2Mi"] = "16Gi"
    return node


def _slices(nodes: Mapping[str, Sequence[Object]]) -> list[Object]:
    return [slice_ for slices in nodes.values() for slice_ in slices]


def _in_shares(slice_: Object) -> Object:
    """Return a slice of gpu.nvidia.com as it is with consumable-shares set to a number.

    Source: dra-driver-nvidia-gpu, feature gate ConsumableShares: memory defaults to nothing, and
    every claim takes one of `shares` unless it says more.
    """
    for device in slice_["spec"]["devices"]:
        memory = device["capacity"]["memory"]
        memory["requestPolicy"] = {
            "default": "0",
            "validRange": {"min": "0", "max": memory["value"], "step": "1Mi"},
        }
        count = str(SHARES)
        device["capacity"]["shares"] = {
            "value": count,
            "requestPolicy": {
                "default": "1",
                "validRange": {"min": "1", "max": count, "step": "1"},
            },
        }
        device["allowMultipleAllocations"] = True
    return slice_
