"""Quotas and queues of other schedulers; they count device keys of pods and no claims.

Sources:
    koordinator-sh/koordinator: apis/thirdparty/scheduler-plugins/pkg/apis/scheduling (the group of its
        ElasticQuota, and the label of a PodGroup), apis/quota/v1alpha1/elastic_quota_profile_types.go,
        apis/extension/elastic_quota.go and coscheduling.go; pkg/webhook/elasticquota/pod_check.go, GetQuotaName
        (the quota of a pod without a label: one of its namespace, or one whose annotation names it).
    kubernetes-sigs/scheduler-plugins: apis/scheduling/v1alpha1/types.go and
        config/crd/bases/scheduling.x-k8s.io_elasticquotas.yaml (its group since v0.19).
    NexusGPU/tensor-fusion: api/v1/gpuresourcequota_types.go.
    volcano-sh/apis: pkg/apis/scheduling/v1beta1/types.go and labels.go.
    kai-scheduler/KAI-Scheduler: pkg/apis/scheduling/v2/queue_types.go and pkg/common/constants/constants.go;
        its migration guide (`runai/queue` until v0.5).
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kube.api.meta import ApiStruct, ObjectMeta


class ForeignQuotaObject(ApiStruct, frozen=True, kw_only=True):
    """An object of such a kind; the meaning of its spec depends on the kind."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None


class ForeignQuota(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of quota or queue.

    Attributes:
        owner: The project whose scheduler counts by it.
        limits_namespace: It limits the pods of its namespace, whatever labels they have.
    """

    group: str
    version: str
    plural: str
    kind: str
    owner: str
    namespaced: bool = True
    limits_namespace: bool = False

    @property
    def api_version(self) -> str:
        """`apiVersion` as objects write it."""
        return f"{self.group}/{self.version}"


FOREIGN_QUOTAS: Final = (
    ForeignQuota(
        group="scheduling.sigs.k8s.io",
        version="v1alpha1",
        plural="elasticquotas",
        kind="ElasticQuota",
        owner="Koordinator",
        limits_namespace=True,
    ),
    ForeignQuota(
        group="scheduling.x-k8s.io",
        version="v1alpha1",
        plural="elasticquotas",
        kind="ElasticQuota",
        owner="scheduler-plugins",
        limits_namespace=True,
    ),
    ForeignQuota(
        group="quota.koordinator.sh",
        version="v1alpha1",
        plural="elasticquotaprofiles",
        kind="ElasticQuotaProfile",
        owner="Koordinator",
    ),
    ForeignQuota(
        group="tensor-fusion.ai",
        version="v1",
        plural="gpuresourcequotas",
        kind="GPUResourceQuota",
        owner="tensor-fusion",
        limits_namespace=True,
    ),
    ForeignQuota(
        group="scheduling.volcano.sh",
        version="v1beta1",
        plural="queues",
        kind="Queue",
        owner="Volcano",
        namespaced=False,
    ),
    ForeignQuota(
        group="scheduling.run.ai",
        version="v2",
        plural="queues",
        kind="Queue",
        owner="KAI",
        namespaced=False,
    ),
)
"""Few clusters have one of them."""
BY_TYPE: Final[Mapping[tuple[str, str], ForeignQuota]] = {
    (quota.api_version, quota.kind): quota for quota in FOREIGN_QUOTAS
}
"""(apiVersion, kind) to what it is."""
LIMITING: Final = tuple(quota for quota in FOREIGN_QUOTAS if quota.limits_namespace)
"""The kinds that limit a namespace."""
IS_PARENT: Final = "quota.scheduling.koordinator.sh/is-parent"
"""Label of an ElasticQuota that only divides among others; no pod is counted by it directly."""
NAMESPACES: Final = "quota.scheduling.koordinator.sh/namespaces"
"""Annotation of an ElasticQuota with a JSON list of further namespaces that it limits."""

QUOTA_NAMES: Final[Mapping[str, str]] = {
    "quota.scheduling.koordinator.sh/name": "Koordinator",
    "scheduling.volcano.sh/queue-name": "Volcano",
    "kai.scheduler/queue": "KAI",
    "runai/queue": "KAI",
}
"""Label or annotation of a pod that names its quota or queue, to the project that reads it."""
GANG_NAMES: Final[Mapping[str, str]] = {
    "gang.scheduling.koordinator.sh/name": "Koordinator",
    "pod-group.scheduling.sigs.k8s.io": "Koordinator",
    "pod-group.scheduling.sigs.k8s.io/name": "Koordinator",
    "scheduling.x-k8s.io/pod-group": "scheduler-plugins",
    "scheduling.k8s.io/group-name": "Volcano",
    "scheduling.volcano.sh/group-name": "Volcano",
    "pod-group-name": "KAI",
}
"""Label or annotation of a pod that names its gang, to the project that reads it."""
