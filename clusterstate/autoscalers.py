"""Components that decide about pods without seeing their claims, and the signs that they run.

Autoscalers among them add nodes, so that an inventory without a device is no proof that there will be
none. Kueue counts claims only of the DeviceClasses that its configuration names.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kube.api.urls import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, Resource
from translation.cluster.snapshot import ClaimUnawareComponent


class ObjectName(NamedTuple):
    """One object; the namespace of a cluster-scoped one is empty."""

    resource: Resource
    namespace: str
    name: str


INSTALLED: Final[Mapping[ClaimUnawareComponent, ObjectName]] = {
    ClaimUnawareComponent.CLUSTER_AUTOSCALER: ObjectName(
        CONFIG_MAPS, "kube-system", "cluster-autoscaler-status"
    ),
    ClaimUnawareComponent.KARPENTER: ObjectName(
        CUSTOM_RESOURCE_DEFINITIONS, "", "nodepools.karpenter.sh"
    ),
    ClaimUnawareComponent.KUEUE: ObjectName(
        CUSTOM_RESOURCE_DEFINITIONS, "", "clusterqueues.kueue.x-k8s.io"
    ),
}
"""Component to an object that exists where it is installed."""

AUTOSCALERS: Final[Mapping[ClaimUnawareComponent, str]] = {
    ClaimUnawareComponent.CLUSTER_AUTOSCALER: "a cluster autoscaler",
    ClaimUnawareComponent.KARPENTER: "Karpenter",
}
"""Component that may add nodes to its name in messages."""

KUEUE_CONFIGURATION: Final = ObjectName(CONFIG_MAPS, "kueue-system", "kueue-manager-config")
"""The ConfigMap in which Kueue's manifests and its chart keep its configuration."""
