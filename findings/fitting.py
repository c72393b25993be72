"""The amounts that would fit, beside the words of a finding."""

from collections.abc import Sequence

import msgspec

from findings.field_path import FieldPath
from kube.quantity import Quantity


class FittingAmount(msgspec.Struct, frozen=True, kw_only=True):
    """A count, or an amount of a capacity, that a claim would have to request.

    Attributes:
        claim: The path in the object of the claim, or of the reference to it.
        field: The field below the claim's `devices`.
    """

    claim: FieldPath
    field: FieldPath
    amount: Quantity


class FittingAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """The smaller numbers that would let an object fit a node, or a quota.

    Attributes:
        amounts: One for each field to change; never empty.
        node: The node; empty where they are about a quota.
        quota: The kind and name of the quota that has this much left for now; empty otherwise.
    """

    amounts: tuple[FittingAmount, ...]
    node: str = ""
    quota: str = ""


class OtherValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a selector would have to require instead of another one; both without quotes."""

    before: str
    after: str


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a claim that chooses among devices: selectors of a request, or a constraint.

    Attributes:
        claim: The path in the object of the claim, or of the reference to it.
        field: The field below the claim's `devices`.
        value: The value to require; None where the choice is to be wider.
    """

    claim: FieldPath
    field: FieldPath
    value: OtherValue | None = None


class WiderChoices(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of devices that would have to be wider for an object to fit a node.

    Attributes:
        choices: One for each field to change; never empty.
    """

    choices: tuple[Choice, ...]
    node: str


class DroppedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a claim; all others would fit a node.

    Attributes:
        claim: The path in the object of the claim, or of the reference to it.
        index: The index of the request in the claim.
    """

    claim: FieldPath
    index: int


def drop_one(names: Sequence[str]) -> str:
    """Return the advice to drop one of some requests of a pod, or to divide them; empty without any.

    >>> drop_one(["request a", "request b"])
    'drop request a, or drop request b (either is enough), or request them in pods of their own: no node has both'
    """
    if not names:
        return ""
    if len(names) == 1:
        return f"drop {names[0]}, or request it in a pod of its own: no node has all of them"
    dropped = ", or ".join(f"drop {name}" for name in names)
    enough, both = ("either", "both") if len(names) == 2 else ("one of them", "all of them")
    return (
        f"{dropped} ({enough} is enough), or request them in pods of their own: no node has {both}"
    )


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """An amount that a fix writes into the object.

    Attributes:
        path: The place of the amount in the object, whether there is one already or not. Where it is a
            limit, an equal request is meant, too.
    """

    path: FieldPath
    amount: Quantity


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """A text that a fix writes in place of another one.

    Attributes:
        path: The place of the text in the object.
        before: The text that is replaced; where there is another one, nothing is.
    """

    path: FieldPath
    before: str
    after: str


class Renaming(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a map that a fix spells in another way.

    Attributes:
        path: The place of the value in the object, which ends with the key. Where it is a limit, a
            request is meant, too.
        name: The key as it should be.
    """

    path: FieldPath
    name: str


Rewrite = Replacement | Renaming
"""A fix that changes a text rather than an amount."""
