"""Conditions on devices as values, and the CEL expressions of selectors that require them.

User input reaches CEL only as quoted literals, and every attribute is tested for presence first,
because a CEL error ends the whole scheduling attempt.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from kube.api.resource import CelSelector, DeviceSelector
from kube.cel.quoting import quote
from kube.quantity import Quantity
from translation.profiles.profile import AttributeValue


class Relation(Enum):
    """A relation between an attribute or a capacity of a device and values."""

    PRESENT = auto()
    EQUAL = auto()
    ONE_OF = auto()
    CONTAINS = auto()
    """One of the values is in the attribute, ignoring case."""
    SAME_AMOUNT = auto()
    AT_LEAST = auto()
    BETWEEN = auto()
    """The capacity is at least the first amount and at most the second."""


_COMPARISONS: Final[Mapping[Relation, tuple[str, ...]]] = {
    Relation.SAME_AMOUNT: ("== 0",),
    Relation.AT_LEAST: (">= 0",),
    Relation.BETWEEN: (">= 0", "<= 0"),
}
"""Relation to the comparison of each amount of a capacity, with the result of `compareTo`."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on one attribute of a device, or on one capacity.

    Attributes:
        domain: The domain of the name of the attribute or capacity.
        name: The name without its domain.
        values: The values of an attribute, or the amounts of a capacity.
        negated: The devices that do not meet it are selected, also those without the attribute.
    """

    domain: str
    name: str
    relation: Relation
    values: tuple[AttributeValue | Quantity, ...] = ()
    negated: bool = False

    @property
    def expression(self) -> str:
        """Return the condition in CEL.

        >>> Condition(domain="a.b", name="rdma", relation=Relation.EQUAL, values=(True,)).expression
        '"rdma" in device.attributes["a.b"] && device.attributes["a.b"].rdma == true'
        """
        comparisons = _COMPARISONS.get(self.relation)
        expression = (
            self._attribute_tests() if comparisons is None else self._amount_tests(comparisons)
        )
        return f"!({expression})" if self.negated else expression

    def _attribute_tests(self) -> str:
        attributes = f"device.attributes[{quote(self.domain)}]"
        present = f"{quote(self.name)} in {attributes}"
        value = f"{attributes}.{self.name}"
        literals = list(map(_literal, self.values))
        match self.relation:
            case Relation.EQUAL:
                return f"{present} && {value} == {literals[0]}"
            case Relation.ONE_OF:
                return f"{present} && {value} in [{', '.join(literals)}]"
            case Relation.CONTAINS:
                tests = [f"{value}.lowerAscii().contains({literal})" for literal in literals]
                any_of = " || ".join(tests)
                return f"{present} && {f'({any_of})' if len(tests) > 1 else any_of}"
            case _:
                return present

    def _amount_tests(self, comparisons: Sequence[str]) -> str:
        capacity = f"device.capacity[{quote(self.domain)}]"
        return " && ".join(
            f"{quote(self.name)} in {capacity} && "
            f"{capacity}.{self.name}.compareTo(quantity({quote(str(amount))})) {comparison}"
            for amount, comparison in zip(self.values, comparisons, strict=True)
        )


def _literal(value: AttributeValue | Quantity) -> str:
    return quote(value) if isinstance(value, str) else str(value).lower()


class Selector(NamedTuple):
    """A selector of devices.

    Attributes:
        expression: The selector in CEL.
        conditions: The conditions of which a device meets at least one.
        aspect: The aspect of the intent that the selector expresses.
    """

    expression: str
    conditions: tuple[Condition, ...]
    aspect: str


def select(aspect: str, *conditions: Condition) -> Selector:
    """Return the selector of the devices that meet at least one condition."""
    if len(conditions) == 1:
        expression = conditions[0].expression
    else:
        expression = " || ".join(f"({condition.expression})" for condition in conditions)
    return Selector(expression, conditions, aspect)


def as_device_selectors(selectors: Sequence[Selector]) -> tuple[DeviceSelector, ...] | None:
    """Return the selectors of a request; None without any."""
    return (
        tuple(
            DeviceSelector(cel=CelSelector(expression=selector.expression))
            for selector in selectors
        )
        or None
    )
