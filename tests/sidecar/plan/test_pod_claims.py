"""The claims of a pod that may be used."""

from typing import Any

import pytest

from allocator.pods.claims import PodClaims
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import ResourceClaim, ResourceClaimConsumerReference
from sidecar.commit.writes import MAX_CONSUMERS
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.group_claims import ClaimPlaces, pod_entry
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


def named(name: str, *claims: str) -> Pod:
    """Return a pod of claims."""
    return convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"resourceClaims": [{"name": c, "resourceClaimName": c} for c in claims]},
        },
        Pod,
    )


@pytest.mark.parametrize(
    ("stored", "promised", "expected"),
    [
        ("the claim has a place beside those that are promised", 255, None),
        ("promised entries count", 256, Code.TOO_MANY_CONSUMERS),
    ],
)
def test_entries_that_are_not_written_yet_count(
    stored: str, promised: int, expected: Code | None
) -> None:
    claim = convert({"metadata": {"name": "gpu", "namespace": "default"}}, ResourceClaim)
    claims = {("default", "gpu"): claim}
    entries = {
        f"uid-{number}": pod_entry(f"p-{number}", f"uid-{number}") for number in range(promised)
    }

    outcome = find_claims(POD, claims, {}, {("default", "gpu"): entries})

    assert (outcome.code if isinstance(outcome, Rejection) else None) is expected, stored
    own = {**entries, "uid-a": pod_entry("a", "uid-a")}
    assert isinstance(find_claims(POD, claims, {}, {("default", "gpu"): own}), PodClaims)


def test_a_pod_that_a_claim_has_no_place_for_is_answered_with_what_would_be_right() -> None:
    reserved = [
        {"resource": "pods", "name": f"p-{number}", "uid": f"uid-{number}"} for number in range(256)
    ]
    claim = convert(
        {
            "metadata": {"name": "gpu", "namespace": "default"},
            "status": {"allocation": {}, "reservedFor": reserved},
        },
        ResourceClaim,
    )

    outcome = find_claims(POD, {("default", "gpu"): claim}, {})

    assert isinstance(outcome, Rejection)
    assert outcome.message == (
        "ResourceClaim gpu is reserved for 256 pods, and for no more at a time; the pod waits until one of them "
        "ends; give it a claim that fewer pods share"
    )


def test_the_entry_of_a_pod_group_is_promised_to_all_its_pods() -> None:
    ring = convert(
        {
            "metadata": {"name": "b", "namespace": "default", "uid": "uid-b"},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
                "schedulingGroup": {"podGroupName": "ring"},
            },
        },
        Pod,
    )
    claim = convert({"metadata": {"name": "gpu", "namespace": "default"}}, ResourceClaim)
    others = {f"uid-{number}": pod_entry(f"p-{number}", f"uid-{number}") for number in range(255)}
    group = ResourceClaimConsumerReference(
        api_group="scheduling.k8s.io", resource="podgroups", name="ring", uid="uid-ring"
    )
    promised = {("default", "gpu"): {**others, "uid-ring": group}}
    claims = {("default", "gpu"): claim}

    assert isinstance(find_claims(ring, claims, {}, promised), PodClaims)
    assert isinstance(find_claims(POD, claims, {}, promised), Rejection)


def test_a_place_of_each_claim_is_taken_or_none() -> None:
    full = [
        {"resource": "pods", "name": f"p-{number}", "uid": f"uid-{number}"} for number in range(256)
    ]
    claims = {
        ("default", name): convert(
            {
                "metadata": {"name": name, "namespace": "default"},
                "status": {"allocation": {}, "reservedFor": consumers},
            },
            ResourceClaim,
        )
        for name, consumers in (("full", full), ("nearly", full[:254]))
    }
    places = ClaimPlaces(claims, {("default", "nearly"): {"uid-x": pod_entry("x", "uid-x")}}, {})

    assert not places.take(named("a", "nearly", "full"))
    assert places.take(named("b", "nearly")), "nothing was taken for the pod before"
    assert not places.take(named("c", "nearly"))
    assert places.has(named("b", "nearly")), "it has its place"
    assert places.has(named("x", "nearly")), "it is promised one"
    assert places.take(named("d", "nowhere")), "of a claim that does not exist"
