"""The part of a plan that the API server stores."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pytest

from allocator.model.devices import PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Choice, Plan
from allocator.model.requests import resolve_requests
from allocator.search.results import allocation, allocations, node_selector, share_ids
from kube.api.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kube.api.resource import Device, DeviceRequest, DeviceRequestAllocationResult
from testing.allocation.builders import (
    alternative,
    claim,
    classes,
    configured_configuration,
    device,
    first_of,
    labelled_node_selector,
    pool_of,
    quantities,
    request,
    requirement,
    resolved_request,
    result,
    tolerates,
)

DEFAULT: Final = Features()
NUMBERS: Final = ("share-0", "share-1", "share-2")


def placed_device(first_device: Device | None = None, **fields: Any) -> PublishedDevice:
    """A device on a slice with these fields, by default of a slice for all nodes."""
    (device_,) = pool_of(first_device or device(), **({"all_nodes": True} | fields)).devices
    return device_


def stored_result(
    asks: DeviceRequest,
    chosen: PublishedDevice,
    consumed: dict[str, str | int] | None = None,
    features: Features = DEFAULT,
) -> DeviceRequestAllocationResult:
    pending = resolve_requests((claim(asks),), classes(), features)
    amounts = None if consumed is None else quantities(consumed)
    choice = Choice(request=pending.requests[0][0][0], device=chosen, consumed=amounts)
    plan = Plan(node="node-1", choices=((choice,),), alternatives=((0,),))
    (result_,) = allocation(plan, 0, pending, features, iter(NUMBERS)).devices.results or ()
    return result_


class Case(NamedTuple):
    name: str
    want: DeviceRequestAllocationResult
    allocated_result: DeviceRequestAllocationResult


TOLERANT: Final = (tolerates("a"), tolerates("b"))
BINDING: Final = device(binding_conditions=("ready",), binding_failure_conditions=("broken",))
SKIPPING: Final = placed_device(skip_node_operations=("All",))

CASES: Final = (
    Case("a device", result(), stored_result(request(), placed_device())),
    Case(
        "a device for an alternative",
        result(request="req-0/sub-0"),
        stored_result(first_of("req-0", alternative()), placed_device()),
    ),
    Case(
        "tolerations are the request's",
        result(tolerations=TOLERANT),
        stored_result(request(tolerations=TOLERANT), placed_device()),
    ),
    Case(
        "admin access is told",
        result(admin_access=True),
        stored_result(request(admin_access=True), placed_device()),
    ),
    Case(
        "no admin access is not",
        result(),
        stored_result(request(admin_access=False), placed_device()),
    ),
    Case(
        "a share has an id and tells what it takes",
        result(share="share-0", consumed={"memory": "1Gi", "cores": 0}),
        stored_result(request(), placed_device(), {"memory": "1024Mi", "cores": 0}),
    ),
    Case(
        "a share of a device without capacity has only an id",
        result(share="share-0"),
        stored_result(request(), placed_device(), {}),
    ),
    Case(
        "binding conditions are the device's",
        result(binding_conditions=("ready",), binding_failure_conditions=("broken",)),
        stored_result(request(), placed_device(BINDING)),
    ),
    Case(
        "but not while their gates are off",
        result(),
        stored_result(request(), placed_device(BINDING), features=Features(device_status=False)),
    ),
    Case("operations that are skipped are not told", result(), stored_result(request(), SKIPPING)),
    Case(
        "but by the experimental allocator",
        result(skip_node_operations=("All",)),
        stored_result(request(), SKIPPING, features=Features(optional_node_operations=True)),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_result(case: Case) -> None:
    assert case.want == case.allocated_result
    assert str(case.want.consumed_capacity) == str(case.allocated_result.consumed_capacity)


def test_claims_share_the_ids_and_keep_their_order() -> None:
    pending = resolve_requests(
        (claim(request("a", count=2)), claim(), claim(request("b"))), classes(), DEFAULT
    )
    first, second = pending.requests[0][0][0], pending.requests[2][0][0]
    share = Choice(request=first, device=placed_device(device("x")), consumed={})
    plan = Plan(
        node="node-1",
        choices=(
            (share, Choice(request=first, device=placed_device(device("y")), consumed={})),
            (),
            (Choice(request=second, device=share.device, consumed={}),),
        ),
        alternatives=((0,), (), (0,)),
    )

    allocations_ = allocations(plan, pending, DEFAULT, iter(NUMBERS))

    assert [["a x share-0", "a y share-1"], [], ["b x share-2"]] == [
        [
            f"{result_.request} {result_.device} {result_.share_id}"
            for result_ in allocation_result.devices.results or ()
        ]
        for allocation_result in allocations_
    ]
    assert allocations_[1].node_selector is None


def test_configuration_comes_along() -> None:
    pending = resolve_requests(
        (claim(request(), config=[configured_configuration(a=1)]),), classes(), DEFAULT
    )
    choice = Choice(request=pending.requests[0][0][0], device=placed_device())
    plan = Plan(node="node-1", choices=((choice,),), alternatives=((0,),))

    (config,) = allocation(plan, 0, pending, DEFAULT, iter(())).devices.config or ()

    assert ("FromClaim", None, {"a": 1}) == (
        config.source,
        config.requests,
        config.opaque.parameters if config.opaque else None,
    )


def selector(*terms: NodeSelectorTerm) -> NodeSelector:
    return NodeSelector(node_selector_terms=terms)


ZONE: Final = labelled_node_selector(zone="a")
BOTH: Final = selector(
    NodeSelectorTerm(
        match_expressions=(requirement("zone", "a"), requirement("rack", "x", "y")),
        match_fields=(requirement("metadata.name", "n1"),),
    )
)
YX: Final = selector(NodeSelectorTerm(match_expressions=(requirement("rack", "y", "x"),)))


def on(where: NodeSelector) -> PublishedDevice:
    return placed_device(all_nodes=None, selector=where)


class Where(NamedTuple):
    name: str
    want: str
    devices: Sequence[PublishedDevice]


SELECTORS: Final = (
    Where("no device", "", []),
    Where("a device for all nodes", "", [placed_device()]),
    Where(
        "a device of a node", "metadata.name In node-1", [placed_device(all_nodes=None, node="n")]
    ),
    Where(
        "one that binds to its node",
        "metadata.name In node-1",
        [placed_device(device(binds_to_node=True))],
    ),
    Where("a device of some nodes", "zone In a", [on(ZONE)]),
    Where("two of the same nodes", "zone In a", [on(ZONE), on(ZONE)]),
    Where(
        "two of different nodes are where both are",
        "metadata.name In n1 zone In a rack In x,y",
        [on(ZONE), on(BOTH)],
    ),
    Where(
        "the order of values makes no difference",
        "metadata.name In n1 zone In a rack In x,y",
        [on(BOTH), on(YX)],
    ),
    Where(
        "one device of a node settles it",
        "metadata.name In node-1",
        [on(ZONE), placed_device(all_nodes=None, node="n")],
    ),
    Where("a selector without terms adds nothing", "zone In a", [on(selector()), on(ZONE)]),
    Where(
        "per device: the device's own selector",
        "zone In a",
        [placed_device(device(selector=ZONE), all_nodes=None, per_device=True)],
    ),
    Where(
        "per device: the device's own node",
        "metadata.name In node-1",
        [placed_device(device(node="n"), all_nodes=None, per_device=True)],
    ),
    Where(
        "else what the device says does not count",
        "",
        [placed_device(device(node="n", selector=ZONE))],
    ),
    Where(
        "after a device of the node nothing else is looked at",
        "metadata.name In node-1",
        [
            placed_device(all_nodes=None, node="n"),
            on(selector(NodeSelectorTerm(), NodeSelectorTerm())),
        ],
    ),
)


def _requirements(term: NodeSelectorTerm) -> Iterator[NodeSelectorRequirement]:
    yield from term.match_fields or ()
    yield from term.match_expressions or ()


@pytest.mark.parametrize("case", SELECTORS, ids=lambda case: case.name)
def test_node_selector(case: Where) -> None:
    selector_ = node_selector(
        [Choice(request=resolved_request(), device=device_) for device_ in case.devices], "node-1"
    )

    assert case.want == " ".join(
        f"{requirement_.key} {requirement_.operator} {','.join(requirement_.values or ())}"
        for term in (selector_.node_selector_terms if selector_ else ())
        for requirement_ in _requirements(term)
    )
    assert selector_ is None or len(selector_.node_selector_terms) == 1


def test_node_selector_of_a_device_with_several_terms() -> None:
    several = on(selector(NodeSelectorTerm(), NodeSelectorTerm()))

    with pytest.raises(AttemptFailed, match=r"ResourceSlice.NodeSelector with 2 terms"):
        node_selector([Choice(request=resolved_request(), device=several)], "node-1")


def test_share_ids_are_uuids_that_depend_on_the_seed_alone() -> None:
    texts, again, other = (share_ids(seed) for seed in ("a", "a", "b"))
    first = [next(texts) for _ in range(100)]

    assert first == [next(again) for _ in range(100)]
    assert not {next(other) for _ in range(100)} & set(first)
    assert len(first) == len(set(first))
    form = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    assert all(form.fullmatch(text) for text in first)
