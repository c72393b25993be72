"""The charge of a claim before and after its allocation."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import pytest

from allocator.model.feature_gates import Features
from kube.api.device_quota import QuotaLimit
from kube.api.resource import Device, DeviceRequest, DeviceRequestAllocationResult, ResourceSlice
from kube.cel.scope import BudgetSpent, Meter, evaluating
from kube.quantity import Quantity
from quotas.device_quotas.charges import ClaimCharges
from quotas.device_quotas.limits import ONE, Limit, compile_limits
from quotas.device_quotas.published import PublishedDevices
from testing.allocation.builders import (
    allocated_claim,
    alternative,
    amount,
    claim,
    classes,
    consumes,
    device,
    device_class,
    first_of,
    request,
    result,
    slice_of,
)
from testing.device_quotas import (
    COSTLY_SELECTOR,
    ENDLESS_SELECTOR,
    capacity_limit,
    claim_limit,
    counter_limit,
    device_limit,
    quota,
)

A100 = device("gpu-0", capacity={"memory": "40Gi"}, attributes={"model": "A100"})
H100 = device("gpu-1", capacity={"memory": "80Gi"}, attributes={"model": "H100"})
SHARED = device(
    "gpu-2", capacity={"memory": amount("80Gi", "1Gi", min="1Gi", step="1Gi")}, shared=True
)
MIG = device("mig-0", consumes("gpu-0", memory="10Gi"), consumes("gpu-1", memory="5Gi"))


def limit_of(limit: QuotaLimit) -> Limit:
    return compile_limits(quota(limit))[0]


def charges(*devices: Device) -> ClaimCharges:
    return ClaimCharges(PublishedDevices([slice_of(*devices)]), classes(), Features())


def in_units(limit: Limit, nanos: int) -> str:
    return str(Quantity.from_nanos(nanos, limit.max.format))


@pytest.mark.parametrize(
    ("asked", "limit", "least", "most"),
    [
        (request(), device_limit(4), "1", "1"),
        (request(count=3), device_limit(4), "3", "3"),
        (request(), capacity_limit("memory", "1Ti"), "40Gi", "80Gi"),
        (request(), capacity_limit("gpu.example.com/memory", "1Ti"), "40Gi", "80Gi"),
        (request(), capacity_limit("cores", "1Ti"), "0", "0"),
        (request(), capacity_limit("memory", "1Ti", driver="other.example.com"), "0", "0"),
        (request(), capacity_limit("memory", "1Ti", classes=("other",)), "0", "0"),
        (request(capacity={"memory": "60Gi"}), capacity_limit("memory", "1Ti"), "80Gi", "80Gi"),
        (request(admin_access=True), device_limit(4), "0", "0"),
        (request(device_class_name="missing"), device_limit(4), "0", "0"),
        (request("req-0", "false"), device_limit(4), "0", "0"),
        (request(count=None), device_limit(4), "1", "2"),
        (request(count=None), capacity_limit("memory", "1Ti"), "40Gi", "120Gi"),
        (
            request(),
            device_limit(4, where="device.attributes['gpu.example.com'].model == 'H100'"),
            "0",
            "1",
        ),
        (
            request("req-0", "device.attributes['gpu.example.com'].model == 'H100'", count=2),
            device_limit(4, where="device.attributes['gpu.example.com'].model == 'H100'"),
            "2",
            "2",
        ),
        (
            first_of(
                "req-0",
                alternative("large", count=2),
                alternative("small", "device.attributes['gpu.example.com'].model == 'A100'"),
            ),
            capacity_limit("memory", "1Ti"),
            "40Gi",
            "160Gi",
        ),
    ],
)
def test_charge_before_the_allocation(
    asked: DeviceRequest, limit: QuotaLimit, least: str, most: str
) -> None:
    compiled = limit_of(limit)

    total = charges(A100, H100).estimate(claim(asked).spec.devices, compiled).total

    assert (in_units(compiled, total.least), in_units(compiled, total.most)) == (least, most)


def test_a_share_is_charged_as_the_allocator_rounds_it() -> None:
    limit = limit_of(capacity_limit("memory", "1Ti"))
    asked = claim(request(capacity={"memory": "1500Mi"}))

    total = charges(SHARED).estimate(asked.spec.devices, limit).total

    assert in_units(limit, total.most) == "2Gi"


def test_a_claim_counts_once_whatever_it_has() -> None:
    limit = limit_of(claim_limit(4))
    asked = claim(request("a", count=2), request("b"))

    total = charges(A100, H100).estimate(asked.spec.devices, limit).total

    assert in_units(limit, total.most) == "1"


def test_counters_of_all_sets_add_up() -> None:
    limit = limit_of(counter_limit("memory", "1Ti"))

    total = charges(MIG).estimate(claim(request()).spec.devices, limit).total

    assert in_units(limit, total.most) == "15Gi"


def test_all_is_what_the_fullest_node_has() -> None:
    limit = limit_of(device_limit(40))
    slices = [
        slice_of(device("gpu-0"), name="a", pool="a", node="a"),
        slice_of(device("gpu-0"), device("gpu-1"), name="b", pool="b", node="b"),
    ]

    total = (
        ClaimCharges(PublishedDevices(slices), classes(), Features())
        .estimate(claim(request(count=None)).spec.devices, limit)
        .total
    )

    assert (in_units(limit, total.least), in_units(limit, total.most)) == ("1", "2")


def test_a_class_with_selectors_narrows() -> None:
    limit = limit_of(capacity_limit("memory", "1Ti"))
    narrow = device_class("gpu", "device.attributes['gpu.example.com'].model == 'A100'")
    narrowed = ClaimCharges(PublishedDevices([slice_of(A100, H100)]), classes(narrow), Features())

    total = narrowed.estimate(claim(request()).spec.devices, limit).total

    assert in_units(limit, total.most) == "40Gi"


@pytest.mark.parametrize(
    ("results", "limit", "total", "is_complete"),
    [
        ([result("gpu-0")], device_limit(4), "1", True),
        ([result("gpu-0"), result("gpu-1")], capacity_limit("memory", "1Ti"), "120Gi", True),
        (
            [result("gpu-2", share="s", consumed={"memory": "3Gi"})],
            capacity_limit("memory", "1Ti"),
            "3Gi",
            True,
        ),
        ([result("gpu-0", admin_access=True)], device_limit(4), "0", True),
        ([result("gpu-0", driver="other.example.com")], device_limit(4), "0", True),
        ([result("gone")], device_limit(4), "1", True),
        ([result("gone")], capacity_limit("memory", "1Ti"), "80Gi", False),
        (
            [result("gone", share="s", consumed={"memory": "3Gi"})],
            capacity_limit("memory", "1Ti"),
            "3Gi",
            True,
        ),
        (
            [result("gpu-2", share="s", consumed={}), result("gpu-2", share="t", consumed={})],
            counter_limit("memory", "1Ti"),
            "0",
            True,
        ),
        ([result("mig-0")], counter_limit("memory", "1Ti"), "15Gi", True),
        (
            [result("gpu-0"), result("gpu-1")],
            device_limit(4, where="device.attributes['gpu.example.com'].model == 'H100'"),
            "1",
            True,
        ),
    ],
)
def test_charge_after_the_allocation(
    results: Sequence[DeviceRequestAllocationResult],
    limit: QuotaLimit,
    total: str,
    is_complete: bool,
) -> None:
    compiled = limit_of(limit)
    allocated = allocated_claim(*results)
    assert allocated.status is not None
    assert allocated.status.allocation is not None

    charge = charges(A100, H100, SHARED, MIG).allocated(
        claim(request()).spec.devices, allocated.status.allocation, compiled
    )

    assert (in_units(compiled, charge.total), charge.is_complete) == (total, is_complete)


def test_a_selector_that_does_not_compile_closes_the_limit() -> None:
    limit = limit_of(device_limit(4, where="device.attributes["))

    assert limit.is_closed
    assert limit.available_max == 0
    assert limit.devices.fault is not None
    assert str(limit.devices.fault.path) == "spec.limits[0].selectors[0].cel.expression"


def test_a_device_on_which_a_selector_fails_counts() -> None:
    limit = limit_of(device_limit(4, where="device.attributes['gpu.example.com'].missing == 'x'"))

    total = charges(A100).estimate(claim(request()).spec.devices, limit).total

    assert in_units(limit, total.most) == "1"
    assert "gpu-0" in limit.devices.failure


def indexed_devices(count: int) -> list[Device]:
    return [device(f"gpu-{index}", attributes={"index": index}) for index in range(count)]


def test_selectors_that_take_too_many_steps_close_the_limit() -> None:
    limit = limit_of(device_limit(400, where=COSTLY_SELECTOR))
    devices = PublishedDevices([slice_of(*indexed_devices(210))]).devices

    counted = [limit.devices.counts(device) for device in devices]

    assert limit.is_closed
    assert limit.available_max == 0
    assert limit.devices.fault is not None
    assert limit.devices.fault.is_spent
    assert str(limit.devices.fault.path) == "spec.limits[0].selectors"
    assert limit.devices.fault.why == "takes more than 200000 steps for the 202 devices that differ"
    # Devices that were evaluated are charged as before.
    assert counted == [False] * 202 + [True] * 8
    assert [limit.devices.counts(device) for device in devices] == counted


def test_a_selector_without_end_closes_the_limit() -> None:
    limit = limit_of(device_limit(4, where=ENDLESS_SELECTOR))

    assert not limit.is_closed
    assert limit.devices.counts(PublishedDevices([slice_of(A100)]).devices[0])
    assert limit.is_closed
    assert limit.devices.fault is not None
    assert limit.devices.fault.is_spent
    assert limit.devices.fault.why == "Iteration budget exceeded"


def test_devices_that_are_gone_take_no_steps() -> None:
    limit = limit_of(device_limit(400, where=COSTLY_SELECTOR))
    devices = PublishedDevices([slice_of(*indexed_devices(300))]).devices

    counted = [limit.devices.counts(device) for device in devices[:150]]
    limit.devices.renew()
    counted += [limit.devices.counts(device) for device in devices[150:]]

    assert not limit.is_closed
    assert counted == [False] * 300


def test_the_largest_amount_follows_the_slices() -> None:
    published = PublishedDevices([slice_of(A100, name="a", pool="a")])
    memory = limit_of(capacity_limit("memory", "1Ti", where="false"))
    slices = limit_of(counter_limit("slices", 9))

    def largest() -> tuple[str, str]:
        return (
            in_units(memory, published.largest_amount(memory)),
            in_units(slices, published.largest_amount(slices)),
        )

    assert largest() == ("40Gi", "0")
    published.replace_slice("b", slice_of(H100, name="b", pool="b"))
    part = device("part", consumes("set-0", slices=3))
    published.replace_slice("c", slice_of(part, name="c", pool="c"))
    assert largest() == ("80Gi", "3")
    published.replace_slice("b", slice_of(A100, name="b", pool="b"))
    published.replace_slice("c", None)
    assert largest() == ("40Gi", "0")
    published.replace_slice("d", slice_of(SHARED, name="d", pool="d", driver="other.example.com"))
    assert largest() == ("40Gi", "0")
    assert published.largest_amount(limit_of(device_limit(1))) == ONE


def test_the_newest_slice_describes_a_device() -> None:
    published = PublishedDevices([slice_of(A100, name="old")])
    grown = device("gpu-0", capacity={"memory": "48Gi"})

    published.replace_slice("new", slice_of(grown, name="new", generation=2))
    assert [found.device for found in published.devices] == [A100, grown]
    found = published.find(published.devices[0].id)
    assert found is not None
    assert found.device == grown

    published.replace_slice("new", None)
    assert [found.device for found in published.devices] == [A100]


def test_slices_by_name() -> None:
    changes: Mapping[str, ResourceSlice | None] = {"a": slice_of(A100, name="a"), "b": None}
    published = PublishedDevices()

    for name, slice_ in changes.items():
        published.replace_slice(name, slice_)

    assert len(published.devices) == 1


def test_estimates_are_at_the_cost_of_the_answer() -> None:
    """Creators of claims choose the number and kinds of their requests."""
    published = PublishedDevices([slice_of(*(device(f"gpu-{number}") for number in range(500)))])
    of_devices = ClaimCharges(published, classes(), Features())
    (limit,) = compile_limits(quota(device_limit(1000)))
    many = claim(*(request(f"r-{number}", f"{number} > 0") for number in range(20)))

    with evaluating(meter=Meter(is_over=lambda: True)), pytest.raises(BudgetSpent):
        of_devices.estimate(many.spec.devices, limit)

    for _ in range(20):  # What is evaluated is kept, so that every attempt gets further.
        with evaluating(meter=Meter(is_over=lambda: True)), suppress(BudgetSpent):
            of_devices.estimate(many.spec.devices, limit)
    with evaluating(meter=Meter(is_over=lambda: True)):
        assert of_devices.estimate(many.spec.devices, limit).total.most == 19 * ONE
