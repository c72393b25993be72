"""The rules that apply to a device, and rules that cannot be evaluated."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from allocator.compatibility.compile import FaultKind, Profile, compile_policy
from allocator.model.devices import PublishedDevice
from kube.api.policy import CompatibilityRule, CompatibleOnlyWith
from kube.api.resource import DeviceSelector
from testing.allocation.builders import (
    Attribute,
    Version,
    attribute_of,
    device,
    policy,
    pool_of,
    rule,
)

MODE = attribute_of("mode")
IS_A = f'{MODE} == "a"'
IS_B = f'{attribute_of("?mode")}.orValue("") == "b"'
SYNTAX = "device.attributes["
BEYOND = 'ip("10.0.0.1").family() == 4'


def gpu(**attributes: Attribute) -> PublishedDevice:
    return pool_of(device(attributes=attributes)).devices[0]


A, B, PLAIN = gpu(mode="a"), gpu(mode="b"), gpu()


class Case(NamedTuple):
    name: str
    rules: tuple[CompatibilityRule, ...]
    device: PublishedDevice
    names: tuple[str, ...] = ()
    groups: set[str] | None = None
    accepts: tuple[str, ...] = ()
    doubts: tuple[tuple[FaultKind, bool], ...] = ()


CASES = (
    Case("no rules", (), A),
    Case("no selectors select every device", (rule("all", only="true"),), PLAIN, ("all",), None, ("true",)),
    Case("all selectors have to be true", (rule("ab", IS_A, IS_B, groups="g"),), A),
    Case("a selector that is false", (rule("b", IS_B, groups="g"),), A),
    Case("groups of one rule", (rule("a", IS_A, groups="gh"),), A, ("a",), {"g", "h"}),
    Case("empty groups are none", (rule("a", IS_A, groups=""),), A, ("a",)),
    Case("of several rules those groups that all name",
         (rule("one", groups="gh"), rule("two", groups="hi")), A, ("one", "two"), {"h"}),
    Case("that may be none", (rule("one", groups="g"), rule("two", groups="h")), A,
         ("one", "two"), set()),
    Case("a rule without groups takes none away", (rule("one", groups="g"), rule("two")), A,
         ("one", "two"), {"g"}),
    Case("expressions of several rules add up, each once",
         (rule("one", only=IS_A), rule("two", only=IS_B), rule("three", only=IS_A)), A,
         ("one", "two", "three"), None, (IS_A, IS_B)),
    Case("a selector that fails leaves doubt", (rule("a", IS_A, groups="g"),), PLAIN,
         doubts=((FaultKind.FAILED, False),)),
    Case("one that gives no boolean, too", (rule("a", MODE, groups="g"),), A,
         doubts=((FaultKind.NOT_BOOLEAN, False),)),
    Case("unless another is false", (rule("a", IS_A, IS_B),), PLAIN),
    Case("a selector that does not compile is final", (rule("a", SYNTAX),), A,
         doubts=((FaultKind.INVALID, True),)),
    Case("unless another is false, again", (rule("a", SYNTAX, IS_B),), A),
    Case("an expression that does not compile, on its devices", (rule("a", IS_A, only=SYNTAX),), A,
         ("a",), doubts=((FaultKind.INVALID, True),)),
    Case("and on no others", (rule("a", IS_B, only=SYNTAX),), A),
    Case("an expression that is beyond us", (rule("a", IS_A, only=BEYOND),), A,
         ("a",), doubts=((FaultKind.NOT_EVALUATED, True),)),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_profile(case: Case) -> None:
    by = compile_policy(policy(*case.rules))

    profile = by.profile(case.device)

    assert case.names == profile.rules
    assert case.groups == profile.groups
    assert list(case.accepts) == [by.expressions[accept].expression for accept in profile.accepts]
    assert list(case.doubts) == [(doubt.kind, doubt.is_final) for doubt in profile.doubts]
    assert profile.is_usable == (not any(is_final for _, is_final in case.doubts))


def test_what_is_not_cel_cannot_be_evaluated() -> None:
    unknown = CompatibilityRule(
        name="later",
        selectors=(DeviceSelector(),),
        compatible_only_with=CompatibleOnlyWith(),
    )

    by = compile_policy(policy(unknown))

    assert [FaultKind.NOT_EVALUATED] * 2 == [fault.kind for fault in by.faults]
    assert not by.profile(A).is_usable


def test_faults_tell_their_place() -> None:
    faults = compile_policy(policy(rule("fine"), rule("bad", IS_A, SYNTAX, only=BEYOND))).faults

    assert [
        ("spec.rules[1].selectors[1].cel.expression", FaultKind.INVALID),
        ("spec.rules[1].compatibleOnlyWith.cel.expression", FaultKind.NOT_EVALUATED),
    ] == [(str(fault.path), fault.kind) for fault in faults]


@pytest.mark.parametrize(
    ("want", "document", "other"),
    [
        pytest.param(True, {"uuid": "1"}, {"uuid": "2"}, id="what no expression looks at"),
        pytest.param(False, {"mode": "a"}, {"mode": "b"}, id="what one looks at"),
        pytest.param(
            True, {"mode": "c"}, {"mode": "d"}, id="another value that makes no difference"
        ),
        pytest.param(
            False,
            {"mode": "a"},
            {"mode": "a", "v": Version("no version")},
            id="a value that spoils every expression",
        ),
    ],
)
def test_devices_that_are_alike_have_one_profile(
    want: bool, document: Mapping[str, Attribute], other: Mapping[str, Attribute]
) -> None:
    by = compile_policy(policy(rule("a", IS_A, only=IS_B), rule("b", IS_B, only="true")))

    profiles: list[Profile] = [by.profile(gpu(**document)) for document in (document, other)]

    assert want == (profiles[0] is profiles[1])
