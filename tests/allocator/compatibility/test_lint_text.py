"""Findings that the text of a policy proves by itself."""

from typing import NamedTuple

import pytest

from allocator.compatibility.lint_findings import Code, Severity
from allocator.compatibility.lint_text import MAX_EVALUATIONS, lint_text
from kube.api.policy import MAX_RULES, DeviceCompatibilityPolicy
from testing.allocation.builders import DRIVER, attribute_of, policy, rule
from testing.allocation.cases import example

MODE = attribute_of("mode")


def is_mode(*modes: str) -> str:
    listed = ", ".join(f'"{mode}"' for mode in modes)
    return f"{MODE} in [{listed}]" if len(modes) > 1 else f"{MODE} == {listed}"


def modes(mig: str, mps: str) -> DeviceCompatibilityPolicy:
    """A policy for two modes, with the devices that each accepts."""
    return policy(
        rule("mig", is_mode("MIGSlicing"), only=mig), rule("mps", is_mode("MPSSharing"), only=mps)
    )


class Case(NamedTuple):
    name: str
    want: tuple[Code, str, str]
    policy: DeviceCompatibilityPolicy


CASES = (
    Case(
        "one rule accepts what refuses it",
        (
            Code.ASYMMETRIC_RULE,
            "spec.rules[0].compatibleOnlyWith.cel.expression",
            "rule mig accepts no device of rule mps, although the reverse is true; they are incompatible",
        ),
        modes(is_mode("MIGSlicing"), is_mode("MIGSlicing", "MPSSharing")),
    ),
    Case(
        "a rule that accepts everything beside one that accepts nothing",
        (
            Code.ASYMMETRIC_RULE,
            "spec.rules[1].compatibleOnlyWith.cel.expression",
            "rule mps accepts no device of rule mig, although the reverse is true; they are incompatible",
        ),
        modes("true", "false"),
    ),
    Case(
        "selectors that exclude each other",
        (
            Code.NEVER_TRUE_RULE,
            "spec.rules[0].selectors",
            "rule mig selects no device: no attributes make its selectors true",
        ),
        policy(rule("mig", is_mode("MIGSlicing"), is_mode("MPSSharing"), groups="x")),
    ),
    Case(
        "an expression that no device satisfies",
        (
            Code.NEVER_TRUE_RULE,
            "spec.rules[0].compatibleOnlyWith.cel.expression",
            (
                'compatibleOnlyWith of rule mig is false for every device; write "false" if no other '
                "device may be in use beside its devices"
            ),
        ),
        policy(rule("mig", only=f"{is_mode('a')} && {is_mode('b')}")),
    ),
    Case(
        "an attribute that is spelt otherwise elsewhere",
        (
            Code.UNKNOWN_ATTRIBUTE,
            "spec.rules[0].compatibleOnlyWith.cel.expression",
            f"rule mig reads {DRIVER}/partitionMod, which no other rule reads; did you mean {DRIVER}/partitionMode?",
        ),
        policy(
            rule(
                "mig",
                f'{attribute_of("partitionMode")} == "a"',
                only=f'{attribute_of("partitionMod")} == "a"',
            ),
            rule("mps", f'{attribute_of("partitionMode")} == "b"', groups="x"),
        ),
    ),
    Case(
        "a domain that is nearly the driver's",
        (
            Code.UNKNOWN_ATTRIBUTE,
            "spec.rules[0].selectors[0].cel.expression",
            f"rule mig reads gpu.exmaple.com/mode, which no other rule reads; did you mean {DRIVER}/mode?",
        ),
        policy(rule("mig", 'device.attributes["gpu.exmaple.com"].mode == "a"', groups="x")),
    ),
    Case(
        "a text that is spelt otherwise in a selector",
        (
            Code.UNKNOWN_LITERAL,
            "spec.rules[0].compatibleOnlyWith.cel.expression",
            (
                f'rule mig accepts {DRIVER}/mode "MPSSharng", which no rule selects; did you mean "MPSSharing"?'
            ),
        ),
        modes(is_mode("MIGSlicing", "MPSSharng"), is_mode("MIGSlicing", "MPSSharing")),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lint_text(case: Case) -> None:
    findings = lint_text(case.policy)

    assert case.want in [
        (finding.code, str(finding.path), f"{finding.message}; {finding.fix}".rstrip("; "))
        for finding in findings
    ]
    assert {Severity.WARNING} == {finding.severity for finding in findings}


@pytest.mark.parametrize(
    "sound",
    [
        pytest.param(example()[0], id="the example"),
        pytest.param(
            modes(is_mode("MIGSlicing"), is_mode("MPSSharing")), id="modes that keep to themselves"
        ),
        pytest.param(modes("false", "false"), id="modes that accept nobody"),
        pytest.param(
            policy(rule("all", only="true"), rule("mig", is_mode("mig"), only=is_mode("mig"))),
            id="a rule of all devices beside a rule of some",
        ),
        pytest.param(
            policy(
                rule("big", f"{MODE}.startsWith('a')", only="true"),
                rule("small", is_mode("b"), only="false"),
            ),
            id="a selector that texts alone do not decide",
        ),
        pytest.param(
            policy(rule("one", is_mode("gpu-0"), only=is_mode("gpu-1"))),
            id="texts that differ in a number",
        ),
        pytest.param(
            policy(rule("a", is_mode("a"), only='device.attributes["other.org"].mode == "a"')),
            id="an attribute of another domain",
        ),
        pytest.param(policy(rule("a", "device.", only="device.")), id="what does not compile"),
        pytest.param(
            policy(
                *(
                    rule(f"r{number}", f'{attribute_of(f"a{number}")} == "x"', only="false")
                    for number in range(MAX_EVALUATIONS.bit_length())
                ),
                rule("all", only="true"),
            ),
            id="more combinations than are tried",
        ),
        pytest.param(
            policy(*(rule(f"r{number}", "false", only="false") for number in range(MAX_RULES + 1))),
            id="more rules than the API server accepts",
        ),
    ],
)
def test_nothing_is_doubtful_about(sound: DeviceCompatibilityPolicy) -> None:
    assert () == lint_text(sound)
