"""API resources and their URL paths."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from kube.api import network_attachments, own_kinds, policy_reports, tensor_fusion
from kube.api.foreign_quotas import FOREIGN_QUOTAS, LIMITING
from kube.names import GROUP


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as it appears in URLs; the core group is empty."""

    group: str = ""
    version: str
    plural: str
    namespaced: bool = True

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection, an object or a subresource.

        >>> Resource(version="v1", plural="pods").path(namespace="a", name="b", subresource="status")
        '/api/v1/namespaces/a/pods/b/status'
        """
        root = f"apis/{self.group}/{self.version}" if self.group else f"api/{self.version}"
        scope = ["namespaces", namespace] if self.namespaced and namespace else []
        parts = [
            *scope,
            self.plural,
            *([name] if name else []),
            *([subresource] if subresource else []),
        ]
        return "/".join(["", root, *(quote(part, safe="") for part in parts)])


_DRA: Final = "resource.k8s.io"
_APPS: Final = "apps"
_BATCH: Final = "batch"

LIMIT_RANGES: Final = Resource(version="v1", plural="limitranges")
NAMESPACES: Final = Resource(version="v1", plural="namespaces", namespaced=False)
NODES: Final = Resource(version="v1", plural="nodes", namespaced=False)
PODS: Final = Resource(version="v1", plural="pods")
RESOURCE_QUOTAS: Final = Resource(version="v1", plural="resourcequotas")
SECRETS: Final = Resource(version="v1", plural="secrets")
EVENTS: Final = Resource(group="events.k8s.io", version="v1", plural="events")

DEVICE_TAINT_RULES: Final = Resource(
    group=_DRA, version="v1", plural="devicetaintrules", namespaced=False
)
DEVICE_CLASSES: Final = Resource(group=_DRA, version="v1", plural="deviceclasses", namespaced=False)
RESOURCE_SLICES: Final = Resource(
    group=_DRA, version="v1", plural="resourceslices", namespaced=False
)
RESOURCE_CLAIMS: Final = Resource(group=_DRA, version="v1", plural="resourceclaims")
RESOURCE_CLAIM_TEMPLATES: Final = Resource(
    group=_DRA, version="v1", plural="resourceclaimtemplates"
)

WORKLOADS: Final = (
    Resource(group=_APPS, version="v1", plural="daemonsets"),
    Resource(group=_APPS, version="v1", plural="deployments"),
    Resource(group=_APPS, version="v1", plural="replicasets"),
    Resource(group=_APPS, version="v1", plural="statefulsets"),
    Resource(group=_BATCH, version="v1", plural="cronjobs"),
    Resource(group=_BATCH, version="v1", plural="jobs"),
)
"""The built-in workload resources."""

MUTATING_WEBHOOK_CONFIGURATIONS: Final = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="mutatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING_WEBHOOK_CONFIGURATIONS: Final = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="validatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING_ADMISSION_POLICIES: Final = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="validatingadmissionpolicies",
    namespaced=False,
)
VALIDATING_ADMISSION_POLICY_BINDINGS: Final = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="validatingadmissionpolicybindings",
    namespaced=False,
)
MUTATING_ADMISSION_POLICIES: Final = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="mutatingadmissionpolicies",
    namespaced=False,
)
MUTATING_ADMISSION_POLICY_BINDINGS: Final = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="mutatingadmissionpolicybindings",
    namespaced=False,
)
WEBHOOK_CONFIGURATIONS: Final = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)
"""The resources that hold caBundles."""

CONFIG_MAPS: Final = Resource(version="v1", plural="configmaps")
ENDPOINT_SLICES: Final = Resource(group="discovery.k8s.io", version="v1", plural="endpointslices")
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    group="apiextensions.k8s.io", version="v1", plural="customresourcedefinitions", namespaced=False
)


def own_resource(kind: own_kinds.OwnKind) -> Resource:
    """Return the resource of a kind of ours."""
    return Resource(
        group=GROUP, version=kind.version, plural=kind.plural, namespaced=kind.namespaced
    )


DEVICE_COMPATIBILITY_POLICIES: Final = own_resource(own_kinds.DEVICE_COMPATIBILITY_POLICY)
ALLOCATOR_OWNERSHIPS: Final = own_resource(own_kinds.ALLOCATOR_OWNERSHIP)
DEVICE_QUOTAS: Final = own_resource(own_kinds.DEVICE_QUOTA)
DEVICE_TRANSLATION_PROFILES: Final = own_resource(own_kinds.DEVICE_TRANSLATION_PROFILE)

NETWORK_ATTACHMENTS: Final = Resource(
    group=network_attachments.GROUP,
    version=network_attachments.VERSION,
    plural=network_attachments.PLURAL,
)
"""Multus' definitions of networks."""

WORKLOAD_PROFILES: Final = Resource(
    group=tensor_fusion.GROUP, version=tensor_fusion.VERSION, plural=tensor_fusion.PLURAL
)
"""tensor-fusion's, which few clusters have."""

FOREIGN_QUOTA_RESOURCES: Final[Mapping[tuple[str, str], Resource]] = {
    (quota.api_version, quota.kind): Resource(
        group=quota.group,
        version=quota.version,
        plural=quota.plural,
        namespaced=quota.namespaced,
    )
    for quota in FOREIGN_QUOTAS
}
"""(apiVersion, kind) to the quotas and queues of other schedulers."""
NAMESPACE_QUOTA_RESOURCES: Final[Mapping[tuple[str, str], Resource]] = {
    (quota.api_version, quota.kind): FOREIGN_QUOTA_RESOURCES[quota.api_version, quota.kind]
    for quota in LIMITING
}
"""The quotas and queues that limit a namespace, by (apiVersion, kind)."""

PRIORITY_CLASSES: Final = Resource(
    group="scheduling.k8s.io", version="v1", plural="priorityclasses", namespaced=False
)
POD_GROUPS: Final = Resource(group="scheduling.k8s.io", version="v1beta1", plural="podgroups")
SIGS_POD_GROUPS: Final = Resource(
    group="scheduling.sigs.k8s.io", version="v1alpha1", plural="podgroups"
)
"""Koordinator's, and those of the coscheduling plugin until v0.24."""
COSCHEDULING_POD_GROUPS: Final = Resource(
    group="scheduling.x-k8s.io", version="v1alpha1", plural="podgroups"
)
VOLCANO_POD_GROUPS: Final = Resource(
    group="scheduling.volcano.sh", version="v1beta1", plural="podgroups"
)
KAI_POD_GROUPS: Final = Resource(group="scheduling.run.ai", version="v2alpha2", plural="podgroups")
ALL_POD_GROUPS: Final = (
    POD_GROUPS,
    SIGS_POD_GROUPS,
    COSCHEDULING_POD_GROUPS,
    VOLCANO_POD_GROUPS,
    KAI_POD_GROUPS,
)
"""The PodGroups of Kubernetes and of other schedulers."""

REPORTS: Final = Resource(
    group=policy_reports.OPEN_REPORTS_GROUP,
    version=policy_reports.OPEN_REPORTS_VERSION,
    plural="reports",
)
CLUSTER_REPORTS: Final = Resource(
    group=policy_reports.OPEN_REPORTS_GROUP,
    version=policy_reports.OPEN_REPORTS_VERSION,
    plural="clusterreports",
    namespaced=False,
)
POLICY_REPORTS: Final = Resource(
    group=policy_reports.POLICY_REPORTS_GROUP,
    version=policy_reports.POLICY_REPORTS_VERSION,
    plural="policyreports",
)
CLUSTER_POLICY_REPORTS: Final = Resource(
    group=policy_reports.POLICY_REPORTS_GROUP,
    version=policy_reports.POLICY_REPORTS_VERSION,
    plural="clusterpolicyreports",
    namespaced=False,
)
