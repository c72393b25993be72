from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.core import groups
from allocator.core.model import DeviceUse, Features, NodeDevices, Pool, Usage
from allocator.core.outcome import Reason
from allocator.core.tracker import Ahead
from tests.allocator.builders import consumes, device, node_with, pool_of, wanted

REQUEST = wanted()
HELD = DeviceUse(exclusive=True)
ON = Features(compatibility_groups=True)


def grouped(*memberships: str, elsewhere: Sequence[str] = ()) -> Pool:
    """Devices a, b, c... on one set, in the groups that each text spells; `-` is none."""

    def made(names: str, spelled: Sequence[str]) -> list[object]:
        return [
            device(name, consumes(groups=None if text == "-" else text))
            for name, text in zip(names, spelled, strict=False)
        ]

    return pool_of(*made("abcd", memberships), elsewhere=made("wxyz", elsewhere))  # type: ignore[arg-type]


def used(pool: Pool, *names: str) -> Usage:
    return Usage(pools={pool.id: dict.fromkeys(names, HELD)})


class Case(NamedTuple):
    want: list[bool]
    name: str
    pool: Pool
    held: Sequence[str] = ()


CASES = (
    Case([True, True], "a common group", grouped("m", "m")),
    Case([True, False], "no common group", grouped("m", "v")),
    Case([True, True, False], "overlap in pairs is not enough", grouped("ab", "bc", "ca")),
    Case([True, True, True], "one group common to all", grouped("ab", "bc", "bd")),
    Case([True, True, False], "none beside none, not beside some", grouped("-", "-", "m")),
    Case([True, False, True], "some beside some, not beside none", grouped("m", "-", "m")),
    Case([False, False, True], "an allocated device counts", grouped("m", "-", "v"), "c"),
    Case([False, True], "an allocated device of another node counts",
         grouped("m", "v", elsewhere=["v"]), "w"),
    Case([True, False, True, False], "groups of an inconsistent baseline: first with, then without",
         grouped("m", "v", "m", "-"), "ad"),
    Case([True, False, True], "groups of an inconsistent baseline: first without, then with",
         grouped("-", "m", "-"), "ab"),
    Case([False, False, False], "members with nothing in common admit nobody",
         grouped("m", "v", "-"), "ab"),
    Case([True, False], "what is no longer published counts nothing", grouped("m", "v"), "z"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_add(case: Case) -> None:
    node = node_with(case.pool)
    tracker = groups.tracker(node, used(case.pool, *case.held), ON)
    assert tracker is not None

    got = [
        tracker.add(REQUEST, position, further_share=False) for position in range(len(node.devices))
    ]

    assert case.want == got


def spanning() -> NodeDevices:
    return node_with(pool_of(
        device("a", consumes("one", groups="m")),
        device("b", consumes("two", groups="v")),
        device("c", consumes("one", groups="v"), consumes("two", groups="v")),
        device("d"),
    ))  # fmt: skip


def test_every_set_of_a_device_has_to_admit_it() -> None:
    tracker = groups.tracker(spanning(), Usage(), ON)
    assert tracker is not None

    assert tracker.add(REQUEST, 0, further_share=False)
    assert tracker.add(REQUEST, 1, further_share=False)
    assert not tracker.add(REQUEST, 2, further_share=False)
    assert tracker.add(REQUEST, 3, further_share=False)


def test_sets_of_one_name_in_two_pools_do_not_mix() -> None:
    pools = (grouped("m"), pool_of(device("a", consumes(groups="v")), pool="other"))
    tracker = groups.tracker(node_with(*pools), Usage(), ON)
    assert tracker is not None

    assert tracker.add(REQUEST, 0, further_share=False)
    assert tracker.add(REQUEST, 1, further_share=False)


def test_a_further_share_is_not_judged_again() -> None:
    tracker = groups.tracker(node_with(grouped("m", "v")), Usage(), ON)
    assert tracker is not None

    assert tracker.add(REQUEST, 0, further_share=False)
    assert tracker.add(REQUEST, 1, further_share=True)


def test_undo_widens_again() -> None:
    tracker = groups.tracker(node_with(grouped("ab", "bc", "ca")), Usage(), ON)
    assert tracker is not None
    assert tracker.add(REQUEST, 0, further_share=False)
    assert tracker.add(REQUEST, 1, further_share=False)

    tracker.undo(REQUEST, 1, further_share=False)

    assert tracker.add(REQUEST, 2, further_share=False)


@pytest.mark.parametrize(
    ("want", "first", "second"),
    [
        ("on counter set set-0: groups v beside groups a, b", "ab", "v"),
        ("on counter set set-0: devices without groups beside groups m", "m", "-"),
        ("on counter set set-0: groups m beside devices without groups", "-", "m"),
        ("on counter set set-0: groups v beside groups a, b, c, d, e", "abcde", "v"),
        ("on counter set set-0: groups v beside groups a, b, c, d, e and 2 more", "abcdefg", "v"),
    ],
)
def test_refusal_names_the_groups(want: str, first: str, second: str) -> None:
    tracker = groups.tracker(node_with(grouped(first, second)), Usage(), ON)
    assert tracker is not None
    assert tracker.add(REQUEST, 0, further_share=False)

    found = tracker.refusal(REQUEST, 1, further_share=False)

    assert found is not None
    assert (Reason.GROUPS, want) == (found.reason, found.detail)


def test_no_tracker_without_the_gate_or_without_groups() -> None:
    assert groups.tracker(node_with(grouped("m")), Usage(), Features()) is None
    assert groups.tracker(node_with(grouped("-")), Usage(), ON) is None


def test_refusal_where_members_have_nothing_in_common() -> None:
    pool = grouped("m", "v", "m")
    tracker = groups.tracker(node_with(pool), used(pool, "a", "b"), ON)
    assert tracker is not None

    found = tracker.refusal(REQUEST, 2, further_share=False)

    assert found is not None
    assert found.detail == "on counter set set-0: groups m beside no common group"
    assert tracker.refusal(REQUEST, 2, further_share=True) is None


def test_drivers_that_a_policy_governs_are_left_to_it() -> None:
    pools = (grouped("m", "v"), pool_of(device("a", consumes(groups="v")), driver="other"))
    governed = frozenset({pools[0].id.driver})
    tracker = groups.tracker(node_with(*pools), Usage(), ON, governed)
    assert tracker is not None

    assert [True, True] == [tracker.add(REQUEST, at, further_share=False) for at in (0, 1)]
    assert tracker.sees(0) == tracker.sees(1) != tracker.sees(2)


def test_outlook_is_of_the_sets_of_devices_ahead() -> None:
    pools = (grouped("m", "m"), pool_of(device("a", consumes(groups="v")), pool="other"))
    tracker = groups.tracker(node_with(*pools), Usage(), ON)
    assert tracker is not None
    first, second = (Ahead(claim=0, index=0, positions=mask) for mask in (0b011, 0b100))
    before = tracker.state(), tracker.outlook(first), tracker.outlook(second)

    assert tracker.add(REQUEST, 0, further_share=False)

    assert before[0] != tracker.state()
    assert before[1] != tracker.outlook(first)
    assert before[2] == tracker.outlook(second)
