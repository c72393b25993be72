from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from allocator.core import sharing
from allocator.core.model import Asked, DeviceUse, Features, Holder, NodeDevices, Request, Usage
from allocator.core.outcome import Reason
from tests.allocator.builders import (
    claim,
    configured,
    device,
    device_class,
    node_with,
    opaque,
    pool_of,
    wanted,
)

GATES = Features()
NVIDIA = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
Parameters = dict[str, Any]


def gpu(strategy: str | None, **fields: Any) -> Parameters:
    said = {} if strategy is None else {"sharing": {"strategy": strategy}}
    return NVIDIA | said | fields


def other(**fields: Any) -> Parameters:
    return {"apiVersion": "x.example.com/v1", "kind": "Other"} | fields


SHARED = node_with(pool_of(device("a", shared=True)))
DEDICATED = node_with(pool_of(device("a")))


def held(*tenants: Sequence[Parameters]) -> Usage:
    """The device is shared by claims of another namespace, each with its parameters in order."""
    holders = tuple(
        Holder(namespace="team-b", claim=f"c{index}", request="gpu", parameters=tuple(said))
        for index, said in enumerate(tenants)
    )
    return Usage(
        pools={SHARED.pools[0].id: {"a": DeviceUse(share_ids=frozenset("s"), holders=holders)}}
    )


def configuring(*said: Parameters, claim_index: int = 0) -> tuple[Request, Asked]:
    """A claim with one request and a configuration of each of the parameters."""
    request = wanted(claim=claim_index)
    made = claim(config=[configured(**each) for each in said])
    return request, Asked(claims=(made,), requests=(((request,),),))


class Case(NamedTuple):
    want: bool
    name: str
    tenants: Sequence[Sequence[Parameters]]
    mine: Sequence[Parameters]
    node: NodeDevices = SHARED


MPS, SLICES = gpu("MPS"), gpu("TimeSlicing")
CASES = (
    Case(True, "nobody is there", (), [MPS]),
    Case(True, "all say the same", [[MPS], [MPS]], [MPS]),
    Case(False, "another strategy", [[MPS]], [SLICES]),
    Case(False, "one of several tenants says otherwise", [[MPS], [SLICES]], [MPS]),
    Case(False, "something beside nothing in the same kind", [[gpu(None)]], [MPS]),
    Case(True, "what does not configure sharing may differ", [[gpu("MPS", note=1)]], [gpu("MPS", note=2)]),
    Case(True, "the order of members is no difference",
         [[NVIDIA | {"sharing": {"a": 1, "b": {"c": 1, "d": 2}}}]],
         [NVIDIA | {"sharing": {"b": {"d": 2, "c": 1}, "a": 1}}]),
    Case(True, "the last of a kind counts: theirs", [[SLICES, MPS]], [MPS]),
    Case(True, "the last of a kind counts: mine", [[MPS]], [SLICES, MPS]),
    Case(True, "another kind", [[MPS]], [other(level=1)]),
    Case(True, "another version is another kind", [[MPS]], [SLICES | {"apiVersion": "resource.nvidia.com/v2"}]),
    Case(False, "an unknown kind that says anything else", [[other(level=1)]], [other(level=2)]),
    Case(True, "an unknown kind that says the same", [[other(level=1)]], [other(level=1)]),
    Case(True, "tenants that say nothing", [[], []], [MPS]),
    Case(False, "parameters without a kind that differ", [[{"level": 1}]], [{"level": 2}]),
    Case(True, "a dedicated device has no tenants to contradict", [[MPS]], [SLICES],
         node_with(pool_of(device("a"), device("b", shared=True)))),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_add(case: Case) -> None:
    request, asked = configuring(*case.mine)
    tracker = sharing.tracker(case.node, held(*case.tenants), asked, GATES)
    assert tracker is not None

    assert case.want == (tracker.refusal(request, 0, further_share=True) is None)
    assert case.want == tracker.add(request, 0, further_share=True)


def test_two_claims_of_one_attempt_are_kept_apart() -> None:
    first, second = wanted(), wanted(claim=1)
    asked = Asked(
        claims=(claim(config=[configured(**MPS)]), claim(config=[configured(**SLICES)])),
        requests=(((first,),), ((second,),)),
    )
    tracker = sharing.tracker(SHARED, Usage(), asked, GATES)
    assert tracker is not None

    assert tracker.add(first, 0, further_share=False)
    assert not tracker.add(second, 0, further_share=True)
    tracker.undo(first, 0, further_share=False)
    assert tracker.add(second, 0, further_share=False)


def test_the_class_speaks_first_and_the_claim_overrides_it() -> None:
    of_class = device_class(config=[opaque(**SLICES)])
    silent, speaking = wanted("r0", device_class=of_class), wanted("r1", device_class=of_class)
    asked = Asked(
        claims=(claim(config=[configured("r1", **MPS)]),), requests=(((silent,), (speaking,)),)
    )
    tracker = sharing.tracker(SHARED, held([MPS]), asked, GATES)
    assert tracker is not None

    assert not tracker.add(silent, 0, further_share=True)
    assert tracker.add(speaking, 0, further_share=True)


@pytest.mark.parametrize(
    ("want", "names"),
    [(False, ()), (False, ("gpu",)), (False, ("gpu/big",)), (True, ("gpu/small",)), (True, ("big",))],
)  # fmt: skip
def test_a_claim_configures_the_requests_that_it_names(want: bool, names: Sequence[str]) -> None:
    request, same = wanted("big", parent="gpu"), wanted("nic")
    asked = Asked(
        claims=(claim(config=[configured(*names, **MPS), configured("nic", **MPS)]),),
        requests=(((request,), (same,)),),
    )
    tracker = sharing.tracker(SHARED, held([SLICES]), asked, GATES)
    assert tracker is not None

    assert want == tracker.add(request, 0, further_share=True)


def test_parameters_of_another_driver_are_not_the_device_s() -> None:
    request = wanted()
    asked = Asked(
        claims=(claim(config=[configured(driver="other.example.com", **MPS)]),),
        requests=(((request,),),),
    )

    assert sharing.tracker(SHARED, held([SLICES]), asked, GATES) is None


def test_refusal_tells_the_kind_and_not_the_tenant() -> None:
    request, asked = configuring(MPS)
    tracker = sharing.tracker(SHARED, held([SLICES]), asked, GATES)
    assert tracker is not None

    found = tracker.refusal(request, 0, further_share=True)

    assert found is not None
    assert found.reason is Reason.CONFIGURATION
    assert found.detail == "its GpuConfig contradicts that of another tenant"


def test_no_tracker_when_nothing_is_shared_or_configured() -> None:
    _, asked = configuring(MPS)
    _, silent = configuring()
    off = Features(consumable_capacity=False)

    assert sharing.tracker(DEDICATED, Usage(), asked, GATES) is None
    assert sharing.tracker(SHARED, held([MPS]), silent, GATES) is None
    assert sharing.tracker(SHARED, held([MPS]), asked, off) is None
