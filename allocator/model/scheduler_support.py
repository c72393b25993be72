"""The features that schedulers evaluate, on which the verdict on a pod may depend."""

import msgspec


class SchedulerSupport(msgspec.Struct, frozen=True, kw_only=True):
    """The statements about compatibility that the schedulers of a cluster evaluate.

    Attributes:
        policy_aware: Names of the schedulers that evaluate DeviceCompatibilityPolicies.
        compatibility_groups: kube-scheduler evaluates the groups in ResourceSlices.
        owned_drivers: Drivers that the bridge allocates, which evaluates policies, and nobody else.
    """

    policy_aware: frozenset[str] = frozenset()
    compatibility_groups: bool = False
    owned_drivers: frozenset[str] = frozenset()
