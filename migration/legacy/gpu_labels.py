"""The labels of GPUs that make nodes unready for the Cluster Autoscaler once their device plugin has left. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from findings.text import join_names
from kube.manifests.source import SourceObject
from migration.cluster.evidence import mapping_at, text_map
from migration.legacy.node_selectors import selecting_workloads

KARPENTER_POOL: Final = "karpenter.sh/nodepool"
"""The label of a node of Karpenter."""
GPU_LABELS: Final = (
    "accelerator",
    "aliyun.accelerator/nvidia_name",
    "baidu/nvidia_name",
    "bke.bizflycloud.vn/gpu-node",
    "cherryservers.com/gpu",
    "civo.com/gpu-node",
    "cloud.brightbox.com/gpu-node",
    "cloud.digitalocean.com/gpu-node",
    "cloud.google.com/gke-accelerator",
    "cloud.tencent.com/tke-accelerator",
    "cluster-api/accelerator",
    "hcloud/gpu-node",
    "k8s.amazonaws.com/accelerator",
    "k8s.scw.cloud/gpu",
    "kubernetes.azure.com/accelerator",
    "magnum.openstack.org/gpu",
    "node.kubernetes.ovhcloud.com/gpu",
)
"""The labels by which providers of the Cluster Autoscaler know nodes with GPUs.

Source: cluster-autoscaler-1.36.1, GPULabel() of the folders of cloudprovider/. Other providers have none, but
externalgrpc, which asks its server, and kwok, which reads its configuration.
"""
_CLOUDSTACK_LABEL: Final = "accelerator"
"""The label of CloudStack, which people give to nodes elsewhere, too; AKS did."""
_GCE_LABEL: Final = "cloud.google.com/gke-accelerator"
"""The label of GCE, Equinix Metal and Huawei Cloud."""
GCE_DRA_LABEL: Final = "cloud.google.com/gke-gpu-dra-driver"
"""The label, with `true`, of a node of GCE whose GPUs are from a DRA driver."""
_GPU_KEYS: Final = frozenset(
    {
        *("amd.com/gpu", "gpu.intel.com/xe", "habana.ai/gaudi"),
        *("microsoft.com/directx", "nvidia.com/gpu"),
    }
)
"""The resource names by which a node with such a label is ready. Source: cluster-autoscaler-1.36.1, utils/gpu/gpu.go."""
_MOST_UNREADY: Final = 3
_MOST_UNREADY_SHARE: Final = 0.45
"""The defaults of --ok-total-unready-count and --max-total-unready-percentage."""


def unready_label(node: Mapping[str, Any], leaving: Collection[str] = ()) -> str:
    """Return the label of GPUs that makes a node unready for the Cluster Autoscaler; empty for another node.

    It takes no part in what Karpenter does with a node.

    Args:
        node: The node.
        leaving: Resource names that it does not offer any more once its device plugin has left.
    """
    labels = text_map(node, "metadata", "labels")
    allocatable = text_map(node, "status", "allocatable")
    offered = {key for key in _GPU_KEYS.difference(leaving) if allocatable.get(key, "0") != "0"}
    if offered or KARPENTER_POOL in labels:
        return ""
    provider = str(mapping_at(node, "spec").get("providerID") or "")
    is_of_gce = provider.startswith("gce://") or not provider
    for label in GPU_LABELS:
        is_exempt = (label == _GCE_LABEL and is_of_gce and labels.get(GCE_DRA_LABEL) == "true") or (
            label == _CLOUDSTACK_LABEL and "cloudstack" not in provider
        )
        if label in labels and not is_exempt:
            return label
    return ""


def unready_selector(label: str) -> str:
    """Return the selector of nodes that are unready by a label of GPUs, as kubectl takes it.

    >>> unready_selector("cloud.google.com/gke-accelerator")
    'cloud.google.com/gke-accelerator,cloud.google.com/gke-gpu-dra-driver!=true'
    """
    return f"{label},{GCE_DRA_LABEL}!=true" if label == _GCE_LABEL else label


def is_halted(unready: int, nodes: int) -> bool:
    """Return True if the Cluster Autoscaler halts for so many unready nodes, by its defaults."""
    return unready > _MOST_UNREADY and unready > _MOST_UNREADY_SHARE * nodes


def unready_reason(label: str) -> str:
    """Return the reason that nodes with a label of GPUs are unready for the Cluster Autoscaler."""
    return f"{label} is the label by which Cluster Autoscaler knows nodes with GPUs, and takes them for unready without a device plugin"


def unready_remedy(label: str, objects: Iterable[SourceObject]) -> str:
    """Return the remedy for a label of GPUs, as an order."""
    if label == _GCE_LABEL:
        return (
            f"on GCE set the label {GCE_DRA_LABEL}=true in their node pools with the labels of the switch, or on each node once "
            f"it is switched (kubectl label node NAME {GCE_DRA_LABEL}=true), and leave {label} as it is"
        )
    names = selecting_workloads(objects, label)
    first = (
        f", after {join_names(names)}, which select nodes by it, select another label"
        if names
        else ""
    )
    return (
        f"take it off each node, once it is switched at the latest (kubectl label node NAME {label}-), and out of their node groups "
        f"or pools{first}"
    )
