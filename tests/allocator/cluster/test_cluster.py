"""The costs and shared work of a cluster; that it is right is a law (tests/property/test_equivalence_laws.py)."""

import gc
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from allocator.cluster.cluster import Cluster
from allocator.cluster.verdicts import Verdicts
from allocator.features.node_operations import DECLARED as OPTIONAL_OPERATIONS
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Plan
from allocator.search.attempt import AllocatorOptions
from allocator.search.results import allocations, share_ids
from kube.api.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kube.api.resource import ResourceClaim, ResourceSlice
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    classes,
    device,
    devices,
    match,
    node,
    request,
    result,
    slice_of,
)

UUID = f"{DRIVER}/uuid"
MODEL = f'device.attributes["{DRIVER}"].model == "A100"'
BY_MODEL = claim(request("gpu", MODEL, count=2))
NAMES = ("n1", "n2", "n3")


def cards(name: str, model: str = "A100", **other: Any) -> ResourceSlice:
    """Two cards that nothing but their uuid tells from those of other nodes."""
    listed_devices = [
        device(f"gpu-{number}", attributes={"model": model, "uuid": f"{name}-{number}"} | other)
        for number in range(2)
    ]
    return slice_of(*listed_devices, pool=name)


def cluster(slices: Sequence[ResourceSlice], claims: Iterable[ResourceClaim] = ()) -> Cluster:
    return Cluster(
        slices=slices,
        nodes=[node(name) for name in NAMES],
        claims=claims,
        classes=classes(),
        options=AllocatorOptions(),
    )


def fits(verdicts: Verdicts) -> dict[str, bool]:
    return {name: isinstance(outcome, Plan) for name, outcome, _ in verdicts}


def test_equal_nodes_are_searched_once_and_get_their_own_devices() -> None:
    cluster_ = cluster([cards(name) for name in NAMES])

    verdicts = cluster_.verdicts(cluster_.resolve([BY_MODEL]))
    plan = verdicts.plan("n3")

    assert 1 == len(verdicts.classes)
    assert plan is not None
    assert [f"{DRIVER}/n3/gpu-0", f"{DRIVER}/n3/gpu-1"] == [
        str(choice.device.id) for choice in plan.choices[0]
    ]
    assert "n3" == plan.node


def count_collected(device_count: int) -> int:
    """Return the number of objects in a collection for a cluster with some devices on each node."""
    names = [f"gpu-{number}" for number in range(device_count)]
    slices = [slice_of(*devices(*names), pool=name) for name in NAMES]
    gc.collect()
    before = len(gc.get_objects())
    cluster_ = cluster(slices)
    for _ in range(4):  # A collection exempts the tuples of what needs none, inner ones first.
        gc.collect()
    count = len(gc.get_objects()) - before
    assert cluster_.nodes
    return count


def test_a_collection_takes_no_longer_for_more_devices() -> None:
    # A collection after 5,000 nodes changed would stop all decisions for a tenth of a second.
    count_collected(1)  # Fills caches.

    assert count_collected(2) == count_collected(16)


@pytest.mark.parametrize(
    ("name", "odd", "pending"),
    [
        ("a model that the selector reads", cards("n3", "T4"), BY_MODEL),
        ("equal values that a constraint compares", cards("n3", uuid="same"),
         claim(request(count=2), constraints=[match(UUID)])),
    ],
)  # fmt: skip
def test_fields_that_the_claims_read_divide_classes(
    name: str, odd: ResourceSlice, pending: ResourceClaim
) -> None:
    cluster_ = cluster([cards("n1"), cards("n2"), odd])

    assert 2 == len(cluster_.verdicts(cluster_.resolve([pending])).classes), name


def test_fields_that_the_claims_do_not_read_divide_no_class() -> None:
    cluster_ = cluster([cards("n1"), cards("n2", serial="x"), cards("n3", serial="y")])

    assert 1 == len(cluster_.verdicts(cluster_.resolve([BY_MODEL])).classes)


def test_an_allocation_counts_until_it_is_released() -> None:
    cluster_ = cluster([cards(name) for name in NAMES])
    claim_ = allocated_claim(result("gpu-1", pool="n2"))

    cluster_.allocate(claim_)
    fits_ = fits(cluster_.verdicts(cluster_.resolve([BY_MODEL])))
    cluster_.release(claim_)
    free = fits(cluster_.verdicts(cluster_.resolve([BY_MODEL])))

    assert {"n1": True, "n2": False, "n3": True} == fits_
    assert dict.fromkeys(NAMES, True) == free


def test_a_plan_can_be_added_to_the_usage() -> None:
    cluster_ = cluster([cards("n1")])
    pending = cluster_.resolve([BY_MODEL])
    plan = cluster_.verdict(pending, "n1")
    assert isinstance(plan, Plan)
    (allocation,) = allocations(plan, pending, cluster_.options.features, share_ids("test"))

    cluster_.allocate(allocated_claim(*(allocation.devices.results or ())))

    assert not any(fits(cluster_.verdicts(pending)).values())


def test_slices_and_nodes_come_and_go() -> None:
    cluster_ = cluster([cards("n1")])
    pending = cluster_.resolve([BY_MODEL])
    documents = [fits(cluster_.verdicts(pending))]
    for old, new in ((None, cards("n2")), (cards("n1"), cards("n1", "T4")), (cards("n2"), None)):
        cluster_.replace_slices([(old, new)])
        documents.append(fits(cluster_.verdicts(pending)))
    cluster_.replace_node("n4", node("n4"))
    cluster_.replace_slices([(None, cards("n4"))])
    documents.append(fits(cluster_.verdicts(pending)))
    cluster_.replace_node("n4", None)
    documents.append(fits(cluster_.verdicts(pending)))

    none = dict.fromkeys(NAMES, False)
    assert [
        none | {"n1": True},
        none | {"n1": True, "n2": True},
        none | {"n2": True},
        none,
        none | {"n4": True},
        none,
    ] == documents


def test_verdicts_of_some_nodes() -> None:
    cluster_ = cluster([cards(name) for name in NAMES])

    assert {"n2"} == set(
        fits(cluster_.verdicts(cluster_.resolve([BY_MODEL]), nodes={"n2", "unknown"}))
    )


def test_nodes_that_declare_other_features_share_no_verdict() -> None:
    slices = [slice_of(*devices("gpu-0"), pool=name, skip_node_operations=("*",)) for name in NAMES]
    cluster_ = Cluster(
        slices=slices,
        nodes=[node("n1", features=[OPTIONAL_OPERATIONS]), node("n2"), node("n3")],
        claims=(),
        classes=classes(),
        options=AllocatorOptions(features=Features(optional_node_operations=True)),
    )
    pending = cluster_.resolve([claim(request())])

    assert fits(cluster_.verdicts(pending)) == {"n1": True, "n2": False, "n3": False}
    assert [name for name, _ in cluster_.rank_nodes(pending).nodes] == ["n1"]


def test_an_error_names_a_device_of_the_first_node_that_counts() -> None:
    cluster_ = cluster([cards(name) for name in NAMES])
    pending = cluster_.resolve([claim(request("gpu", "device.attributes['none'].none == 1"))])

    def error(*usable: str) -> str:
        with pytest.raises(AttemptFailed) as raised:
            cluster_.rank_nodes(pending, may_use=usable.__contains__)
        return str(raised.value)

    assert "/n1/" in error("n1", "n2")
    assert "/n2/" in error("n2", "n3")
    assert "/n1/" in error("n1")


def test_an_invalid_slice_only_fails_verdicts_about_its_nodes() -> None:
    wrong = NodeSelectorRequirement(key="zone", operator="Near", values=("a",))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(wrong,)),))
    unreadable = slice_of(device("gpu-0"), pool="zone-a", selector=selector)
    cluster_ = cluster([cards("n1"), unreadable])

    assert () == cluster_.node_devices("n1").pools
    with pytest.raises(AttemptFailed, match="ResourceSlice zone-a-slice: failed to parse"):
        cluster_.verdicts(cluster_.resolve([BY_MODEL]))

    cluster_.replace_slices([(unreadable, None)])

    assert fits(cluster_.verdicts(cluster_.resolve([BY_MODEL]))) == {
        "n1": True,
        "n2": False,
        "n3": False,
    }


def test_plans_are_made_for_nodes_that_count() -> None:
    """A selector that fails on another node's device does not end the attempt, as upstream's Filter."""
    searched: list[str] = []

    def may_use(name: str) -> bool:
        searched.append(name)
        return name == "node-1"

    cluster = Cluster(
        slices=[
            slice_of(device("gpu-0", attributes={"index": 1}), pool="node-1"),
            slice_of(device("gpu-0"), pool="node-2"),
        ],
        nodes=[node("node-1"), node("node-2")],
        claims=(),
        classes=classes(),
        options=AllocatorOptions(),
    )
    pending = cluster.resolve([claim(request("gpu", f'device.attributes["{DRIVER}"].index == 1'))])

    plans = cluster.node_plans(pending, may_use=may_use)
    assert (plans.fitting("node-1") is None, plans.fitting("node-2") is None) == (False, True)
    assert set(searched) == {"node-1", "node-2"}
    with pytest.raises(AttemptFailed):
        cluster.node_plans(pending)
