"""Exclusion is symmetric, knows no order, and is the same for pairs, sets, the search and groups."""

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from typing import Final, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.compatibility import constraint as compatibility
from allocator.compatibility.compile import CompiledPolicy, compile_policy
from allocator.compatibility.matrix import as_groups
from allocator.compatibility.pairs import evaluate_devices, evaluate_pair
from allocator.features import compatibility_groups as groups
from allocator.model.devices import DeviceId, Pool, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.outcome import RejectionReason
from allocator.model.requests import PendingClaims
from allocator.model.usage import DeviceUse, Usage
from kube.api.policy import CompatibilityRule, DeviceCompatibilityPolicy, Scope, Undeclared
from kube.api.resource import Device
from testing.allocation.builders import (
    attribute_of,
    claim,
    consumes,
    device,
    node_with,
    policy,
    pool_of,
    resolved_request,
    rule,
)

pytestmark = pytest.mark.property

REQUEST: Final = resolved_request()
ASKED: Final = PendingClaims(claims=(claim(),), requests=(((REQUEST,),),))
MODE: Final = attribute_of("mode")
EXPRESSIONS: Final = (
    "true",
    "false",
    f'{MODE} == "a"',
    f'{MODE} != "a"',
    f'{attribute_of("?mode")}.orValue("") in ["a", "b"]',
    MODE,
    "device.allowMultipleAllocations",
    "device.attributes[",
)
HARMLESS: Final = tuple(EXPRESSIONS[place] for place in (0, 1, 4, 6))
"""The expressions that always answer."""

names: Final = st.sampled_from(("x", "y", "z"))


def rules(expressions: Sequence[str]) -> st.SearchStrategy[CompatibilityRule]:
    return st.builds(
        lambda name, where, only, named: rule(name, *where, only=only, groups=named),
        st.sampled_from(("one", "two", "three")),
        st.lists(st.sampled_from(expressions), max_size=1),
        st.none() | st.sampled_from(expressions),
        st.none() | st.sets(names, min_size=1).map(sorted),
    )


def policies(
    expressions: Sequence[str] = EXPRESSIONS, scopes: Sequence[Scope] = tuple(Scope)
) -> st.SearchStrategy[DeviceCompatibilityPolicy]:
    return st.builds(
        lambda rules_, undeclared, scope: policy(*rules_, undeclared=undeclared, scope=scope),
        st.lists(rules(expressions), max_size=3, unique_by=lambda rule_: rule_.name),
        st.sampled_from(Undeclared),
        st.sampled_from(scopes),
    )


def devices(
    sets: Sequence[Sequence[str]] = ((), ("one",), ("two",), ("one", "two")),
    size: int = 4,
    modes: Sequence[str | None] = ("a", "b", None),
) -> st.SearchStrategy[list[Device]]:
    """Devices without and with counters; some of them name their hardware."""
    builds = st.builds(
        lambda on, declared, mode, uuid, shared: device(
            "unnamed",
            *(consumes(name, groups=declared) for name in on),
            attributes={
                key: value for key, value in (("mode", mode), ("uuid", uuid)) if value is not None
            },
            shared=shared,
        ),
        st.sampled_from(sets),
        st.none() | st.sets(names, min_size=1, max_size=2).map(sorted),
        st.sampled_from(modes),
        st.sampled_from(("gpu-0", "gpu-1", None)),
        st.booleans(),
    )
    return st.lists(builds, min_size=1, max_size=size).map(
        lambda devices: [
            msgspec.structs.replace(first_device, name=f"d{place}")
            for place, first_device in enumerate(devices)
        ]
    )


class Chosen(NamedTuple):
    """The devices that the search's constraint allowed, in order."""

    added: list[bool]
    constraint: compatibility.PolicyConstraint | None


def tried_chosen(
    pool: Pool, order: Sequence[int], by: CompiledPolicy, held_names: Sequence[str] = ()
) -> Chosen:
    usage = Usage(pools={pool.id: dict.fromkeys(held_names, DeviceUse(exclusive=True))})
    constraint = compatibility.build_constraint(node_with(pool), usage, (by,), ASKED, {})
    assert constraint is not None
    added = [constraint.add(REQUEST, place, further_share=False) for place in order]
    return Chosen(added, constraint)


@given(devices=devices(size=2), source=policies())
def test_a_pair_is_evaluated_alike_from_both_sides(
    devices: list[Device], source: DeviceCompatibilityPolicy
) -> None:
    by, pool = compile_policy(source), pool_of(*devices)
    first_device, other = pool.devices[0], pool.devices[-1]

    assert (
        evaluate_pair(by, first_device, other).is_compatible
        == evaluate_pair(by, other, first_device).is_compatible
    )


@given(devices=devices(), source=policies())
def test_whether_a_set_goes_together_depends_on_no_order(
    devices: list[Device], source: DeviceCompatibilityPolicy
) -> None:
    by, pool = compile_policy(source), pool_of(*devices)
    want = evaluate_devices(pool.devices, by).is_compatible

    for order in permutations(range(len(devices))):
        assert want == evaluate_devices([pool.devices[place] for place in order], by).is_compatible
        assert want == all(tried_chosen(pool, order, by).added)


@given(devices=devices(), source=policies(), data=st.data())
def test_what_is_held_counts_like_what_is_chosen(
    devices: list[Device], source: DeviceCompatibilityPolicy, data: st.DataObject
) -> None:
    """As long as it is consistent; and an allocation of any part of a set changes nothing."""
    by, pool = compile_policy(source), pool_of(*devices)
    split = data.draw(st.integers(0, len(devices) - 1))
    held_names = [first_device.name for first_device in devices[:split]]
    if not evaluate_devices(pool.devices[:split], by).is_compatible:
        return

    all_added = all(tried_chosen(pool, range(split, len(devices)), by, held_names).added)

    assert evaluate_devices(pool.devices, by).is_compatible == all_added


@given(devices=devices(), source=policies(), data=st.data())
def test_whoever_joins_inconsistent_tenants_is_refused(
    devices: list[Device], source: DeviceCompatibilityPolicy, data: st.DataObject
) -> None:
    by, pool = compile_policy(source), pool_of(*devices)
    drawn_value = data.draw(st.sampled_from(range(len(devices))))
    rest = [device_ for place, device_ in enumerate(pool.devices) if place != drawn_value]
    held_names = [first_device.id.device for first_device in rest]

    (added,) = tried_chosen(pool, [drawn_value], by, held_names).added

    assert (
        not added
        or evaluate_devices([*rest, pool.devices[drawn_value]], by).is_compatible
        or not meets_all(by, pool.devices[drawn_value], rest)
    )


def meets_all(
    by: CompiledPolicy, candidate: PublishedDevice, tenants: Sequence[PublishedDevice]
) -> bool:
    """Return True if a candidate shares a counter set with each of the tenants."""
    own = {consumption.counter_set for consumption in candidate.device.consumes_counters or ()}
    return bool(own) and all(
        own
        & {
            consumes_counter.counter_set
            for consumes_counter in tenant.device.consumes_counters or ()
        }
        for tenant in tenants
    )


@given(devices=devices(), source=policies())
def test_a_larger_set_is_never_easier(
    devices: list[Device], source: DeviceCompatibilityPolicy
) -> None:
    by, pool = compile_policy(source), pool_of(*devices)
    if evaluate_devices(pool.devices, by).is_compatible:
        for combination in combinations(pool.devices, len(devices) - 1):
            assert evaluate_devices(combination, by).is_compatible


@given(
    devices=devices(sets=(("one",),), size=5, modes=("a", "b", "c")),
    source=policies(HARMLESS, (Scope.PHYSICAL,)),
)
def test_derived_groups_say_what_the_rules_say(
    devices: list[Device], source: DeviceCompatibilityPolicy
) -> None:
    by, pool = compile_policy(source), pool_of(*devices)
    groups_ = as_groups(by, pool.devices)
    if isinstance(groups_, RejectionReason):
        return
    assert set(groups_) == {device_.id for device_ in pool.devices}
    declaring = pool_of(*(with_groups(device_, groups_) for device_ in pool.devices))

    for size in range(1, len(devices) + 1):
        for combination in combinations(range(len(devices)), size):
            want = evaluate_devices(
                [pool.devices[place] for place in combination], by
            ).is_compatible
            assert want == by_groups(declaring, combination)


def with_groups(
    first_device: PublishedDevice, derived: Mapping[DeviceId, tuple[str, ...]]
) -> Device:
    return device(first_device.id.device, consumes("one", groups=derived[first_device.id] or None))


def by_groups(pool: Pool, numbers: Sequence[int]) -> bool:
    constraint = groups.build_constraint(
        node_with(pool), Usage(), Features(compatibility_groups=True)
    )
    return constraint is None or all(
        constraint.add(REQUEST, place, further_share=False) for place in numbers
    )
