"""Parts of devices in a cluster without the feature gate for them."""

from collections.abc import Iterator

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from translation.cluster.shares import requests_share
from translation.preflight.model.inputs import PreflightInput


def check_shares_supported(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield an error for each request of a part of a device that the cluster cannot hold.

    Without the feature gate the API server drops the capacity of a request, and the claim would get
    a whole device.
    """
    if inputs.snapshot.consumable_capacity:
        return
    for claim in inputs.claims:
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
