"""PodGroups of Kubernetes and of other schedulers: the fields with the number of pods a group needs.

Sources:
    kubernetes v1.37.1: staging/src/k8s.io/api/scheduling/v1beta1/types.go, PodGroup and PodGroupSpec.
    kubernetes-sigs/scheduler-plugins: apis/scheduling/v1alpha1/types.go (scheduling.sigs.k8s.io until v0.24;
        koordinator-sh/koordinator serves that group still).
    volcano-sh/apis: pkg/apis/scheduling/v1beta1/types.go.
    kai-scheduler/KAI-Scheduler: pkg/apis/scheduling/v2alpha2/podgroup_types.go.
"""

from collections.abc import Mapping
from typing import Any, Final

from kube.api.core import PodResourceClaim, PodResourceClaimStatus
from kube.api.meta import ApiStruct, ObjectMeta

KIND: Final = "PodGroup"


class GangPolicy(ApiStruct, frozen=True, kw_only=True):
    """Source: scheduling/v1beta1 GangSchedulingPolicy."""

    min_count: int = 0


class SchedulingPolicy(ApiStruct, frozen=True, kw_only=True):
    """Source: scheduling/v1beta1 PodGroupSchedulingPolicy; `basic` is an empty object."""

    basic: Mapping[str, Any] | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(ApiStruct, frozen=True, kw_only=True):
    """Source: scheduling/v1beta1 TopologyConstraint: all pods on nodes with one value of a label."""

    key: str = ""


class SchedulingConstraints(ApiStruct, frozen=True, kw_only=True):
    """Source: scheduling/v1beta1 PodGroupSchedulingConstraints."""

    topology: tuple[TopologyConstraint, ...] | None = None


class KaiTopologyConstraint(ApiStruct, frozen=True, kw_only=True):
    """Source: scheduling.run.ai/v2alpha2 TopologyConstraint. A level is a label of nodes."""

    required_topology_level: str = ""
    preferred_topology_level: str = ""


class PodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """The parts of the specs of all PodGroups that we read.

    Attributes:
        scheduling_policy: The policy of a Kubernetes PodGroup.
        scheduling_constraints: The constraints of a Kubernetes PodGroup.
        parent_composite_pod_group_name: The composite group that a Kubernetes PodGroup is a part of; None for none.
        resource_claims: The claims of a Kubernetes PodGroup; PodGroupResourceClaim has the fields of a pod's entry.
        priority_class_name: The PriorityClass of a Kubernetes PodGroup; empty for the default one.
        priority: The priority of a Kubernetes PodGroup; None before the API server has resolved the class.
        min_member: The minimum in PodGroups of the other schedulers.
        topology_constraint: The topology constraint of a KAI PodGroup.
    """

    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    parent_composite_pod_group_name: str | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    priority_class_name: str = ""
    priority: int | None = None
    min_member: int | None = None
    topology_constraint: KaiTopologyConstraint | None = None

    @property
    def gang_minimum(self) -> int:
        """The number of pods of a Kubernetes PodGroup that are placed together; 1 if each is placed by itself."""
        gang = self.scheduling_policy.gang if self.scheduling_policy is not None else None
        return 1 if gang is None else max(1, gang.min_count)


class PodGroupStatus(ApiStruct, frozen=True, kw_only=True):
    """Source: scheduling/v1beta1 PodGroupStatus; PodGroupResourceClaimStatus has the fields of a pod's status."""

    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None


class PodGroup(ApiStruct, frozen=True, kw_only=True):
    """A PodGroup of any of these API groups."""

    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def group(self) -> str:
        """Its API group."""
        return self.api_version.partition("/")[0]
