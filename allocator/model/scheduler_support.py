"""The features that schedulers evaluate and that may decide the verdict on a pod.

kube-scheduler knows neither DeviceCompatibilityPolicies nor the limits of owned drivers. The bridge knows
both from the first driver on that it owns, and so do schedulers that an administrator names. Webhook,
observer, `why`, `simulate` and `check` all ask `SchedulerSupport.evaluates_policies`.
"""

import msgspec

from kube.names import SCHEDULER_NAME


class SchedulerSupport(msgspec.Struct, frozen=True, kw_only=True):
    """The statements about compatibility that the schedulers of a cluster evaluate.

    Attributes:
        policy_aware: Names of the schedulers that evaluate DeviceCompatibilityPolicies.
        compatibility_groups: kube-scheduler evaluates the groups in ResourceSlices.
        owned_drivers: Drivers that the bridge allocates, which evaluates policies, and nobody else.
        bridge_scheduler: schedulerName of the bridge.
    """

    policy_aware: frozenset[str] = frozenset()
    compatibility_groups: bool = False
    owned_drivers: frozenset[str] = frozenset()
    bridge_scheduler: str = SCHEDULER_NAME

    @property
    def schedulers_with_policies(self) -> frozenset[str]:
        """Names of the schedulers that evaluate policies, and limits of owned drivers."""
        bridge = {self.bridge_scheduler} if self.owned_drivers else ()
        return self.policy_aware.union(bridge)

    def evaluates_policies(self, scheduler: str) -> bool:
        """Return True if a scheduler evaluates policies, and limits of owned drivers.

        Args:
            scheduler: The scheduler's name in pods; empty for the default.

        >>> SchedulerSupport(owned_drivers=frozenset(["gpu.nvidia.com"])).evaluates_policies("drawbridge-scheduler")
        True
        """
        return scheduler in self.schedulers_with_policies
