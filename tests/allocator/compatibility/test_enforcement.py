"""Published groups that reject all that a policy rejects, so that kube-scheduler enforces it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from allocator.compatibility.compile import compile_policy
from allocator.compatibility.enforcement import groups_reject_the_same
from allocator.compatibility.matrix import as_groups
from allocator.model.outcome import RejectionReason
from kube.api.policy import Scope
from kube.api.resource import Device
from testing.allocation.builders import attribute_of, consumes, counter_set, device, policy, pool_of
from testing.allocation.builders import rule as written

MODE = attribute_of("mode")
SETS = (counter_set("a", x=9), counter_set("b", x=9))


def rule(name: str, *accepted: str, **more: Any) -> Any:
    texts = ", ".join(f'"{mode}"' for mode in accepted)
    return written(name, f'{MODE} == "{name}"', only=f"{MODE} in [{texts}]", **more)


APART = (rule("mig", "mig"), rule("mps", "mps"))


def partition(
    name: str, mode: str, groups: Sequence[str] | None, counters: str | None = "a"
) -> Device:
    consumed_consumptions = [] if counters is None else [consumes(counters, x=1, groups=groups)]
    return device(name, *consumed_consumptions, attributes={"mode": mode})


class Case(NamedTuple):
    name: str
    want: bool
    devices: Sequence[Device]
    rules: Sequence[Any] = APART
    spec: dict[str, Any] = {}  # noqa: RUF012 - a frozen row


CASES = (
    Case("each mode has a group of its own", True,
         (partition("1", "mig", ["mig"]), partition("2", "mps", ["mps"]))),
    Case("one mode has a group and the other none", True,
         (partition("1", "mig", ["mig"]), partition("2", "mps", None))),
    Case("no device has groups", False,
         (partition("1", "mig", None), partition("2", "mps", None))),
    Case("two modes that the policy keeps apart share a group", False,
         (partition("1", "mig", ["mig", "any"]), partition("2", "mps", ["any"]))),
    Case("groups are stricter than the policy", True,
         (partition("1", "mig", ["x"]), partition("2", "mps", ["y"]), partition("3", "mps", ["z"]))),
    Case("two devices of a mode that accepts none of its own share a group", False,
         (partition("1", "whole", ["w"]), partition("2", "whole", ["w"])), (rule("whole", "none"),)),
    Case("devices that the policy keeps apart are on different counter sets", True,
         (partition("1", "mig", ["g"]), partition("2", "mps", ["g"], "b"))),
    Case("a device consumes no counters", False,
         (partition("1", "mig", ["mig"]), partition("2", "mps", None, None))),
    Case("the policy relates all devices of a pool", False,
         (partition("1", "mig", ["mig"]), partition("2", "mps", ["mps"], "b")), APART,
         {"scope": Scope.POOL}),
    Case("a rule does not compile", False,
         (partition("1", "mig", ["mig"]),), (written("mig", only="device."),)),
    Case("groups of rules have none in common and those of slices have", False,
         (partition("1", "mig", ["g"]), partition("2", "mps", ["g"])),
         (written("mig", f'{MODE} == "mig"', groups=["x"]),
          written("mps", f'{MODE} == "mps"', groups=["y"]))),
    Case("there is no device", True, ()),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_groups_reject_the_same_where(case: Case) -> None:
    compiled_policy = compile_policy(policy(*case.rules, **case.spec))
    pool = pool_of(*case.devices, counters=SETS)

    assert case.want is groups_reject_the_same(compiled_policy, [pool.devices])


def test_every_pool_counts_and_without_pools_nothing_enforces() -> None:
    compiled_policy = compile_policy(policy(*APART))
    pool = pool_of(*CASES[0].devices, counters=SETS)
    plain = pool_of(*CASES[2].devices, counters=SETS, pool="plain")

    assert not groups_reject_the_same(compiled_policy, [pool.devices, plain.devices])
    assert not groups_reject_the_same(compiled_policy, [])


def test_groups_that_are_derived_from_a_policy_reject_the_same() -> None:
    modes = ("mig", "mps", "soft")
    compiled_policy = compile_policy(
        policy(rule("mig", "mig"), rule("mps", "mps", "soft"), rule("soft", "mps", "soft"))
    )
    plain = pool_of(*(partition(mode, mode, None) for mode in modes), counters=SETS)
    derived = as_groups(compiled_policy, plain.devices)
    assert not isinstance(derived, RejectionReason)
    groups = {id_.device: names for id_, names in derived.items()}
    pool = pool_of(*(partition(mode, mode, groups[mode]) for mode in modes), counters=SETS)

    assert groups_reject_the_same(compiled_policy, [pool.devices])
    assert not groups_reject_the_same(compiled_policy, [plain.devices])
