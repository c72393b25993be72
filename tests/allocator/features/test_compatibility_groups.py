from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.features import compatibility_groups as groups
from allocator.model.constraint import RemainingDemand
from allocator.model.devices import NodeDevices, Pool
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason
from allocator.model.usage import DeviceUse, Usage
from testing.allocation.builders import consumes, device, node_with, pool_of, resolved_request

REQUEST = resolved_request()
HELD = DeviceUse(exclusive=True)
ON = Features(compatibility_groups=True)


def grouped_pool(*memberships: str, elsewhere: Sequence[str] = ()) -> Pool:
    """Devices a, b, c... on one set, in the groups that each text spells; `-` is none."""

    def build(names: str, spelled: Sequence[str]) -> list[object]:
        return [
            device(name, consumes(groups=None if text == "-" else text))
            for name, text in zip(names, spelled, strict=False)
        ]

    return pool_of(*build("abcd", memberships), elsewhere=build("wxyz", elsewhere))  # type: ignore[arg-type]


def used(pool: Pool, *names: str) -> Usage:
    return Usage(pools={pool.id: dict.fromkeys(names, HELD)})


class Case(NamedTuple):
    want: list[bool]
    name: str
    pool: Pool
    held_names: Sequence[str] = ()


CASES = (
    Case([True, True], "a common group", grouped_pool("m", "m")),
    Case([True, False], "no common group", grouped_pool("m", "v")),
    Case([True, True, False], "overlap in pairs is not enough", grouped_pool("ab", "bc", "ca")),
    Case([True, True, True], "one group common to all", grouped_pool("ab", "bc", "bd")),
    Case([True, True, False], "none beside none, not beside some", grouped_pool("-", "-", "m")),
    Case([True, False, True], "some beside some, not beside none", grouped_pool("m", "-", "m")),
    Case([False, False, True], "an allocated device counts", grouped_pool("m", "-", "v"), "c"),
    Case([False, True], "an allocated device of another node counts",
         grouped_pool("m", "v", elsewhere=["v"]), "w"),
    Case([True, False, True, False], "groups of an inconsistent baseline: first with, then without",
         grouped_pool("m", "v", "m", "-"), "ad"),
    Case([True, False, True], "groups of an inconsistent baseline: first without, then with",
         grouped_pool("-", "m", "-"), "ab"),
    Case([False, False, False], "members with nothing in common admit nobody",
         grouped_pool("m", "v", "-"), "ab"),
    Case([True, False], "what is no longer published counts nothing", grouped_pool("m", "v"), "z"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_add(case: Case) -> None:
    node = node_with(case.pool)
    constraint = groups.build_constraint(node, used(case.pool, *case.held_names), ON)
    assert constraint is not None

    got_values = [
        constraint.add(REQUEST, position, further_share=False)
        for position in range(len(node.devices))
    ]

    assert case.want == got_values


def spanning() -> NodeDevices:
    return node_with(pool_of(
        device("a", consumes("one", groups="m")),
        device("b", consumes("two", groups="v")),
        device("c", consumes("one", groups="v"), consumes("two", groups="v")),
        device("d"),
    ))  # fmt: skip


def test_every_counter_set_of_a_device_has_to_accept_it() -> None:
    constraint = groups.build_constraint(spanning(), Usage(), ON)
    assert constraint is not None

    assert constraint.add(REQUEST, 0, further_share=False)
    assert constraint.add(REQUEST, 1, further_share=False)
    assert not constraint.add(REQUEST, 2, further_share=False)
    assert constraint.add(REQUEST, 3, further_share=False)


def test_sets_of_one_name_in_two_pools_do_not_mix() -> None:
    pools = (grouped_pool("m"), pool_of(device("a", consumes(groups="v")), pool="other"))
    constraint = groups.build_constraint(node_with(*pools), Usage(), ON)
    assert constraint is not None

    assert constraint.add(REQUEST, 0, further_share=False)
    assert constraint.add(REQUEST, 1, further_share=False)


def test_groups_are_not_compared_for_a_further_share() -> None:
    constraint = groups.build_constraint(node_with(grouped_pool("m", "v")), Usage(), ON)
    assert constraint is not None

    assert constraint.add(REQUEST, 0, further_share=False)
    assert constraint.add(REQUEST, 1, further_share=True)


def test_remove_restores_the_allowed_positions() -> None:
    constraint = groups.build_constraint(node_with(grouped_pool("ab", "bc", "ca")), Usage(), ON)
    assert constraint is not None
    assert constraint.add(REQUEST, 0, further_share=False)
    assert constraint.add(REQUEST, 1, further_share=False)

    constraint.remove(REQUEST, 1, further_share=False)

    assert constraint.add(REQUEST, 2, further_share=False)


@pytest.mark.parametrize(
    ("want", "first", "second"),
    [
        (
            "compatibility groups {v} (devices in use on counter set set-0 have {a, b} in common)",
            "ab",
            "v",
        ),
        (
            "no compatibility groups (devices in use on counter set set-0 have {m} in common)",
            "m",
            "-",
        ),
        (
            "compatibility groups {m} (devices in use on counter set set-0 have none in common)",
            "-",
            "m",
        ),
        (
            "compatibility groups {v} (devices in use on counter set set-0 have {a, b, c, d, e} in common)",
            "abcde",
            "v",
        ),
        (
            "compatibility groups {v} (devices in use on counter set set-0 have {a, b, c, d, e, 2 more} in common)",
            "abcdefg",
            "v",
        ),
    ],
)
def test_rejection_names_the_groups(want: str, first: str, second: str) -> None:
    constraint = groups.build_constraint(node_with(grouped_pool(first, second)), Usage(), ON)
    assert constraint is not None
    assert constraint.add(REQUEST, 0, further_share=False)

    rejection = constraint.rejection(REQUEST, 1, further_share=False)

    assert rejection is not None
    assert (Reason.GROUPS, want) == (rejection.reason, rejection.detail)


def test_no_constraint_without_gate_or_groups() -> None:
    assert groups.build_constraint(node_with(grouped_pool("m")), Usage(), Features()) is None
    assert groups.build_constraint(node_with(grouped_pool("-")), Usage(), ON) is None


def test_rejection_if_devices_have_no_common_group() -> None:
    pool = grouped_pool("m", "v", "m")
    constraint = groups.build_constraint(node_with(pool), used(pool, "a", "b"), ON)
    assert constraint is not None

    rejection = constraint.rejection(REQUEST, 2, further_share=False)

    assert rejection is not None
    assert (
        rejection.detail
        == "compatibility groups {m} (devices in use on counter set set-0 have none in common)"
    )
    assert constraint.rejection(REQUEST, 2, further_share=True) is None


def test_drivers_of_enforced_policies_are_left_out() -> None:
    pools = (grouped_pool("m", "v"), pool_of(device("a", consumes(groups="v")), driver="other"))
    governed = frozenset({pools[0].id.driver})
    constraint = groups.build_constraint(node_with(*pools), Usage(), ON, governed)
    assert constraint is not None

    assert [True, True] == [constraint.add(REQUEST, at, further_share=False) for at in (0, 1)]
    assert (
        constraint.equivalence_key(0)
        == constraint.equivalence_key(1)
        != constraint.equivalence_key(2)
    )


def test_the_residual_key_has_counter_sets_of_remaining_devices() -> None:
    pools = (grouped_pool("m", "m"), pool_of(device("a", consumes(groups="v")), pool="other"))
    constraint = groups.build_constraint(node_with(*pools), Usage(), ON)
    assert constraint is not None
    first, second = (RemainingDemand(claim=0, index=0, positions=mask) for mask in (0b011, 0b100))
    before = constraint.state_key(), constraint.residual_key(first), constraint.residual_key(second)

    assert constraint.add(REQUEST, 0, further_share=False)

    assert before[0] != constraint.state_key()
    assert before[1] != constraint.residual_key(first)
    assert before[2] == constraint.residual_key(second)
