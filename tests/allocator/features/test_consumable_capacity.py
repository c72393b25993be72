from typing import NamedTuple

import pytest

from allocator.features import consumable_capacity as capacity
from allocator.model.consumption import Consumption
from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed, Reason, RejectionReason, Verb
from allocator.model.requests import Request
from allocator.model.usage import DeviceUse, Usage
from testing.allocation.builders import (
    amount,
    device,
    node_with,
    pool_of,
    quantities,
    resolved_request,
)

GATES = Features()
FRACTIONAL = Features(fractional_capacity_range=True)


def tracked_capacity_constraint(
    node: NodeDevices, usage: Usage | None = None
) -> capacity.CapacityConstraint:
    constraint = capacity.build_constraint(node, usage or Usage(), [asking_request(m="1")], GATES)
    assert constraint is not None
    return constraint


def asking_request(**amounts: str) -> Request:
    return resolved_request(capacity=amounts)


SHARED_4 = node_with(pool_of(device("a", capacity={"m": "4"}, shared=True)))
DEDICATED_4 = node_with(pool_of(device("a", capacity={"m": "4"})))


def use(node: NodeDevices, **amounts: str) -> Usage:
    share = DeviceUse(share_ids=frozenset("s"), capacity=quantities(amounts))
    return Usage(pools={node.pools[0].id: {"a": share}})


class Shares(NamedTuple):
    want: list[bool]
    name: str
    node: NodeDevices
    pending: list[str | None]
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
    constraint = tracked_capacity_constraint(case.node, case.usage)
    pending = [
        asking_request(m=text) if text is not None else resolved_request() for text in case.pending
    ]

    assert case.want == [constraint.add(request, 0, further_share=False) for request in pending]


def test_consumed_capacity_has_all_keys() -> None:
    node = node_with(
        pool_of(
            device("a", capacity={"m": "4", "n": amount("4", "0")}, shared=True),
            device("b", shared=True),
            device("c", capacity={"m": "4"}),
        )
    )
    constraint = tracked_capacity_constraint(node)

    assert quantities({"m": "1", "n": "0"}) == constraint.consumed_capacity(
        asking_request(m="1"), 0
    )
    assert {} == constraint.consumed_capacity(resolved_request(), 1)
    assert constraint.consumed_capacity(asking_request(m="1"), 2) is None


def test_consumption_at_ignores_the_usage() -> None:
    constraint = tracked_capacity_constraint(SHARED_4, use(SHARED_4, m="4"))

    assert isinstance(constraint.consumption_at(asking_request(m="4"), 0), Consumption)
    assert RejectionReason(
        reason=Reason.CAPACITY, verb=Verb.HAVE, subject="m", value="4", remark="< 5"
    ) == constraint.consumption_at(asking_request(m="5"), 0)
    assert not constraint.add(asking_request(m="5"), 0, further_share=False)


def test_rejection_names_the_available_amount() -> None:
    constraint = tracked_capacity_constraint(SHARED_4, use(SHARED_4, m="3"))

    rejection = constraint.rejection(asking_request(m="2"), 0, further_share=False)

    assert (
        RejectionReason(
            reason=Reason.CAPACITY, verb=Verb.HAVE, subject="m", value="1 of 4 left", remark="< 2"
        )
        == rejection
    )


def test_errors_about_amounts_name_request_and_device() -> None:
    with pytest.raises(AttemptFailed, match=r"request req-0: .* device gpu\.example\.com/node-1/a"):
        tracked_capacity_constraint(SHARED_4).add(asking_request(m="-1"), 0, further_share=False)


def test_no_constraint_if_no_amount_matters() -> None:
    plain = node_with(pool_of(device()))
    node_with_ = node_with(pool_of(device(shared=True)))

    negative = node_with(pool_of(device("a", capacity={"m": "-1"})))
    of_policy = node_with(pool_of(device("a", capacity={"m": amount("80Gi", "4Gi")})))

    assert capacity.build_constraint(plain, Usage(), [resolved_request()], GATES) is None
    assert capacity.build_constraint(DEDICATED_4, Usage(), [resolved_request()], GATES) is None
    assert (
        capacity.build_constraint(DEDICATED_4, use(SHARED_4), [resolved_request()], GATES)
        is not None
    )
    assert capacity.build_constraint(negative, Usage(), [resolved_request()], GATES) is not None
    assert capacity.build_constraint(of_policy, Usage(), [resolved_request()], GATES) is not None
    assert capacity.build_constraint(plain, Usage(), [asking_request(m="1")], GATES) is not None
    assert capacity.build_constraint(node_with_, Usage(), [resolved_request()], GATES) is not None
    assert (
        capacity.build_constraint(SHARED_4, Usage(), (), Features(consumable_capacity=False))
        is None
    )


def test_equal_devices_have_one_shape_unless_formats_differ() -> None:
    pool = pool_of(*(device(name, capacity={"m": "1Ki"}) for name in "ab"),
                   device("c", capacity={"m": "1024"}))  # fmt: skip
    first, second, third = map(capacity.device_shape, pool.devices)

    assert first is second
    assert first is not third
