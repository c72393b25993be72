"""The claims of a pod that may be used."""

from typing import Any

import pytest

from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import ResourceClaim
from sidecar.commit.writes import MAX_CONSUMERS
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.pod_claims import find_claims

POD = convert(
    {
        "metadata": {"name": "a", "namespace": "default", "uid": "uid-a"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
    },
    Pod,
)


def code(*consumer_uids: str) -> Code | None:
    """Return the reason a pod cannot use a claim with these consumers; None if it can."""
    consumers = [{"resource": "pods", "name": uid, "uid": uid} for uid in consumer_uids]
    claim = convert(
        {
            "metadata": {"name": "gpu", "namespace": "default", "uid": "gpu"},
            "status": {"allocation": {}, "reservedFor": consumers},
        },
        ResourceClaim,
    )
    found = find_claims(POD, {("default", "gpu"): claim}, {})
    return found.code if isinstance(found, Rejection) else None


def test_a_claim_has_a_place_for_so_many_pods_only() -> None:
    others = [f"uid-{number}" for number in range(MAX_CONSUMERS)]

    assert code(*others[1:]) is None
    assert code(*others) is Code.TOO_MANY_CONSUMERS
    assert code(*others[1:], "uid-a") is None, "it has its place already"


def member_code(**owner: Any) -> Code | None:
    """Return the reason a pod of PodGroup ring cannot use the claim that its status names; None if it can."""
    pod = convert(
        {
            "metadata": {"name": "a", "namespace": "default", "uid": "uid-a"},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
                "schedulingGroup": {"podGroupName": "ring"},
            },
            "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "gpu"}]},
        },
        Pod,
    )
    of_ring = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "ring"}
    reference = {**of_ring, "uid": "uid-ring", "controller": True, **owner}
    claim = convert(
        {
            "metadata": {
                "name": "gpu",
                "namespace": "default",
                "uid": "gpu",
                "ownerReferences": [reference],
            }
        },
        ResourceClaim,
    )
    found = find_claims(pod, {("default", "gpu"): claim}, {})
    return found.code if isinstance(found, Rejection) else None


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ({}, None),
        ({"apiVersion": "scheduling.k8s.io/v1"}, None),
        ({"name": "other"}, Code.CLAIM_NOT_OWNED),
        ({"kind": "Job"}, Code.CLAIM_NOT_OWNED),
        ({"apiVersion": "scheduling.volcano.sh/v1beta1"}, Code.CLAIM_NOT_OWNED),
        ({"controller": False}, Code.CLAIM_NOT_OWNED),
    ],
)
def test_a_claim_of_a_pod_group_is_for_its_pods(
    owner: dict[str, Any], expected: Code | None
) -> None:
    assert member_code(**owner) is expected
