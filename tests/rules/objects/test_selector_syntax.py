"""The fix of selectors with the syntax of other languages."""

import pytest

from findings.fitting import Replacement
from rules.context.context import Context
from testing.documents import EXAMPLE, cel, claim, exactly
from testing.rule_cases import findings_of

CAPACITY = f'device.capacity["{EXAMPLE}"]'
GENERAL = 'compare quantities with x.compareTo(quantity("1Gi")) >= 0'


@pytest.mark.parametrize(
    ("expression", "fix"),
    [
        ("1 = 1 and true", "compare with ==; write && for and"),
        ("true or not false", "write || for or, ! for not"),
        ("'a and b' = 'c'", "compare with =="),
        (
            f'device.capacity["{EXAMPLE}"].memory >= 40Gi',
            'compare an amount with x.compareTo(quantity("40Gi")) >= 0',
        ),
        ('"and" and', "write && for and"),
        ("'\\' and", ""),
        ("true true", ""),
    ],
)
def test_the_fix_of_a_syntax_error_has_all_that_cel_writes_otherwise(
    expression: str, fix: str
) -> None:
    (finding, *_) = findings_of(claim(exactly(selectors=[cel(expression)])), Context())

    assert (finding.code, finding.fix) == ("invalidSelector", fix)


@pytest.mark.parametrize(
    ("expression", "fix"),
    [
        (f'{CAPACITY}.memory >= "8Gi"', f'write {CAPACITY}.memory.compareTo(quantity("8Gi")) >= 0'),
        (
            f"true && {CAPACITY}.memory < quantity('1.5Gi')",
            f'write {CAPACITY}.memory.compareTo(quantity("1.5Gi")) < 0',
        ),
        (f'{CAPACITY}.memory >= "8 GB"', GENERAL),
        (f'{CAPACITY}.memory >= "8Gi" && {CAPACITY}.cores > 5', GENERAL),
        (f'"8Gi" <= {CAPACITY}.memory', f'write {CAPACITY}.memory.compareTo(quantity("8Gi")) >= 0'),
        (f'"8Gi" != {CAPACITY}.memory', f'write {CAPACITY}.memory.compareTo(quantity("8Gi")) != 0'),
        (f'{CAPACITY}.memory == "8Gi"', f'write {CAPACITY}.memory.compareTo(quantity("8Gi")) == 0'),
        (f'"8 GB" == {CAPACITY}.memory', GENERAL.replace(">=", "==")),
    ],
)
def test_the_fix_of_a_compared_quantity_has_its_operand_and_amount(
    expression: str, fix: str
) -> None:
    (finding, *_) = findings_of(claim(exactly(selectors=[cel(expression)])), Context())

    assert (finding.code, finding.fix) == ("invalidSelector", fix)
    assert bool(finding.rewrites) is fix.startswith("write")


VERSION = f'device.attributes["{EXAMPLE}"].version'


@pytest.mark.parametrize(
    ("expression", "fix", "rewritten"),
    [
        (
            f'{VERSION}.compareTo(semver("8.9")) >= 0',
            'write semver("8.9.0")',
            f'{VERSION}.compareTo(semver("8.9.0")) >= 0',
        ),
        (
            f"{VERSION}.isGreaterThan(semver( 'v535.104.05' ))",
            'write semver("535.104.5")',
            f'{VERSION}.isGreaterThan(semver("535.104.5"))',
        ),
        (
            f'{VERSION}.isGreaterThan(semver("new"))',
            "semver needs three numbers, such as 1.2.3",
            "",
        ),
        (
            f'{CAPACITY}.memory.compareTo(quantity("40GiB")) >= 0',
            'write quantity("40Gi")',
            f'{CAPACITY}.memory.compareTo(quantity("40Gi")) >= 0',
        ),
        (
            f'{CAPACITY}.memory.compareTo(quantity("40 gb")) >= 0',
            'write quantity("40Gi") or quantity("40G")',
            "",
        ),
        (
            f'{CAPACITY}.memory.compareTo(quantity("half")) >= 0',
            "quantity needs an amount as Kubernetes writes it, such as 500m, 3Gi or 1e3",
            "",
        ),
    ],
)
def test_an_argument_that_its_function_does_not_read_is_an_error_on_every_device(
    expression: str, fix: str, rewritten: str
) -> None:
    (finding,) = findings_of(claim(exactly(selectors=[cel(expression)])), Context())

    assert (finding.code, finding.is_error, finding.fix) == ("invalidSelector", True, fix)
    assert "errors on every device" in finding.detail
    rewrite = Replacement(path=finding.path, before=expression, after=rewritten)
    assert finding.rewrites == ((rewrite,) if rewritten else ())


def test_an_argument_beside_an_alternative_is_a_warning() -> None:
    expression = f'device.driver == "a.example.com" || {VERSION}.isGreaterThan(semver("8.9"))'

    (finding,) = findings_of(claim(exactly(selectors=[cel(expression)])), Context())

    assert (finding.code, finding.is_error) == ("invalidSelector", False)


@pytest.mark.parametrize(
    "expression",
    [
        f'isSemver("8.9") || {VERSION}.isGreaterThan(semver("8.9", true))',
        f'{VERSION}.isGreaterThan(semver("8.9.0-rc.1+b"))',
        f"""device.attributes["{EXAMPLE}"].model == 'semver("8.9")'""",
        f'{CAPACITY}.memory.compareTo(quantity("1e3")) >= 0',
    ],
)
def test_an_argument_that_is_read_is_no_finding(expression: str) -> None:
    assert findings_of(claim(exactly(selectors=[cel(expression)])), Context()) == ()
