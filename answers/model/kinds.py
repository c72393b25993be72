"""The kinds of objects that commands read, and those of them without a namespace."""

from collections.abc import Mapping
from typing import Final

from allocator.declarations import pod_group
from allocator.declarations.priorities import PriorityClass
from kube.api import network_attachments, tensor_fusion
from kube.api.core import LimitRange, Namespace, Node, Pod, ResourceQuota
from kube.api.foreign_quotas import LIMITING, ForeignQuotaObject
from kube.api.meta import ApiStruct
from kube.api.own_kinds import OWN_KINDS
from kube.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from kube.api.urls import ALL_POD_GROUPS, POD_GROUPS
from kube.names import GROUP

API_VERSION: Final = f"cli.{GROUP}/v1"
"""The `apiVersion` of the command's own documents; it changes when a key is renamed or removed."""
Kinds = Mapping[tuple[str, str], type[ApiStruct]]
"""(apiVersion, kind) to view."""

FOREIGN_QUOTA_KINDS: Final[Kinds] = {
    (quota.api_version, quota.kind): ForeignQuotaObject for quota in LIMITING
}
"""The quotas of other schedulers that limit a namespace."""
KINDS: Final[Kinds] = {
    **{(kind.api_version, kind.kind): kind.view for kind in OWN_KINDS},
    ("resource.k8s.io/v1", "DeviceClass"): DeviceClass,
    ("resource.k8s.io/v1", "DeviceTaintRule"): DeviceTaintRule,
    ("resource.k8s.io/v1", "ResourceClaim"): ResourceClaim,
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): ResourceClaimTemplate,
    ("resource.k8s.io/v1", "ResourceSlice"): ResourceSlice,
    ("v1", "Namespace"): Namespace,
    ("v1", "Node"): Node,
    ("v1", "ResourceQuota"): ResourceQuota,
    ("v1", "LimitRange"): LimitRange,
    (
        network_attachments.API_VERSION,
        network_attachments.KIND,
    ): network_attachments.NetworkAttachmentDefinition,
    (tensor_fusion.API_VERSION, tensor_fusion.KIND): tensor_fusion.WorkloadProfile,
    **FOREIGN_QUOTA_KINDS,
}
"""Kinds that a translation depends on, beside the pods that it translates."""

STATE_KINDS: Final[Kinds] = {
    **KINDS,
    ("v1", "Pod"): Pod,
    ("scheduling.k8s.io/v1", "PriorityClass"): PriorityClass,
    **{
        (f"{resource.group}/{resource.version}", pod_group.KIND): pod_group.PodGroup
        for resource in ALL_POD_GROUPS
    },
    # The version before v1beta1 has the same fields.
    (f"{POD_GROUPS.group}/v1alpha3", pod_group.KIND): pod_group.PodGroup,
}
"""Kinds that allocation depends on."""

CLUSTER_SCOPED: Final = frozenset(
    {
        *(kind.kind for kind in OWN_KINDS if not kind.namespaced),
        "ClusterTrainingRuntime",
        "DeviceClass",
        "DeviceTaintRule",
        "MutatingAdmissionPolicy",
        "Namespace",
        "Node",
        "PriorityClass",
        "ResourceSlice",
        "ValidatingAdmissionPolicy",
    }
)
"""Kinds without a namespace that findings can be about."""
