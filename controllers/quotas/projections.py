"""Claims and pods as the cache of the controllers keeps them."""

from kube.api.core import Pod
from kube.api.meta import decode
from kube.api.resource import ResourceClaim
from quotas.gates.counted_objects import QuotaClaim, counted_claim, counted_pod


def project_quota_claim(raw: bytes) -> QuotaClaim:
    """Project a ResourceClaim to its requests and devices."""
    return counted_claim(decode(raw, ResourceClaim))


def project_quota_pod(raw: bytes) -> Pod | None:
    """Project a Pod to the fields that make it wait or not; None if no quota counts it."""
    return counted_pod(decode(raw, Pod))
