"""The usage of each device by allocated claims."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pytest

from allocator.model.devices import DeviceId
from allocator.model.feature_gates import Features
from allocator.model.usage import (
    DeviceUse,
    Usage,
    gather_usage,
    with_claim,
    without_claim,
    without_claims,
)
from kube.api.resource import ResourceClaim
from kube.collections.layered_mapping import LayeredMapping
from testing.allocation.builders import (
    DRIVER,
    NODE,
    allocated_claim,
    applied_configuration,
    claim,
    quantities,
    request,
    result,
)

DEFAULT: Final = Features()
NO_SHARES: Final = Features(consumable_capacity=False)
DEVICE: Final = DeviceId(DRIVER, NODE, "gpu-0")


def describe_use(use: DeviceUse | None) -> str:
    """`alone | a b | memory=3Gi`: exclusive use, share ids, sums."""
    if use is None:
        return "free"
    sums = (
        "no entry"
        if use.capacity is None
        else " ".join(f"{key}={amount}" for key, amount in sorted(use.capacity.items()))
    )
    return f"{'alone' if use.exclusive else 'shared'} | {' '.join(sorted(use.share_ids))} | {sums}"


class Case(NamedTuple):
    name: str
    want: str
    claims: Sequence[ResourceClaim]
    features: Features = DEFAULT


def share(share_id: str, **consumed: str) -> ResourceClaim:
    return allocated_claim(result(share=share_id, consumed=consumed), name=share_id)


CASES: Final = (
    Case("a claim that is not allocated holds nothing", "free", [claim(request())]),
    Case("a claim without devices holds nothing", "free", [allocated_claim()]),
    Case("a device as a whole", "alone |  | no entry", [allocated_claim(result())]),
    Case("another device", "free", [allocated_claim(result("gpu-1"))]),
    Case("admin access holds nothing", "free", [allocated_claim(result(admin_access=True))]),
    Case(
        "adminAccess false is no admin access",
        "alone |  | no entry",
        [allocated_claim(result(admin_access=False))],
    ),
    Case("a share", "shared | a | memory=1Gi", [share("a", memory="1Gi")]),
    Case(
        "shares add up per capacity",
        "shared | a b | cores=3 memory=3Gi",
        [share("a", memory="1Gi"), share("b", memory="2Gi", cores="3")],
    ),
    Case(
        "shares of one claim add up as well",
        "shared | a b | memory=3",
        [
            allocated_claim(
                result(share="a", consumed={"memory": 1}), result(share="b", consumed={"memory": 2})
            )
        ],
    ),
    Case(
        "a share that tells nothing", "shared | a | no entry", [allocated_claim(result(share="a"))]
    ),
    Case("a share of nothing has an entry", "shared | a | ", [share("a")]),
    Case("a share of zero", "shared | a | memory=0", [share("a", memory="0")]),
    Case(
        "what is consumed without a share id is not counted",
        "alone |  | no entry",
        [allocated_claim(result(consumed={"memory": 1}))],
    ),
    Case(
        "a share beside an exclusive holder",
        "alone | a | memory=1",
        [allocated_claim(result()), share("a", memory="1")],
    ),
    Case(
        "without consumable capacity a share is the whole device",
        "alone |  | no entry",
        [share("a", memory="1")],
        NO_SHARES,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gather_usage(case: Case) -> None:
    assert case.want == describe_use(gather_usage(case.claims, case.features).of(DEVICE))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_claims_one_by_one_and_back(case: Case) -> None:
    history = [Usage()]
    for first_claim in case.claims:
        history.append(with_claim(history[-1], first_claim, case.features))

    assert gather_usage(case.claims, case.features) == history[-1]
    for claim_ in reversed(case.claims):
        after = history.pop()
        assert history[-1] == without_claim(after, claim_, case.features)


def test_removing_claims_in_any_order_leaves_the_others() -> None:
    first_claim, two, three = (share(name, memory="1Gi") for name in "abc")
    usage = gather_usage((first_claim, two, three), DEFAULT)

    usage = without_claim(usage, two, DEFAULT)

    assert gather_usage((first_claim, three), DEFAULT) == usage


def test_a_device_of_two_claims_is_free_after_both_are_removed() -> None:
    first_claim, two = (allocated_claim(result(), name=name) for name in "ab")
    both = gather_usage((first_claim, two), DEFAULT)

    without_claim_ = without_claim(both, first_claim, DEFAULT)

    assert "alone |  | no entry" == describe_use(without_claim_.of(DEVICE))
    assert Usage() == without_claim(without_claim_, two, DEFAULT)


def test_several_claims_are_taken_out_as_one_after_the_other() -> None:
    claims = [
        allocated_claim(result(), name="a"),
        allocated_claim(result(), name="b"),
        allocated_claim(result("device-1"), name="c"),
    ]
    usage = gather_usage(claims, DEFAULT)

    assert without_claims(usage, claims[1:], DEFAULT) == gather_usage(claims[:1], DEFAULT)
    assert without_claims(usage, claims, DEFAULT) == Usage()
    assert without_claims(usage, (), DEFAULT) is usage


def test_a_claim_without_devices_changes_nothing() -> None:
    usage = gather_usage((allocated_claim(result()),), DEFAULT)

    assert usage is with_claim(usage, claim(request()), DEFAULT)
    assert usage == without_claim(usage, allocated_claim(result("gpu-1"), name="other"), DEFAULT)
    assert usage == without_claim(usage, allocated_claim(result(), name="other"), DEFAULT)


def test_other_pools_stay_the_same_objects() -> None:
    other = allocated_claim(result(pool="other"))
    usage = gather_usage((other,), DEFAULT)

    after = with_claim(usage, allocated_claim(result()), DEFAULT)

    assert after.of(DEVICE)
    (pool,) = usage.pools
    assert usage.pools[pool] is after.pools[pool]


@pytest.mark.parametrize(
    ("want", "config"),
    [
        pytest.param([], [], id="no configuration"),
        pytest.param([{"a": 1}], [applied_configuration(a=1)], id="for all requests"),
        pytest.param([{"a": 1}], [applied_configuration("req", a=1)], id="for the request"),
        pytest.param([{"a": 1}], [applied_configuration("req/sub", a=1)], id="for the alternative"),
        pytest.param([], [applied_configuration("req/other", a=1)], id="for another alternative"),
        pytest.param(
            [], [applied_configuration("sub", a=1)], id="not by the alternative's own name"
        ),
        pytest.param(
            [], [applied_configuration(driver="nic.example.com", a=1)], id="for another driver"
        ),
        pytest.param(
            [{"a": 1}, {"a": 2}],
            [applied_configuration(a=1), applied_configuration("x", "req", a=2)],
            id="several, in order",
        ),
    ],
)
def test_parameters_of_a_consumer(want: list[Any], config: list[Any]) -> None:
    usage = gather_usage((allocated_claim(result(request="req/sub"), config=config),), DEFAULT)

    use = usage.of(DEVICE)

    assert use is not None
    assert want == list(use.consumers[0].parameters)


def test_a_consumer_has_its_claim_and_consumption() -> None:
    claim_ = allocated_claim(
        result(share="s", consumed={"memory": "1Gi"}), name="mine", namespace="team"
    )

    use = gather_usage((claim_,), DEFAULT).of(DEVICE)

    assert use is not None
    (holder,) = use.consumers
    assert ("team", "mine", "req-0", "s") == (
        holder.namespace,
        holder.claim,
        holder.request,
        holder.share_id,
    )
    assert quantities({"memory": "1Gi"}) == holder.consumed


def test_the_usage_of_a_large_cluster_is_not_copied_with_each_claim() -> None:
    held_claims = [
        allocated_claim(result(pool=f"node-{number}"), name=f"{number}") for number in range(2_000)
    ]
    before = gather_usage(held_claims, DEFAULT)

    after = without_claim(before, held_claims[0], DEFAULT)
    again = with_claim(after, held_claims[0], DEFAULT)

    assert after == gather_usage(held_claims[1:], DEFAULT)
    assert again == before
    assert isinstance(again.pools, LayeredMapping)
