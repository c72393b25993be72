"""The matrix of a policy, of groups that slices declare, and groups derived from rules."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.compatibility.compile import compile_policy
from allocator.compatibility.matrix import (
    MAX_KINDS,
    Matrix,
    Relation,
    as_groups,
    build_matrix,
    device_kinds,
    list_reasons,
    render_matrix,
)
from allocator.model.outcome import RejectionReason
from kube.api.policy import DeviceCompatibilityPolicy, Scope, Undeclared
from kube.api.resource import Device
from testing.allocation.builders import attribute_of, consumes, device, policy, pool_of, rule
from testing.allocation.cases import example

MODE = attribute_of("mode")


FOUR_MODES = "|          | whole | fraction | mig | mps | devices |\n| -------- | ----- | -------- | --- | --- | ------- |\n| whole    | ✗     | ✗        | ✗   | ✗   | 2       |\n| fraction | ✗     | ✓        | ✗   | ✓   | 4       |\n| mig      | ✗     | ✗        | ✓   | ✗   | 6       |\n| mps      | ✗     | ✓        | ✗   | ✓   | 4       |\n✓ may be in use together, ✗ may not\n"


def test_the_four_modes() -> None:
    modes, node = example()

    assert FOUR_MODES == render_matrix(build_matrix(compile_policy(modes), node.devices))


def test_the_four_modes_as_groups() -> None:
    modes, node = example()

    groups = as_groups(compile_policy(modes), node.devices)

    assert not isinstance(groups, RejectionReason)
    assert {
        "gpu-0": ("whole",),
        "gpu-0-fraction-0": ("fraction-mps",),
        "gpu-0-mig-0": ("mig",),
        "gpu-0-mps-0": ("fraction-mps",),
    } == {
        group.device: names
        for group, names in groups.items()
        if group.device in {"gpu-0", "gpu-0-fraction-0", "gpu-0-mig-0", "gpu-0-mps-0"}
    }


def of_mode(*modes: str | None) -> Sequence[Device]:
    return [
        device(f"d{number}", consumes(), attributes={} if mode is None else {"mode": mode})
        for number, mode in enumerate(modes)
    ]


class Case(NamedTuple):
    name: str
    want: Relation
    reason: str
    policy: DeviceCompatibilityPolicy


def two(a: str | None, b: str | None, undeclared: Undeclared = Undeclared.ISOLATED) -> DeviceCompatibilityPolicy:  # fmt: skip
    """Rules for modes a and b that demand this of others."""
    return policy(
        rule("a", f'{MODE} == "a"', only=a), rule("b", f'{MODE} == "b"', only=b),
        undeclared=undeclared,
    )  # fmt: skip


GROUPED = policy(rule("a", f'{MODE} == "a"', groups="x"), rule("b", f'{MODE} == "b"', groups="y"))
HALF = policy(rule("a", f'{MODE} == "a"', groups="x"), rule("b", f'{MODE} == "b"'))

CASES = (
    Case("neither minds the other", Relation.COMPATIBLE, "", two("true", None)),
    Case("both mind", Relation.INCOMPATIBLE,
         "the rules of a and b do not accept each other", two("false", "false")),
    Case("only one minds", Relation.ONE_SIDED,
         "the rule of b does not accept a", two("true", "false")),
    Case("a rule gives no answer", Relation.ERROR,
         "the rule of a gives no result on b: no such key: x",
         two(f'{attribute_of("x")} == "1"', "true")),
    Case("groups differ", Relation.INCOMPATIBLE, "compatibility groups {x} and {y} have none in common", GROUPED),
    Case("one has no group", Relation.INCOMPATIBLE, "compatibility groups {x} beside a device that declares none", HALF),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cell(case: Case) -> None:
    table = build_matrix(compile_policy(case.policy), pool_of(*of_mode("a", "b")).devices)

    cell = table.cell("a", "b")

    assert (case.want, case.reason) == (cell.relation, cell.reason)
    assert case.want == table.cell("b", "a").relation
    assert case.reason in "".join(list_reasons(table))


def test_without_a_policy_the_groups_of_slices_are_shown() -> None:
    devices = pool_of(
        device("a", consumes(groups=["mig"])),
        device("b", consumes(groups=["mig", "soft"])),
        device("c", consumes()),
    ).devices

    table = build_matrix(None, devices)

    assert ["mig", "mig,soft", "undeclared"] == [kind.name for kind in table.kinds]
    assert Relation.COMPATIBLE is table.cell("mig", "mig,soft").relation
    assert Relation.INCOMPATIBLE is table.cell("mig", "undeclared").relation


def test_devices_of_one_rule_that_others_tell_apart_are_two_kinds() -> None:
    by = policy(rule("all", only=f'{MODE} == "a"'))

    table = build_matrix(compile_policy(by), pool_of(*of_mode("a", "b")).devices)

    assert ["all like d0", "all like d1"] == [kind.name for kind in table.kinds]


def test_kinds_whose_first_devices_are_namesakes_are_told_apart_by_their_pools() -> None:
    by = policy(rule("all", only=f'{MODE} == "a"'))
    devices = [*pool_of(*of_mode("a"), pool="x").devices, *pool_of(*of_mode("b"), pool="y").devices]

    names = [
        [kind.name for kind in device_kinds(compile_policy(by), devices)]
        for devices in (devices, devices[::-1])
    ]

    assert [["all like x/d0", "all like y/d0"]] * 2 == names


def test_a_matrix_is_bounded() -> None:
    names = [f"d{number}" for number in range(MAX_KINDS + 2)]
    by = policy(*(rule(name, f'{MODE} == "{name}"') for name in names))

    table = build_matrix(compile_policy(by), pool_of(*of_mode(*names)).devices)

    assert (MAX_KINDS, 2) == (len(table.kinds), table.omitted)
    assert render_matrix(table).endswith("2 more kinds\n✓ may be in use together\n")


def test_no_devices_make_an_empty_matrix() -> None:
    assert Matrix(driver="", policy="", kinds=(), cells=()).kinds == build_matrix(None, []).kinds


# --- groups ---------------------------------------------------------------------------------------


def star(points: int) -> DeviceCompatibilityPolicy:
    """A center that goes together with each of the points; these exclude each other."""
    names = [f"p{number}" for number in range(points)]
    center = rule("center", f'{MODE} == "center"', only=f'{MODE} != "center"')
    return policy(
        center, *(rule(name, f'{MODE} == "{name}"', only=f'{MODE} == "center"') for name in names)
    )


@pytest.mark.parametrize(
    ("want", "by", "devices"),
    [
        pytest.param(
            {"d0": ("center-p0", "center-p1"), "d1": ("center-p0",), "d2": ("center-p1",)},
            star(2), of_mode("center", "p0", "p1"), id="two groups for whom two sets accept",
        ),
        pytest.param(
            "center is in 3 maximal sets of compatible kinds (center-p0, center-p1, center-p2); a device can have at most 2 groups",
            star(3), of_mode("center", "p0", "p1", "p2"), id="three sets are too many",
        ),
        pytest.param(
            {"d0": ("alone-0",), "d1": ("alone-1",)},
            policy(rule("alone", only="false")), of_mode("a", "a"),
            id="devices that exclude their like have a group each",
        ),
        pytest.param(
            {"d0": ("one-two-0",), "d1": ("one-two-1",)},
            policy(rule("one", groups="x"), rule("two", groups="y")), of_mode("a", "a"),
            id="devices to which two rules give disjoint groups have a group each",
        ),
        pytest.param(
            {"d0": ("one-two-0-undeclared",), "d1": ("one-two-1-undeclared",),
             "d2": ("one-two-0-undeclared", "one-two-1-undeclared")},
            policy(
                rule("one", f'{MODE} == "a"', groups="x"),
                rule("two", f'{MODE} == "a"', groups="y"),
                undeclared=Undeclared.COMPATIBLE,
            ),
            of_mode("a", "a", "b"),
            id="a device with disjoint groups goes together with compatible undeclared ones",
        ),
        pytest.param({"d0": (), "d1": ()}, policy(), of_mode("a", "b"), id="all go together"),
        pytest.param(
            {"d0": ("group-0",), "d1": ("b-c",)},
            policy(
                rule("x" * 64, f'{MODE} == "a"', groups="x"),
                rule("B.c", f'{MODE} == "b"', groups="y"),
            ),
            of_mode("a", "b"),
            id="names of groups have the format of the API",
        ),
        pytest.param(
            "scope Pool relates devices of different counter sets, which groups cannot express",
            policy(scope=Scope.POOL), of_mode("a"), id="the scope of a pool",
        ),
        pytest.param(
            "devices of undeclared consume no counters, so they cannot declare groups",
            policy(), [device("a")], id="no counters",
        ),
        pytest.param(
            "devices of a / b declare different groups on different sets",
            policy(), [device("a", consumes("x", groups="a"), consumes("y", groups="b"))],
            id="groups that differ from set to set",
        ),
    ],
)  # fmt: skip
def test_as_groups(
    want: dict[str, tuple[str, ...]] | str, by: DeviceCompatibilityPolicy, devices: Sequence[Device]
) -> None:
    groups = as_groups(compile_policy(by), pool_of(*devices).devices)

    assert want == (
        groups.detail
        if isinstance(groups, RejectionReason)
        else {group.device: names for group, names in groups.items()}
    )
