"""Claims, pods and PodGroups as the cache of the controllers keeps them."""

from allocator.declarations.pod_group import PodGroup
from kube.api.core import Pod
from kube.api.meta import decode
from kube.api.resource import ResourceClaim
from quotas.gates.counted_objects import QuotaClaim, counted_claim, counted_pod
from quotas.gates.groups import gang_minimum, min_member


def project_quota_claim(raw: bytes) -> QuotaClaim:
    """Project a ResourceClaim to its requests and devices."""
    return counted_claim(decode(raw, ResourceClaim))


def project_quota_pod(raw: bytes) -> Pod | None:
    """Project a Pod to the fields that make it wait or not; None if no quota counts it."""
    return counted_pod(decode(raw, Pod))


def project_gang_minimum(raw: bytes) -> int:
    """Project a PodGroup of Kubernetes to the number of pods that it needs."""
    return gang_minimum(decode(raw, PodGroup))


def project_min_member(raw: bytes) -> int:
    """Project a PodGroup of another scheduler to the number of pods that it needs."""
    return min_member(decode(raw, PodGroup))
