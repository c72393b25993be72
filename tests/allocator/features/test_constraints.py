from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.features import constraints
from allocator.features.constraints import AttributeConstraints, DeviceDemand
from allocator.model.constraint import RemainingDemand
from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed, Reason
from allocator.model.requests import PendingClaims, Request
from kube.api.resource import Device, DeviceConstraint
from testing.allocation.builders import (
    Attribute,
    Version,
    claim,
    device,
    distinct,
    match,
    node_with,
    pool_of,
    resolved_request,
)

OFF = Features()
LISTS = Features(list_type_attributes=True)
NUMA = "resource.kubernetes.io/numaNode"
OWN = "gpu.example.com/numa"


def having_node_devices(
    *values: Attribute | None, name: str = NUMA, shared: bool | None = None
) -> NodeDevices:
    """Devices in order, each with a value of one attribute, or without it."""
    return node_of(
        *(
            device(
                f"gpu-{index}",
                attributes={name: value} if value is not None else None,
                shared=shared,
            )
            for index, value in enumerate(values)
        )
    )


def node_of(*devices: Device) -> NodeDevices:
    return node_with(pool_of(*devices))


def tracked_constraints(
    node: NodeDevices,
    limits: Sequence[DeviceConstraint],
    requests: Sequence[Request],
    features: Features = OFF,
) -> AttributeConstraints:
    pending = PendingClaims(
        claims=(claim(constraints=limits), claim(name="claim-1")),
        requests=(tuple((request,) for request in requests), ()),
    )
    constraint = constraints.build_constraint(node, pending, features)
    assert constraint is not None
    return constraint


class Case(NamedTuple):
    want: list[bool]
    name: str
    node: NodeDevices
    constraint: DeviceConstraint
    features: Features = OFF


MATCH, DISTINCT = match(NUMA), distinct(NUMA)
SCALARS = (
    Case([True, True, False], "equal ints match", having_node_devices(1, 1, 2), MATCH),
    Case([True, True, False], "equal strings match", having_node_devices("a", "a", "b"), MATCH),
    Case([True, True, False], "equal versions match as texts",
         having_node_devices(Version("1.0.0"), Version("1.0.0"), Version("1.0.0+b")), MATCH),
    Case([True, True, False], "equal bools match", having_node_devices(True, True, False), MATCH),
    Case([True, False, False, False], "types never mix",
         having_node_devices(1, "1", True, Version("1.0.0")), MATCH),
    Case([False, True, True], "without the attribute not even the first", having_node_devices(None, 1, 1), MATCH),
    Case([True, False, False], "a list is content alone", having_node_devices((1,), (1,), 1), MATCH),
    Case([True, False], "a list matches no scalar", having_node_devices(1, (1,)), MATCH),
    Case([True, False, True], "distinct values", having_node_devices(1, 1, 2), DISTINCT),
    Case([True, True, True, True], "unlike types are distinct", having_node_devices(1, "1", True, Version("1.0.0")), DISTINCT),
    Case([False, True], "distinct needs the attribute too", having_node_devices(None, 1), DISTINCT),
    Case([True, False, True], "a list is refused beside any other, not before it", having_node_devices((1,), (2,), 1), DISTINCT),
    Case([True, False], "a list after a scalar", having_node_devices(1, (2,)), DISTINCT),
)  # fmt: skip
LIST_CASES = (
    Case([True, True, False], "a common element", having_node_devices((1, 2), (2, 3), (1, 3)), MATCH, LISTS),
    Case([True, True], "a scalar is a list of one", having_node_devices("a", ("b", "a")), MATCH, LISTS),
    Case([True, False], "no common element", having_node_devices((1, 2), (3,)), MATCH, LISTS),
    Case([True, False], "elements of unlike types", having_node_devices((1,), ("1",)), MATCH, LISTS),
    Case([True, False], "bools and ints are unlike", having_node_devices((1,), (True,)), MATCH, LISTS),
    Case([True, True], "elements count once", having_node_devices((1, 1), (1,)), MATCH, LISTS),
    Case([True, False, True], "pairwise disjoint", having_node_devices((1, 2), (2, 3), (3, 4)), DISTINCT, LISTS),
    Case([True, True], "unlike types are disjoint", having_node_devices((1,), ("1",)), DISTINCT, LISTS),
)  # fmt: skip


@pytest.mark.parametrize("case", [*SCALARS, *LIST_CASES], ids=lambda case: case.name)
def test_add(case: Case) -> None:
    request = resolved_request()
    constraint = tracked_constraints(case.node, [case.constraint], [request], case.features)
    positions = range(len(case.node.devices))

    for position, want in zip(positions, case.want, strict=True):
        assert want == (constraint.rejection(request, position, further_share=False) is None)
        assert want == bool(constraint.allowed_positions(request) >> position & 1)
        assert want == constraint.add(request, position, further_share=False)


def test_an_empty_list_is_a_value_only_while_the_gate_is_off() -> None:
    """Upstream's selectors fail on such devices; without selectors nobody notices."""
    node, request = node_of(device(attributes={NUMA: 1})), resolved_request(derived={NUMA: "[]"})

    assert tracked_constraints(node, [MATCH], [request], OFF).add(request, 0, further_share=False)
    assert not tracked_constraints(node, [MATCH], [request], LISTS).add(
        request, 0, further_share=False
    )


class Lookup(NamedTuple):
    want: bool
    name: str
    published: str
    pending: str


LOOKUPS = (
    Lookup(True, "the full name", NUMA, NUMA),
    Lookup(True, "the bare name stands for the driver's domain", "numa", OWN),
    Lookup(True, "the driver's full name", OWN, OWN),
    Lookup(False, "the bare name stands for no other domain", "numaNode", NUMA),
    Lookup(False, "another domain", "other.example.com/numa", OWN),
)  # fmt: skip


@pytest.mark.parametrize("case", LOOKUPS, ids=lambda case: case.name)
def test_attribute_lookup(case: Lookup) -> None:
    request = resolved_request()
    constraint = tracked_constraints(
        having_node_devices(1, name=case.published), [match(case.pending)], [request]
    )

    assert case.want == constraint.add(request, 0, further_share=False)


def test_the_full_name_comes_before_the_bare_one() -> None:
    request = resolved_request()
    node = node_of(
        device("a", attributes={"numa": 1, OWN: 2}),
        device("b", attributes={"numa": 2}),
    )
    constraint = tracked_constraints(node, [match(OWN)], [request])

    assert constraint.add(request, 0, further_share=False)
    assert constraint.add(request, 1, further_share=False)


class Scope(NamedTuple):
    want: bool
    name: str
    request: Request
    names: Sequence[str]


SCOPES = (
    Scope(True, "no names are all requests", resolved_request("gpu"), ()),
    Scope(True, "its name", resolved_request("gpu"), ("gpu",)),
    Scope(False, "another name", resolved_request("gpu"), ("nic",)),
    Scope(True, "an alternative by its parent", resolved_request("big", parent="gpu"), ("gpu",)),
    Scope(True, "an alternative by its full name", resolved_request("big", parent="gpu"), ("gpu/big",)),
    Scope(False, "another alternative", resolved_request("big", parent="gpu"), ("gpu/small",)),
    Scope(False, "an alternative's own name", resolved_request("big", parent="gpu"), ("big",)),
    Scope(False, "another claim", resolved_request("gpu", claim=1), ()),
)  # fmt: skip


@pytest.mark.parametrize("case", SCOPES, ids=lambda case: case.name)
def test_scope(case: Scope) -> None:
    """Devices without the attribute: refused if the constraint applies."""
    constraint = tracked_constraints(
        having_node_devices(None), [match(NUMA, *case.names)], [case.request]
    )

    assert case.want == (not constraint.add(case.request, 0, further_share=False))


def test_match_attribute_takes_precedence() -> None:
    request = resolved_request()
    both = DeviceConstraint(match_attribute=NUMA, distinct_attribute=NUMA)
    constraint = tracked_constraints(having_node_devices(1, 1), [both], [request])

    assert [True, True] == [constraint.add(request, at, further_share=False) for at in (0, 1)]


def test_all_constraints_hold_or_nothing_changes() -> None:
    request = resolved_request()
    node = node_of(
        device("a", attributes={NUMA: 1, "uuid": "a"}),
        device("b", attributes={NUMA: 1, "uuid": "a"}),
    )
    constraint = tracked_constraints(node, [MATCH, distinct("gpu.example.com/uuid")], [request])
    assert constraint.add(request, 0, further_share=False)
    before = constraint.state_key()

    assert not constraint.add(request, 1, further_share=False)
    assert before == constraint.state_key()


def test_remove_restores_the_common_groups() -> None:
    request = resolved_request()
    constraint = tracked_constraints(
        having_node_devices((1, 2), (1,), (2,), (2,)), [MATCH], [request], LISTS
    )
    assert constraint.add(request, 0, further_share=False)
    assert constraint.add(request, 1, further_share=False)

    constraint.remove(request, 1, further_share=False)

    assert constraint.add(request, 2, further_share=False)
    assert constraint.add(request, 3, further_share=False)


def test_no_constraint_without_constraints_of_claims() -> None:
    pending = PendingClaims(claims=(claim(),), requests=(((resolved_request(),),),))

    assert constraints.build_constraint(having_node_devices(1), pending, OFF) is None


@pytest.mark.parametrize(
    ("want", "values", "declared_constraint"),
    [
        (f"no attribute {NUMA}", (1, None), MATCH),
        (f"{NUMA} b (chosen devices have a)", ("a", "b"), MATCH),
        (f"{NUMA} true (as another chosen device)", (True, True), DISTINCT),
        (
            f"{NUMA} a list, while DRAListTypeAttributes is off (chosen devices have 1)",
            (1, (1,)),
            MATCH,
        ),
        (f"{NUMA} Large (as another chosen device)", ("Large", "Large"), DISTINCT),
        (f"{NUMA} {'a' * 64} (as another chosen device)", ("a" * 64, "a" * 64), DISTINCT),
        (f"{NUMA} {'a' * 64}... (as another chosen device)", ("a" * 65, "a" * 65), DISTINCT),
    ],
)
def test_rejection(
    want: str, values: Sequence[Attribute], declared_constraint: DeviceConstraint
) -> None:
    request = resolved_request()
    constraint = tracked_constraints(having_node_devices(*values), [declared_constraint], [request])
    assert constraint.add(request, 0, further_share=False)

    rejection = constraint.rejection(request, 1, further_share=False)

    assert rejection is not None
    assert (Reason.CONSTRAINT, want) == (rejection.reason, rejection.detail)


@pytest.mark.parametrize(
    ("want", "values", "declared_constraint"),
    [
        (f"{NUMA} 2 (as another chosen device)", ((1, 2), (2, 3)), DISTINCT),
        (f"{NUMA} 2, 3 (chosen devices have 1, 4)", ((1, 4), (2, 3)), MATCH),
    ],
)
def test_rejection_of_lists(
    want: str, values: Sequence[Attribute], declared_constraint: DeviceConstraint
) -> None:
    request = resolved_request()
    constraint = tracked_constraints(
        having_node_devices(*values), [declared_constraint], [request], LISTS
    )
    assert constraint.add(request, 0, further_share=False)

    rejection = constraint.rejection(request, 1, further_share=False)

    assert rejection is not None
    assert want == rejection.detail


def test_rejection_if_chosen_lists_have_nothing_in_common() -> None:
    """A list alone is chosen while the gate is off; nothing goes with it, not even itself."""
    request = resolved_request()
    constraint = tracked_constraints(having_node_devices((1,), 1), [MATCH], [request])
    assert constraint.add(request, 0, further_share=False)

    rejection = constraint.rejection(request, 1, further_share=False)

    assert rejection is not None
    assert rejection.detail == f"{NUMA} 1 (chosen devices have nothing in common)"


def test_rejection_names_the_violated_constraint() -> None:
    request, other = resolved_request("r0"), resolved_request("r1")
    node = node_of(*(device(name, attributes={NUMA: 1, "uuid": "same"}) for name in "ab"))
    limits = [match(NUMA, "r0"), distinct("gpu.example.com/uuid", "r0")]
    constraint = tracked_constraints(node, limits, [request, other])
    assert constraint.add(request, 0, further_share=False)

    rejection = constraint.rejection(request, 1, further_share=False)

    assert rejection is not None
    assert rejection.detail == "gpu.example.com/uuid same (as another chosen device)"
    assert constraint.rejection(other, 1, further_share=False) is None
    assert [True, False] == [constraint.constrains(request) for request in (request, other)]


class Allowing(NamedTuple):
    want: int
    name: str
    node: NodeDevices
    limits: Sequence[DeviceConstraint]
    chosen: Sequence[int] = ()
    features: Features = OFF


UUID = "gpu.example.com/uuid"
PAIRS = node_of(
    device("a", attributes={NUMA: 1, UUID: "x"}),
    device("b", attributes={NUMA: 1, UUID: "y"}),
    device("c", attributes={NUMA: 1, UUID: "x"}),
    device("d", attributes={NUMA: 2, UUID: "z"}),
    device("e", attributes={UUID: "z"}),
)
ALLOWED = (
    Allowing(0b01111, "all that have the attribute", PAIRS, [MATCH]),
    Allowing(0b00111, "those of the value that was chosen", PAIRS, [MATCH], [0]),
    Allowing(0b11010, "those of other values", PAIRS, [distinct(UUID)], [0]),
    Allowing(0b00010, "those that all constraints accept", PAIRS, [MATCH, distinct(UUID)], [0]),
    Allowing(0b00010, "in any order", PAIRS, [distinct(UUID), MATCH], [0]),
    Allowing(0b0011, "those of several values", having_node_devices((1, 2), (2,), (3,), 4), [MATCH], [0], LISTS),
)  # fmt: skip


@pytest.mark.parametrize("case", ALLOWED, ids=lambda case: case.name)
def test_allowed_positions(case: Allowing) -> None:
    request = resolved_request()
    constraint = tracked_constraints(case.node, case.limits, [request], case.features)
    for position in case.chosen:
        assert constraint.add(request, position, further_share=False)

    assert case.want == constraint.allowed_positions(request)
    # What is remembered is what was found.
    assert case.want == constraint.allowed_positions(request)


def test_requests_without_constraint_allow_all_positions() -> None:
    request, other = resolved_request("r0"), resolved_request("r1")
    constraint = tracked_constraints(PAIRS, [match(NUMA, "r0")], [request, other])

    assert [0b01111, 0b11111] == [
        constraint.allowed_positions(request) for request in (request, other)
    ]


def test_failing_positions() -> None:
    broken = {NUMA: "true", "gpu.example.com/b": "nonsense("}
    request = resolved_request(
        "r0", derived={NUMA: 'device.attributes["resource.kubernetes.io"].numaNode'}
    )
    other, both = resolved_request("r1"), resolved_request("r2", derived=broken)
    limits = [match(NUMA, "r0", "r2"), match("gpu.example.com/b", "r2"), match(NUMA, "r2")]
    constraint = tracked_constraints(PAIRS, limits, [request, other, both])

    assert [0b10000, 0, 0b11111] == [
        constraint.failing_positions(request) for request in (request, other, both)
    ]


def test_the_residual_key_has_constraints_of_remaining_requests() -> None:
    first, second = resolved_request("r0"), resolved_request("r1", index=1)
    constraint = tracked_constraints(PAIRS, [match(NUMA, "r0"), match(NUMA, "r1")], [first, second])
    ahead = [RemainingDemand(claim=0, index=index, positions=0b11111) for index in (0, 1, 2)]
    before = [constraint.residual_key(remaining_demand) for remaining_demand in ahead]

    assert constraint.add(first, 0, further_share=False)
    assert [False, True, True] == [
        was == constraint.residual_key(remaining_demand)
        for was, remaining_demand in zip(before, ahead, strict=True)
    ]
    assert constraint.add(second, 0, further_share=False)
    assert [False, False, True] == [
        was == constraint.residual_key(remaining_demand)
        for was, remaining_demand in zip(before, ahead, strict=True)
    ]


# --- derived attributes ---------------------------------------------------------------------------


def test_a_derived_attribute_replaces_the_published_one() -> None:
    first = resolved_request("r0", derived={NUMA: 'device.attributes["gpu.example.com"].socket'})
    second = resolved_request("r1")
    node = node_of(
        device("a", attributes={"socket": 3, NUMA: 1}),
        device("b", attributes={NUMA: 1}),
        device("c", attributes={NUMA: 3}),
    )
    constraint = tracked_constraints(node, [MATCH], [first, second])

    assert constraint.add(first, 0, further_share=False)
    assert not constraint.add(second, 1, further_share=False)
    assert constraint.add(second, 2, further_share=False)


@pytest.mark.parametrize(
    ("want", "expression"),
    [
        (
            "on device gpu.example.com/node-1/gpu-0 failed: no such key: missing",
            'device.attributes["gpu.example.com"].missing',
        ),
        (rf"compile derived attribute {NUMA} failed", "nonsense("),
        ("unsupportedCel", "[1, 2].sum()"),
    ],
)  # fmt: skip
def test_a_derived_attribute_that_fails_ends_the_attempt(want: str, expression: str) -> None:
    request = resolved_request(derived={NUMA: expression})
    constraint = tracked_constraints(having_node_devices(1), [MATCH], [request])

    with pytest.raises(AttemptFailed, match=want):
        constraint.add(request, 0, further_share=False)
    assert constraint.allowed_positions(request) == 1
    assert constraint.infeasibility({request: DeviceDemand(1, 1)}) is None


def test_an_earlier_violation_hides_the_failure_of_a_later_constraint() -> None:
    request = resolved_request(derived={NUMA: "nonsense("})
    constraint = tracked_constraints(having_node_devices(1), [match("a/missing"), MATCH], [request])

    assert not constraint.add(request, 0, further_share=False)


def test_a_failing_attribute_makes_a_device_unique() -> None:
    request = resolved_request(derived={NUMA: 'device.attributes["gpu.example.com"].socket'})
    node = node_of(
        *(device(name, attributes={"socket": 1} if name < "c" else None) for name in "abcd")
    )
    constraint = tracked_constraints(node, [MATCH], [request])

    assert constraint.equivalence_key(0) == constraint.equivalence_key(1)
    assert len({constraint.equivalence_key(position) for position in range(4)}) == 3


# --- bounds ---------------------------------------------------------------------------------------


class Bound(NamedTuple):
    want: str | None
    name: str
    node: NodeDevices
    constraint: DeviceConstraint
    needs: Sequence[tuple[int, int]]
    features: Features = OFF


BOUNDS = (
    Bound(None, "three of one value", having_node_devices(1, 1, 1, 2), MATCH, [(0b1111, 3)]),
    Bound("at most 2 suitable devices", "two of each value", having_node_devices(1, 1, 2, 2), MATCH, [(0b1111, 3)]),
    Bound("at most 2 suitable devices", "only candidates count", having_node_devices(1, 1, 1, 2), MATCH, [(0b1011, 3)]),
    Bound(None, "each request has one", having_node_devices(1, 1), MATCH, [(0b01, 1), (0b10, 1)]),
    Bound("at most 1 suitable device", "of unlike values", having_node_devices(1, 2), MATCH, [(0b01, 1), (0b10, 1)]),
    Bound("at most 1 suitable device", "one device is not enough for two requests", having_node_devices(1, 2), MATCH, [(0b01, 1), (0b01, 1)]),
    Bound(None, "unless it can be shared", having_node_devices(1, 2, shared=True), MATCH, [(0b01, 1), (0b01, 1)]),
    Bound("at most 1 suitable device", "but not by one request", having_node_devices(1, 2, shared=True), MATCH, [(0b01, 2)]),
    Bound(None, "a list alone", having_node_devices((1,)), MATCH, [(1, 1)]),
    Bound("at most 0 suitable devices", "lists", having_node_devices((1,), (1,)), MATCH, [(3, 2)]),
    Bound(None, "lists with an element in common", having_node_devices((1, 2), (2, 3)), MATCH, [(3, 2)], LISTS),
    Bound("at most 2 suitable devices", "overlap in pairs", having_node_devices((1, 2), (2, 3), (3, 1)), MATCH, [(7, 3)], LISTS),
    Bound(None, "nothing is needed", having_node_devices(1, 2), MATCH, [(0, 0)]),
    Bound(None, "two values", having_node_devices(1, 1, 2), DISTINCT, [(7, 2)]),
    Bound("2 distinct values", "two values for three", having_node_devices(1, 1, 2), DISTINCT, [(7, 3)]),
    Bound("1 distinct value", "one value for two requests", having_node_devices(1, 1), DISTINCT, [(1, 1), (2, 1)]),
    Bound("1 distinct value", "two values, of which one request sees one", having_node_devices(1, 1, 2), DISTINCT, [(3, 2)]),
    Bound(None, "values of two requests together", having_node_devices(1, 2), DISTINCT, [(1, 1), (2, 1)]),
    Bound(f"at most 1 suitable device with the same {NUMA}, 2 requested", "the attribute is named",
          having_node_devices(1, 2), MATCH, [(3, 2)]),
    Bound(f"suitable devices have only 1 distinct value of {NUMA}, 2 requested",
          "and if values are too few", having_node_devices(1, 1), DISTINCT, [(3, 2)]),
    Bound(f"suitable devices have only 1 distinct value of {NUMA}, 2 requested",
          "for all requests, too", having_node_devices(1, 1), DISTINCT, [(3, 1), (3, 1)]),
)  # fmt: skip


@pytest.mark.parametrize("case", BOUNDS, ids=lambda case: case.name)
def test_infeasibility(case: Bound) -> None:
    requests = [resolved_request(f"r{index}") for index in range(len(case.needs))]
    constraint = tracked_constraints(case.node, [case.constraint], requests, case.features)

    infeasibility = constraint.infeasibility(
        {request: DeviceDemand(*need) for request, need in zip(requests, case.needs, strict=True)}
    )

    assert (case.want is None) == (infeasibility is None)
    assert infeasibility is None or (case.want or "") in infeasibility.detail
    assert infeasibility is None or infeasibility.reason is Reason.CONSTRAINT


def test_infeasibility_counts_chosen_devices() -> None:
    request = resolved_request()
    constraint = tracked_constraints(having_node_devices(1, 2, 2), [MATCH], [request])
    assert constraint.infeasibility({request: DeviceDemand(0b110, 2)}) is None

    assert constraint.add(request, 0, further_share=False)

    assert constraint.infeasibility({request: DeviceDemand(0b110, 1)}) is not None
