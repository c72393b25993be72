"""The findings for authors: a row per code, and those that are reported once for many."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.compatibility.compile import compile_policy
from allocator.compatibility.lint import lint_pools
from allocator.compatibility.lint_findings import SEVERITIES, Code
from allocator.model.devices import Pool
from allocator.model.usage import Consumer, DeviceUse, Usage
from kube.api.policy import DeviceCompatibilityPolicy, Undeclared
from testing.allocation.builders import (
    attribute_of,
    consumes,
    counter_set,
    device,
    policy,
    pool_of,
    rule,
)
from testing.allocation.cases import example

MODE = attribute_of("mode")
NOBODY = policy()


def gpus(
    *modes: str,
    takes: int = 1,
    groups: Sequence[Sequence[str] | None] = (),
    shared: bool | None = None,
    pool: str = "node-1",
) -> Pool:
    """Devices d0, d1... of one counter set with 4 x; each takes so much of it."""
    named = groups or [None] * len(modes)
    return pool_of(
        *(
            device(
                f"d{place}",
                consumes(x=takes, groups=declared),
                attributes={"mode": mode},
                shared=shared,
            )
            for place, (mode, declared) in enumerate(zip(modes, named, strict=True))
        ),
        counters=[counter_set(x=4)],
        pool=pool,
    )


def rules(a: str | None = None, b: str | None = None) -> DeviceCompatibilityPolicy:
    """Rules of devices of mode a, and of mode b, that restrict others."""
    return policy(rule("a", f'{MODE} == "a"', only=a), rule("b", f'{MODE} == "b"', only=b))


def only(mode: str) -> str:
    return f'{MODE} == "{mode}"'


class Case(NamedTuple):
    want: Code
    message: str
    policy: DeviceCompatibilityPolicy | None
    pool: Pool
    allocated_names: Sequence[str] = ()


CASES = (
    Case(Code.RULE_INVALID, "rule a is invalid: compilation failed", rules("device."), gpus("a")),
    Case(Code.RULE_NOT_EVALUATED, "rule a cannot be evaluated: Drawbridge's CEL engine has no",
         rules('ip("10.0.0.1").family() == 4'), gpus("a")),
    Case(Code.RULE_EVALUATION_ERROR, "rule of d0 failed on d1: no such key: y",
         rules(f'{attribute_of("y")} == "1"'), gpus("a", "b")),
    Case(Code.RULE_EVALUATION_ERROR, "selector of rule a failed on d0: no such key: y",
         policy(rule("a", f'{attribute_of("y")} == "1"')), gpus("a")),
    Case(Code.RULE_NOT_BOOLEAN, "rule of d0 failed on d1: CEL result of type STRING",
         rules(MODE), gpus("a", "b")),
    Case(Code.INVALID_COMPATIBILITY_GROUPS, "d0 on counter set set-0: 3 groups, at most 2 are allowed", None,
         gpus("a", groups=["xyz"])),
    Case(Code.INVALID_COMPATIBILITY_GROUPS, "d0 on counter set set-0: group x is named twice", None, gpus("a", groups=["xx"])),
    Case(Code.INVALID_COMPATIBILITY_GROUPS, "d0 on counter set set-0: group 'X_' is not a lowercase name", None,
         gpus("a", groups=[["X_"]])),
    Case(Code.INVALID_COMPATIBILITY_GROUPS, "rule a: group x is named twice", policy(rule("a", groups="xx")),
         gpus("a")),
    Case(Code.ASYMMETRIC_RULE, "the rule of d0 does not accept d1, whose rule accepts d0; they are incompatible",
         rules(only("a"), "true"), gpus("a", "b")),
    Case(Code.RULE_GROUP_MISMATCH, "d0 and d1 are compatible by their rules, incompatible by their groups",
         rules("true", "true"), gpus("a", "b", groups=["x", "y"])),
    Case(Code.MIXED_DECLARATION, "on counter set set-0 d0 declares groups and d1 does not, so they are",
         None, gpus("a", "b", groups=["x", None])),
    Case(Code.NON_HELLY_GROUPS, "on counter set set-0 d0, d2 and d1 share groups in pairs, but not all three",
         None, gpus("a", "b", "c", groups=["xy", "yz", "zx"])),
    Case(Code.NEVER_TRUE_RULE, "rule a selects no device: no attributes make its selectors true",
         policy(rule("a", only("a"), only("b"), groups="x")), gpus("a", "b")),
    Case(Code.UNKNOWN_ATTRIBUTE, "rule a reads gpu.example.com/mod, which no published device has",
         policy(rule("a", f'{attribute_of("mod")} == "a"')), gpus("a")),
    Case(Code.UNKNOWN_LITERAL,
         'rule a compares gpu.example.com/mode with "A", which no published device has; they have '
         '"a", "b"',
         policy(rule("a", only("A"))), gpus("a", "b")),
    Case(Code.ALLOCATED_SET_INCONSISTENT,
         "incompatible devices are in use on counter set set-0 of pool node-1: claims team/of-d0, "
         "team/of-d1", rules("false"), gpus("a", "b"), ("d0", "d1")),
    Case(Code.ONE_SIDED_RULE, "the rule of d0 does not accept d1, which has no rule", rules(only("a")), gpus("a", "b")),
    Case(Code.EXCLUSIVE_BY_RULE, "the rule of d0 accepts none of the devices that counters allow beside it",
         rules("false"), gpus("a", "b")),
    Case(Code.LONELY_GROUP, "on counter set set-0 only d1 is in group y", None,
         gpus("a", "b", "c", groups=["x", "xy", "x"])),
    Case(Code.FULL_DEVICE, "d0 consumes all of its counter sets, so it needs no rule",
         NOBODY, gpus("a", takes=4)),
    Case(Code.SELF_REJECTING_SHARE, "the rule of d0, which can be shared, does not accept devices of its own",
         rules("false"), gpus("a", shared=True)),
    Case(Code.NEVER_CO_FIT, "d0 and d1 are compatible, but counters do not suffice for both",
         rules("true", "true"), gpus("a", "b", takes=3)),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.want}: {case.message}")
def test_findings(case: Case) -> None:
    by = None if case.policy is None else compile_policy(case.policy)
    use = {
        name: DeviceUse(
            exclusive=True,
            consumers=(Consumer(namespace="team", claim=f"of-{name}", request="gpu"),),
        )
        for name in case.allocated_names
    }

    findings = lint_pools(by, [case.pool], Usage(pools={case.pool.id: use} if use else {}))

    told_findings = [finding for finding in findings if finding.code is case.want]
    assert told_findings, [str(finding.code) for finding in findings]
    assert told_findings[0].message.startswith(case.message), told_findings[0].message
    assert SEVERITIES[case.want] is told_findings[0].severity


def test_every_code_has_a_row() -> None:
    assert set(Code) == {case.want for case in CASES}


@pytest.mark.parametrize(
    ("by", "pool"),
    [
        pytest.param(rules(only("a"), only("b")), gpus("a", "a", "b", "b"), id="symmetric rules"),
        pytest.param(None, gpus("a", "b", groups=["x", "x"]), id="groups that go together"),
        pytest.param(
            policy(rule("a", only("a"), groups="x"), undeclared=Undeclared.COMPATIBLE),
            gpus("a", "a", "b"),
            id="undeclared where that is compatible",
        ),
    ],
)
def test_nothing_is_doubtful_about(by: DeviceCompatibilityPolicy | None, pool: Pool) -> None:
    assert () == lint_pools(None if by is None else compile_policy(by), [pool], Usage())


def test_nothing_is_doubtful_about_the_example() -> None:
    modes, node = example()

    assert () == lint_pools(compile_policy(modes), node.pools, Usage())


def test_what_holds_in_many_pools_is_reported_once() -> None:
    pools = [gpus("a", "b", pool=f"node-{number}") for number in range(3)]

    findings = [
        lint_pool
        for lint_pool in lint_pools(compile_policy(rules(only("a"), "true")), pools, Usage())
        if lint_pool.code is Code.ASYMMETRIC_RULE
    ]

    assert [3] == [finding.count for finding in findings]


def test_errors_come_first() -> None:
    findings = lint_pools(compile_policy(rules("device.", "false")), [gpus("a", "b", "b")], Usage())

    assert [SEVERITIES[finding.code] for finding in findings] == sorted(
        (SEVERITIES[finding.code] for finding in findings), key=["error", "warning", "info"].index
    )
