"""The claims that a write without an answer may yet change."""

import pytest

from allocator.pods.claims import claim_name
from kube.api.meta import ObjectMeta
from kube.api.resource import ResourceClaim
from sidecar.commit.steps import ClaimWrite, Kind
from sidecar.commit.unsettled import UnsettledWrites
from sidecar.commit.writes import Outcome


def claim(version: str, *, name: str = "gpu", uid: str = "claim") -> ResourceClaim:
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=uid, resource_version=version)
    )


def after(outcome: Outcome, version: str = "10") -> UnsettledWrites:
    """Return the unsettled writes after the release of a claim of this version."""
    unsettled = UnsettledWrites()
    unsettled.end(ClaimWrite(kind=Kind.DEALLOCATE, claim=claim(version)), outcome)
    return unsettled


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        (Outcome.UNKNOWN, True),
        (Outcome.REFUSED, True),
        (Outcome.CONFLICT, False),
        (Outcome.GONE, False),
        (Outcome.NOT_SENT, False),
    ],
)
def test_a_write_without_an_answer_and_a_copy_of_a_refused_one_may_be_made_yet(
    outcome: Outcome, want: bool
) -> None:
    assert after(outcome).may_change(claim("10")) is want


@pytest.mark.parametrize(
    ("name", "seen", "want"),
    [
        ("the version that it was decided on", claim("10"), True),
        ("an older one, by number", claim("9"), True),
        ("a newer one, by number", claim("11"), False),
        ("recreated", claim("10", uid="other"), False),
        ("another claim", claim("10", name="nic", uid="nic"), False),
    ],
)
def test_only_a_newer_version_settles_it(name: str, seen: ResourceClaim, want: bool) -> None:
    assert after(Outcome.UNKNOWN).may_change(seen) is want, name


def test_a_failure_that_proves_nothing_about_earlier_writes_settles_none() -> None:
    unsettled = after(Outcome.UNKNOWN)
    unsettled.end(ClaimWrite(kind=Kind.SETTLE, claim=claim("10")), Outcome.NOT_SENT)

    assert unsettled.may_change(claim("10"))


@pytest.mark.parametrize(
    ("seen", "remaining"),
    [
        (claim("10"), 1),
        (claim("11"), 0),
        (claim("10", uid="other"), 0),
        (None, 0),
    ],
    ids=["the same version", "a newer version", "recreated", "gone"],
)
def test_what_is_settled_is_forgotten(seen: ResourceClaim | None, remaining: int) -> None:
    unsettled = after(Outcome.UNKNOWN)

    unsettled.forget_settled({} if seen is None else {claim_name(seen): seen})

    assert len(unsettled.claims) == remaining
