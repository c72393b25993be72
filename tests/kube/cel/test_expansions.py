"""Expressions that grow by their macros, and are rejected before they are expanded."""

from typing import Final

import pytest

from kube.cel.compile import compile_in_place
from kube.cel.expansions import MAX_DOUBLINGS, count_doublings
from kube.cel.library import Environment, checking_environment
from kube.cel.syntax import decode_parsed, walk
from kube.errors import SelectorTooCostly

ONE: Final = "optional.of(1)"
MAP: Final = ".optMap(v, v)"
FLAT: Final = ".optFlatMap(v, optional.of(v))"


@pytest.mark.parametrize(
    ("doublings", "expression"),
    [
        (0, f"{ONE}.hasValue()"),
        (1, f"{ONE}{MAP}.hasValue()"),
        (2, f"{ONE}{FLAT}{MAP}.hasValue()"),
        (3, f"{ONE}{MAP} . optMap ( v , v ){MAP}.hasValue()"),
        (1, f"{ONE}{MAP}.hasValue() || {ONE}{MAP}.hasValue()"),
        (1, f"[{ONE}{MAP}, {ONE}{MAP}].size() == 2"),
        (2, f"optional.of([{ONE}{MAP}]){MAP}.hasValue()"),
        (2, f"({ONE}{MAP}){MAP}.hasValue()"),
        (3, f"(true ? {ONE}{MAP}{MAP} : {ONE}){MAP}.hasValue()"),
        (2, f"{ONE}.optMap(v, {ONE}{MAP}{MAP}.hasValue()).hasValue()"),
        (2, f"optional.of({{'a': {ONE}{MAP}}}).?a{FLAT}.hasValue()"),
        (2, f"{ONE}.optMap(v, {{'a': v}}).?a{MAP}.hasValue()"),
        (1, f"'{MAP}{MAP}'.size() > 0 || {ONE}{MAP}.hasValue() // {MAP}{MAP}"),
        (4, f"{ONE}{MAP}[?{ONE}{MAP}{MAP}.value()]{MAP}{MAP}.hasValue()"),
        (0, "]}) true"),
    ],
)
def test_the_number_of_doublings(doublings: int, expression: str) -> None:
    assert doublings == count_doublings(expression)


@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize(
    "form",
    [
        f"({ONE}CHAIN).hasValue()",
        f"optional.of([{ONE}CHAIN, {ONE}CHAIN]){MAP}.hasValue()",
        f"(true ? {ONE}CHAIN : {ONE}CHAIN){FLAT}.hasValue()",
        f"{ONE}.optMap(v, {ONE}CHAIN.hasValue()).hasValue()",
        f"optional.of({ONE}CHAIN == {ONE}CHAIN){MAP}.hasValue()",
    ],
)
def test_an_expression_grows_no_more_than_its_doublings_say(form: str, count: int) -> None:
    expression = form.replace("CHAIN", MAP * count)
    parsed = checking_environment(Environment.STORED).compile(expression, disable_check=True)

    size = len(list(walk(decode_parsed(parsed.serialize()).expr)))

    # No character makes more than a node, and no macro more than ten.
    assert size <= (len(expression) + 10 * expression.count("opt")) * 2 ** count_doublings(
        expression
    )


@pytest.mark.parametrize("count", [MAX_DOUBLINGS + 1, 18])
def test_an_expression_that_grows_too_much_is_not_expanded(count: int) -> None:
    """Eighteen of them, in 248 characters, would be some million nodes."""
    with pytest.raises(SelectorTooCostly, match=f"doubles a part of it {count} times"):
        compile_in_place(f"{ONE}{MAP * count}.hasValue()", Environment.STORED)


def test_an_expression_that_grows_as_much_as_it_may_is_expanded() -> None:
    assert compile_in_place(f"{ONE}{MAP * MAX_DOUBLINGS}.hasValue()", Environment.STORED).cost > 100
