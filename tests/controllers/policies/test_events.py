"""Events about policies and claims: once, and without names of other namespaces."""

from collections.abc import Sequence

import msgspec

from allocator.model.scheduler_support import SchedulerSupport
from controllers.policies.events import conflict_events, policy_events
from controllers.policies.status import PolicyReport
from kube.api.events import Event, ObjectReference
from testing.policy_status import APART, HELD, SLICED, audited, policy, report, status

AWARE = SchedulerSupport(policy_aware=frozenset(["aware"]))


def claim_and_pod(claim: tuple[str, str]) -> list[ObjectReference]:
    namespace, name = claim
    return [
        ObjectReference(
            api_version="v1", kind=kind, namespace=namespace, name=name, uid=f"{kind}-{name}"
        )
        for kind in ("ResourceClaim", "Pod")
    ]


def events(policy_report: PolicyReport, recorded: Sequence[str] = ()) -> list[Event]:
    return list(
        conflict_events(
            policy_report.conflicts(),
            policy_report.enforcement(),
            claim_and_pod,
            set(recorded),
        )
    )


def test_claims_and_their_pods_get_one_event_that_names_their_own_namespace_only() -> None:
    events_ = events(report(claims=HELD, support=AWARE))

    assert [
        "ResourceClaim/here/mine",
        "Pod/here/mine",
        "ResourceClaim/there/theirs",
        "Pod/there/theirs",
        "ResourceClaim/here/ours",
        "Pod/here/ours",
    ] == [str(event.regarding) for event in events_]
    assert (
        (
            "Device g0-a of pool node-1 is in use beside g0-b (held by a claim in another namespace), against DeviceCompatibilityPolicy modes: the rule of device g0-b does not accept device g0-a."
        )
        == events_[0].note
        == events_[1].note
    )
    assert "(held by claim mine)" in events_[4].note
    recorded = [event.regarding.uid for event in events_[:4]]
    assert ["ours", "ours"] == [
        event.regarding.name for event in events(report(claims=HELD), recorded)
    ]


def test_contradicting_configurations_have_events_of_their_own() -> None:
    first, _, second, _ = events(report(claims=SLICED))

    assert ("short", "ConflictingSharingConfig") == (first.regarding.name, first.reason)
    assert ("long", "ConflictingSharingConfig") == (second.regarding.name, second.reason)
    assert (
        "Device g0-a of pool node-1 is shared with a claim in another namespace: claims share "
        "device g0-a with contradicting GpuConfigs, and driver gpu.example.com rejects a pod whose "
        "configuration differs from the first that it prepared."
    ) == first.note


def test_a_conflict_says_why_the_policy_did_not_prevent_it() -> None:
    assert (
        "The policy is not enforced: kube-scheduler ignores policies"
        in events(report(claims=HELD))[0].note
    )
    assert (
        "The policy is not enforced: spec.enforcement is Audit"
        in events(report(audited(APART), claims=HELD))[0].note
    )


def reasons(policy_report: PolicyReport) -> list[tuple[str, str]]:
    source = policy_report.policy.source
    return [
        (str(event.regarding), event.reason)
        for event in policy_events(source, status(policy_report))
    ]


def test_a_policy_that_is_invalid_or_not_enforced_has_an_event() -> None:
    broken = policy(mig="device.")
    name = "DeviceCompatibilityPolicy//modes"

    assert [(name, "PolicyInvalid"), (name, "PolicyNotEnforced")] == reasons(report(broken))
    assert [(name, "PolicyNotEnforced")] == reasons(report())
    assert [] == reasons(report(audited(APART)))
    assert [] == reasons(report(support=AWARE))


def test_numbers_in_the_note_about_a_policy_make_no_other_event() -> None:
    """Nodes come and go, and each would be an event."""
    broken = report(policy(mig="device."))
    of_now = status(broken)
    of_later = msgspec.structs.replace(
        of_now,
        conditions=tuple(
            msgspec.structs.replace(condition, message=f"{condition.message} (512 places)")
            for condition in of_now.conditions or ()
        ),
    )
    source = broken.policy.source
    metadata = msgspec.structs.replace(source.metadata, generation=source.metadata.generation + 1)
    edited = msgspec.structs.replace(source, metadata=metadata)

    before, later, after_edit = (
        [event.identity for event in policy_events(policy_, status_)]
        for policy_, status_ in ((source, of_now), (source, of_later), (edited, of_now))
    )

    assert before == later
    assert not set(before) & set(after_edit)
