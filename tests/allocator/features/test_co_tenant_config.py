from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from allocator.features import co_tenant_config as sharing
from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims, Request, resolve_requests
from allocator.model.usage import Consumer, DeviceUse, Usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from testing.allocation.builders import (
    claim,
    classes,
    configured_configuration,
    device,
    device_class,
    node_with,
    opaque,
    pool_of,
    request,
    resolved_request,
)

GATES = Features()
DRIVERS = frozenset({"gpu.example.com"})
NVIDIA = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
Parameters = dict[str, Any]


def gpu(strategy: str | None, **fields: Any) -> Parameters:
    texts = {} if strategy is None else {"sharing": {"strategy": strategy}}
    return NVIDIA | texts | fields


def interval(name: str) -> Parameters:
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": name}}
    return NVIDIA | {"sharing": sharing}


def other(**fields: Any) -> Parameters:
    return {"apiVersion": "x.example.com/v1", "kind": "Other"} | fields


SHARED = node_with(pool_of(device("a", shared=True)))
DEDICATED = node_with(pool_of(device("a")))


def in_use(*tenants: Sequence[Parameters]) -> Usage:
    """The device is shared by claims of another namespace, each with its parameters in order."""
    consumers = tuple(
        Consumer(
            namespace="team-b",
            claim=f"c{index}",
            request="gpu",
            parameters=tuple(parameters),
            share_id=f"share-{index}",
        )
        for index, parameters in enumerate(tenants)
    )
    return Usage(
        pools={SHARED.pools[0].id: {"a": DeviceUse(share_ids=frozenset("s"), consumers=consumers)}}
    )


def configuring(*configurations: Parameters, claim_index: int = 0) -> tuple[Request, PendingClaims]:
    """A claim with one request and a configuration of each of the parameters."""
    request = resolved_request(claim=claim_index)
    claim_ = claim(config=[configured_configuration(**document) for document in configurations])
    return request, PendingClaims(claims=(claim_,), requests=(((request,),),))


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
    Case(False, "one of several co-tenants says otherwise", [[MPS], [SLICES]], [MPS]),
    Case(False, "something beside nothing in the same kind", [[gpu(None)]], [MPS]),
    Case(True, "what does not configure sharing may differ", [[gpu("MPS", note=1)]], [gpu("MPS", note=2)]),
    Case(True, "the order of members is no difference",
         [[NVIDIA | {"sharing": {"a": 1, "b": {"c": 1, "d": 2}}}]],
         [NVIDIA | {"sharing": {"b": {"d": 2, "c": 1}, "a": 1}}]),
    Case(True, "the last of a kind counts: theirs", [[SLICES, MPS]], [MPS]),
    Case(True, "the last of a kind counts: mine", [[MPS]], [SLICES, MPS]),
    Case(True, "a missing interval is the default", [[SLICES]], [interval("Default")]),
    Case(False, "another interval than the default", [[SLICES]], [interval("Short")]),
    Case(False, "intervals that differ", [[interval("Long")]], [interval("Short")]),
    Case(True, "a missing MPS configuration is empty", [[MPS]],
         [NVIDIA | {"sharing": {"strategy": "MPS", "mpsConfig": {}, "timeSlicingConfig": None}}]),
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
    request, pending = configuring(*case.mine)
    constraint = sharing.build_constraint(case.node, in_use(*case.tenants), pending, DRIVERS, GATES)
    assert constraint is not None

    assert case.want == (constraint.rejection(request, 0, further_share=True) is None)
    assert case.want == constraint.add(request, 0, further_share=True)


def test_two_claims_of_one_attempt_do_not_share_a_device() -> None:
    first, second = resolved_request(), resolved_request(claim=1)
    pending = PendingClaims(
        claims=(
            claim(config=[configured_configuration(**MPS)]),
            claim(config=[configured_configuration(**SLICES)]),
        ),
        requests=(((first,),), ((second,),)),
    )
    constraint = sharing.build_constraint(SHARED, Usage(), pending, DRIVERS, GATES)
    assert constraint is not None

    assert constraint.add(first, 0, further_share=False)
    assert not constraint.add(second, 0, further_share=True)
    constraint.remove(first, 0, further_share=False)
    assert constraint.add(second, 0, further_share=False)


def test_the_claim_overrides_the_class() -> None:
    of_class = device_class(config=[opaque(**SLICES)])
    default, configured_request = (
        resolved_request("r0", device_class=of_class),
        resolved_request("r1", device_class=of_class),
    )
    pending = PendingClaims(
        claims=(claim(config=[configured_configuration("r1", **MPS)]),),
        requests=(((default,), (configured_request,)),),
    )
    constraint = sharing.build_constraint(SHARED, in_use([MPS]), pending, DRIVERS, GATES)
    assert constraint is not None

    assert not constraint.add(default, 0, further_share=True)
    assert constraint.add(configured_request, 0, further_share=True)


@pytest.mark.parametrize(
    ("want", "names"),
    [(False, ()), (False, ("gpu",)), (False, ("gpu/big",)), (True, ("gpu/small",)), (True, ("big",))],
)  # fmt: skip
def test_a_claim_configures_the_requests_that_it_names(want: bool, names: Sequence[str]) -> None:
    request, same = resolved_request("big", parent="gpu"), resolved_request("nic")
    pending = PendingClaims(
        claims=(
            claim(
                config=[
                    configured_configuration(*names, **MPS),
                    configured_configuration("nic", **MPS),
                ]
            ),
        ),
        requests=(((request,), (same,)),),
    )
    constraint = sharing.build_constraint(SHARED, in_use([SLICES]), pending, DRIVERS, GATES)
    assert constraint is not None

    assert want == constraint.add(request, 0, further_share=True)


def test_parameters_of_another_driver_are_not_the_device_s() -> None:
    request = resolved_request()
    pending = PendingClaims(
        claims=(claim(config=[configured_configuration(driver="other.example.com", **MPS)]),),
        requests=(((request,),),),
    )

    assert sharing.build_constraint(SHARED, in_use([SLICES]), pending, DRIVERS, GATES) is None


def test_a_rejection_names_the_kind_and_not_the_tenant() -> None:
    request, pending = configuring(MPS)
    constraint = sharing.build_constraint(SHARED, in_use([SLICES]), pending, DRIVERS, GATES)
    assert constraint is not None

    rejection = constraint.rejection(request, 0, further_share=True)

    assert rejection is not None
    assert rejection.reason is Reason.CONFLICTING_SHARING_CONFIG
    assert rejection.detail == "a co-tenant with a conflicting GpuConfig"


def test_no_constraint_without_sharing_configuration_or_driver() -> None:
    _, pending = configuring(MPS)
    _, silent = configuring()
    off = Features(consumable_capacity=False)

    elsewhere = frozenset({"other.example.com"})

    assert sharing.build_constraint(SHARED, in_use([SLICES]), pending, elsewhere, GATES) is None
    assert sharing.build_constraint(SHARED, in_use([SLICES]), pending, frozenset(), GATES) is None
    assert sharing.build_constraint(DEDICATED, Usage(), pending, DRIVERS, GATES) is None
    assert sharing.build_constraint(SHARED, in_use([MPS]), silent, DRIVERS, GATES) is None
    assert sharing.build_constraint(SHARED, in_use([MPS]), pending, DRIVERS, off) is None


# --- devices in use, and plans of other schedulers ------------------------------------------------


@pytest.mark.parametrize(
    ("want", "tenants"),
    [
        (["c0", "c1"], [[interval("Short")], [interval("Long")]]),
        (["c0", "c2", "c1"], [[MPS], [SLICES], [MPS]]),
        (None, [[MPS], [MPS]]),
        (None, [[MPS], []]),
    ],
    ids=["two", "two of three agree", "they agree", "one has no configuration"],
)
def test_contradictions_of_devices_in_use(
    want: Sequence[str] | None, tenants: Sequence[Sequence[Parameters]]
) -> None:
    contradictions = sharing.find_contradictions(in_use(*tenants), DRIVERS)

    got_values = [
        (
            contradiction.device.device,
            contradiction.kind,
            [consumer.claim for consumer in contradiction.consumers],
        )
        for contradiction in contradictions
    ]
    assert ([] if want is None else [("a", "GpuConfig", want)]) == got_values


def test_contradictions_of_other_drivers_are_not_reported() -> None:
    assert () == sharing.find_contradictions(in_use([MPS], [SLICES]), {"other.example.com"})


@pytest.mark.parametrize(("want", "parameters"), [("GpuConfig", SLICES), (None, MPS)])
def test_an_audit_reports_what_a_plan_without_the_constraint_would_cause(
    want: str | None, parameters: Parameters
) -> None:
    pending = resolve_requests(
        [claim(request(), config=[configured_configuration(**parameters)])], classes(), GATES
    )
    usage = in_use([MPS])
    plan = allocate(SHARED, pending, usage, AllocatorOptions())
    assert isinstance(plan, Plan)

    contradictions = sharing.audit_plan(
        plan, SHARED, usage, pending, drivers=DRIVERS, features=GATES
    )

    assert ([] if want is None else [want]) == [
        contradiction.kind for contradiction in contradictions
    ]


def test_the_search_takes_another_device() -> None:
    node = node_with(pool_of(device("a", shared=True), device("b", shared=True)))
    pending = resolve_requests(
        [claim(request(), config=[configured_configuration(**SLICES)])], classes(), GATES
    )

    plan = allocate(node, pending, in_use([MPS]), AllocatorOptions(uniform_config_drivers=DRIVERS))

    assert isinstance(plan, Plan)
    assert ["b"] == [choice.device.id.device for choice in plan.choices[0]]
