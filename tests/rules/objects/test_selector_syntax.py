"""The fix of selectors with the syntax of other languages."""

import pytest

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
        (f'"8Gi" <= {CAPACITY}.memory', GENERAL.replace(">=", "<=")),
    ],
)
def test_the_fix_of_a_compared_quantity_has_its_operand_and_amount(
    expression: str, fix: str
) -> None:
    (finding, *_) = findings_of(claim(exactly(selectors=[cel(expression)])), Context())

    assert (finding.code, finding.fix) == ("invalidSelector", fix)
    assert bool(finding.rewrites) is fix.startswith("write")
