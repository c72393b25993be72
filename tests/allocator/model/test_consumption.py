from typing import NamedTuple

import pytest

from allocator.model.consumption import Consumption, consumption
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed, Reason, RejectionReason
from kube.api.resource import DeviceCapacity
from kube.quantity import Format, Quantity
from testing.allocation.builders import amount, device, quantities

GATES = Features()
FRACTIONAL = Features(fractional_capacity_range=True)


class Case(NamedTuple):
    want: str | Reason
    name: str
    requested: str | None
    capacity: DeviceCapacity
    features: Features = GATES


CASES = (
    Case("80Gi", "silence without a policy takes the whole device", None, amount("80Gi")),
    Case("4Gi", "silence takes the policy's default", None, amount("80Gi", "4Gi", min="1Gi")),
    Case("3Gi", "without a policy as much as is asked", "3Gi", amount("80Gi")),
    Case("0", "nothing at all without a policy", "0", amount("80Gi")),
    Case("3Gi", "a policy that has only a default changes nothing", "3Gi", amount("80Gi", "4Gi")),
    Case(Reason.CAPACITY, "more than the device has", "81Gi", amount("80Gi")),
)  # fmt: skip
RANGES = (
    Case("2Gi", "below min is raised to min", "1Gi", amount("80Gi", "2Gi", min="2Gi")),
    Case("2", "less than min is told exactly, before anything is rounded", "1500m",
         amount("80", "2", min="2", step="5")),
    Case("1500m", "without steps nothing is rounded", "1500m", amount("80", "1", min="1")),
    Case("6Gi", "between steps goes up, counted from min", "3Gi", amount("80Gi", "2Gi", min="2Gi", step="4Gi")),
    Case("6Gi", "a step itself stays", "6Gi", amount("80Gi", "2Gi", min="2Gi", step="4Gi")),
    Case("8Gi", "max itself fits", "8Gi", amount("80Gi", "2Gi", min="2Gi", max="8Gi")),
    Case(Reason.ABOVE_MAXIMUM, "past max does not", "9Gi", amount("80Gi", "2Gi", min="2Gi", max="8Gi")),
    Case(Reason.ABOVE_MAXIMUM, "rounded past max does not", "5", amount("80", "2", min="2", max="5", step="2")),
    Case("2", "steps count whole numbers, rounded up", "1500m", amount("80", "1", min="1", step="1")),
    Case("1", "a fractional step is a whole one while the gate is off", "200m",
         amount("4", "100m", min="100m", step="100m")),
    Case("300m", "thousandths with the gate on", "250m",
         amount("1", "200m", min="200m", max="1", step="100m"), FRACTIONAL),
    Case("2", "whole numbers with the gate on", "1500m", amount("80", "1", min="1", step="1"), FRACTIONAL),
    Case("1", "a range finer than thousandths counts whole numbers with the gate on", "250m",
         amount("4", "100u", min="100u", step="100u"), FRACTIONAL),
    Case(Reason.NOT_MULTIPLE_OF_STEP, "the whole of a device may be no step", None, amount("5", min="2", step="2")),
    Case("3", "a default is exempt", None, amount("5", "3", min="2", max="2", step="2")),
    Case(Reason.ABOVE_MAXIMUM, "the same amount in another family is not", "3",
         amount("3Ki", "3e0", min="2", max="2")),
)  # fmt: skip
VALUES = (
    Case("8Gi", "the smallest valid value that is enough", "5Gi", amount("80Gi", "1Gi", values=("1Gi", "8Gi"))),
    Case("8Gi", "a valid value itself", "8Gi", amount("80Gi", "1Gi", values=("1Gi", "8Gi"))),
    Case(Reason.NOT_IN_VALID_VALUES, "above every valid value", "41Gi", amount("80Gi", "1Gi", values=("8Gi", "40Gi"))),
    Case(Reason.NOT_IN_VALID_VALUES, "anything where only zero is valid", "1", amount("80Gi", "0", values=("0",))),
    Case("0", "silence where only zero is valid", None, amount("80Gi", "0", values=("0",))),
)  # fmt: skip


@pytest.mark.parametrize("case", [*CASES, *RANGES, *VALUES], ids=lambda case: case.name)
def test_consumption(case: Case) -> None:
    requested = {"memory": Quantity(case.requested)} if case.requested is not None else None
    device_ = device(capacity={"memory": case.capacity})

    outcome = consumption(requested, device_, case.features)

    text = (
        outcome.reason if isinstance(outcome, RejectionReason) else str(outcome.amounts["memory"])
    )
    assert case.want == text


HUGE = str(2**63)
FATAL = (
    Case("negative", "a negative amount", "-1", amount("80")),
    Case("negative", "a negative minimum", "-9", amount("80", "-2", min="-2", step="1")),
    Case("negative", "a negative default", None, amount("80", "-2")),
    Case("cannot be represented", "beyond 64 bits, with steps", HUGE, amount("80", "1", min="1", step="1")),
    Case("cannot be represented", "rounded beyond 64 bits", str(2**63 - 1), amount("80", "1", min="1", step="4")),
    Case("cannot be represented", "finer than thousandths", "1100u",
         amount("1", "1m", min="1m", step="1m"), FRACTIONAL),
    Case("cannot be represented", "a negative minimum, in thousandths", "2",
         amount("4", "1", min="-1", step="1"), FRACTIONAL),
    Case("cannot be represented", "a step of nothing", "2", amount("4", "1", min="1", step="0")),
)  # fmt: skip


@pytest.mark.parametrize("case", FATAL, ids=lambda case: case.name)
def test_invalid_amounts_fail_the_attempt(case: Case) -> None:
    requested = {"memory": Quantity(case.requested)} if case.requested is not None else None
    device_ = device(capacity={"memory": case.capacity})

    with pytest.raises(AttemptFailed, match=str(case.want)):
        consumption(requested, device_, case.features)


def test_beyond_64_bits_is_exact_without_steps() -> None:
    device_ = device(capacity={"memory": amount("1e21", "1", min="1")})

    outcome = consumption({"memory": Quantity("1e20")}, device_, GATES)

    assert isinstance(outcome, Consumption)
    assert Quantity("1e20") == outcome.amounts["memory"]


def test_invalid_amounts_come_before_insufficient_ones() -> None:
    device_ = device(capacity={"a": "1", "b": amount("80", "1", min="1", step="1")})

    with pytest.raises(AttemptFailed, match="capacity b"):
        consumption(quantities({"a": "2", "b": HUGE}), device_, GATES)


def test_a_missing_capacity_comes_before_invalid_amounts() -> None:
    device_ = device(capacity={"b": amount("80", "1", min="1", step="1")})

    outcome = consumption(quantities({"a": "2", "b": HUGE}), device_, GATES)

    assert isinstance(outcome, RejectionReason)
    assert outcome.reason is Reason.CAPACITY_NOT_FOUND


@pytest.mark.parametrize(
    ("key", "requested"), [("m", "gpu.example.com/m"), ("gpu.example.com/m", "m")]
)
def test_keys_are_literal(key: str, requested: str) -> None:
    outcome = consumption(quantities({requested: "1"}), device(capacity={key: "4"}), GATES)

    assert isinstance(outcome, RejectionReason)
    assert outcome.reason is Reason.CAPACITY_NOT_FOUND


def test_amounts_have_the_format_of_the_step() -> None:
    device_ = device(capacity={"m": amount("8Gi", "1Gi", min="1Gi", step="1Gi")})

    outcome = consumption(quantities({"m": "3000000000"}), device_, GATES)

    assert isinstance(outcome, Consumption)
    assert (Format.BINARY, "3Gi") == (outcome.amounts["m"].format, str(outcome.amounts["m"]))


@pytest.mark.parametrize(
    ("want", "requested", "device_capacity"),
    [
        ("m up to 8 (9 needed)", "9", amount("80", values=("1", "8"))),
        ("m up to 8 (9 needed)", "9", amount("80", "2", min="2", max="8")),
        ("m 80 (< 81)", "81", amount("80")),
        ("m 40Gi (< 500000Mi)", "524288M", amount("42949672960")),
    ],
)
def test_rejections_of_amounts(want: str, requested: str, device_capacity: DeviceCapacity) -> None:
    outcome = consumption(
        quantities({"m": requested}), device(capacity={"m": device_capacity}), GATES
    )

    assert isinstance(outcome, RejectionReason)
    assert want == outcome.detail
