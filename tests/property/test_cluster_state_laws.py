"""Slices and claims that come and go one by one leave the state that a fresh start would find."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.node_selection import is_relevant
from allocator.model.pools import node_devices
from allocator.model.slice_index import build_index
from allocator.model.usage import Usage, gather_usage, with_claim, without_claim
from kube.api.core import Node
from kube.api.node_selector import NodeSelector, NodeSelectorTerm
from kube.api.resource import Device, ResourceClaim, ResourceSlice
from testing.allocation.builders import (
    allocated_claim,
    applied_configuration,
    consumes,
    counter_set,
    device,
    node,
    requirement,
    result,
    slice_of,
)

pytestmark = pytest.mark.property

NODES = tuple(
    node(name, zone=zone, rack=rack)
    for name, zone, rack in (("n1", "a", "x"), ("n2", "b", "x"), ("n3", "b", "y"))
)
FEATURES = st.builds(
    Features, partitionable_devices=st.booleans(), compatibility_groups=st.booleans()
)

requirements = st.sampled_from(
    (
        requirement("zone", "a"),
        requirement("zone", "b", "c"),
        requirement("rack", operator="Exists"),
        requirement("rack", "x", operator="NotIn"),
    )
)
terms = st.builds(
    NodeSelectorTerm,
    match_expressions=st.none() | st.lists(requirements, max_size=2).map(tuple),
    match_fields=st.none()
    | st.sampled_from(("n1", "n2")).map(lambda name: (requirement("metadata.name", name),)),
)
node_selectors = st.builds(NodeSelector, node_selector_terms=st.lists(terms, max_size=2).map(tuple))
places = st.one_of(
    st.builds(lambda name: {"node": name}, st.sampled_from(("n1", "n2", "n3"))),
    st.just({"all_nodes": True}),
    st.builds(lambda selector: {"selector": selector}, node_selectors),
)


@st.composite
def devices(draw: st.DrawFn) -> Device:
    drawn_value = draw(st.sampled_from((None, consumes(memory=1), consumes("none", groups=["x"]))))
    return device(
        draw(st.sampled_from("abc")),
        *((drawn_value,) if drawn_value else ()),
        **draw(places),
        binding_conditions=draw(st.sampled_from((None, ("ready",)))),
    )


@st.composite
def slices(draw: st.DrawFn, name: str) -> ResourceSlice:
    place = draw(places | st.just({"per_device": True}) | st.just({"per_device": False}))
    return slice_of(
        *draw(st.lists(devices(), max_size=3)),
        name=name,
        pool=draw(st.sampled_from(("p", "q"))),
        driver=draw(st.sampled_from(("d.example.com", "e.example.com"))),
        counters=draw(st.sampled_from(((), (), (counter_set(memory=8),)))),
        generation=draw(st.integers(1, 2)),
        count=draw(st.integers(1, 3)),
        **place,
    )


@st.composite
def listings(draw: st.DrawFn) -> tuple[ResourceSlice, ...]:
    names = draw(st.lists(st.sampled_from("klmnopqr"), max_size=6, unique=True))
    return tuple(draw(slices(name)) for name in names)


def describe(seen_node_devices: NodeDevices) -> object:
    """All that a node sees, with devices by the identity of their published form."""
    return (
        [
            (pool.id, pool.state, pool.why, sorted(pool.counter_sets))
            for pool in seen_node_devices.pools
        ],
        [
            [id(published_device.device) for published_device in pool.elsewhere]
            for pool in seen_node_devices.pools
        ],
        [
            (device_.id, id(device_.device), id(device_.slice))
            for device_ in seen_node_devices.devices
        ],
        seen_node_devices.pool_of,
        dict(seen_node_devices.positions),
    )


@given(listings(), listings(), FEATURES)
def test_slices_that_were_replaced_one_by_one(
    before: Sequence[ResourceSlice], after: Sequence[ResourceSlice], features: Features
) -> None:
    index = build_index(before, features)
    for first_node in NODES:
        node_devices(index, first_node)
    slices = {slice_.metadata.name: slice_ for slice_ in after}
    for old in before:
        index = index.replace(old, slices.pop(old.metadata.name, None))
    for new in slices.values():
        index = index.replace(None, new)
    known = {slice_.metadata.name for slice_ in before}
    kept_slices = {
        slice_.metadata.name: slice_ for slice_ in after if slice_.metadata.name in known
    }
    listed_slices = [
        kept_slices[old.metadata.name] for old in before if old.metadata.name in kept_slices
    ]
    listed_slices += [slice_ for slice_ in after if slice_.metadata.name not in known]
    fresh = build_index(listed_slices, features)

    for first_node in NODES:
        assert describe(node_devices(fresh, first_node)) == describe(
            node_devices(index, first_node)
        )


@given(listings(), st.sampled_from(NODES), FEATURES)
def test_a_node_is_shown_nothing_but_relevant_slices(
    listed_slices: Sequence[ResourceSlice], seer: Node, features: Features
) -> None:
    slices = build_index(listed_slices, features)
    devices_ = node_devices(slices, seer)

    relevant = {slice_.metadata.name for slice_ in listed_slices if is_relevant(slice_, seer)}
    assert {device_.slice.metadata.name for device_ in devices_.devices} <= relevant
    # A slice that needs a gate which is off does not make its pool's older slices stale.
    hidden = {
        slice_.name for pool in slices.by_pool.values() for slice_ in pool if slice_.is_hidden
    }
    newest = {
        (slice_.spec.driver, slice_.spec.pool.name): slice_.spec.pool.generation
        for slice_ in sorted(listed_slices, key=lambda slice_: slice_.spec.pool.generation)
        if slice_.metadata.name in relevant - hidden
    }
    assert all(
        device_.slice.spec.pool.generation == newest[device_.id.driver, device_.id.pool]
        for device_ in devices_.devices
    )


@given(listings(), st.sampled_from(NODES), FEATURES)
def test_slices_of_other_pools_do_not_matter(
    listed_slices: Sequence[ResourceSlice], seer: Node, features: Features
) -> None:
    devices_ = node_devices(build_index(listed_slices, features), seer)

    for pool in devices_.pools:
        own = [
            slice_
            for slice_ in listed_slices
            if (slice_.spec.driver, slice_.spec.pool.name) == (pool.id.driver, pool.id.pool)
        ]
        (alone,) = node_devices(build_index(own, features), seer).pools
        assert (pool.state, pool.why) == (alone.state, alone.why)
        assert [device_.device for device_ in pool.devices] == [
            device_.device for device_ in alone.devices
        ]


@st.composite
def consumers(draw: st.DrawFn) -> ResourceClaim:
    results = draw(
        st.lists(
            st.builds(
                result,
                st.sampled_from("ab"),
                request=st.sampled_from(("r", "r/s")),
                pool=st.sampled_from(("p", "q")),
                share=st.none() | st.sampled_from(("1", "2", "3")),
                consumed=st.none()
                | st.dictionaries(st.sampled_from(("m", "c")), st.integers(0, 3), max_size=2),
                admin_access=st.sampled_from((None, None, True)),
            ),
            max_size=4,
        )
    )
    config = draw(
        st.lists(
            st.sampled_from((applied_configuration(a=1), applied_configuration("r", a=2))),
            max_size=2,
        )
    )
    return allocated_claim(*results, name=draw(st.sampled_from("xyz")), config=config)


@given(st.lists(consumers(), max_size=5), consumers(), st.booleans())
def test_adding_and_removing_a_claim_restores_the_usage(
    held_claims: list[ResourceClaim], claim: ResourceClaim, shares: bool
) -> None:
    features = Features(consumable_capacity=shares)
    usage = gather_usage(held_claims, features)
    before = repr(usage)

    more = with_claim(usage, claim, features)

    assert gather_usage([*held_claims, claim], features) == more
    assert usage == without_claim(more, claim, features)
    assert before == repr(usage)


@given(st.lists(consumers(), max_size=5), st.randoms(use_true_random=False))
def test_removing_all_claims_in_any_order_leaves_no_usage(
    held_claims: list[ResourceClaim], chance: Random
) -> None:
    features = Features()
    usage = gather_usage(held_claims, features)
    objects = list(held_claims)
    chance.shuffle(objects)

    for object_ in objects:
        usage = without_claim(usage, object_, features)

    assert Usage() == usage
