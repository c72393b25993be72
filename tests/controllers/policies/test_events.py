"""Events about policies and claims: once, and without names of other namespaces."""

from collections.abc import Sequence

from controllers.policies.events import (
    claim_events,
    policy_event,
)
from controllers.policies.status import PolicyReport
from kube.api.events import Event
from tests.controllers.policies.test_status import (
    APART,
    HELD,
    SLICED,
    audited,
    policy,
    report,
    status,
)


def events(found: PolicyReport, recorded: Sequence[str] = ()) -> list[Event]:
    return list(
        claim_events(found.policy, found.clashes(), lambda claim: f"uid-{claim[1]}", set(recorded))
    )


def test_each_claim_gets_one_event_that_names_its_own_namespace_only() -> None:
    found = events(report(claims=HELD))

    assert ["mine", "theirs", "ours"] == [event.regarding.name for event in found]
    assert (
        "Device g0-a of pool node-1 is in use beside g0-b (held by a claim in another namespace), which DeviceCompatibilityPolicy modes keeps apart: the rule of device g0-b does not accept device g0-a."
    ) == found[0].note
    assert "(held by claim mine)" in found[2].note
    assert ["ours"] == [
        event.regarding.name for event in events(report(claims=HELD), ["uid-mine", "uid-theirs"])
    ]


def test_contradicting_configurations_have_events_of_their_own() -> None:
    first, second = events(report(claims=SLICED))

    assert ("short", "ConflictingSharingConfig") == (first.regarding.name, first.reason)
    assert ("long", "ConflictingSharingConfig") == (second.regarding.name, second.reason)
    assert (
        "Device g0-a of pool node-1 is shared with a claim in another namespace: claims share "
        "device g0-a with contradicting GpuConfigs, and driver gpu.example.com rejects a pod whose "
        "configuration differs from the first that it prepared."
    ) == first.note


def test_the_event_of_an_audit_policy_says_so() -> None:
    assert (
        "modes would keep apart if it were enforced"
        in events(report(audited(APART), claims=HELD))[0].note
    )


def test_an_invalid_policy_gets_an_event_and_a_valid_one_none() -> None:
    broken = policy(mig="device.")

    event = policy_event(broken, status(report(broken)))

    assert event is not None
    assert "PolicyInvalid" == event.reason
    assert "DeviceCompatibilityPolicy//modes" == str(event.regarding)
    assert policy_event(APART, status(report())) is None
