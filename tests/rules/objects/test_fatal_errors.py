"""Selectors with a part that is always an error: denied only if no other part leaves them a way to be true."""

from typing import Final

import pytest
from cel_expr_python import cel as engine

from findings.finding import Code
from rules.context.context import Context
from rules.context.rule import Scope
from rules.engine.registry import RULES
from testing.documents import cel, claim, device_class, exactly
from testing.rule_cases import findings_of

A: Final = 'device.attributes["a.example.com"]'
DRIVER: Final = 'device.driver == "a.example.com"'
MEMBER: Final = f'{A}.model.string == "A100"'
VERSION: Final = f'{A}.version.isLessThan(semver("1.2"))'
QUANTITY: Final = 'device.capacity["a.example.com"].memory.compareTo(quantity("40GB")) >= 0'

FATAL: Final = (
    "FAULT",
    f"{DRIVER} && FAULT",
    f"{DRIVER}&&FAULT&&true",
    "FAULT && 'a || b' != 'c ? d : e'",
    "FAULT // or: || true",
    f"{DRIVER} && ({DRIVER} && (FAULT))",
    "FAULT || FAULT",
    f"{DRIVER} && (FAULT || FAULT)",
    f"({DRIVER} || true) && FAULT",
    f"(true ? {DRIVER} : false) && FAULT",
    f'{A}.?kind.orValue("") == "a" && FAULT',
    "!has(device.attributes['b'].c) && FAULT",
    "['A100', 'H100'].exists(m, FAULT)",
    "(FAULT) == true",
)
AVOIDABLE: Final = (
    'device.driver != "a.example.com" || FAULT',
    f"!({DRIVER} && FAULT)",
    f"! ( {DRIVER} && FAULT )",
    f"({DRIVER} && FAULT) == false",
    f"false == ({DRIVER} && FAULT)",
    f"({DRIVER} && FAULT) != device.allowMultipleAllocations",
    f"{DRIVER} ? true : FAULT",
    f"{DRIVER} && FAULT ? false : true",
    f"{DRIVER} && (FAULT || true)",
    f"[{DRIVER} && FAULT].size() == 1",
    "device.attributes['b'].all(k, FAULT)",
    "!device.attributes['b'].exists(k, FAULT)",
    "device.attributes['b'].exists(k, FAULT) == false",
    "device.attributes['b'].filter(k, FAULT).size() == 0",
    "optional.of(true).orValue(FAULT)",
    f"cel.bind(f, FAULT, {DRIVER} || f)",
    f"{'(' * 60}FAULT{')' * 60}",
)
"""The last one is too deep to be read."""


def findings_about(expression: str) -> list[tuple[str, bool]]:
    """Return the codes of findings about a selector, with True for errors."""
    findings = findings_of(claim(exactly(selectors=[cel(expression)])), Context())
    return [(finding.code.value, finding.is_error) for finding in findings]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (MEMBER, Code.UNKNOWN_ATTRIBUTE_MEMBER),
        (f'{A.replace("com", "com/model")}.string == "A100"', Code.UNKNOWN_ATTRIBUTE_MEMBER),
        (VERSION, Code.INVALID_SELECTOR),
        (QUANTITY, Code.INVALID_SELECTOR),
    ],
    ids=["member", "qualified name", "version", "amount"],
)
@pytest.mark.parametrize(
    ("expression", "is_error"),
    [*((form, True) for form in FATAL), *((form, False) for form in AVOIDABLE)],
)
def test_an_error_that_leaves_a_way_to_be_true_is_a_warning(
    expression: str, is_error: bool, fault: str, code: Code
) -> None:
    assert findings_about(expression.replace("FAULT", fault)) == [(code.value, is_error)]


@pytest.mark.parametrize(
    "expression",
    [
        f"{A}.hint == '{A}.x.string'",
        f"{A}.hint == r'\\\\' && {A}.note != '{A}.x.string'",
        f"{DRIVER} // not {A}.x.string",
        f"{A}.hint == '{A.replace('com', 'com/x')}.string'",
    ],
)
def test_a_text_that_looks_like_a_member_is_no_finding(expression: str) -> None:
    assert findings_about(expression) == []


# --- the policies of the API server ---------------------------------------------------------------


def is_denied_by_the_api_server(expression: str) -> bool:
    """Evaluate the rule about members, as ValidatingAdmissionPolicies have it."""
    (rule,) = (
        rule
        for rule in RULES
        if rule.scope is Scope.CLASS and rule.code is Code.UNKNOWN_ATTRIBUTE_MEMBER
    )
    assert rule.cel is not None
    environment = engine.NewEnv(variables={"object": engine.Type.DYN})
    program = environment.compile(rule.cel.expression)
    return not program.eval(data={"object": device_class(expression)}).value()


@pytest.mark.parametrize(
    ("expression", "is_denied"),
    [
        *((form, True) for form in FATAL[:3]),
        *((form, False) for form in AVOIDABLE[:-1]),
        ("'it''s' != 'a' && FAULT", True),
        (f"{A}.hint == '{MEMBER}'", False),
        (f"{A}.hint == \"it's\" && {A}.note != '\\'{MEMBER}'", False),
    ],
)
def test_the_api_server_denies_no_more_than_the_webhook(expression: str, is_denied: bool) -> None:
    assert is_denied_by_the_api_server(expression.replace("FAULT", MEMBER)) is is_denied
