"""Wording that explanations share: bounded reasons, devices that differ in a value only, lists."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from allocator.explain.selector import one_line
from allocator.model.outcome import Reason, RejectionReason, Shortage

MAX_DETAIL: Final = 512
"""Characters of one part of a reason."""

_MAX_DISTINCT: Final = 5
"""Reasons of one kind that are reported of one request; of more, devices are counted together."""

_MAX_NAMED: Final = 4


def bound_rejection(rejection: RejectionReason) -> RejectionReason:
    """Return a reason with parts of bounded length, in one line."""
    return msgspec.structs.replace(
        rejection,
        subject=one_line(rejection.subject, MAX_DETAIL),
        value=one_line(rejection.value, MAX_DETAIL),
        remark=one_line(rejection.remark, MAX_DETAIL),
    )


Counts = Mapping[RejectionReason, int]
"""Reasons, each with its number of devices."""


def reduce_rejections(counts: Counts) -> tuple[Counts, Counts]:
    """Return the most frequent reasons of one kind, and one that stands for all others, if any.

    Where there are many, those that differ in their value only are reported together.
    """
    if len(counts) <= _MAX_DISTINCT:
        return counts, {}
    frequent = sorted(_merge_values(counts).items(), key=lambda entry: -entry[1])
    kept_rejections, others = frequent[:_MAX_DISTINCT], frequent[_MAX_DISTINCT:]
    if not others:
        return dict(kept_rejections), {}
    rest = RejectionReason(
        reason=others[0][0].reason, subject=f"rejected for {len(others)} other reasons"
    )
    return dict(kept_rejections), {rest: sum(count for _, count in others)}


def _merge_values(counts: Counts) -> Counts:
    values: dict[RejectionReason, dict[str, None]] = {}
    devices: dict[RejectionReason, int] = {}
    for rejection, count in counts.items():
        without_value = msgspec.structs.replace(rejection, value="")
        values.setdefault(without_value, {})[rejection.value] = None
        devices[without_value] = devices.get(without_value, 0) + count
    return {
        msgspec.structs.replace(rejection, value=enumerate_names(list(values[rejection]))): count
        for rejection, count in devices.items()
    }


def describe_devices(counts: Iterable[tuple[int, RejectionReason]], devices: int) -> str:
    """Describe the rejections of a node's devices, and the conflict as a whole.

    Args:
        counts: Reasons with their number of devices; 0 for a reason of the request as a whole.
        devices: The number of the node's devices.

    >>> from allocator.model.outcome import Verb
    >>> large = RejectionReason(
    ...     reason=Reason.SELECTOR, verb=Verb.HAVE, subject="memory", value="80Gi", remark="< 100Gi"
    ... )
    >>> small = msgspec.structs.replace(large, value="40Gi")
    >>> describe_devices([(2, small), (1, large)], 4)
    '2/4 devices have memory 40Gi (< 100Gi), 1/4 have 80Gi (< 100Gi)'
    """
    text = ""
    before: RejectionReason | None = None
    is_first = True
    for count, rejection in counts:
        words = rejection.predicate or rejection.reason.value
        if count and before is not None and _is_same_but_value(before, rejection):
            short = msgspec.structs.replace(rejection, subject="").predicate
            text += f", {count}/{devices} {short}"
        else:
            noun = " devices" if is_first else ""
            text += "; " if text else ""
            text += f"{count}/{devices}{noun} {words}" if count else words
            is_first &= not count
        before = rejection if count else None
    return text


def _is_same_but_value(reason: RejectionReason, other: RejectionReason) -> bool:
    return bool(reason.value and other.value) and (reason.verb, reason.subject) == (
        other.verb,
        other.subject,
    )


def node_shortage(reason: Reason, detail: str) -> Shortage:
    """Return a reason that is about no request."""
    rejection = RejectionReason(reason=reason, subject=one_line(detail, MAX_DETAIL))
    return Shortage(claim="", request="", rejection=rejection)


def enumerate_names(names: Sequence[str]) -> str:
    """Return names for people: `a, b and c`."""
    name_list = list(names)
    if len(name_list) > _MAX_NAMED:
        name_list = [*name_list[: _MAX_NAMED - 1], f"{len(name_list) - _MAX_NAMED + 1} more"]
    return (
        name_list[0] if len(name_list) == 1 else f"{', '.join(name_list[:-1])} and {name_list[-1]}"
    )


def count_nodes(count: int) -> str:
    """Return a number of nodes: `1 node`."""
    return "1 node" if count == 1 else f"{count:,} nodes"
