"""A relaxation: one thing of claims that can be changed, with its options."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from findings.field_path import FieldPath
from findings.fitting import OtherValue
from kube.api.resource import DeviceClaim
from kube.quantity import Quantity

Edit = Callable[[DeviceClaim], DeviceClaim]
"""Changes one thing in the spec of a claim."""


class Kind(StrEnum):
    """The part of a request that a relaxation changes."""

    COUNT = "count"
    CAPACITY = "capacity"
    SELECTOR = "selector"
    TOLERATION = "toleration"
    CONSTRAINT = "constraint"


class Option(NamedTuple):
    """One way to apply a relaxation.

    Attributes:
        detail: The change in the imperative: `request 2 devices`.
        amount: The count, or the amount of a capacity, to request; None for any other change.
        value: The value that a selector is to require instead of another; None for any other change.
        taints: The keys of the taints to tolerate; none for any other change.
    """

    cost: int
    detail: str
    edit: Edit
    amount: Quantity | None = None
    value: OtherValue | None = None
    taints: tuple[str, ...] = ()


class Relaxation(NamedTuple):
    """One thing that can be changed.

    Attributes:
        options: The options, from the least change to the most; never empty.
        field: The field below the claim's devices that gets the amount of an option, or the constraint;
            None of others.
        may_exclude: It may rule out devices that are suitable without it: those without a capacity
            that is now requested, or without room for the default amount.
    """

    claim: int
    request: str
    kind: Kind
    options: tuple[Option, ...]
    may_exclude: bool = False
    field: FieldPath | None = None


Applied = Mapping[Relaxation, int]
"""Relaxations that are applied, each with the index of its option."""
