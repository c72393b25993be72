"""The recheck of a written allocation when its devices are about to be used."""

from typing import NamedTuple

import pytest

from allocator.compatibility.compile import compile_policy
from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason
from allocator.model.usage import Usage, gather_usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.recheck import AllocationConflict, are_compatible, find_conflict
from kube.api.resource import ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    amount,
    applied_configuration,
    consumes,
    counter_set,
    device,
    node_with,
    policy,
    pool_of,
    result,
    rule,
)

FEATURES = Features(compatibility_groups=True)
SHAREABLE = device(
    "gpu-0",
    capacity={"memory": amount("80Gi", default="1Gi", min="1Gi", step="1Gi")},
    shared=True,
)
PLAIN = node_with(pool_of(device("gpu-0"), device("gpu-1")))
SHARED = node_with(pool_of(SHAREABLE))
PARTS = node_with(
    pool_of(
        device("whole", consumes(memory="80Gi")),
        device("half-a", consumes(memory="40Gi", groups=["mig"])),
        device("half-b", consumes(memory="40Gi", groups=["mig"])),
        device("slice", consumes(memory="1Gi", groups=["mps"])),
        counters=[counter_set(memory="80Gi")],
    )
)


def share(text: str, memory: str, name: str) -> ResourceClaim:
    return allocated_claim(result(text, share=name, consumed={"memory": memory}), name=name)


class Case(NamedTuple):
    name: str
    node: NodeDevices
    claim: ResourceClaim
    others: tuple[ResourceClaim, ...]
    want: tuple[Reason, str] | None


A, B = (allocated_claim(result("gpu-0"), name=name) for name in ("a", "b"))
CASES = (
    Case("a device that nobody uses", PLAIN, A, (), None),
    Case(
        "a device beside another one", PLAIN, A, (allocated_claim(result("gpu-1"), name="b"),), None
    ),
    Case("a device that another claim has", PLAIN, A, (B,), (Reason.ALLOCATED, "in use")),
    Case(
        "one device twice in one claim",
        PLAIN,
        allocated_claim(result("gpu-0", request="a"), result("gpu-0", request="b")),
        (),
        (Reason.ALLOCATED, "in use"),
    ),
    Case(
        "admin access to a device in use",
        PLAIN,
        allocated_claim(result("gpu-0", admin_access=True)),
        (B,),
        None,
    ),
    Case(
        "a device that admin access alone uses",
        PLAIN,
        A,
        (allocated_claim(result("gpu-0", admin_access=True), name="b"),),
        None,
    ),
    Case(
        "a device that does not exist",
        PLAIN,
        allocated_claim(result("gpu-9")),
        (),
        (Reason.NO_DEVICES, "not published"),
    ),
    Case(
        "a device of another driver", PLAIN, allocated_claim(result("x", driver="other")), (), None
    ),
    Case(
        "two shares that fit",
        SHARED,
        share("gpu-0", "40Gi", "a"),
        (share("gpu-0", "40Gi", "b"),),
        None,
    ),
    Case(
        "two shares that are too much together",
        SHARED,
        share("gpu-0", "41Gi", "a"),
        (share("gpu-0", "40Gi", "b"),),
        (Reason.CAPACITY, "memory 40Gi of 80Gi left (< 41Gi)"),
    ),
    Case(
        "a share id that another claim has",
        SHARED,
        share("gpu-0", "1Gi", "b"),
        (share("gpu-0", "1Gi", "b"),),
        (Reason.ALLOCATED, "in use"),
    ),
    Case(
        "a share that consumes less than its policy gives",
        SHARED,
        share("gpu-0", "1Mi", "a"),
        (),
        (Reason.CAPACITY, "consumed memory 1Mi (!= 1Gi)"),
    ),
    Case(
        "a share that does not say what it consumes",
        SHARED,
        allocated_claim(result("gpu-0", share="a")),
        (),
        (Reason.CAPACITY, "consumed memory nothing (!= 1Gi)"),
    ),
    Case(
        "a share that consumes a negative amount",
        SHARED,
        share("gpu-0", "-5Gi", "a"),
        (),
        (Reason.CAPACITY, "consumed memory -5Gi"),
    ),
    Case(
        "a share of what the device does not have",
        SHARED,
        allocated_claim(result("gpu-0", share="a", consumed={"cores": 1})),
        (),
        (Reason.CAPACITY_NOT_FOUND, "no capacity cores"),
    ),
    Case(
        "all of a device that is shared",
        SHARED,
        A,
        (share("gpu-0", "1Gi", "b"),),
        (Reason.ALLOCATED, "in use"),
    ),
    Case(
        "a share of a device that another claim has alone",
        SHARED,
        share("gpu-0", "1Gi", "a"),
        (B,),
        (Reason.ALLOCATED, "in use"),
    ),
    Case(
        "a share of a device that cannot be shared",
        PLAIN,
        allocated_claim(result("gpu-0", share="a")),
        (),
        (Reason.ALLOCATED, "not shareable"),
    ),
    Case(
        "two parts of one card",
        PARTS,
        allocated_claim(result("half-a")),
        (allocated_claim(result("half-b"), name="b"),),
        None,
    ),
    Case(
        "a part of a card that is in use as a whole",
        PARTS,
        allocated_claim(result("half-a")),
        (allocated_claim(result("whole"), name="b"),),
        (Reason.GROUPS, "counter set set-0"),
    ),
    Case(
        "parts of one card that have no group in common",
        PARTS,
        allocated_claim(result("half-a"), result("slice", request="req-1")),
        (),
        (Reason.GROUPS, "counter set set-0"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_find_conflict(case: Case) -> None:
    conflict = _conflict(case.claim, case.node, case.others)

    if case.want is None:
        assert conflict is None
    else:
        assert conflict is not None
        assert case.want[0] == conflict.rejection.reason
        assert case.want[1] in conflict.rejection.detail


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_claims_are_compatible_if_none_is_in_conflict_with_those_before(case: Case) -> None:
    claims = (*case.others, case.claim)

    is_compatible = are_compatible(claims, case.node, Usage(), AllocatorOptions(features=FEATURES))

    assert (case.want is None) == is_compatible


def test_an_allocation_of_too_many_devices_is_a_conflict() -> None:
    """The API server stores no more than 32, but need not have been asked."""
    node = node_with(pool_of(*(device(f"gpu-{number}") for number in range(33))))
    claim = allocated_claim(*(result(f"gpu-{number}") for number in range(33)))

    conflict = _conflict(claim, node, ())

    assert conflict is not None
    assert Reason.ATTEMPT_FAILED is conflict.rejection.reason


def test_counters_are_compared_without_groups() -> None:
    node = node_with(
        pool_of(
            device("large", consumes(memory="50Gi")),
            device("small", consumes(memory="40Gi")),
            counters=[counter_set(memory="80Gi")],
        )
    )

    conflict = _conflict(
        allocated_claim(result("small")), node, (allocated_claim(result("large"), name="b"),)
    )

    assert conflict is not None
    assert conflict.rejection.reason is Reason.COUNTERS
    assert not conflict.consumers


def test_a_conflict_names_the_consumers_of_the_device() -> None:
    conflict = _conflict(A, PLAIN, (allocated_claim(result("gpu-0"), name="b", namespace="other"),))

    assert conflict is not None
    assert [("other", "b")] == [
        (consumer.namespace, consumer.claim) for consumer in conflict.consumers
    ]
    assert "other" not in conflict.rejection.detail


def test_a_policy_keeps_devices_apart() -> None:
    node = node_with(
        pool_of(
            device("shared", attributes={"mode": "shared", "uuid": "1"}),
            device("whole", attributes={"mode": "whole", "uuid": "1"}),
        )
    )
    mode = 'device.attributes["gpu.example.com"].mode'
    apart = policy(rule("whole", f'{mode} == "whole"', only=f'{mode} == "whole"'))
    options = AllocatorOptions(features=FEATURES, policies=(compile_policy(apart),))
    usage = gather_usage([allocated_claim(result("shared"), name="b")], FEATURES)

    conflict = find_conflict(allocated_claim(result("whole")), node, usage, options)

    assert conflict is not None
    assert conflict.rejection.reason is Reason.POLICY


@pytest.mark.parametrize(
    ("interval", "want"),
    [("Short", None), ("Long", Reason.CONFLICTING_SHARING_CONFIG)],
    ids=["same", "other"],
)
def test_configurations_of_one_device_are_compared(interval: str, want: Reason | None) -> None:
    options = AllocatorOptions(features=FEATURES, uniform_config_drivers=frozenset({DRIVER}))
    mine, theirs = (
        applied_configuration(apiVersion="example.com/v1", kind="Config", interval=value)
        for value in ("Short", interval)
    )
    other = allocated_claim(
        result("gpu-0", share="b", consumed={"memory": "1Gi"}), name="b", config=[theirs]
    )
    claim = allocated_claim(result("gpu-0", share="a", consumed={"memory": "1Gi"}), config=[mine])

    conflict = find_conflict(claim, SHARED, gather_usage([other], FEATURES), options)

    assert want == (conflict.rejection.reason if conflict is not None else None)


def _conflict(
    claim: ResourceClaim, node: NodeDevices, others: tuple[ResourceClaim, ...]
) -> AllocationConflict | None:
    options = AllocatorOptions(features=FEATURES)
    return find_conflict(claim, node, gather_usage(others, FEATURES), options)
