"""A hold stays until the API shows the allocation, or can never show it any more."""

from kube.api.meta import ObjectMeta
from kube.api.resource import AllocationResult, ResourceClaim, ResourceClaimStatus
from sidecar.commit.ledger import (
    Hold,
    Step,
    begin,
    observe,
    reserve,
    unmade_hold,
    unreserve,
    unsettled_hold,
)

ALLOCATION = AllocationResult(allocation_timestamp="ours")


def claim(version: str, *, uid: str = "claim", allocation: str = "") -> ResourceClaim:
    status = ResourceClaimStatus(allocation=AllocationResult(allocation_timestamp=allocation))
    return ResourceClaim(
        metadata=ObjectMeta(name="gpu", namespace="default", uid=uid, resource_version=version),
        status=status if allocation else None,
    )


def reserved(*pods: str) -> Hold:
    hold = None
    for pod in pods or ("pod",):
        hold = reserve(hold, claim("5"), ALLOCATION, pod)
    assert hold is not None
    return hold


def test_a_reservation_that_is_given_up_before_a_write_frees_the_devices() -> None:
    assert unreserve(reserved(), "pod") is None


def test_pods_that_share_a_claim_share_what_is_promised_to_it() -> None:
    hold = unreserve(reserved("a", "b"), "a")

    assert hold is not None
    assert hold.pods == {"b"}


def test_a_claim_that_is_seen_allocated_is_the_api_s_business() -> None:
    assert observe(begin(reserved(), "5"), claim("6", allocation="ours")) is None
    assert observe(reserved(), claim("6", allocation="of somebody else")) is None


def test_a_claim_that_was_deleted_or_recreated_ends_the_promise() -> None:
    assert observe(unsettled_hold(begin(reserved(), "5")), None) is None
    assert observe(reserved(), claim("9", uid="another")) is None


def test_a_write_without_an_answer_is_not_settled_by_reading_the_same_version() -> None:
    hold = unsettled_hold(begin(reserved(), "5"))
    given_up = unreserve(hold, "pod")

    assert given_up is not None
    assert observe(given_up, claim("5")) == given_up


def test_a_write_without_an_answer_is_settled_once_the_version_has_changed() -> None:
    hold = unsettled_hold(begin(reserved(), "5"))
    settled = observe(hold, claim("6"))

    assert settled is not None
    assert settled.step is Step.RESERVED
    given_up = unreserve(hold, "pod")
    assert given_up is not None
    assert observe(given_up, claim("6")) is None


def test_versions_are_compared_as_numbers() -> None:
    hold = unsettled_hold(begin(reserved(), "10"))

    assert observe(hold, claim("9")) == hold


def test_a_write_that_was_not_sent_leaves_the_reservation() -> None:
    hold = unmade_hold(begin(reserved(), "5"))

    assert hold is not None
    assert hold.step is Step.RESERVED


def test_a_second_write_that_was_not_sent_says_nothing_about_the_first() -> None:
    hold = unmade_hold(begin(unsettled_hold(begin(reserved(), "5")), "5"))

    assert hold is not None
    assert hold.step is Step.UNKNOWN
    assert unreserve(hold, "pod") is not None
