"""Lines of a quota as amounts under the names of another kind of quota."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kube.quantity import Quantity
from migration.quotas.changes import total_amount
from migration.quotas.model import ClaimMeasure, FoundQuota, MeasuredLine


class LineAmounts(NamedTuple):
    """The lines of a quota that have a counterpart, and the others.

    Attributes:
        amounts: Name in the new quota to its amount.
        converted: Line to what it became, in words.
        not_convertible: Line to the reason why it has no counterpart.
    """

    amounts: Mapping[str, Quantity]
    converted: Mapping[str, str]
    not_convertible: Mapping[str, str]


def line_amounts(
    quota: FoundQuota,
    lines: Iterable[MeasuredLine],
    missing: Mapping[str, str],
    *,
    target: str,
    name_of: Callable[[ClaimMeasure], str],
    reason_of: Callable[[MeasuredLine], str],
) -> LineAmounts:
    """Return the amounts of lines; those of several lines for one name together.

    Args:
        lines: Its lines, measured.
        missing: Lines that measure nothing to the reason.
        target: The kind of the new quota.
        name_of: Returns the name in the new quota.
        reason_of: Returns why a line has no counterpart; empty where it has one.
    """
    not_convertible = {**quota.dropped, **missing}
    converted: dict[str, str] = {}
    entries: dict[str, list[MeasuredLine]] = {}
    for entry in lines:
        measure, reason = entry.measure, reason_of(entry)
        if measure is None or reason:
            not_convertible[entry.line.name] = reason
            continue
        name = name_of(measure)
        entries.setdefault(name, []).append(entry)
        converted[entry.line.name] = f"{name} of {target} {quota.name}"
    amounts = {name: total_amount(own) for name, own in entries.items()}
    return LineAmounts(amounts, converted, not_convertible)
