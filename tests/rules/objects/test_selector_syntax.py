"""The fix of selectors with the syntax of other languages."""

import pytest

from rules.context.context import Context
from testing.rule_cases import EXAMPLE, cel, claim, exactly, findings_of


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
