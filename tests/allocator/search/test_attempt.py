"""The decisions of an attempt before any search, and those that it leaves to the search."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from allocator.compatibility.compile import compile_policy
from allocator.model.devices import NodeDevices, PoolState
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed, Reason
from allocator.model.requests import resolve_requests
from allocator.model.usage import DeviceUse, Usage
from allocator.search.attempt import AllocatorOptions, Attempt, bits, lay_out
from kube.api.node_selector import NodeSelector, NodeSelectorTerm
from kube.api.resource import DerivedAttribute, DeviceRequest, ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    alternative,
    claim,
    classes,
    configured_configuration,
    consumes,
    counter_set,
    device,
    devices,
    first_of,
    match,
    node_with,
    policy,
    pool_of,
    quantities,
    request,
    requirement,
    rule,
    taint,
    tolerates,
)

ROOT = "resource.kubernetes.io/pcieRoot"
HAS_X = f'device.attributes["{DRIVER}"].x'
NOT_HERE = 'device.driver == "other"'
ONLY_X = f'"x" in device.attributes["{DRIVER}"]'


def laid_out(
    node: NodeDevices,
    *claims: ResourceClaim,
    usage: Usage | None = None,
    features: Features | None = None,
    **rules: Any,
) -> Attempt:
    allocator_options = AllocatorOptions(features=features or Features(), **rules)
    return lay_out(
        node,
        resolve_requests(claims, classes(), allocator_options.features),
        usage or Usage(),
        allocator_options,
    )


def usage(node: NodeDevices, **uses: DeviceUse) -> Usage:
    return Usage(pools={node.pools[0].id: uses})


WHOLE = DeviceUse(exclusive=True)
SHARE = DeviceUse(share_ids=frozenset("1"), capacity=quantities({"m": "1"}))

# --- who may serve what ---------------------------------------------------------------------------


class Masks(NamedTuple):
    """Masks as texts, the last device first: those to try, those refused, those that match."""

    want: tuple[str, str, str]
    name: str
    node: NodeDevices
    request: DeviceRequest
    usage: Usage | None = None
    features: Features | None = None


THREE = node_with(pool_of(*devices("x", "y", "z")))
SOME_X = node_with(
    pool_of(device("x", attributes={"x": True}), device("y"), device("z", attributes={"x": True}))
)
TAINTED_TWICE = node_with(pool_of(device("x"), *devices("y", "z", taints=(taint(),))))
TAINTED = node_with(pool_of(device("x"), device("y", taints=(taint(),)), device("z")))
SIZES = node_with(
    pool_of(
        device("x", capacity={"m": "4"}, shared=True),
        device("y", capacity={"m": "2"}, shared=True),
        device("z", capacity={"m": "2"}),
    )
)
CHOOSY = node_with(
    pool_of(
        device("x", node="node-1"),
        device("y", node="node-2"),
        device("z", all_nodes=True),
        per_device=True,
    )
)
CHOOSY_X = node_with(
    pool_of(
        device("x", node="node-1", attributes={"x": True}),
        device("y", node="node-2", attributes={"x": True}),
        device("z", node="node-2"),
        per_device=True,
    )
)
COUNTED = node_with(
    pool_of(device("x"), device("y", consumes(slices=1)), counters=[counter_set(slices=2)])
)
BOUND = node_with(pool_of(device("x"), device("y", binding_conditions=("ready",)), device("z")))
SKIPPING = node_with(
    pool_of(device("x"), skip_node_operations=("*",)), pool_of(device("y"), pool="other")
)
ANY, ADMIN = request(), request(admin_access=True)
LOOKS = (
    Masks(("111", "0", "111"), "all of a class that selects everything", THREE, ANY),
    Masks(("101", "0", "101"), "those that a selector selects", SOME_X, request("r", ONLY_X)),
    Masks(("101", "10", "111"), "a device held as a whole matches, and is not tried", THREE, ANY,
          usage(THREE, y=WHOLE)),
    Masks(("1", "110", "111"), "so do several", THREE, ANY, usage(THREE, y=WHOLE, z=WHOLE)),
    Masks(("111", "0", "111"), "an admin may have what is held", THREE, ADMIN, usage(THREE, y=WHOLE)),
    Masks(("111", "0", "111"), "of what is shared a further share is tried", SIZES, ANY,
          usage(SIZES, x=SHARE)),
    Masks(("101", "10", "111"), "a tainted device matches, and is not tried", TAINTED, ANY),
    Masks(("1", "110", "111"), "so do several that are tainted", TAINTED_TWICE, ANY),
    Masks(("0", "0", "0"), "what does not match is not refused", TAINTED, request("r", NOT_HERE)),
    Masks(("111", "0", "111"), "who tolerates a taint is not refused", TAINTED,
          request(tolerations=(tolerates(),))),
    Masks(("1", "0", "111"), "no device whose whole capacity is too little", SIZES,
          request(capacity={"m": 3})),
    Masks(("101", "0", "101"), "a device for another node does not match", CHOOSY, ANY),
    Masks(("1", "0", "1"), "nor one for another node that no selector selects", CHOOSY_X,
          request("r", ONLY_X)),
    Masks(("1", "10", "11"), "no partitions while their gate is off", COUNTED, ANY,
          None, Features(partitionable_devices=False)),
    Masks(("11", "0", "11"), "partitions while it is on", COUNTED, ANY),
    Masks(("101", "0", "101"), "devices with conditions do not match while their gate is off", BOUND, ANY,
          None, Features(device_status=False)),
    Masks(("10", "1", "11"), "a node that cannot do without its operations", SKIPPING, ANY,
          None, Features(optional_node_operations=True)),
)  # fmt: skip


@pytest.mark.parametrize("case", LOOKS, ids=lambda case: case.name)
def test_candidates(case: Masks) -> None:
    attempt = laid_out(case.node, claim(case.request), usage=case.usage, features=case.features)

    ((((table,),),)) = attempt.requests

    assert case.want == tuple(
        f"{mask:b}" for mask in (table.candidates, table.rejected, table.matching)
    )


def test_usage_of_a_pool_with_the_same_device_names_does_not_count() -> None:
    node = node_with(pool_of(*devices("x", "y")), pool_of(*devices("x", "y"), pool="other"))
    use = Usage(pools={node.pools[1].id: {"x": WHOLE}})

    ((((table,),),)) = laid_out(node, claim(ANY), usage=use).requests

    assert 0b1011 == table.candidates


def test_devices_that_abort_the_attempt_are_candidates() -> None:
    attempt = laid_out(SOME_X, claim(request("r", HAS_X), request("s", HAS_X)))

    for (table,), name in zip(attempt.requests[0], "rs", strict=True):
        assert [0b111, 0b010, [1]] == [table.candidates, table.fatal, list(table.failures)]
        assert f"request {name}" in table.failures[1]
    assert attempt.may_abort


def test_amounts_and_node_selectors_can_abort_the_attempt() -> None:
    broken_node_selector = NodeSelector(
        node_selector_terms=(
            NodeSelectorTerm(match_expressions=(requirement("a", operator="is"),)),
        )
    )
    node = node_with(
        pool_of(
            device("x", attributes={"x": True}, all_nodes=True),
            device("y", all_nodes=True),
            device("z", attributes={"x": True}, capacity={"m": "1"}, all_nodes=True),
            device("broken", attributes={"x": True}, selector=broken_node_selector),
            per_device=True,
        )
    )

    attempt = laid_out(node, claim(request("r", HAS_X, capacity={"m": -1}), request("s", HAS_X)))

    (first,), (second,) = attempt.requests[0]
    assert [[1, 2, 3], [1, 3]] == [
        sorted(request_candidates.failures) for request_candidates in (first, second)
    ]
    assert [0b1110, 0b0101] == [first.candidates, first.matching]
    assert "no such key: x" in first.failures[1]
    assert "request r" in first.failures[2]
    assert "node selector" in first.failures[3]


def test_errors_about_amounts_name_their_request() -> None:
    amount: dict[str, str | int] = {"m": -1}
    asks = [request(name, capacity=amount) for name in "rs"]

    attempt = laid_out(SIZES, claim(*asks))

    for (table,), name in zip(attempt.requests[0], "rs", strict=True):
        assert f"request {name}" in table.failures[0]


def test_devices_with_conditions_do_not_abort_while_their_gate_is_off() -> None:
    node = node_with(
        pool_of(device("x", attributes={"x": True}), device("y", binding_conditions=("ready",)))
    )
    asks, off = claim(request("r", HAS_X)), Features(device_status=False)

    assert laid_out(node, asks).may_abort
    assert not laid_out(node, asks, features=off).may_abort


def test_an_allocated_device_does_not_abort_the_attempt() -> None:
    attempt = laid_out(SOME_X, claim(request("r", HAS_X)), usage=usage(SOME_X, y=WHOLE))

    assert [0b101, 0] == [attempt.requests[0][0][0].candidates, attempt.requests[0][0][0].fatal]
    assert not attempt.may_abort


def test_candidates_depend_on_tolerations_and_amounts() -> None:
    node = node_with(
        pool_of(
            device("x", taints=(taint(),), capacity={"m": "4"}, shared=True),
            device("y", capacity={"m": "1"}, shared=True),
        )
    )
    asks = (
        request("plain"),
        request("tolerates", tolerations=(tolerates(),)),
        request("large", capacity={"m": 2}, tolerations=(tolerates(),)),
    )

    attempt = laid_out(node, claim(*asks))

    assert [0b10, 0b11, 0b01] == [table.candidates for ((table),) in attempt.requests[0]]


def test_shareable_and_shared_devices() -> None:
    use = usage(SIZES, x=SHARE, z=SHARE)
    off = Features(consumable_capacity=False)

    attempt, without = (
        laid_out(SIZES, claim(ANY), usage=use),
        laid_out(SIZES, claim(ANY), features=off),
    )

    assert (0b011, 0b001) == (attempt.shareable, attempt.shared)
    assert (0, 0) == (without.shareable, without.shared)


# --- mode All -------------------------------------------------------------------------------------

ALL = request("all", count=None)


def test_mode_all_lists_matching_devices_in_use_or_not() -> None:
    attempt = laid_out(THREE, claim(ALL), usage=usage(THREE, y=WHOLE))

    ((((table,),),)) = attempt.requests

    assert ((0, 1, 2), 3, 0b010) == (table.all_positions, table.count, table.rejected)


def test_mode_all_leaves_out_devices_that_are_too_small() -> None:
    ((((table,),),)) = laid_out(SIZES, claim(request(count=None, capacity={"m": 3}))).requests

    assert ((0,), 1) == (table.all_positions, table.count)


@pytest.mark.parametrize(
    ("want", "state"),
    [("being updated", PoolState.INCOMPLETE), ("invalid", PoolState.INVALID)],
)
def test_mode_all_fails_on_an_incomplete_or_invalid_pool(want: str, state: PoolState) -> None:
    node = node_with(pool_of(device()), pool_of(device(), pool="late", state=state))
    words = (
        "claim default/claim-0, request all: asks for all devices, but resource pool "
        f"{DRIVER}/late is currently {want}"
    )

    with pytest.raises(AttemptFailed, match=f"^{words}$"):
        laid_out(node, claim(ALL))

    assert not laid_out(node, claim(ANY)).may_abort


def test_mode_all_fails_with_the_first_failing_selector() -> None:
    node = node_with(pool_of(device("a", attributes={"x": True}), *devices("b", "c")))

    with pytest.raises(AttemptFailed, match=r"node-1/b"):
        laid_out(node, claim(request("all", HAS_X, count=None)))


# --- what may be looked ahead ---------------------------------------------------------------------


class MayAbortCase(NamedTuple):
    want: bool
    name: str
    claim: ResourceClaim


TREACHEROUS = (
    MayAbortCase(False, "constraints on counted devices", claim(ANY, constraints=[match(ROOT)])),
    MayAbortCase(False, "all devices without constraints", claim(ALL)),
    MayAbortCase(True, "constraints on all devices", claim(ALL, constraints=[match(ROOT)])),
    MayAbortCase(False, "constraints on others than all", claim(
        ALL, request("r", count=0), constraints=[match(ROOT, "r")])),
)  # fmt: skip


@pytest.mark.parametrize("case", TREACHEROUS, ids=lambda case: case.name)
def test_may_abort(case: MayAbortCase) -> None:
    assert case.want == laid_out(THREE, case.claim).may_abort


@pytest.mark.parametrize(("want", "text"), [(True, "nonsense("), (False, '"here"')])
def test_a_failing_derived_attribute_may_abort(want: bool, text: str) -> None:
    derived = (DerivedAttribute(name=ROOT, expression=text),)
    asks = claim(request(derived_attributes=derived), constraints=[match(ROOT)])

    attempt = laid_out(THREE, asks, features=Features(derived_attributes=True))

    assert want == attempt.may_abort


def test_no_devices_are_symmetric_in_mode_all_with_constraints() -> None:
    attempt = laid_out(THREE, claim(ALL, constraints=[match(ROOT)]))

    assert (0, 1, 2) == attempt.find_symmetry_classes()


class InfeasibleCase(NamedTuple):
    want: Reason | None
    name: str
    requests: Sequence[DeviceRequest]
    constraint: bool = False


ROOTS = node_with(
    pool_of(*(device(name, attributes={ROOT: name[0]}) for name in ("a0", "a1", "b0", "b1")))
)
HOPELESS = (
    InfeasibleCase(None, "as many as there are", (request(count=4),)),
    InfeasibleCase(Reason.TOO_FEW_DEVICES, "one more", (request(count=5),)),
    InfeasibleCase(Reason.TOO_FEW_DEVICES, "the last of several", (ANY, request("r", count=5))),
    InfeasibleCase(None, "one alternative is enough", (
        first_of("r", alternative("many", count=5), alternative("few")),)),
    InfeasibleCase(Reason.TOO_FEW_DEVICES, "no alternative is", (
        first_of("r", alternative("many", count=5), alternative("none", NOT_HERE)),)),
    InfeasibleCase(Reason.TOO_FEW_DEVICES, "all of nothing", (request("r", NOT_HERE, count=None),)),
    InfeasibleCase(None, "two of a root", (request(count=2),), constraint=True),
    InfeasibleCase(Reason.CONSTRAINT, "three of a root", (request(count=3),), constraint=True),
    InfeasibleCase(None, "alternatives are left to the search", (
        first_of("r", alternative("many", count=3), alternative("few")),), constraint=True),
)  # fmt: skip


@pytest.mark.parametrize("case", HOPELESS, ids=lambda case: case.name)
def test_infeasibility(case: InfeasibleCase) -> None:
    constraints = [match(ROOT)] if case.constraint else []

    infeasibility = laid_out(ROOTS, claim(*case.requests, constraints=constraints)).infeasibility()

    assert case.want == (None if infeasibility is None else infeasibility.reason)


def test_infeasibility_does_not_hide_an_error() -> None:
    assert laid_out(SOME_X, claim(request("r", HAS_X, count=9))).infeasibility() is None


def test_prune_keeps_positions_that_constraints_accept() -> None:
    attempt = laid_out(ROOTS, claim(request(count=2), constraints=[match(ROOT)]))
    request_ = attempt.requests[0][0][0].request

    assert 0b1110 == attempt.prune(request_, 0b1110)
    assert attempt.constraints[0].add(request_, 0, further_share=False)
    assert 0b0010 == attempt.prune(request_, 0b1110)
    assert 0b1110 == laid_out(ROOTS, claim(ANY)).prune(request_, 0b1110)


# --- devices that look alike ----------------------------------------------------------------------


class Kinds(NamedTuple):
    want: tuple[int, ...]
    name: str
    node: NodeDevices
    claim: ResourceClaim
    usage: Usage | None = None


KINDS = (
    Kinds((0, 0, 0), "nothing tells them apart", THREE, claim(ANY)),
    Kinds((0, 1, 0), "a selector does", SOME_X, claim(request("r", ONLY_X))),
    Kinds((0, 1, 0), "a taint does", TAINTED, claim(ANY)),
    Kinds((0, 1, 0), "one is held", THREE, claim(ANY), usage(THREE, y=WHOLE)),
    Kinds((0, 1, 1), "all but the first are held", THREE, claim(ANY), usage(THREE, y=WHOLE, z=WHOLE)),
    Kinds((0, 1, 0), "one ends the attempt", SOME_X, claim(request("r", HAS_X))),
    Kinds((0, 1, 2), "capacities do, and so does who may share", SIZES, claim(ANY)),
    Kinds((0, 0, 1, 1), "attributes of which a constraint speaks do", ROOTS,
          claim(request(count=2), constraints=[match(ROOT)])),
    Kinds((0, 0, 0, 0), "attributes of which none speaks do not", ROOTS, claim(ANY)),
)  # fmt: skip


@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name)
def test_symmetry_classes(case: Kinds) -> None:
    assert case.want == laid_out(case.node, case.claim, usage=case.usage).find_symmetry_classes()


def test_a_device_with_a_share_in_use_is_not_symmetric() -> None:
    node = node_with(pool_of(*devices("x", "y", "z", shared=True)))
    use = usage(node, y=DeviceUse(share_ids=frozenset("1")))

    assert (0, 1, 0) == laid_out(node, claim(ANY), usage=use).find_symmetry_classes()


# --- what is told of a choice ---------------------------------------------------------------------


def test_only_the_choice_of_a_share_has_consumed_capacity() -> None:
    node = node_with(
        pool_of(device("a", capacity={"m": "4"}, shared=True), device("b", capacity={"m": "4"}))
    )
    attempt = laid_out(node, claim(request(capacity={"m": 1})))
    (table,) = attempt.requests[0][0]

    assert quantities({"m": "1"}) == attempt.choice(table.request, 0).consumed
    assert attempt.choice(table.request, 1).consumed is None
    assert ("b", table.request) == (
        attempt.choice(table.request, 1).device.id.device,
        table.request,
    )


def test_claims_are_named_with_their_namespace() -> None:
    attempt = laid_out(THREE, claim(ANY), claim(ANY, name="second", namespace="team"))

    assert ["default/claim-0", "team/second"] == [attempt.claim_name(number) for number in (0, 1)]


def test_invalid_pools_are_reported() -> None:
    invalid = node_with(pool_of(device()), pool_of(pool="odd", state=PoolState.INVALID))

    assert not laid_out(THREE, claim(ANY)).has_invalid_pools
    assert laid_out(invalid, claim(ANY)).has_invalid_pools


def test_selectors_cost_steps_until_their_verdicts_are_cached() -> None:
    """No other test reads these attributes: all tests of a process share its cached verdicts."""
    fast, slow = device("x", attributes={"fast": True}), device("y", attributes={"slow": 1})
    node = node_with(pool_of(fast, slow))
    has_fast = f'"fast" in device.attributes["{DRIVER}"]'
    asks = claim(request("r", has_fast), request("s", 'device.driver != "never"'))

    assert [9, 0] == [laid_out(node, asks).steps for _ in range(2)]


def test_constraints_are_in_upstreams_order() -> None:
    node = node_with(
        pool_of(
            device(
                "x", consumes(slices=1), attributes={ROOT: "a"}, capacity={"m": "4"}, shared=True
            ),
            counters=[counter_set(slices=2)],
        )
    )
    shares = configured_configuration(sharing={"strategy": "MPS"})
    pending = claim(request(capacity={"m": 1}), constraints=[match(ROOT)], config=[shares])

    with_ours = laid_out(node, pending, uniform_config_drivers=frozenset({DRIVER})).constraints

    names = ["CounterConstraint", "AttributeConstraints", "CapacityConstraint"]
    assert names == [
        type(constraint).__name__ for constraint in laid_out(node, pending).constraints
    ]
    assert [*names, "CoTenantConfigConstraint"] == [
        type(with_our).__name__ for with_our in with_ours
    ]
    assert () == laid_out(THREE, claim(ANY)).constraints


def test_groups_are_checked_by_either_gate_or_policy() -> None:
    node = node_with(pool_of(device("x", consumes(groups="a")), counters=[counter_set()]))
    ours = compile_policy(policy(rule("any", groups="a")))
    on = Features(compatibility_groups=True)

    without = laid_out(node, claim(ANY), features=on).constraints
    constraints = laid_out(node, claim(ANY), features=on, policies=(ours,)).constraints

    assert "GroupConstraint" in [type(constraint).__name__ for constraint in without]
    assert "GroupConstraint" not in [type(constraint).__name__ for constraint in constraints]


def test_bits_are_the_positions_lowest_first() -> None:
    assert [0, 2, 5] == list(bits(0b100101))
    assert [] == list(bits(0))
