"""The parts of core/v1, apps/v1 and batch/v1 that we read."""

from collections.abc import Mapping

from kube.api.meta import ApiStruct, ObjectMeta
from kube.quantity import Quantity


class ResourceClaimUse(ApiStruct, frozen=True, kw_only=True):
    """An entry of `container.resources.claims`; Source: core/v1 ResourceClaim.

    An empty `request` makes every device of the claim available to the container.
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
    """The part of core/v1 EnvVar that we read; `value_from` is not ours to follow."""

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
        """The limits, empty when there are none."""
        return (self.resources.limits if self.resources else None) or {}

    @property
    def requests(self) -> Mapping[str, Quantity]:
        """The requests, empty when there are none."""
        return (self.resources.requests if self.resources else None) or {}

    @property
    def claims(self) -> tuple[ResourceClaimUse, ...]:
        """The claims that this container uses."""
        return (self.resources.claims if self.resources else None) or ()


class PodResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """An entry of `pod.spec.resourceClaims`; exactly one of the two sources is set."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 PodSpec that we read."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    node_name: str = ""
    scheduler_name: str = ""
    node_selector: Mapping[str, str] | None = None
    runtime_class_name: str | None = None


class PodResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Which claim kube-controller-manager made for an entry of `spec.resourceClaims`."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 PodStatus that we read."""

    phase: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None


class Pod(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 Pod that we read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations, empty when there are none."""
        return self.metadata.annotations or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels, empty when there are none."""
        return self.metadata.labels or {}


class ResourceQuotaSpec(ApiStruct, frozen=True, kw_only=True):
    """The part of core/v1 ResourceQuotaSpec that we read."""

    hard: Mapping[str, Quantity] | None = None


class ResourceQuota(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 ResourceQuota that we read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()


class Namespace(ApiStruct, frozen=True, kw_only=True):
    """The parts of core/v1 Namespace that we read."""

    metadata: ObjectMeta = ObjectMeta()
