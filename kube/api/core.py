"""Types of core/v1, as far as Drawbridge reads them."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import field

from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.node_selector import NodeSelector, NodeSelectorTerm
from kube.quantity import Quantity


class ResourceClaimUse(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 ResourceClaim, an entry of `container.resources.claims`.

    With an empty `request` the container gets every device of the claim.
    """

    name: str = ""
    request: str = ""


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 ResourceRequirements."""

    limits: Mapping[str, Quantity] | None = None
    requests: Mapping[str, Quantity] | None = None
    claims: tuple[ResourceClaimUse, ...] | None = None


class SecurityContext(ApiStruct, frozen=True, kw_only=True):
    """The part of core/v1 SecurityContext that we read."""

    privileged: bool | None = None


class EnvVar(ApiStruct, frozen=True, kw_only=True):
    """The part of core/v1 EnvVar that we read; `value_from` is not resolved."""

    name: str = ""
    value: str = ""


class Container(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 Container that we read."""

    name: str = ""
    resources: ResourceRequirements | None = None
    security_context: SecurityContext | None = None
    env: tuple[EnvVar, ...] | None = None
    restart_policy: str | None = None

    @property
    def limits(self) -> Mapping[str, Quantity]:
        """The limits; may be empty."""
        return (self.resources.limits if self.resources else None) or {}

    @property
    def requests(self) -> Mapping[str, Quantity]:
        """The requests; may be empty."""
        return (self.resources.requests if self.resources else None) or {}

    @property
    def claims(self) -> tuple[ResourceClaimUse, ...]:
        """The claims of the container; may be empty."""
        return (self.resources.claims if self.resources else None) or ()


class PodResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 PodResourceClaim; either a claim or a template is named."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class Toleration(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 Toleration; an empty operator is `Equal`."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PreferredSchedulingTerm(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 PreferredSchedulingTerm."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 NodeAffinity."""

    required: NodeSelector | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredSchedulingTerm, ...] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ApiStruct, frozen=True, kw_only=True):
    """The part of core/v1 Affinity that we read.

    Attributes:
        pod_affinity: Not evaluated; only its presence matters.
        pod_anti_affinity: Not evaluated either; only its presence matters.
    """

    node_affinity: NodeAffinity | None = None
    pod_affinity: Mapping[str, Any] | None = None
    pod_anti_affinity: Mapping[str, Any] | None = None


class PodSchedulingGate(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 PodSchedulingGate; a pod that has any is not scheduled."""

    name: str = ""


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 PodSpec that we read."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[PodSchedulingGate, ...] | None = None
    node_selector: Mapping[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    runtime_class_name: str | None = None
    resources: ResourceRequirements | None = None
    overhead: Mapping[str, Quantity] | None = None
    active_deadline_seconds: int | None = None
    host_network: bool | None = None
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    scheduling_group: Mapping[str, Any] | None = None
    termination_grace_period_seconds: int | None = None


class PodResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """The claim that kube-controller-manager created for an entry of `spec.resourceClaims`."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 ContainerExtendedResourceRequest."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """The claim that the scheduler created for the pod's extended resources."""

    request_mappings: tuple[ContainerExtendedResourceRequest, ...] | None = None
    resource_claim_name: str = ""


class PodCondition(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 PodCondition that we read."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases of a pod whose containers have all ended and are not started again."""


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 PodStatus that we read."""

    phase: str = ""
    nominated_node_name: str = ""
    conditions: tuple[PodCondition, ...] | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 Pod that we read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations; may be empty."""
        return self.metadata.annotations or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels; may be empty."""
        return self.metadata.labels or {}


_UNSCHEDULABLE: Final = frozenset({"Unschedulable", "SchedulerError"})
"""The second where an attempt ended with an error, such as a selector that fails."""


def is_unschedulable(pod: Pod) -> bool:
    """Return True if the scheduler has tried to place the pod, and found no node or failed."""
    return any(
        condition.type == "PodScheduled"
        and condition.status == "False"
        and condition.reason in _UNSCHEDULABLE
        for condition in (pod.status.conditions if pod.status is not None else None) or ()
    )


def is_gated(pod: Pod) -> bool:
    """Return True if scheduling gates hold the pod back from the scheduler."""
    return any(
        condition.type == "PodScheduled" and condition.reason == "SchedulingGated"
        for condition in (pod.status.conditions if pod.status is not None else None) or ()
    )


class Taint(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 Taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 NodeSpec that we read."""

    taints: tuple[Taint, ...] | None = None
    unschedulable: bool = False


class NodeStatus(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 NodeStatus that we read.

    Attributes:
        allocatable: The amounts for pods, of healthy devices alone.
        capacity: The amounts of all devices; only a migration reads it.
        declared_features: Names of the kubelet's features, sorted.
    """

    allocatable: Mapping[str, Quantity] | None = None
    capacity: Mapping[str, Quantity] | None = None
    declared_features: tuple[str, ...] | None = None


class Node(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 Node that we read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels; may be empty."""
        return self.metadata.labels or {}


class ScopedResourceSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 ScopedResourceSelectorRequirement."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class ScopeSelector(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 ScopeSelector."""

    match_expressions: tuple[ScopedResourceSelectorRequirement, ...] | None = None


class ResourceQuotaSpec(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 ResourceQuotaSpec."""

    hard: Mapping[str, Quantity] | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 ResourceQuotaStatus."""

    hard: Mapping[str, Quantity] | None = None
    used: Mapping[str, Quantity] | None = None


class ResourceQuota(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 ResourceQuota that we read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class LimitRangeItem(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 LimitRangeItem."""

    type: str = ""
    min: Mapping[str, Quantity] | None = None
    max: Mapping[str, Quantity] | None = None
    default: Mapping[str, Quantity] | None = None
    default_request: Mapping[str, Quantity] | None = None
    max_limit_request_ratio: Mapping[str, Quantity] | None = None


class LimitRangeSpec(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 LimitRangeSpec."""

    limits: tuple[LimitRangeItem, ...] | None = None


class LimitRange(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 LimitRange that we read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label of every namespace with its name."""


class Namespace(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 Namespace that we read."""

    metadata: ObjectMeta = ObjectMeta()
