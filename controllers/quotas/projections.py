"""Claims, pods and PodGroups as the cache of the controllers keeps them."""

from collections.abc import Callable

from allocator.declarations.model import GroupSystem
from allocator.declarations.pod_group import PodGroup
from kube.api.core import Pod
from kube.api.meta import decode
from kube.api.resource import ResourceClaim
from kube.names import SCHEDULER_NAME
from quotas.gates.counted_objects import QuotaClaim, counted_claim, counted_pod
from quotas.gates.groups import KnownPodGroup, known_pod_group


def project_quota_claim(raw: bytes) -> QuotaClaim:
    """Project a ResourceClaim to its requests and devices."""
    return counted_claim(decode(raw, ResourceClaim))


def project_quota_pod(raw: bytes, bridge_scheduler: str = SCHEDULER_NAME) -> Pod | None:
    """Project a Pod to the fields that make it wait or not; None if no quota counts it.

    Args:
        bridge_scheduler: schedulerName of the bridge.
    """
    return counted_pod(decode(raw, Pod), bridge_scheduler)


def project_pod_group(system: GroupSystem) -> Callable[[bytes], KnownPodGroup]:
    """Return the projection of the PodGroups of a system."""

    def project(raw: bytes) -> KnownPodGroup:
        return known_pod_group(decode(raw, PodGroup), system)

    return project
