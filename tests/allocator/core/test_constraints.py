from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.core import constraints
from allocator.core.constraints import Constraints, Need
from allocator.core.model import Asked, Features, NodeDevices, Request
from allocator.core.outcome import AttemptFailed, Reason
from allocator.core.tracker import Ahead
from kube.api.resource import Device, DeviceConstraint
from tests.allocator.builders import (
    Attribute,
    Version,
    claim,
    device,
    distinct,
    match,
    node_with,
    pool_of,
    wanted,
)

OFF = Features()
LISTS = Features(list_type_attributes=True)
NUMA = "resource.kubernetes.io/numaNode"
OWN = "gpu.example.com/numa"


def having(*values: Attribute | None, name: str = NUMA, shared: bool | None = None) -> NodeDevices:
    """Devices in order, each with a value of one attribute, or without it."""
    return of(
        *(
            device(
                f"gpu-{index}",
                attributes={name: value} if value is not None else None,
                shared=shared,
            )
            for index, value in enumerate(values)
        )
    )


def of(*devices: Device) -> NodeDevices:
    return node_with(pool_of(*devices))


def tracked(
    node: NodeDevices,
    limits: Sequence[DeviceConstraint],
    requests: Sequence[Request],
    features: Features = OFF,
) -> Constraints:
    asked = Asked(
        claims=(claim(constraints=limits), claim(name="claim-1")),
        requests=(tuple((each,) for each in requests), ()),
    )
    tracker = constraints.tracker(node, asked, features)
    assert tracker is not None
    return tracker


class Case(NamedTuple):
    want: list[bool]
    name: str
    node: NodeDevices
    constraint: DeviceConstraint
    features: Features = OFF


MATCH, DISTINCT = match(NUMA), distinct(NUMA)
SCALARS = (
    Case([True, True, False], "equal ints match", having(1, 1, 2), MATCH),
    Case([True, True, False], "equal strings match", having("a", "a", "b"), MATCH),
    Case([True, True, False], "equal versions match as texts",
         having(Version("1.0.0"), Version("1.0.0"), Version("1.0.0+b")), MATCH),
    Case([True, True, False], "equal bools match", having(True, True, False), MATCH),
    Case([True, False, False, False], "types never mix",
         having(1, "1", True, Version("1.0.0")), MATCH),
    Case([False, True, True], "without the attribute not even the first", having(None, 1, 1), MATCH),
    Case([True, False, False], "a list is content alone", having((1,), (1,), 1), MATCH),
    Case([True, False], "a list matches no scalar", having(1, (1,)), MATCH),
    Case([True, False, True], "distinct values", having(1, 1, 2), DISTINCT),
    Case([True, True, True, True], "unlike types are distinct", having(1, "1", True, Version("1.0.0")), DISTINCT),
    Case([False, True], "distinct needs the attribute too", having(None, 1), DISTINCT),
    Case([True, False, True], "a list is refused beside any other, not before it", having((1,), (2,), 1), DISTINCT),
    Case([True, False], "a list after a scalar", having(1, (2,)), DISTINCT),
)  # fmt: skip
LIST_CASES = (
    Case([True, True, False], "a common element", having((1, 2), (2, 3), (1, 3)), MATCH, LISTS),
    Case([True, True], "a scalar is a list of one", having("a", ("b", "a")), MATCH, LISTS),
    Case([True, False], "no common element", having((1, 2), (3,)), MATCH, LISTS),
    Case([True, False], "elements of unlike types", having((1,), ("1",)), MATCH, LISTS),
    Case([True, False], "bools and ints are unlike", having((1,), (True,)), MATCH, LISTS),
    Case([True, True], "elements count once", having((1, 1), (1,)), MATCH, LISTS),
    Case([True, False, True], "pairwise disjoint", having((1, 2), (2, 3), (3, 4)), DISTINCT, LISTS),
    Case([True, True], "unlike types are disjoint", having((1,), ("1",)), DISTINCT, LISTS),
)  # fmt: skip


@pytest.mark.parametrize("case", [*SCALARS, *LIST_CASES], ids=lambda case: case.name)
def test_add(case: Case) -> None:
    request = wanted()
    tracker = tracked(case.node, [case.constraint], [request], case.features)
    positions = range(len(case.node.devices))

    for position, want in zip(positions, case.want, strict=True):
        assert want == (tracker.refusal(request, position, further_share=False) is None)
        assert want == bool(tracker.allowed(request) >> position & 1)
        assert want == tracker.add(request, position, further_share=False)


def test_an_empty_list_is_a_value_only_while_the_gate_is_off() -> None:
    """Upstream's selectors fail on such devices; without selectors nobody notices."""
    node, request = of(device(attributes={NUMA: 1})), wanted(derived={NUMA: "[]"})

    assert tracked(node, [MATCH], [request], OFF).add(request, 0, further_share=False)
    assert not tracked(node, [MATCH], [request], LISTS).add(request, 0, further_share=False)


class Lookup(NamedTuple):
    want: bool
    name: str
    published: str
    asked: str


LOOKUPS = (
    Lookup(True, "the full name", NUMA, NUMA),
    Lookup(True, "the bare name stands for the driver's domain", "numa", OWN),
    Lookup(True, "the driver's full name", OWN, OWN),
    Lookup(False, "the bare name stands for no other domain", "numaNode", NUMA),
    Lookup(False, "another domain", "other.example.com/numa", OWN),
)  # fmt: skip


@pytest.mark.parametrize("case", LOOKUPS, ids=lambda case: case.name)
def test_lookup(case: Lookup) -> None:
    request = wanted()
    tracker = tracked(having(1, name=case.published), [match(case.asked)], [request])

    assert case.want == tracker.add(request, 0, further_share=False)


def test_the_full_name_comes_before_the_bare_one() -> None:
    request = wanted()
    node = of(
        device("a", attributes={"numa": 1, OWN: 2}),
        device("b", attributes={"numa": 2}),
    )
    tracker = tracked(node, [match(OWN)], [request])

    assert tracker.add(request, 0, further_share=False)
    assert tracker.add(request, 1, further_share=False)


class Scope(NamedTuple):
    want: bool
    name: str
    request: Request
    names: Sequence[str]


SCOPES = (
    Scope(True, "no names are all requests", wanted("gpu"), ()),
    Scope(True, "its name", wanted("gpu"), ("gpu",)),
    Scope(False, "another name", wanted("gpu"), ("nic",)),
    Scope(True, "an alternative by its parent", wanted("big", parent="gpu"), ("gpu",)),
    Scope(True, "an alternative by its full name", wanted("big", parent="gpu"), ("gpu/big",)),
    Scope(False, "another alternative", wanted("big", parent="gpu"), ("gpu/small",)),
    Scope(False, "an alternative's own name", wanted("big", parent="gpu"), ("big",)),
    Scope(False, "another claim", wanted("gpu", claim=1), ()),
)  # fmt: skip


@pytest.mark.parametrize("case", SCOPES, ids=lambda case: case.name)
def test_scope(case: Scope) -> None:
    """Devices without the attribute: refused where the constraint applies."""
    tracker = tracked(having(None), [match(NUMA, *case.names)], [case.request])

    assert case.want == (not tracker.add(case.request, 0, further_share=False))


def test_match_wins_where_both_are_set() -> None:
    request = wanted()
    both = DeviceConstraint(match_attribute=NUMA, distinct_attribute=NUMA)
    tracker = tracked(having(1, 1), [both], [request])

    assert [True, True] == [tracker.add(request, at, further_share=False) for at in (0, 1)]


def test_all_constraints_hold_or_nothing_changes() -> None:
    request = wanted()
    node = of(
        device("a", attributes={NUMA: 1, "uuid": "a"}),
        device("b", attributes={NUMA: 1, "uuid": "a"}),
    )
    tracker = tracked(node, [MATCH, distinct("gpu.example.com/uuid")], [request])
    assert tracker.add(request, 0, further_share=False)
    before = tracker.state()

    assert not tracker.add(request, 1, further_share=False)
    assert before == tracker.state()


def test_undo_restores_what_was_in_common() -> None:
    request = wanted()
    tracker = tracked(having((1, 2), (1,), (2,), (2,)), [MATCH], [request], LISTS)
    assert tracker.add(request, 0, further_share=False)
    assert tracker.add(request, 1, further_share=False)

    tracker.undo(request, 1, further_share=False)

    assert tracker.add(request, 2, further_share=False)
    assert tracker.add(request, 3, further_share=False)


def test_no_tracker_without_constraints() -> None:
    asked = Asked(claims=(claim(),), requests=(((wanted(),),),))

    assert constraints.tracker(having(1), asked, OFF) is None


@pytest.mark.parametrize(
    ("want", "values", "constraint"),
    [
        (f"it has no attribute {NUMA}", (1, None), MATCH),
        (f"{NUMA} is b, those chosen before have a", ("a", "b"), MATCH),
        (f"{NUMA} true is taken by another device", (True, True), DISTINCT),
        (
            f"{NUMA} is a list, while DRAListTypeAttributes is off, those chosen before have 1",
            (1, (1,)),
            MATCH,
        ),
        (f"{NUMA} Large is taken by another device", ("Large", "Large"), DISTINCT),
        (f"{NUMA} {'a' * 64} is taken by another device", ("a" * 64, "a" * 64), DISTINCT),
        (f"{NUMA} {'a' * 64}... is taken by another device", ("a" * 65, "a" * 65), DISTINCT),
    ],
)
def test_refusal(want: str, values: Sequence[Attribute], constraint: DeviceConstraint) -> None:
    request = wanted()
    tracker = tracked(having(*values), [constraint], [request])
    assert tracker.add(request, 0, further_share=False)

    found = tracker.refusal(request, 1, further_share=False)

    assert found is not None
    assert (Reason.CONSTRAINT, want) == (found.reason, found.detail)


@pytest.mark.parametrize(
    ("want", "values", "constraint"),
    [
        (f"{NUMA} 2 is taken by another device", ((1, 2), (2, 3)), DISTINCT),
        (f"{NUMA} is 2, 3, those chosen before have 1, 4", ((1, 4), (2, 3)), MATCH),
    ],
)
def test_refusal_of_lists(
    want: str, values: Sequence[Attribute], constraint: DeviceConstraint
) -> None:
    request = wanted()
    tracker = tracked(having(*values), [constraint], [request], LISTS)
    assert tracker.add(request, 0, further_share=False)

    found = tracker.refusal(request, 1, further_share=False)

    assert found is not None
    assert want == found.detail


def test_refusal_where_chosen_lists_have_nothing_more_in_common() -> None:
    """A list alone is chosen while the gate is off; nothing goes with it, not even itself."""
    request = wanted()
    tracker = tracked(having((1,), 1), [MATCH], [request])
    assert tracker.add(request, 0, further_share=False)

    found = tracker.refusal(request, 1, further_share=False)

    assert found is not None
    assert found.detail == f"{NUMA} is 1, those chosen before have nothing in common"


def test_refusal_is_of_the_constraint_that_is_broken() -> None:
    request, other = wanted("r0"), wanted("r1")
    node = of(*(device(name, attributes={NUMA: 1, "uuid": "same"}) for name in "ab"))
    limits = [match(NUMA, "r0"), distinct("gpu.example.com/uuid", "r0")]
    tracker = tracked(node, limits, [request, other])
    assert tracker.add(request, 0, further_share=False)

    found = tracker.refusal(request, 1, further_share=False)

    assert found is not None
    assert found.detail == "gpu.example.com/uuid same is taken by another device"
    assert tracker.refusal(other, 1, further_share=False) is None
    assert [True, False] == [tracker.applies(each) for each in (request, other)]


class Allowing(NamedTuple):
    want: int
    name: str
    node: NodeDevices
    limits: Sequence[DeviceConstraint]
    chosen: Sequence[int] = ()
    features: Features = OFF


UUID = "gpu.example.com/uuid"
PAIRS = of(
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
    Allowing(0b0011, "those of several values", having((1, 2), (2,), (3,), 4), [MATCH], [0], LISTS),
)  # fmt: skip


@pytest.mark.parametrize("case", ALLOWED, ids=lambda case: case.name)
def test_allowed(case: Allowing) -> None:
    request = wanted()
    tracker = tracked(case.node, case.limits, [request], case.features)
    for position in case.chosen:
        assert tracker.add(request, position, further_share=False)

    assert case.want == tracker.allowed(request)
    # What is remembered is what was found.
    assert case.want == tracker.allowed(request)


def test_what_no_constraint_covers_is_allowed() -> None:
    request, other = wanted("r0"), wanted("r1")
    tracker = tracked(PAIRS, [match(NUMA, "r0")], [request, other])

    assert [0b01111, 0b11111] == [tracker.allowed(each) for each in (request, other)]


def test_unjudged_of_any_constraint() -> None:
    broken = {NUMA: "true", "gpu.example.com/b": "nonsense("}
    request = wanted("r0", derived={NUMA: 'device.attributes["resource.kubernetes.io"].numaNode'})
    other, both = wanted("r1"), wanted("r2", derived=broken)
    limits = [match(NUMA, "r0", "r2"), match("gpu.example.com/b", "r2"), match(NUMA, "r2")]
    tracker = tracked(PAIRS, limits, [request, other, both])

    assert [0b10000, 0, 0b11111] == [tracker.unjudged(each) for each in (request, other, both)]


def test_outlook_is_of_constraints_on_requests_ahead() -> None:
    first, second = wanted("r0"), wanted("r1", index=1)
    tracker = tracked(PAIRS, [match(NUMA, "r0"), match(NUMA, "r1")], [first, second])
    ahead = [Ahead(claim=0, index=index, positions=0b11111) for index in (0, 1, 2)]
    before = [tracker.outlook(each) for each in ahead]

    assert tracker.add(first, 0, further_share=False)
    assert [False, True, True] == [
        was == tracker.outlook(each) for was, each in zip(before, ahead, strict=True)
    ]
    assert tracker.add(second, 0, further_share=False)
    assert [False, False, True] == [
        was == tracker.outlook(each) for was, each in zip(before, ahead, strict=True)
    ]


# --- derived attributes ---------------------------------------------------------------------------


def test_a_derived_attribute_stands_in_for_the_published_one() -> None:
    first = wanted("r0", derived={NUMA: 'device.attributes["gpu.example.com"].socket'})
    second = wanted("r1")
    node = of(
        device("a", attributes={"socket": 3, NUMA: 1}),
        device("b", attributes={NUMA: 1}),
        device("c", attributes={NUMA: 3}),
    )
    tracker = tracked(node, [MATCH], [first, second])

    assert tracker.add(first, 0, further_share=False)
    assert not tracker.add(second, 1, further_share=False)
    assert tracker.add(second, 2, further_share=False)


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
    request = wanted(derived={NUMA: expression})
    tracker = tracked(having(1), [MATCH], [request])

    with pytest.raises(AttemptFailed, match=want):
        tracker.add(request, 0, further_share=False)
    assert tracker.allowed(request) == 1
    assert tracker.hopeless({request: Need(1, 1)}) is None


def test_an_earlier_constraint_that_is_broken_hides_the_failure_of_a_later_one() -> None:
    request = wanted(derived={NUMA: "nonsense("})
    tracker = tracked(having(1), [match("a/missing"), MATCH], [request])

    assert not tracker.add(request, 0, further_share=False)


def test_devices_on_which_it_fails_are_like_no_other() -> None:
    request = wanted(derived={NUMA: 'device.attributes["gpu.example.com"].socket'})
    node = of(*(device(name, attributes={"socket": 1} if name < "c" else None) for name in "abcd"))
    tracker = tracked(node, [MATCH], [request])

    assert tracker.sees(0) == tracker.sees(1)
    assert len({tracker.sees(position) for position in range(4)}) == 3


# --- bounds ---------------------------------------------------------------------------------------


class Bound(NamedTuple):
    want: str | None
    name: str
    node: NodeDevices
    constraint: DeviceConstraint
    needs: Sequence[tuple[int, int]]
    features: Features = OFF


BOUNDS = (
    Bound(None, "three of one value", having(1, 1, 1, 2), MATCH, [(0b1111, 3)]),
    Bound("at most to 2", "two of each value", having(1, 1, 2, 2), MATCH, [(0b1111, 3)]),
    Bound("at most to 2", "only candidates count", having(1, 1, 1, 2), MATCH, [(0b1011, 3)]),
    Bound(None, "each request has one", having(1, 1), MATCH, [(0b01, 1), (0b10, 1)]),
    Bound("at most to 1", "of unlike values", having(1, 2), MATCH, [(0b01, 1), (0b10, 1)]),
    Bound("at most to 1", "one device is not enough for two requests", having(1, 2), MATCH, [(0b01, 1), (0b01, 1)]),
    Bound(None, "unless it can be shared", having(1, 2, shared=True), MATCH, [(0b01, 1), (0b01, 1)]),
    Bound("at most to 1", "but not by one request", having(1, 2, shared=True), MATCH, [(0b01, 2)]),
    Bound(None, "a list alone", having((1,)), MATCH, [(1, 1)]),
    Bound("at most to 0", "lists", having((1,), (1,)), MATCH, [(3, 2)]),
    Bound(None, "lists with an element in common", having((1, 2), (2, 3)), MATCH, [(3, 2)], LISTS),
    Bound("at most to 2", "overlap in pairs", having((1, 2), (2, 3), (3, 1)), MATCH, [(7, 3)], LISTS),
    Bound(None, "nothing is needed", having(1, 2), MATCH, [(0, 0)]),
    Bound(None, "two values", having(1, 1, 2), DISTINCT, [(7, 2)]),
    Bound("2 different values", "two values for three", having(1, 1, 2), DISTINCT, [(7, 3)]),
    Bound("1 different values", "one value for two requests", having(1, 1), DISTINCT, [(1, 1), (2, 1)]),
    Bound("1 different values", "two values, of which one request sees one", having(1, 1, 2), DISTINCT, [(3, 2)]),
    Bound(None, "values of two requests together", having(1, 2), DISTINCT, [(1, 1), (2, 1)]),
    Bound(f"no value of {NUMA} is common to 2 suitable devices, at most to 1", "the attribute is named",
          having(1, 2), MATCH, [(3, 2)]),
    Bound(f"{NUMA} has 1 different values among suitable devices, 2 are needed",
          "and if values are too few", having(1, 1), DISTINCT, [(3, 2)]),
    Bound(f"{NUMA} has 1 different values among suitable devices, 2 are needed",
          "for all requests, too", having(1, 1), DISTINCT, [(3, 1), (3, 1)]),
)  # fmt: skip


@pytest.mark.parametrize("case", BOUNDS, ids=lambda case: case.name)
def test_hopeless(case: Bound) -> None:
    requests = [wanted(f"r{index}") for index in range(len(case.needs))]
    tracker = tracked(case.node, [case.constraint], requests, case.features)

    found = tracker.hopeless(
        {request: Need(*need) for request, need in zip(requests, case.needs, strict=True)}
    )

    assert (case.want is None) == (found is None)
    assert found is None or (case.want or "") in found.detail
    assert found is None or found.reason is Reason.CONSTRAINT


def test_hopeless_counts_what_is_chosen_already() -> None:
    request = wanted()
    tracker = tracked(having(1, 2, 2), [MATCH], [request])
    assert tracker.hopeless({request: Need(0b110, 2)}) is None

    assert tracker.add(request, 0, further_share=False)

    assert tracker.hopeless({request: Need(0b110, 1)}) is not None
