"""The allocator's view of a cluster for each kind of scheduler.

kube-scheduler ignores DeviceCompatibilityPolicies, so a pod of it gets devices that they keep apart.
The verdict on a pod is that of the scheduler that it names. Which schedulers evaluate policies follows
from the settings and from the drivers that the bridge owns.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.features.consumer_limits import ConsumerLimit, consumer_limits
from allocator.model.feature_gates import Features
from allocator.model.scheduler_support import SchedulerSupport
from allocator.pods.claims import Name
from clusterstate.cluster_cache import ClusterCache, put
from clusterstate.kinds import Changes, Kind
from kube.api.ownership import AllocatorOwnership, driver_settings, owned_drivers
from kube.api.policy import DeviceCompatibilityPolicy

_POLICIES_AND_OWNERSHIP: Final = frozenset({Kind.POLICY, Kind.OWNERSHIP})
"""Kinds that kube-scheduler does not read."""


class SchedulerCaches:
    """Two views of one cluster, with and without policies. Not for several threads at once.

    Attributes:
        without_policies: The cluster as kube-scheduler sees it.
        support: The features that the schedulers evaluate, with the drivers that the bridge owns.
        consumer_limits: The limits of `AllocatorOptions.consumer_limits`; kube-scheduler ignores
            them, too.
        version: Grows with every batch that changes something.
    """

    def __init__(self, features: Features, support: SchedulerSupport) -> None:
        """Begin with an empty cluster.

        Args:
            features: Gates of the cluster's schedulers.
            support: The features that the schedulers evaluate by configuration; owned drivers are
                those of the changes.
        """
        self.version = 0
        self.without_policies = ClusterCache(features)
        self.support = msgspec.structs.replace(support, owned_drivers=frozenset())
        self.consumer_limits: Mapping[str, ConsumerLimit] = {}
        self._policies: dict[Name, DeviceCompatibilityPolicy] = {}
        self._ownerships: dict[Name, AllocatorOwnership] = {}
        self._with_policies = self._build() if self.support.schedulers_with_policies else None

    def for_scheduler(self, name: str) -> ClusterCache:
        """Return the view of a scheduler by its name, as a pod names it."""
        if self._with_policies is not None and self.support.evaluates_policies(name):
            return self._with_policies
        return self.without_policies

    @property
    def clusters_by_scheduler(self) -> Mapping[str, Cluster]:
        """The views of the schedulers that evaluate policies, by their names."""
        names = sorted(self.support.schedulers_with_policies)
        return {name: self.for_scheduler(name).cluster for name in names}

    def apply(self, changes: Changes) -> None:
        """Apply a batch of changes."""
        self.version += any(changes.values())
        for key, policy in changes.get(Kind.POLICY, {}).items():
            put(self._policies, key, policy)
        self.without_policies.apply(
            {kind: new for kind, new in changes.items() if kind not in _POLICIES_AND_OWNERSHIP}
        )
        ownerships = changes.get(Kind.OWNERSHIP, {})
        if ownerships and self._replace_ownerships(ownerships):
            has_policies = bool(self.support.schedulers_with_policies)
            self._with_policies = self._build() if has_policies else None
        elif self._with_policies is not None:
            self._with_policies.apply(
                {kind: new for kind, new in changes.items() if kind is not Kind.OWNERSHIP}
            )

    def _replace_ownerships(self, changes: Mapping[Name, AllocatorOwnership | None]) -> bool:
        """Take over the owned drivers; return True if the view with policies has to be built anew.

        The bridge evaluates policies from the first driver on.
        """
        for key, ownership in changes.items():
            put(self._ownerships, key, ownership)
        before = self.support.schedulers_with_policies, self.consumer_limits
        self.support = msgspec.structs.replace(
            self.support, owned_drivers=owned_drivers(self._ownerships.values())
        )
        self.consumer_limits = consumer_limits(driver_settings(self._ownerships.values()))
        return before != (self.support.schedulers_with_policies, self.consumer_limits)

    def _build(self) -> ClusterCache:
        cache = self.without_policies.fork(self.consumer_limits)
        cache.apply({Kind.POLICY: self._policies})
        return cache
