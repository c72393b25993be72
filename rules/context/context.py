"""The context of rules besides the object itself: a snapshot of a cluster, or of files."""

from collections.abc import Collection, Mapping

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.model.scheduler_support import SchedulerSupport
from kube.api.core import ResourceQuota
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import DeviceClaim, DeviceClass
from kube.names import SCHEDULER_NAME
from quotas.device_quotas.book import QuotaBook
from rules.context.inventory import Inventory
from rules.feasibility.enforcement import EnforcementSettings
from rules.feasibility.high_water_mark import HighWaterMark
from rules.feasibility.idle_cluster import IdleCluster

NamespacedName = tuple[str, str]
"""Namespace and name."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a cluster.

    Attributes:
        classes: Known DeviceClasses by name.
        inventory: Published devices. An inventory from files counts as the largest ever seen.
        policies: DeviceCompatibilityPolicies in force.
        features: Feature gates of the cluster.
        claims: Requested devices of each ResourceClaim.
        templates: Requested devices of each ResourceClaimTemplate.
        namespaces: Namespace to its labels.
        has_all_classes: A class missing from `classes` does not exist.
        has_all_claims: A claim or template missing from `claims` or `templates` does not exist.
        applied_together: All objects belong together, as in files that are applied at once.
            In a running cluster the slices of a pool come one by one, so a slice that contradicts
            another may be the first half of a change.
        idle_cluster: The cluster without allocations; None to skip infeasibility checks.
        current_cluster: The cluster with its allocations, without policies, which kube-scheduler
            ignores; None to skip checks of what fits now.
        clusters_by_scheduler: The same with policies, by name of a scheduler that evaluates them.
        support: The features that the cluster's schedulers evaluate; None if unknown, as with
            files.
        allocated_claims: ResourceClaims that have an allocation, with the drivers of their devices.
        extended_resources: Name of an extended resource to the name of the class that maps it.
        high_water_mark: The largest inventory ever seen.
        autoscalers: Names of components that may add nodes: a cluster autoscaler, Karpenter.
        enforcement: Configured enforcement of verdicts about the inventory.
        uniform_config_drivers: Drivers that reject contradicting sharing configurations.
        accepts_mixed_slices: The API server accepts slices with devices and sharedCounters, as 1.34 does.
        owned_drivers: Drivers that the bridge allocates in place of kube-scheduler.
        bridge_scheduler: schedulerName of the bridge, which pods get whose claims are of owned drivers.
        quota_book: DeviceQuotas, and what allocated claims use of them; None without quotas.
        resource_quotas: The ResourceQuotas on devices in the object's namespace, with their use; empty where
            others charge them, as with files.
    """

    classes: Mapping[str, DeviceClass] = {}
    inventory: Inventory = msgspec.field(default_factory=Inventory)
    policies: tuple[DeviceCompatibilityPolicy, ...] = ()
    features: Features = Features()
    claims: Mapping[NamespacedName, DeviceClaim] = {}
    templates: Mapping[NamespacedName, DeviceClaim] = {}
    namespaces: Mapping[str, Mapping[str, str]] = {}
    has_all_classes: bool = False
    has_all_claims: bool = False
    applied_together: bool = False
    idle_cluster: IdleCluster | None = None
    current_cluster: Cluster | None = None
    clusters_by_scheduler: Mapping[str, Cluster] = {}
    support: SchedulerSupport | None = None
    allocated_claims: Mapping[NamespacedName, frozenset[str]] = {}
    extended_resources: Mapping[str, str] = {}
    high_water_mark: HighWaterMark = HighWaterMark()
    autoscalers: Collection[str] = frozenset()
    enforcement: EnforcementSettings = EnforcementSettings()
    uniform_config_drivers: frozenset[str] = frozenset()
    accepts_mixed_slices: bool = False
    owned_drivers: frozenset[str] = frozenset()
    bridge_scheduler: str = SCHEDULER_NAME
    quota_book: QuotaBook | None = None
    resource_quotas: tuple[ResourceQuota, ...] = ()
