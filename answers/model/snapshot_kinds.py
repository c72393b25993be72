"""The kinds of a snapshot, and the resources that list them."""

from collections.abc import Mapping
from typing import Final

from kube.api.own_kinds import OWN_KINDS
from kube.api.urls import (
    ALL_POD_GROUPS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    FOREIGN_QUOTA_RESOURCES,
    LIMIT_RANGES,
    NAMESPACES,
    NETWORK_ATTACHMENTS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    WORKLOAD_PROFILES,
    Resource,
    own_resource,
)
from kube.api.workloads import pod_path
from translation.reading.workload_kinds import BLUEPRINTS, WORKLOAD_KINDS, WorkloadKind

KINDS: Final[Mapping[str, Resource]] = {
    "Node": NODES,
    "Namespace": NAMESPACES,
    "ResourceQuota": RESOURCE_QUOTAS,
    "LimitRange": LIMIT_RANGES,
    "PriorityClass": PRIORITY_CLASSES,
    "Deployment": Resource(group="apps", version="v1", plural="deployments"),
    "ReplicaSet": Resource(group="apps", version="v1", plural="replicasets"),
    "StatefulSet": Resource(group="apps", version="v1", plural="statefulsets"),
    "DaemonSet": Resource(group="apps", version="v1", plural="daemonsets"),
    "Job": Resource(group="batch", version="v1", plural="jobs"),
    "CronJob": Resource(group="batch", version="v1", plural="cronjobs"),
    "ReplicationController": Resource(version="v1", plural="replicationcontrollers"),
    "Pod": PODS,
    "PersistentVolumeClaim": Resource(version="v1", plural="persistentvolumeclaims"),
    "PersistentVolume": Resource(version="v1", plural="persistentvolumes", namespaced=False),
    "PodDisruptionBudget": Resource(group="policy", version="v1", plural="poddisruptionbudgets"),
    "HorizontalPodAutoscaler": Resource(
        group="autoscaling", version="v2", plural="horizontalpodautoscalers"
    ),
    "DeviceClass": DEVICE_CLASSES,
    "ResourceSlice": RESOURCE_SLICES,
    "ResourceClaim": RESOURCE_CLAIMS,
    "ResourceClaimTemplate": RESOURCE_CLAIM_TEMPLATES,
    "DeviceTaintRule": DEVICE_TAINT_RULES,
    **{kind.kind: own_resource(kind) for kind in OWN_KINDS},
    "NetworkAttachmentDefinition": NETWORK_ATTACHMENTS,
    "WorkloadProfile": WORKLOAD_PROFILES,
    # Koordinator's node agent publishes the devices of each node as one.
    "Device": Resource(
        group="scheduling.koordinator.sh", version="v1alpha1", plural="devices", namespaced=False
    ),
    # Several projects have a PodGroup.
    **{f"PodGroup.{resource.group}": resource for resource in ALL_POD_GROUPS},
    # Of two projects a kind is called Queue.
    **{
        f"{kind}.{resource.group}": resource
        for (_, kind), resource in FOREIGN_QUOTA_RESOURCES.items()
    },
}
"""Kind, of PodGroups and other schedulers' quotas with its group, to resource; owners before what they own. Secrets and ConfigMaps are not among them."""


def _resources(row: WorkloadKind) -> tuple[Resource, ...]:
    """Return the resource of a kind in each of its versions."""
    versions = (version.split("/") for version in row.api_versions)
    return tuple(
        Resource(group=group, version=version, plural=row.resource, namespaced=row.namespaced)
        for group, version in versions
    )


CUSTOM_KINDS: Final[Mapping[str, tuple[Resource, ...]]] = {
    f"{row.kind}.{resources[0].group}": resources
    for row in WORKLOAD_KINDS
    if row.numbers is not None and row.kind not in BLUEPRINTS
    for resources in [_resources(row)]
}
"""Kind and group of a workload of another project, to its resource in each version; without kinds that make no pods."""
ALL_KINDS: Final = (*KINDS, *CUSTOM_KINDS)
"""The kinds of a whole snapshot."""


def resource_name(kind: str) -> str:
    """Return the name of a kind of `ALL_KINDS` among those that could not be read.

    Of other projects' workloads its group is a part: Volcano has `jobs`, too.
    """
    if kind in KINDS:
        return KINDS[kind].plural
    resource, *_ = CUSTOM_KINDS[kind]
    return f"{resource.plural}.{resource.group}"


def _has_template(kind: str) -> bool:
    """Return True if a kind of `ALL_KINDS` has pods or pod templates."""
    if kind in CUSTOM_KINDS:
        return True
    resource = KINDS[kind]
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    return pod_path(version, kind) is not None


TEMPLATE_RESOURCES: Final = frozenset(map(resource_name, filter(_has_template, ALL_KINDS)))
"""The resources with pods or pod templates, by their names among those that could not be read."""
