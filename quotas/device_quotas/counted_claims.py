"""Claims as a tenant is charged for them, or devices that a pod has by keys."""

from typing import NamedTuple

from allocator.model.devices import PoolId
from kube.api.core import PodSpec
from kube.api.resource import AllocationResult, DeviceClaim
from quotas.device_quotas.ledger import Stage


class LegacyPod(NamedTuple):
    """A pod that requests devices by keys.

    Attributes:
        spec: Its containers with their keys.
        is_running: It has a node, and so its devices.
        mapped: Keys that count by a claim.
    """

    spec: PodSpec
    is_running: bool = False
    mapped: frozenset[str] = frozenset()


class CountedClaim(NamedTuple):
    """A claim, one that is to be created for a pod, or devices that a pod has by keys instead.

    Attributes:
        allocation: The allocated devices; None before.
        is_let_through: It may be allocated without a further decision; what waits for one is not charged.
        legacy_pod: The pod that requests devices by keys; None for a claim.
    """

    namespace: str
    devices: DeviceClaim
    allocation: AllocationResult | None = None
    is_let_through: bool = True
    legacy_pod: LegacyPod | None = None

    @property
    def stage(self) -> Stage:
        """Return the stage of its charges."""
        if self.allocation is not None or (self.legacy_pod and self.legacy_pod.is_running):
            return Stage.USED
        return Stage.PROMISED if self.is_let_through else Stage.WAITING

    @property
    def is_estimated(self) -> bool:
        """Return True if it has no devices yet, so that its author's expressions decide about its charge."""
        return self.allocation is None and self.legacy_pod is None

    @property
    def pools(self) -> frozenset[PoolId]:
        """Return the pools of its allocated devices."""
        results = (self.allocation.devices.results if self.allocation is not None else None) or ()
        return frozenset(PoolId(result.driver, result.pool) for result in results)
