"""The allocator's view of a cluster for each kind of scheduler.

kube-scheduler ignores DeviceCompatibilityPolicies, so a pod of it gets devices that they keep apart.
The verdict on a pod is that of the scheduler that it names.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from allocator.cluster.cluster import Cluster
from allocator.features.consumer_limits import ConsumerLimit
from allocator.model.feature_gates import Features
from clusterstate.cluster_cache import ClusterCache
from clusterstate.kinds import Changes, Kind


class SchedulerCaches:
    """Two views of one cluster, with and without policies. Not for several threads at once.

    Attributes:
        without_policies: As kube-scheduler sees the cluster.
        version: Grows with every batch that changes something.
    """

    def __init__(
        self,
        features: Features,
        policy_aware_schedulers: Collection[str] = (),
        consumer_limits: Mapping[str, ConsumerLimit] = MappingProxyType({}),
    ) -> None:
        """Begin with an empty cluster.

        Args:
            features: Gates of the cluster's schedulers.
            policy_aware_schedulers: Names of those that evaluate DeviceCompatibilityPolicies.
            consumer_limits: See `AllocatorOptions`; kube-scheduler ignores them, too.
        """
        self.version = 0
        self.without_policies = ClusterCache(features)
        with_policies = (
            ClusterCache(features, consumer_limits=consumer_limits)
            if policy_aware_schedulers
            else None
        )
        self._with_policies = with_policies
        self._by_scheduler: Mapping[str, ClusterCache] = (
            dict.fromkeys(policy_aware_schedulers, with_policies) if with_policies else {}
        )

    def for_scheduler(self, name: str) -> ClusterCache:
        """Return the view of a scheduler by its name, as a pod names it."""
        return self._by_scheduler.get(name, self.without_policies)

    @property
    def clusters_by_scheduler(self) -> Mapping[str, Cluster]:
        """The views of the schedulers that evaluate policies, by their names."""
        return {name: cache.cluster for name, cache in self._by_scheduler.items()}

    def apply(self, changes: Changes) -> None:
        """Apply a batch of changes."""
        self.version += any(changes.values())
        self.without_policies.apply(
            {kind: objects for kind, objects in changes.items() if kind is not Kind.POLICY}
        )
        if self._with_policies is not None:
            self._with_policies.apply(changes)
