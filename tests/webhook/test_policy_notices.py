"""What is told beside policies and claims: once, within limits, and nothing of other namespaces."""

from collections.abc import Sequence

import msgspec

from tests.webhook.test_policy_status import APART, HELD, audited, policy, report, status
from webhook.policy_notices import (
    Notice,
    event_of,
    notice_of_policy,
    notices_of_claims,
)
from webhook.policy_status import PolicyReport


def notices(found: PolicyReport, told: Sequence[str] = ()) -> list[Notice]:
    return list(
        notices_of_claims(found.policy, found.clashes(), lambda claim: f"uid-{claim[1]}", set(told))
    )


def test_each_claim_is_told_once_and_of_its_own_namespace_only() -> None:
    found = notices(report(claims=HELD))

    assert ["mine", "theirs", "ours"] == [one.regarding.name for one in found]
    assert (
        "Device g0-a of pool node-1 is in use beside g0-b (held by a claim in another namespace), "
        "which DeviceCompatibilityPolicy modes keeps apart: device g0-b accepts only devices "
        "matching its rule; g0-a does not match."
    ) == found[0].note
    assert "(held by claim mine)" in found[2].note
    assert ["ours"] == [
        one.regarding.name for one in notices(report(claims=HELD), ["uid-mine", "uid-theirs"])
    ]


def test_an_audit_says_that_it_is_one() -> None:
    assert (
        "modes would keep apart if it were enforced"
        in notices(report(audited(APART), claims=HELD))[0].note
    )


def test_an_invalid_policy_is_told_beside_it_and_a_valid_one_is_not() -> None:
    broken = policy(mig="device.")

    told = notice_of_policy(broken, status(report(broken)))

    assert told is not None
    assert ("PolicyInvalid", "modes", "") == (
        told.reason.value, told.regarding.name, told.regarding.namespace
    )  # fmt: skip
    assert notice_of_policy(APART, status(report())) is None


def test_an_event_keeps_to_the_limits() -> None:
    (first, *_) = notices(report(claims=HELD))
    long = msgspec.structs.replace(first, note="ä" * 1000)

    event = event_of(long, name="e", instance="i" * 200, time="2026-11-20T12:00:00.000000Z")

    assert 1024 == len(event["note"].encode())
    assert 128 == len(event["reportingInstance"])
    assert "here" == event["metadata"]["namespace"] == event["regarding"]["namespace"]
