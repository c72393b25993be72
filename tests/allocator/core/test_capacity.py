from typing import NamedTuple

import pytest

from allocator.core import capacity
from allocator.core.capacity import Consumption
from allocator.core.model import DeviceUse, Features, NodeDevices, Request, Usage
from allocator.core.outcome import AttemptFailed, Reason, Refusal
from kube.api.resource import DeviceCapacity
from kube.quantity import Format, Quantity
from tests.allocator.builders import amount, device, node_with, pool_of, quantities, wanted

GATES = Features()
FRACTIONAL = Features(fractional_capacity_range=True)


class Case(NamedTuple):
    want: str | Reason
    name: str
    asked: str | None
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
    Case(Reason.NOT_A_STEP, "the whole of a device may be no step", None, amount("5", min="2", step="2")),
    Case("3", "a default is exempt", None, amount("5", "3", min="2", max="2", step="2")),
    Case(Reason.ABOVE_MAXIMUM, "the same amount in another family is not", "3",
         amount("3Ki", "3e0", min="2", max="2")),
)  # fmt: skip
VALUES = (
    Case("8Gi", "the smallest valid value that is enough", "5Gi", amount("80Gi", "1Gi", values=("1Gi", "8Gi"))),
    Case("8Gi", "a valid value itself", "8Gi", amount("80Gi", "1Gi", values=("1Gi", "8Gi"))),
    Case(Reason.NOT_A_VALID_VALUE, "above every valid value", "41Gi", amount("80Gi", "1Gi", values=("8Gi", "40Gi"))),
    Case(Reason.NOT_A_VALID_VALUE, "anything where only zero is valid", "1", amount("80Gi", "0", values=("0",))),
    Case("0", "silence where only zero is valid", None, amount("80Gi", "0", values=("0",))),
)  # fmt: skip


@pytest.mark.parametrize("case", [*CASES, *RANGES, *VALUES], ids=lambda case: case.name)
def test_consumption(case: Case) -> None:
    asked = {"memory": Quantity(case.asked)} if case.asked is not None else None
    one = device(capacity={"memory": case.capacity})

    got = capacity.consumption(asked, one, case.features)

    found = got.reason if isinstance(got, Refusal) else str(got.amounts["memory"])
    assert case.want == found


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
def test_broken_amounts_end_the_attempt(case: Case) -> None:
    asked = {"memory": Quantity(case.asked)} if case.asked is not None else None
    one = device(capacity={"memory": case.capacity})

    with pytest.raises(AttemptFailed, match=str(case.want)):
        capacity.consumption(asked, one, case.features)


def test_beyond_64_bits_is_exact_without_steps() -> None:
    one = device(capacity={"memory": amount("1e21", "1", min="1")})

    got = capacity.consumption({"memory": Quantity("1e20")}, one, GATES)

    assert isinstance(got, Consumption)
    assert Quantity("1e20") == got.amounts["memory"]


def test_broken_amounts_come_before_those_that_only_do_not_fit() -> None:
    one = device(capacity={"a": "1", "b": amount("80", "1", min="1", step="1")})

    with pytest.raises(AttemptFailed, match="capacity b"):
        capacity.consumption(quantities({"a": "2", "b": HUGE}), one, GATES)


def test_a_key_that_is_missing_comes_before_broken_amounts() -> None:
    one = device(capacity={"b": amount("80", "1", min="1", step="1")})

    got = capacity.consumption(quantities({"a": "2", "b": HUGE}), one, GATES)

    assert isinstance(got, Refusal)
    assert got.reason is Reason.NO_SUCH_CAPACITY


@pytest.mark.parametrize(("key", "asked"), [("m", "gpu.example.com/m"), ("gpu.example.com/m", "m")])
def test_keys_are_literal(key: str, asked: str) -> None:
    got = capacity.consumption(quantities({asked: "1"}), device(capacity={key: "4"}), GATES)

    assert isinstance(got, Refusal)
    assert got.reason is Reason.NO_SUCH_CAPACITY


def test_amounts_are_written_as_the_step_is() -> None:
    one = device(capacity={"m": amount("8Gi", "1Gi", min="1Gi", step="1Gi")})

    got = capacity.consumption(quantities({"m": "3000000000"}), one, GATES)

    assert isinstance(got, Consumption)
    assert (Format.BINARY, "3Gi") == (got.amounts["m"].format, str(got.amounts["m"]))


# --- what is left ---------------------------------------------------------------------------------


def tracked(node: NodeDevices, usage: Usage | None = None) -> capacity.Capacity:
    tracker = capacity.tracker(node, usage or Usage(), [asking(m="1")], GATES)
    assert tracker is not None
    return tracker


def asking(**amounts: str) -> Request:
    return wanted(capacity=amounts)


SHARED_4 = node_with(pool_of(device("a", capacity={"m": "4"}, shared=True)))
DEDICATED_4 = node_with(pool_of(device("a", capacity={"m": "4"})))


def use(node: NodeDevices, **amounts: str) -> Usage:
    share = DeviceUse(share_ids=frozenset("s"), capacity=quantities(amounts))
    return Usage(pools={node.pools[0].id: {"a": share}})


class Shares(NamedTuple):
    want: list[bool]
    name: str
    node: NodeDevices
    asked: list[str | None]
    usage: Usage = Usage()


SHARES = (
    Shares([True, True], "1 and 3 of 4", SHARED_4, ["1", "3"]),
    Shares([True, False], "2 and 3 of 4", SHARED_4, ["2", "3"]),
    Shares([True, False], "silence takes all", SHARED_4, [None, None]),
    Shares([True, True, True], "nothing, again and again", SHARED_4, ["4", "0", "0"]),
    Shares([True, False], "2 of 4 are in use", SHARED_4, ["2", "1"], use(SHARED_4, m="2")),
    Shares([True], "what is in use of a key that is gone does not count", SHARED_4, ["4"], use(SHARED_4, x="2")),
    Shares([False], "less than nothing is left", SHARED_4, ["0"], use(SHARED_4, m="5")),
    Shares([False, True, True], "of a dedicated device nothing is taken", DEDICATED_4, ["5", "3", "3"]),
    Shares([False, True], "of a device that was shared the shares still count", DEDICATED_4, ["3", "2"],
           use(DEDICATED_4, m="2")),
)  # fmt: skip


@pytest.mark.parametrize("case", SHARES, ids=lambda case: case.name)
def test_add(case: Shares) -> None:
    tracker = tracked(case.node, case.usage)
    asked = [asking(m=each) if each is not None else wanted() for each in case.asked]

    assert case.want == [tracker.add(each, 0, further_share=False) for each in asked]


def test_consumed_tells_all_keys_of_a_share() -> None:
    node = node_with(
        pool_of(
            device("a", capacity={"m": "4", "n": amount("4", "0")}, shared=True),
            device("b", shared=True),
            device("c", capacity={"m": "4"}),
        )
    )
    tracker = tracked(node)

    assert quantities({"m": "1", "n": "0"}) == tracker.consumed(asking(m="1"), 0)
    assert {} == tracker.consumed(wanted(), 1)
    assert tracker.consumed(asking(m="1"), 2) is None


def test_static_looks_at_the_total_only() -> None:
    tracker = tracked(SHARED_4, use(SHARED_4, m="4"))

    assert isinstance(tracker.static(asking(m="4"), 0), Consumption)
    assert Refusal(reason=Reason.CAPACITY, detail="m 4 below 5") == tracker.static(asking(m="5"), 0)
    assert not tracker.add(asking(m="5"), 0, further_share=False)


def test_refusal_tells_what_is_left() -> None:
    tracker = tracked(SHARED_4, use(SHARED_4, m="3"))

    found = tracker.refusal(asking(m="2"), 0, further_share=False)

    assert Refusal(reason=Reason.CAPACITY, detail="m: 1 of 4 left, 2 needed") == found


def test_broken_amounts_name_request_and_device() -> None:
    with pytest.raises(AttemptFailed, match=r"request req-0: .* device gpu\.example\.com/node-1/a"):
        tracked(SHARED_4).add(asking(m="-1"), 0, further_share=False)


def test_no_tracker_when_no_amount_has_a_say() -> None:
    plain = node_with(pool_of(device()))
    shared = node_with(pool_of(device(shared=True)))

    negative = node_with(pool_of(device("a", capacity={"m": "-1"})))
    of_policy = node_with(pool_of(device("a", capacity={"m": amount("80Gi", "4Gi")})))

    assert capacity.tracker(plain, Usage(), [wanted()], GATES) is None
    assert capacity.tracker(DEDICATED_4, Usage(), [wanted()], GATES) is None
    assert capacity.tracker(DEDICATED_4, use(SHARED_4), [wanted()], GATES) is not None
    assert capacity.tracker(negative, Usage(), [wanted()], GATES) is not None
    assert capacity.tracker(of_policy, Usage(), [wanted()], GATES) is not None
    assert capacity.tracker(plain, Usage(), [asking(m="1")], GATES) is not None
    assert capacity.tracker(shared, Usage(), [wanted()], GATES) is not None
    assert capacity.tracker(SHARED_4, Usage(), (), Features(consumable_capacity=False)) is None


def test_equal_devices_are_one_shape_but_how_amounts_are_written_counts() -> None:
    pool = pool_of(*(device(name, capacity={"m": "1Ki"}) for name in "ab"),
                   device("c", capacity={"m": "1024"}))  # fmt: skip
    first, second, third = map(capacity.shape, pool.devices)

    assert first is second
    assert first is not third


@pytest.mark.parametrize(
    ("want", "asked", "of"),
    [
        ("m 9 is not a valid value, the largest is 8", "9", amount("80", values=("1", "8"))),
        ("m 9 above the maximum 8", "9", amount("80", "2", min="2", max="8")),
        ("m 80 below 81", "81", amount("80")),
        ("m 40Gi below 500000Mi", "524288M", amount("42949672960")),
    ],
)
def test_refusals_say_what_is_wrong(want: str, asked: str, of: DeviceCapacity) -> None:
    found = capacity.consumption(quantities({"m": asked}), device(capacity={"m": of}), GATES)

    assert isinstance(found, Refusal)
    assert want == found.detail
