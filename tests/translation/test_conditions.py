"""Conditions on devices, and the CEL that expresses them."""

import pytest

from kube.quantity import Quantity
from translation.compiling.conditions import Condition, Relation, select

ATTRIBUTES = 'device.attributes["a.b"]'
CAPACITY = 'device.capacity["a.b"]'
PRESENT = f'"x" in {ATTRIBUTES}'


@pytest.mark.parametrize(
    ("want", "relation", "values"),
    [
        (PRESENT, Relation.PRESENT, ()),
        (f'{PRESENT} && {ATTRIBUTES}.x == "a\\"b"', Relation.EQUAL, ('a"b',)),
        (f"{PRESENT} && {ATTRIBUTES}.x == true", Relation.EQUAL, (True,)),
        (f"{PRESENT} && {ATTRIBUTES}.x == 3", Relation.EQUAL, (3,)),
        (f'{PRESENT} && {ATTRIBUTES}.x in ["a", "b"]', Relation.ONE_OF, ("a", "b")),
        (
            f'{PRESENT} && {ATTRIBUTES}.x.lowerAscii().contains("a")',
            Relation.CONTAINS,
            ("a",),
        ),
        (
            (
                f'{PRESENT} && ({ATTRIBUTES}.x.lowerAscii().contains("a") || '
                f'{ATTRIBUTES}.x.lowerAscii().contains("b"))'
            ),
            Relation.CONTAINS,
            ("a", "b"),
        ),
        (
            f'"x" in {CAPACITY} && {CAPACITY}.x.compareTo(quantity("8Gi")) == 0',
            Relation.SAME_AMOUNT,
            (Quantity("8Gi"),),
        ),
        (
            f'"x" in {CAPACITY} && {CAPACITY}.x.compareTo(quantity("8Gi")) >= 0',
            Relation.AT_LEAST,
            (Quantity("8Gi"),),
        ),
        (
            (
                f'"x" in {CAPACITY} && {CAPACITY}.x.compareTo(quantity("8Gi")) >= 0 && '
                f'"x" in {CAPACITY} && {CAPACITY}.x.compareTo(quantity("9Gi")) <= 0'
            ),
            Relation.BETWEEN,
            (Quantity("8Gi"), Quantity("9Gi")),
        ),
    ],
)
def test_a_condition_tests_presence_before_the_value(
    want: str, relation: Relation, values: tuple[str | int | Quantity, ...]
) -> None:
    plain = Condition(domain="a.b", name="x", relation=relation, values=values)
    negated = Condition(domain="a.b", name="x", relation=relation, values=values, negated=True)

    assert (want, f"!({want})") == (plain.expression, negated.expression)


def test_a_selector_requires_one_of_its_conditions() -> None:
    x, y = (Condition(domain="a.b", name=name, relation=Relation.PRESENT) for name in "xy")

    assert f'({PRESENT}) || ("y" in {ATTRIBUTES})' == select("count", x, y).expression
    assert PRESENT == select("count", x).expression
