"""The metrics of DeviceQuotas."""

import pytest

from allocator.model.feature_gates import Features
from controllers.quotas.metrics import QuotaCollector
from kube.api.device_quota import Budget
from quotas.gates.counted_objects import QuotaClaim
from quotas.gates.usage import QuotaUsage
from testing.allocation.builders import allocated_claim, result
from testing.device_quotas import device_limit, quota


@pytest.mark.parametrize(
    ("claims", "percent", "budget", "reached"),
    [
        ({"a": 3}, 75, Budget.SHARED, 0),
        ({"a": 4}, 75, Budget.SHARED, 1),
        ({"a": 3}, 50, Budget.SHARED, 1),
        ({"a": 2, "b": 2}, 95, Budget.SHARED, 1),
        ({"a": 2, "b": 2}, 95, Budget.PER_NAMESPACE, 0),
        ({"a": 4}, 95, Budget.PER_NAMESPACE, 1),
    ],
)
def test_the_threshold_is_that_of_the_quota(
    claims: dict[str, int], percent: int, budget: Budget, reached: int
) -> None:
    usage = QuotaUsage(Features(), lambda: 0.0)
    limit = device_limit(4, alert_threshold_percent=percent)
    usage.replace_quota("team", quota(limit, budget=budget))
    for namespace in ("a", "b"):
        usage.replace_namespace(namespace, {})
    for namespace, number in claims.items():
        for place in range(number):
            devices = allocated_claim(result(f"gpu-{place}"))
            assert devices.status is not None
            claim = QuotaClaim(devices=devices.spec.devices, allocation=devices.status.allocation)
            usage.replace_claim((namespace, f"claim-{place}"), claim)
    for key in tuple(usage.book.outstanding):
        usage.book.charge(key)

    values = {
        sample.name: sample.value
        for family in QuotaCollector(usage).collect()
        for sample in family.samples
    }
    assert values["drawbridge_device_quota_threshold_reached"] == reached
