"""The status of DeviceQuotas: amounts, conditions, and the words about the amounts left."""

import msgspec
import pytest

from allocator.model.feature_gates import Features
from controllers.quotas.conditions import Deciders
from controllers.quotas.status import differs_in_more_than_amounts, quota_status
from kube.api.device_quota import (
    Budget,
    DeviceQuota,
    DeviceQuotaStatus,
    LegacyKey,
    LimitStatus,
    NamespaceUsage,
    QuotaEnforcement,
)
from kube.api.resource import AllocationResult, DeviceAllocationResult
from kube.cel.scope import AnswerInterrupted, Meter, evaluating
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.counted_claims import CountedClaim
from testing.allocation.builders import DRIVER, claim, classes, device, request, result, slice_of
from testing.device_quotas import (
    COSTLY_SELECTOR,
    capacity_limit,
    claim_limit,
    counter_limit,
    device_limit,
    quota,
)

NOW = "2026-11-24T13:00:00Z"
SMALL = device("small", capacity={"memory": "40Gi"})
LARGE = device("large", capacity={"memory": "80Gi"})
OWNED = frozenset({DRIVER})
NOBODY = Deciders()


def book(of: DeviceQuota, *namespaces: str) -> QuotaBook:
    made = QuotaBook(Features())
    made.replace_quota(of.metadata.name, of)
    for namespace in namespaces or ("default",):
        made.replace_namespace(namespace, {})
    for name, device_class in classes().items():
        made.replace_class(name, device_class)
    made.replace_slices({"a": slice_of(SMALL, LARGE)})
    return made


def put(
    into: QuotaBook, key: str, *has: str, namespace: str = "default", is_let_through: bool = True
) -> None:
    allocation = AllocationResult(devices=DeviceAllocationResult(results=tuple(map(result, has))))
    into.put_claim(
        key,
        CountedClaim(
            namespace, claim(request()).spec.devices, allocation if has else None, is_let_through
        ),
    )


def status(
    of: QuotaBook, deciders: Deciders = NOBODY, before: DeviceQuotaStatus | None = None
) -> DeviceQuotaStatus:
    return quota_status(of.tenants.quotas["team"], of, deciders, before, NOW)


def conditions(of: DeviceQuotaStatus) -> dict[str, str]:
    return {
        condition.type: f"{condition.status} {condition.reason}"
        for condition in of.conditions or ()
    }


def message(of: DeviceQuotaStatus, type_: str) -> str:
    return next(condition.message for condition in of.conditions or () if condition.type == type_)


def test_amounts_by_stage_and_namespace() -> None:
    filled = book(quota(capacity_limit("memory", "300Gi")), "a", "b")
    put(filled, "used", "small", namespace="a")
    put(filled, "promised", namespace="b")
    put(filled, "waiting", namespace="b", is_let_through=False)

    assert status(filled).limits == (
        LimitStatus(
            name="memory",
            used="40Gi",
            promised="80Gi",
            waiting="80Gi",
            available="180Gi",
            namespaces=(
                NamespaceUsage(namespace="b", promised="80Gi", waiting="80Gi"),
                NamespaceUsage(namespace="a", used="40Gi"),
            ),
        ),
    )


def test_at_most_a_hundred_namespaces_the_largest_first() -> None:
    names = [f"n{number:03d}" for number in range(120)]
    filled = book(quota(device_limit(500)), *names)
    for name in names:
        put(filled, name, namespace=name)
    put(filled, "more", namespace="n119")

    (limit,) = status(filled).limits or ()

    listed = [usage.namespace for usage in limit.namespaces or ()]
    assert listed == ["n119", *names[:99]]
    assert limit.promised == "121"


def test_the_namespace_with_the_least_counts_where_each_has_its_own() -> None:
    filled = book(quota(device_limit(4), budget=Budget.PER_NAMESPACE), "a", "b")
    put(filled, "1", namespace="a")
    put(filled, "2", namespace="b")
    put(filled, "3", namespace="b")

    written = status(filled)

    (limit,) = written.limits or ()
    assert (limit.promised, limit.available) == ("3", "2")
    assert written.summary == "2 of 4 devices left in the fullest namespace"


def test_what_was_promised_counts_whoever_decides() -> None:
    """The bridge counts pods of the gates from before it owned the driver."""
    filled = book(quota(device_limit(4)))
    put(filled, "let through")
    put(filled, "waiting", is_let_through=False)

    (limit,) = status(filled, Deciders(owned_drivers=OWNED)).limits or ()

    assert (limit.promised, limit.waiting, limit.available) == ("1", "1", "3")


def test_usage_above_a_lowered_limit_leaves_nothing() -> None:
    filled = book(quota(device_limit(1)))
    put(filled, "1", "small")
    put(filled, "2", "large")

    (limit,) = status(filled).limits or ()

    assert (limit.used, limit.available) == ("2", "0")


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (
            (capacity_limit("memory", "80Gi"), device_limit(4)),
            "80Gi of 80Gi memory, 4 of 4 devices left",
        ),
        ((claim_limit(2), counter_limit("slices", 7)), "2 of 2 claims, 7 of 7 slices left"),
        (
            (device_limit(1, "big"), device_limit(2, "small")),
            "1 of 1 devices (big), 2 of 2 devices (small) left",
        ),
    ],
)
def test_what_is_left_in_words(limits: tuple[object, ...], expected: str) -> None:
    assert status(book(quota(*limits))).summary == expected  # type: ignore[arg-type]


def test_a_selector_that_does_not_compile_is_not_accepted() -> None:
    written = status(book(quota(device_limit(4, where="device.attributes["))))

    assert conditions(written)["Accepted"] == "False InvalidSelector"
    assert message(written, "Accepted").startswith("spec.limits[0].selectors[0].cel.expression: ")
    (limit,) = written.limits or ()
    assert limit.available == "0"


@pytest.mark.parametrize(
    ("deciders", "expected"),
    [
        (Deciders(), "True Enforced"),
        (Deciders(owned_drivers=OWNED), "True Enforced"),
        (Deciders(owned_drivers=OWNED, gate_fault="no policy"), "True Enforced"),
        (Deciders(gate_fault="no policy"), "False NoGates"),
        (Deciders(bridge_fault="no leader"), "True Enforced"),
        (Deciders(owned_drivers=OWNED, bridge_fault="no leader"), "False BridgeNotServing"),
    ],
)
def test_enforced_where_something_decides(deciders: Deciders, expected: str) -> None:
    assert conditions(status(book(quota(device_limit(4))), deciders))["Enforced"] == expected


def test_pods_with_legacy_keys_need_gates_whoever_owns_the_driver() -> None:
    filled = book(quota(device_limit(4, legacy_keys=(LegacyKey(name="nvidia.com/gpu"),))))

    for fault, expected in (("", "True Enforced"), ("no policy", "False NoGates")):
        written = status(filled, Deciders(owned_drivers=OWNED, gate_fault=fault))
        assert conditions(written)["Enforced"] == expected


def test_every_driver_of_a_quota_has_to_be_covered() -> None:
    filled = book(quota(device_limit(4), device_limit(4, "nics", driver="nic.example.com")))

    written = status(filled, Deciders(owned_drivers=OWNED, gate_fault="nothing holds pods back"))

    assert conditions(written)["Enforced"] == "False NoGates"
    assert message(written, "Enforced") == (
        "other schedulers allocate nic.example.com; nothing holds pods back"
    )


def test_selectors_that_take_too_many_steps_are_not_accepted() -> None:
    filled = book(quota(device_limit(400, where=COSTLY_SELECTOR)))
    devices = [device(f"gpu-{index}", attributes={"index": index}) for index in range(210)]
    filled.replace_slices({"b": slice_of(*devices)})
    put(filled, "waiting", is_let_through=False)

    written = status(filled)

    assert conditions(written)["Accepted"] == "False SelectorBudgetSpent"
    assert message(written, "Accepted") == (
        "spec.limits[0].selectors: takes more than 200000 steps for the 202 devices that differ; "
        "a limit that cannot be evaluated lets nothing through"
    )
    assert [
        excess.message
        for excess in filled.excesses_of_claims("default", [claim(request()).spec.devices])
    ] == ["DeviceQuota team, limit devices cannot be evaluated, so it lets nothing through"]


def test_an_audit_enforces_nothing() -> None:
    filled = book(quota(device_limit(4), enforcement=QuotaEnforcement.AUDIT))

    assert conditions(status(filled))["Enforced"] == "False Audit"


@pytest.mark.parametrize(
    ("claims", "threshold", "expected"),
    [
        (3, 75, "False BelowThreshold"),
        (4, 75, "True ThresholdReached"),
        (0, 0, "False BelowThreshold"),
    ],
)
def test_the_alert_is_above_the_threshold(claims: int, threshold: int, expected: str) -> None:
    filled = book(quota(device_limit(4, alert_threshold_percent=threshold)))
    for number in range(claims):
        put(filled, str(number))

    assert conditions(status(filled))["AlertThresholdReached"] == expected


def test_what_waits_for_the_bridge_raises_no_alert() -> None:
    """With nothing in use the alert was on, since pods waited."""
    filled = book(quota(device_limit(1)))
    put(filled, "1", is_let_through=False)
    put(filled, "2", is_let_through=False)

    owned = conditions(status(filled, Deciders(owned_drivers=OWNED)))

    assert owned["AlertThresholdReached"] == "False BelowThreshold"


def test_a_device_that_is_not_published_any_more_is_named() -> None:
    filled = book(quota(capacity_limit("memory", "80Gi")))
    put(filled, "c", "small")
    filled.replace_slices({"a": None})

    assert conditions(status(filled))["UsageIncomplete"] == "True DevicesNotPublished"


def test_claims_without_a_charge_yet_are_counted() -> None:
    filled = book(quota(device_limit(4)))
    with evaluating(meter=Meter(0)), pytest.raises(AnswerInterrupted):
        put(filled, "c")

    written = status(filled)

    assert conditions(written)["UsageIncomplete"] == "True ClaimsNotEvaluated"
    assert message(written, "UsageIncomplete") == "the selectors of 1 claim are not evaluated yet"


def test_a_condition_keeps_the_time_of_its_status() -> None:
    first = status(book(quota(device_limit(4))))
    filled = book(quota(device_limit(4)))
    later = quota_status(
        filled.tenants.quotas["team"], filled, Deciders(), first, "2027-01-01T00:00:00Z"
    )

    assert later == first


def test_amounts_alone_are_no_reason_to_hurry() -> None:
    filled = book(quota(device_limit(4)))
    first = status(filled)
    put(filled, "c")

    assert not differs_in_more_than_amounts(first, status(filled, before=first))
    assert differs_in_more_than_amounts(first, status(filled, Deciders(gate_fault="x"), first))
    assert differs_in_more_than_amounts(None, first)
    assert differs_in_more_than_amounts(
        first, msgspec.structs.replace(first, observed_generation=2)
    )
