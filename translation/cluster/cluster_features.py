"""Features of Kubernetes that the claims of a pod need, where a cluster may lack them. Pure."""

from collections.abc import Iterator, Sequence

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from translation.cluster.snapshot import TranslationSnapshot
from translation.compiling.claims import Claim


def check_shares(claims: Sequence[Claim], snapshot: TranslationSnapshot) -> Iterator[Finding]:
    """Yield an error for each request of a part of a device that the cluster cannot hold.

    Without the feature gate the API server drops the capacity of a request, and the claim would get
    a whole device.
    """
    if snapshot.consumable_capacity:
        return
    for claim in claims:
        for index, is_share in enumerate(requests_share(claim)):
            if is_share:
                yield error(
                    Code.SHARES_NOT_SUPPORTED,
                    claim.source(FieldPath.of("requests", index)) or FieldPath.of("spec"),
                    "this is a part of a device, and the feature gate DRAConsumableCapacity of the "
                    "cluster is off: the claim would get a whole device",
                    "request whole devices, or turn on the feature gate, from Kubernetes 1.35 on (from 1.36 "
                    "on it is on by default)",
                )


def requests_share(claim: Claim) -> Iterator[bool]:
    """Yield for each request of a claim whether it requests parts of devices."""
    for request in claim.spec["spec"]["devices"]["requests"]:
        alternatives = request.get("firstAvailable") or [request["exactly"]]
        yield any("capacity" in alternative for alternative in alternatives)
