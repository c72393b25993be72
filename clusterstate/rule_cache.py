"""The cluster as rules read it, kept up to date change by change.

It has three views of the inventory: published devices, the cluster with its allocations, and the idle
cluster, in which nothing is allocated. Changes come in batches, and between two batches everything
stands still: a context is valid until the next batch. Large batches, and changes that concern all
nodes, have the views built anew, which also bounds the memory of the allocator's caches.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from allocator.compatibility.compile import compile_policy
from allocator.features.consumer_limits import ConsumerLimit
from allocator.model.feature_gates import Features
from allocator.model.scheduler_support import SchedulerSupport
from allocator.pods.claims import Name, allocated_drivers
from allocator.search.attempt import AllocatorOptions
from clusterstate.cluster_cache import MAX_BATCH, put
from clusterstate.kinds import Changes, Kind
from clusterstate.scheduler_caches import SchedulerCaches
from kube.api.meta import ApiStruct
from kube.api.policy import DeviceCompatibilityPolicy, effective_policies
from kube.api.resource import DeviceClaim, DeviceClass, ResourceClaim, ResourceSlice
from kube.names import SCHEDULER_NAME
from quotas.device_quotas.allocated_usage import AllocatedUsage, QuotaObjects
from rules.context.context import Context, NamespacedName
from rules.context.inventory import Inventory
from rules.feasibility.enforcement import EnforcementSettings
from rules.feasibility.high_water_mark import ClassStock, HighWaterMark
from rules.feasibility.idle_cluster import IdleCluster

MAX_APPLIED: Final = 100_000
"""Changes of slices and nodes after which the views for rules are built anew, which frees their answers."""


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the cluster that rules read besides devices and claims.

    Attributes:
        namespaces: Namespace to its labels.
        autoscalers: Names of components that may add nodes.
        high_water_mark: The largest inventory ever seen.
        enforcement: Configured enforcement of verdicts about the inventory.
        accepts_mixed_slices: True if the API server accepts slices with devices and sharedCounters,
            as 1.34 does.
    """

    namespaces: Mapping[str, Mapping[str, str]] = {}
    autoscalers: Collection[str] = frozenset()
    high_water_mark: HighWaterMark = HighWaterMark()
    enforcement: EnforcementSettings = EnforcementSettings()
    accepts_mixed_slices: bool = False


_NO_FACTS: Final = ClusterFacts()
"""The facts for queries that validate nothing."""


class RuleCache:
    """A cluster as rules see it. Not for several threads at once."""

    def __init__(
        self,
        features: Features,
        uniform_config_drivers: Collection[str] = (),
        support: SchedulerSupport | None = None,
        *,
        bridge_scheduler: str = SCHEDULER_NAME,
        knows_allocated_requests: bool = True,
    ) -> None:
        """Begin with an empty cluster.

        Args:
            features: Gates of the cluster's scheduler.
            uniform_config_drivers: Drivers that reject contradicting sharing configurations.
            support: The features that the cluster's schedulers evaluate; None if unknown.
            bridge_scheduler: schedulerName of the bridge.
            knows_allocated_requests: Allocated claims have their whole spec; False where they are
                projected to the classes of their requests.
        """
        self._features = features
        self._knows_allocated_requests = knows_allocated_requests
        self._quota_usage: AllocatedUsage | None = None
        self._knows_support = support is not None
        self._consumer_limits: Mapping[str, ConsumerLimit] = {}
        self._uniform_config_drivers = frozenset(uniform_config_drivers)
        self._current = SchedulerCaches(
            features,
            msgspec.structs.replace(
                support or SchedulerSupport(), bridge_scheduler=bridge_scheduler
            ),
        )
        self._objects: dict[Kind, dict[Name, Any]] = {kind: {} for kind in Kind}
        self._classes: dict[str, DeviceClass] = {}
        self._claims: dict[NamespacedName, DeviceClaim] = {}
        self._templates: dict[NamespacedName, DeviceClaim] = {}
        self._allocated: dict[NamespacedName, frozenset[str]] = {}
        self._policies: tuple[DeviceCompatibilityPolicy, ...] = ()
        self._applied = 0
        self._inventory, self._idle = self._build()

    # --- queries ----------------------------------------------------------------------------------

    def context(self, facts: ClusterFacts = _NO_FACTS) -> Context:
        """Return the context of rules; it is valid until the next change.

        Every user of the rules builds its context here: webhook, audit and command line.
        """
        return Context(
            classes=self._classes,
            inventory=self._inventory,
            policies=self._policies,
            features=self._features,
            claims=self._claims,
            templates=self._templates,
            namespaces=facts.namespaces,
            has_all_classes=True,
            idle_cluster=self._idle,
            current_cluster=self._current.without_policies.cluster,
            clusters_by_scheduler=self._current.clusters_by_scheduler,
            support=self._current.support if self._knows_support else None,
            extended_resources=self._current.without_policies.extended_resources,
            allocated_claims=self._allocated,
            high_water_mark=facts.high_water_mark,
            autoscalers=facts.autoscalers,
            enforcement=facts.enforcement,
            accepts_mixed_slices=facts.accepts_mixed_slices,
            uniform_config_drivers=self._uniform_config_drivers,
            owned_drivers=self._current.support.owned_drivers,
            bridge_scheduler=self._current.support.bridge_scheduler,
            quota_book=None
            if self._quota_usage is None or facts is _NO_FACTS
            else self._quota_usage.book(facts.namespaces),
        )

    def stocks(self) -> Mapping[str, ClassStock]:
        """Return the devices of every class, by driver."""
        return {name: self._idle.class_stock(name) for name in sorted(self._classes)}

    def objects(self, kind: Kind) -> Iterator[ApiStruct]:
        """Yield the objects of a kind, by namespace and name."""
        objects = self._objects[kind]
        yield from (objects[key] for key in sorted(objects))

    # --- changes ----------------------------------------------------------------------------------

    def apply(self, changes: Changes) -> None:
        """Apply a batch of changes."""
        if not any(changes.values()):
            return
        slices = self._objects[Kind.SLICE]
        replaced_slices = [
            (slices.get(key), new) for key, new in changes.get(Kind.SLICE, {}).items()
        ]
        for kind, objects in changes.items():
            for key, new in objects.items():
                put(self._objects[kind], key, new)
        for key, claim in changes.get(Kind.CLAIM, {}).items():
            self._replace_claim(key, claim)
        for key, template in changes.get(Kind.TEMPLATE, {}).items():
            put(self._templates, key, None if template is None else template.spec.spec.devices)
        for (_, name), device_class in changes.get(Kind.CLASS, {}).items():
            if device_class is None:
                self._classes.pop(name, None)
            else:
                self._classes[name] = device_class
        if changes.get(Kind.POLICY):
            policies = effective_policies(self._objects[Kind.POLICY].values())
            self._policies = tuple(policies.values())
        self._apply_to_quotas(changes)
        self._current.apply(changes)
        if self._consumer_limits != self._current.consumer_limits:
            self._consumer_limits = self._current.consumer_limits
            self._inventory, self._idle = self._build()
            return
        self._apply_to_inventory(changes, replaced_slices)

    def _apply_to_quotas(self, changes: Changes) -> None:
        """Apply a batch to the use of quotas; without a quota nothing of it is kept."""
        if not self._objects[Kind.QUOTA]:
            self._quota_usage = None
        elif self._quota_usage is None:
            self._quota_usage = AllocatedUsage(self._features)
            self._quota_usage.apply(_quota_objects(self._objects))
        else:
            self._quota_usage.apply(_quota_objects(changes))

    def _replace_claim(self, key: Name, claim: ResourceClaim | None) -> None:
        drivers = allocated_drivers(claim) if claim is not None else None
        devices = claim.spec.devices if claim is not None else None
        if drivers is not None and devices is not None:
            is_known = self._knows_allocated_requests and bool(devices.requests)
            devices = devices if is_known else None
        put(self._claims, key, devices)
        put(self._allocated, key, drivers)

    def _apply_to_inventory(
        self, changes: Changes, slices: list[tuple[ResourceSlice | None, ResourceSlice | None]]
    ) -> None:
        nodes = changes.get(Kind.NODE, {})
        batch = len(nodes) + len(slices)
        self._applied += batch
        is_large = batch > MAX_BATCH or self._applied > MAX_APPLIED
        if is_large or changes.get(Kind.POLICY):
            self._inventory, self._idle = self._build()
            return
        for (_, name), node in nodes.items():
            self._idle.replace_node(name, node)
        for old, new in slices:
            self._inventory.replace_slice(old, new)
            self._idle.replace_slice(old, new)
        if changes.get(Kind.CLASS):
            self._idle.forget_answers()

    def _build(self) -> tuple[Inventory, IdleCluster]:
        self._applied = 0
        slices = [resource_slice for _, resource_slice in sorted(self._objects[Kind.SLICE].items())]
        policies = tuple(map(compile_policy, self._policies))
        idle_cluster = IdleCluster(
            slices=slices,
            nodes=self._objects[Kind.NODE].values(),
            classes=self._classes,
            rules=AllocatorOptions(
                features=self._features,
                policies=policies,
                consumer_limits=self._consumer_limits,
            ),
        )
        return Inventory(slices), idle_cluster


def _quota_objects(objects: Changes) -> QuotaObjects:
    return QuotaObjects(
        classes=objects.get(Kind.CLASS, {}),
        slices=objects.get(Kind.SLICE, {}),
        quotas=objects.get(Kind.QUOTA, {}),
        claims=objects.get(Kind.CLAIM, {}),
    )
